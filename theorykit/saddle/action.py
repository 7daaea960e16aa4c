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

from ..checks import checked_instance, checked_scalar, checked_sequence, checked_whole_number, shown
from ..codegen import CompiledFunction, compile_expressions
from ..codegen.lowering import check_covered
from ..codegen.names import check_name
from ..derivation import Derivation
from ..symbolic import GaussianAverage, gradient, latex, with_nodes
from ..symbolic.averages import bounded, refined
from ..symbolic.by_parts import in_standard_form
from .domains import AbstractDomain
from .fixed_point import fixed_point_map

# the result of the compiled function that is the action's scale
SCALE = "scale"
# nodes beside which the error of the default rule is seen
_MANY_NODES = 1000
# how many stated errors are added to the averages of `Action.bounds`
SIDE = Symbol("stated_errors_of_averages", real=True)


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

    @cached_property
    def standard_equations(self) -> Mapping[Expr, Expr] | None:
        """`equations` in standard form, which solvers evaluate; None for matrices, and if there is a jump."""
        if not all(isinstance(symbol, Symbol) for symbol in self.order_parameters):
            return None
        try:
            self.equations  # noqa: B018
        except NotImplementedError:
            return None
        return MappingProxyType({symbol: in_standard_form(slope) for symbol, slope in self.equations.items()})

    @cached_property
    def fixed_point(self) -> Mapping[Expr, Expr] | None:
        """For each order parameter the expression that the saddle-point equations set it to, if they have that form."""
        return None if self.standard_equations is None else fixed_point_map(self.standard_equations)

    @property
    def has_averages(self) -> bool:
        """Whether S has Gaussian averages that are taken by quadrature."""
        return self.expression.has(GaussianAverage)

    def with_nodes(self, nodes: int) -> "Action":
        """The same action, its Gaussian averages by quadrature with so many nodes."""
        checked_whole_number("nodes", nodes, least=2)
        return self._like(with_nodes(self.expression, nodes))

    @cached_property
    def refined(self) -> "Action":
        """The same action, its Gaussian averages by adaptive quadrature."""
        return self._like(refined(self.expression)) if self.has_averages else self

    @property
    def is_refined(self) -> bool:
        """Whether all Gaussian averages are by adaptive quadrature."""
        return self.refined == self

    @cached_property
    def checking(self) -> "Action":
        """The same action with many nodes in every Gaussian average: a cheap check of those with few."""
        return self._like(with_nodes(self.expression, _MANY_NODES))

    @cached_property
    def bounds(self) -> "Action":
        """The same action with `SIDE` stated errors added to every Gaussian average, for `SIDE` 1 and -1."""
        return self._like(bounded(self.expression, SIDE), (*self.parameters, SIDE))

    def _like(self, expression: Expr, parameters: tuple[Expr, ...] | None = None) -> "Action":
        # of what has been checked already
        other = object.__new__(Action)
        changes = {"expression": expression, "parameters": parameters or self.parameters}
        other.__setstate__({**self.__getstate__(), **changes})
        return other

    @cached_property
    def compiled(self) -> CompiledFunction:
        """A JAX function of all symbols by name; results are `term_0`, `term_1`, ..., the terms of S, and `scale`."""
        outputs = {f"term_{i}": term for i, term in enumerate(self.terms)}
        return _compiled(tuple(outputs.items()), self.scale, self.symbols)

    @cached_property
    def compiled_equations(self) -> CompiledFunction:
        """A JAX function of all symbols by name; its results are the gradients in the order parameters, by name."""
        return compile_expressions("equations", {s.name: slope for s, slope in self.equations.items()}, self.symbols)

    @cached_property
    def compiled_slopes(self) -> CompiledFunction:
        """A JAX function of all symbols by name; results `slope_i_j` are the terms of `standard_equations`."""
        terms = {
            f"slope_{i}_{j}": term
            for i, slope in enumerate(self.standard_equations.values())
            for j, term in enumerate(Add.make_args(slope))
        }
        return compile_expressions("slopes", terms, self.symbols)

    @cached_property
    def compiled_fixed_point(self) -> CompiledFunction:
        """A JAX function of all symbols by name; its results are those of `fixed_point`, by name."""
        return compile_expressions("fixed_point", {s.name: to for s, to in self.fixed_point.items()}, self.symbols)

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
    for name, expression in (("expression", action.expression), ("scale", action.scale)):
        try:
            check_covered(expression)
        except ValueError as error:
            raise ValueError(f"{name} cannot be compiled: {error}") from error
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
