"""An action of the user's own: an expression of order parameters, each with its domain, and of parameters.

    expression -> Action -> compiled function -> minimise, stationary -> Solution

Knows no theory. What a derivation arrives at and what is typed by hand are the same kind of object.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType

from sympy import Add, Expr, MatrixSymbol, S, Symbol

from ..arguments import checked_instance, checked_sequence, checked_whole_number, shown
from ..codegen import CompiledFunction, check_name, compile_expressions
from ..derivation import Derivation
from ..symbolic import GaussianAverage, gradient, latex, with_more_nodes, with_nodes
from ..symbolic.arguments import checked_scalar
from .domains import AbstractDomain

# the result of the compiled function that is the action's scale
SCALE = "scale"


@dataclass(frozen=True, eq=False)
class Action:
    """An action S, or a free energy, as a function of `order_parameters`, which is to be stationary in them.

    - `expression`: S, a scalar SymPy expression.
    - `order_parameters`: the domain of each, by symbol.
    - `parameters`: the symbols of all else that S depends on: numbers, matrices and columns of data. The sizes of
      matrices need not be among them where the shape of one that is given determines them.
    - `scale`: the large number that S is proportional to, such as N; gradients and curvatures are given per scale.
    - `derivation`: the steps that led to S, if they were recorded; `derivation.verify()` checks each.

    Raises `ValueError` for a symbol of S that is not declared, for an order parameter on which S does not depend, and
    for a domain that contradicts what its symbol is declared to be.

        >>> from sympy import cosh, log, symbols
        >>> from theorykit.saddle import Action, Real
        >>> m, beta = symbols("m beta", real=True)
        >>> curie_weiss = Action(beta * m**2 / 2 - log(2 * cosh(beta * m)), {m: Real()}, [beta])
        >>> curie_weiss.equations[m]
        beta*m - beta*sinh(beta*m)/cosh(beta*m)
    """

    expression: Expr
    order_parameters: Mapping[Expr, AbstractDomain]
    parameters: Sequence[Expr] = ()
    scale: Expr = S.One
    derivation: Derivation | None = field(default=None, repr=False)

    def __post_init__(self):
        fields = {
            "expression": checked_scalar("expression", self.expression),
            "order_parameters": _checked_domains(self.order_parameters),
            "parameters": _checked_symbols(self.parameters),
            "scale": checked_scalar("scale", self.scale),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        if self.derivation is not None:
            checked_instance("derivation", self.derivation, Derivation)
        _check_declared(self)

    @cached_property
    def _content(self) -> tuple:
        return self.expression, tuple(self.order_parameters.items()), self.parameters, self.scale

    def __eq__(self, other):
        return self._content == other._content if isinstance(other, Action) else NotImplemented

    def __hash__(self):
        return hash(self._content)

    def __getstate__(self):
        """The fields alone, of kinds that can be pickled."""
        return {
            "expression": self.expression,
            "order_parameters": dict(self.order_parameters),
            "parameters": self.parameters,
            "scale": self.scale,
            "derivation": self.derivation,
        }

    def __setstate__(self, state):
        for name, value in state.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "order_parameters", MappingProxyType(self.order_parameters))

    @property
    def symbols(self) -> tuple[Expr, ...]:
        """The order parameters, then the parameters."""
        return (*self.order_parameters, *self.parameters)

    @cached_property
    def sizes(self) -> tuple[Symbol, ...]:
        """The parameters that are sides of matrices: whole numbers."""
        sides = [side for symbol in self.symbols for side in getattr(symbol, "shape", ())]
        return tuple(symbol for symbol in self.parameters if any(side.has(symbol) for side in sides))

    @cached_property
    def terms(self) -> tuple[Expr, ...]:
        """The terms that S is the sum of."""
        return Add.make_args(self.expression)

    @cached_property
    def equations(self) -> Mapping[Expr, Expr]:
        """For each order parameter the gradient of S, which vanishes at a saddle point."""
        return MappingProxyType({symbol: gradient(self.expression, symbol) for symbol in self.order_parameters})

    @property
    def has_averages(self) -> bool:
        """Whether S has Gaussian averages that are taken by quadrature."""
        return self.expression.has(GaussianAverage)

    def with_nodes(self, nodes: int) -> "Action":
        """The same action, its Gaussian averages by quadrature with so many nodes."""
        checked_whole_number("nodes", nodes, least=2)
        return self._like(with_nodes(self.expression, nodes))

    @cached_property
    def finer(self) -> tuple["Action", "Action"]:
        """The same action with twice the nodes in every Gaussian average, and one more: both differences estimate
        their error, and where one vanishes by symmetry the other does not.
        """
        return tuple(map(self._like, with_more_nodes(self.expression)))

    def _like(self, expression: Expr) -> "Action":
        return Action(expression, self.order_parameters, self.parameters, self.scale, self.derivation)

    @cached_property
    def compiled(self) -> CompiledFunction:
        """A JAX function of all symbols by name; results are `term_0`, `term_1`, ..., the terms of S, and `scale`."""
        outputs = {f"term_{i}": term for i, term in enumerate(self.terms)}
        return _compiled(tuple(outputs.items()), self.scale, self.symbols)

    @cached_property
    def compiled_equations(self) -> CompiledFunction:
        """A JAX function of all symbols by name; its results are the gradients in the order parameters, by name."""
        return compile_expressions("equations", {s.name: slope for s, slope in self.equations.items()}, self.symbols)

    def latex(self, symbol_names: Mapping[Expr, str] | None = None) -> str:
        """S as LaTeX."""
        return latex(self.expression, symbol_names)


@lru_cache(maxsize=256)
def _compiled(terms: tuple[tuple[str, Expr], ...], scale: Expr, symbols: tuple[Expr, ...]) -> CompiledFunction:
    return compile_expressions("action", {**dict(terms), SCALE: scale}, symbols)


def _checked_domains(order_parameters) -> Mapping[Expr, AbstractDomain]:
    checked_instance("order_parameters", order_parameters, Mapping, "symbols to domains, {m: Real()}")
    if not order_parameters:
        raise ValueError("order_parameters must name at least one order parameter, got none")
    for symbol, domain in order_parameters.items():
        _check_symbol("order_parameters", symbol)
        checked_instance(f"the domain of {symbol}", domain, AbstractDomain, "Real(), Positive(), PositiveDefinite()")
        domain.check_symbol(symbol)
    return MappingProxyType(dict(order_parameters))


def _checked_symbols(parameters: Iterable[Expr]) -> tuple[Expr, ...]:
    symbols = checked_sequence("parameters", parameters, "symbols")
    for symbol in symbols:
        _check_symbol("parameters", symbol)
    return symbols


def _check_symbol(name: str, symbol: Expr) -> None:
    checked_instance(f"a symbol in {name}", symbol, (Symbol, MatrixSymbol))
    check_name(f"a symbol in {name}", symbol.name)


def _check_declared(action: Action) -> None:
    """Refuse an expression with other symbols than the declared ones, by name."""
    free, declared = _symbols_of(action.expression + action.scale), set(action.symbols)
    if both := sorted(s.name for s in action.parameters if s in action.order_parameters):
        raise ValueError(f"{', '.join(both)}: declared both as an order parameter and as a parameter")
    names = Counter(symbol.name for symbol in dict.fromkeys(action.symbols))
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise ValueError(
            f"{', '.join(twice)}: declared by two symbols of different assumptions or shapes; values and results go by "
            "name, so use one symbol, or two names"
        )
    sizes = {size for symbol in declared for side in getattr(symbol, "shape", ()) for size in side.free_symbols}
    if unknown := sorted(free - declared - sizes, key=lambda symbol: symbol.name):
        raise ValueError(_undeclared(unknown, declared, action.expression))
    if idle := [symbol for symbol in action.order_parameters if symbol not in free]:
        raise ValueError(
            f"the action does not depend on the order parameter {', '.join(map(str, idle))}: {shown(action.expression)}"
        )


def _undeclared(unknown: list[Expr], declared: set[Expr], expression: Expr) -> str:
    names = {symbol.name for symbol in declared}
    alike = [symbol.name for symbol in unknown if symbol.name in names]
    why = (
        f"; another symbol called {alike[0]} is declared, with other assumptions or another shape: use one object"
        if alike
        else "; declare each in order_parameters, with its domain, or in parameters"
    )
    return f"the symbols {', '.join(s.name for s in unknown)} of {shown(expression)} are not declared{why}"


def _symbols_of(expression: Expr) -> set[Expr]:
    """Free symbols, also of the sizes of matrices."""
    return {symbol for symbol in expression.free_symbols if isinstance(symbol, (Symbol, MatrixSymbol))}
