"""Define your own action: an expression in order parameters, each with a domain, and in parameters.

    expression -> Action -> compiled function -> minimise, stationary -> Solution

A derivation and an expression typed by hand give the same kind of object.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float
from sympy import Add, Expr, Interval, MatrixSymbol, S, Symbol

from .._compat import require_float64
from .._jit import jit
from ..checks import (
    Scalar,
    by_name,
    check_fields,
    checked_arguments,
    checked_instance,
    checked_whole_number,
    finite_entries,
    is_traced,
    numeric_array,
    require,
    shown,
)
from ..codegen import CompiledFunction, compile_expressions
from ..codegen.compiled import bound_sizes, check_covered
from ..codegen.errors import rounding_effects
from ..derivation import Derivation, solving
from ..symbolic import Block, Equation, GaussianAverage, Heading, Text, as_markdown, gradient, latex, with_nodes
from ..symbolic.averages import ADAPTIVE, MOST_NODES, bounded
from ..symbolic.by_parts import in_standard_form
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Items, align_environment, verbatim
from ..symbolic.matrix_functions import AssumedPositiveDefinite
from ..symbolic.numeric import NumericFunction
from .domains import AbstractDomain, as_declared

# Number of nodes of the fine rule. Against it, the error of the default rule of 64 nodes becomes visible.
_MANY_NODES = 1000
# Number of error bounds that are added to the averages of `Action.bounds`.
SIDE = Symbol("stated_errors_of_averages", real=True)
# Cost of assigning an equation to an order parameter x if the equation is solved for x.
_SOLVED = 0
# Cost if x also occurs elsewhere in the equation.
_IMPLICIT = 1
# Cost if the coefficient of x depends on order parameters.
_VARYING = 3
# Cost if the equation has no term proportional to x. It exceeds any sum of other costs.
_NONE = 1000


def _checked_symbol(name: str, symbol: Any) -> Expr:
    checked_instance(name, symbol, (Symbol, MatrixSymbol))
    return symbol


_Declared = Annotated[Expr, _checked_symbol]


class Slopes(DisplayMixin, Mapping):
    """Gradient of an action by order parameter, displayed as the saddle-point equations."""

    def __init__(self, slopes: Mapping[Expr, Expr]):
        self._slopes = MappingProxyType(dict(slopes))

    def __getitem__(self, symbol):
        return self._slopes[symbol]

    def __iter__(self):
        return iter(self._slopes)

    def __len__(self):
        return len(self._slopes)

    def __reduce__(self):
        return Slopes, (dict(self._slopes),)

    def _view(self, names: Mapping[Expr, str] = MappingProxyType({})) -> Iterator[Block]:
        for symbol, slope in self.items():
            left = rf"\frac{{\partial S}}{{\partial {latex(symbol, names)}}}"
            yield Equation(left, f"{latex(slope, names)} = 0", plain=f"dS/d{symbol} = {slope} = 0")


@dataclass(frozen=True, eq=False, repr=False)
class Action(DisplayMixin):
    """Action S, or a free energy, to be made stationary in its `order_parameters`.

    - `expression`: S, a scalar SymPy expression.
    - `order_parameters`: the domain of every order parameter, by symbol.
    - `parameters`: all other symbols of S: numbers, matrices and columns of data. You may omit the size of a matrix if
      the shape of a given matrix determines it.
    - `scale`: the large number that S is proportional to, such as N. Gradients and curvatures are divided by it.
    - `derivation`: the recorded steps that led to S, if any. `derivation.verify()` checks every step.

    Example:
        >>> from sympy import cosh, log, symbols
        >>> from theorykit.saddle import Action, Real
        >>> m, beta = symbols("m beta", real=True)
        >>> curie_weiss = Action(beta * m**2 / 2 - log(2 * cosh(beta * m)), {m: Real()}, [beta])
        >>> curie_weiss.equations[m]
        beta*m - beta*sinh(beta*m)/cosh(beta*m)

    `action(m=0.5, beta=1.5)` or `action({m: 0.5, beta: 1.5})` evaluates S.
    """

    expression: Scalar
    order_parameters: Mapping[_Declared, AbstractDomain]
    parameters: Sequence[_Declared] = ()
    scale: Scalar = S.One
    derivation: Derivation | None = field(default=None, repr=False)

    def __post_init__(self):
        check_fields(self)
        object.__setattr__(self, "order_parameters", MappingProxyType(self.order_parameters))
        if not self.order_parameters:
            raise ValueError("order_parameters must name at least one order parameter, got none")
        for symbol, domain in self.order_parameters.items():
            domain.check_symbol(symbol)
        if both := sorted(s.name for s in self.parameters if s in self.order_parameters):
            raise ValueError(f"{', '.join(both)}: declared both as an order parameter and as a parameter")
        names = Counter(symbol.name for symbol in dict.fromkeys(self.symbols))
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise ValueError(
                f"{', '.join(twice)}: declared by two symbols with different assumptions or shapes, but values and "
                "results are identified by name; rename one of the symbols"
            )
        total = self.expression + self.scale
        free = {symbol for symbol in total.free_symbols if isinstance(symbol, (Symbol, MatrixSymbol))}
        sides = {size for symbol in self.symbols for side in getattr(symbol, "shape", ()) for size in side.free_symbols}
        if unknown := sorted(symbol.name for symbol in free - sides - set(self.symbols)):
            why = "declare each in order_parameters, with its domain, or in parameters"
            if alike := [name for name in unknown if name in names]:
                why = f"a symbol called {alike[0]} is declared, but with other assumptions or another shape"
            raise ValueError(f"the symbols {', '.join(unknown)} of {shown(self.expression)} are not declared; {why}")
        for name in ("expression", "scale"):
            try:
                check_covered(getattr(self, name))
            except (NotImplementedError, ValueError) as error:
                raise ValueError(f"{name} cannot be compiled: {error}") from error
        if idle := ", ".join(symbol.name for symbol in self.order_parameters if symbol not in free):
            raise ValueError(f"the action does not depend on the order parameter {idle}: {shown(self.expression)}")

    @cached_property
    def _content(self) -> tuple:
        return self.expression, tuple(self.order_parameters.items()), self.parameters, self.scale

    def __eq__(self, other):
        return self._content == other._content if isinstance(other, Action) else NotImplemented

    def __hash__(self):
        return hash(self._content)

    def __reduce__(self):
        # A view of a mapping cannot be pickled.
        return Action, (self.expression, dict(self.order_parameters), self.parameters, self.scale, self.derivation)

    def __call__(
        self, values: Mapping[Expr | str, Any] = MappingProxyType({}), /, **by_name: Any
    ) -> Float[Array, "..."]:
        """Evaluate S at values of all order parameters and parameters, as keywords or as a dictionary by symbol.

        Numbers may be arrays, and matrices may have leading axes. All values are broadcast against each other. Order
        parameters may lie on an edge of their domain. If S is NaN because a matrix that was assumed to be positive
        definite is not so, a `RuntimeWarning` names the matrix.

        Raises:
            ValueError: If a value is missing, unknown, not finite, outside its domain, or has the wrong shape.

        Example:
            >>> import theorykit
            >>> from sympy import symbols
            >>> from theorykit.saddle import Action, Real
            >>> theorykit.enable_float64()
            >>> m, a = symbols("m a", real=True)
            >>> action = Action(m**4 / 4 - a * m**2 / 2, {m: Real()}, [a])
            >>> action(m=[0.0, 1.0, 2.0], a=1.0).tolist()
            [0.0, -0.25, 2.0]
            >>> float(action({m: 2.0, a: 1.0}))
            2.0
        """
        require_float64()
        values = named("values", {**checked_instance("values", values, Mapping), **by_name}, self.symbols)
        if missing := [symbol.name for symbol in self.symbols if symbol.name not in values]:
            keywords = ", ".join(f"{symbol.name}=..." for symbol in self.symbols)
            raise ValueError(f"the action needs a value for {', '.join(missing)}: call it with {keywords}")
        sizes = {s.name: checked_whole_number(s.name, values[s.name], least=1) for s in self.sizes}
        arrays, conditions = {}, []
        for symbol in self.symbols:
            if (name := symbol.name) in sizes:
                continue
            array = arrays[name] = numeric_array(name, values[name])
            if isinstance(symbol, MatrixSymbol) and array.ndim < 2:
                raise ValueError(f"{name} must be a matrix, got shape {array.shape}")
            domain = self.order_parameters.get(symbol)
            declared = (
                as_declared(name, symbol, array) if domain is None else domain.requirements(name, array, closed=True)
            )
            conditions += [finite_entries(name, array), *declared]
        first = {n: array[(0,) * (array.ndim - 2)] for n, array in arrays.items() if array.ndim >= 2}
        shapes = shapes_of(self, arrays | first | sizes, first)
        for name, array in arrays.items():
            if shapes[name] and array.shape[-2:] != shapes[name]:
                raise ValueError(f"{name} must have shape {shapes[name]} to fit the other values, got {array.shape}")
        arrays = require({name: jnp.asarray(array) for name, array in arrays.items()}, conditions)
        found = _evaluated(self, arrays, sizes)
        if not is_traced(found) and np.any(undefined := np.isnan(found)):
            at = tuple(np.argwhere(undefined)[0])
            core = {symbol.name: len(shapes[symbol.name]) for symbol in self.symbols}
            first = {
                n: np.broadcast_to(array, found.shape + array.shape[array.ndim - core[n] :])[at]
                for n, array in arrays.items()
            }
            if reason := indefinite(self, first | sizes):
                warnings.warn(f"S is NaN at {np.sum(undefined)} of {found.size} points: {reason}", RuntimeWarning, 2)
        return found

    def _view(self) -> Iterable[Block]:
        return _blocks(self, {})

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle S = {self.latex()}$"

    @property
    def symbols(self) -> tuple[Expr, ...]:
        """Order parameters, then parameters."""
        return (*self.order_parameters, *self.parameters)

    @cached_property
    def sizes(self) -> tuple[Symbol, ...]:
        """Parameters that are sizes of matrices. They are whole numbers."""
        sides = [side for symbol in self.symbols for side in getattr(symbol, "shape", ())]
        return tuple(symbol for symbol in self.parameters if any(side.has(symbol) for side in sides))

    @cached_property
    def is_of_numbers(self) -> bool:
        """Whether all symbols are numbers. Functions that the user defined may be long, and do not count."""
        return all(isinstance(symbol, Symbol) for symbol in self.symbols) and not self.expression.has(NumericFunction)

    @cached_property
    def terms(self) -> tuple[Expr, ...]:
        """Terms of the sum S."""
        return Add.make_args(self.expression)

    @cached_property
    def equations(self) -> Mapping[Expr, Expr]:
        """Gradient of S by order parameter. It vanishes at a saddle point."""
        return Slopes({symbol: gradient(self.expression, symbol) for symbol in self.order_parameters})

    @cached_property
    def standard_equations(self) -> Mapping[Expr, Expr] | None:
        """`equations` in standard form, for solvers. None if an order parameter is a matrix, or if S has a jump."""
        if not all(isinstance(symbol, Symbol) for symbol in self.order_parameters):
            return None
        try:
            equations = self.equations
        except NotImplementedError:
            return None
        return Slopes({symbol: in_standard_form(slope) for symbol, slope in equations.items()})

    @cached_property
    def fixed_point(self) -> Mapping[Expr, Expr] | None:
        """Expression that the equations assign to each order parameter, or None if they lack this form.

        Replica theories iterate their equations, such as q <- E[tanh^2(beta (sqrt(q) z + h))]. The equation of a
        conjugate order parameter sets its overlap. The map keeps overlaps in their physical range, even from a distant
        start, and so provides good starts for Newton's method. Each equation c x + r = 0 assigns -r / c to one order
        parameter x. A linear assignment chooses x so that c is free of order parameters if possible.
        """
        if (equations := self.standard_equations) is None:
            return None
        symbols = tuple(equations)
        choices = [[_update(equation, symbol, symbols) for symbol in symbols] for equation in equations.values()]
        costs = np.array([[cost for cost, _ in row] for row in choices])
        rows, columns = scipy.optimize.linear_sum_assignment(costs)
        if np.any(costs[rows, columns] >= _NONE):
            return None
        updates = {symbols[column]: choices[row][column][1] for row, column in zip(rows, columns, strict=True)}
        return {symbol: updates[symbol] for symbol in symbols}

    @property
    def has_averages(self) -> bool:
        """Whether S has Gaussian averages that need quadrature."""
        return self.expression.has(GaussianAverage)

    @cached_property
    def fixed_averages(self) -> frozenset[Expr]:
        """Gaussian averages with a fixed number of nodes."""
        return frozenset(each for each in self.expression.atoms(GaussianAverage) if not each.is_adaptive)

    @checked_arguments
    def eliminate(self, *symbols: Symbol | MatrixSymbol | str) -> Action:
        r"""Return the action without some order parameters: each takes the value at which S is stationary in it.

        Conjugate order parameters are often eliminated in this way. The equation dS/dx = 0 must have one solution for
        x in its domain. If S is linear in x, the equation constrains the others instead. It is then solved for
        another order parameter, one of `symbols` if possible, and both are eliminated.

        Both actions have the same stationary points, values and derivatives. The Hessian of the new action is the Schur
        complement of the eliminated block, so its index is the index of this action minus the number of negative
        eigenvalues of that block. Each value is in `definitions` of a step of the new action's `derivation`, and
        `derivation.verify()` checks the step. The domain of an eliminated order parameter no longer restricts
        solutions: check its value if it may leave the domain.

        Raises:
            ValueError: If a symbol is not an order parameter, if none would be left, or if an equation has no solution
                or several.

        Example:
            >>> from sympy import log, symbols
            >>> from theorykit.saddle import Action, Positive
            >>> q, q_hat = symbols("q q_hat", positive=True)
            >>> action = Action(q * q_hat - log(1 + q_hat) + q**2, {q: Positive(), q_hat: Positive()})
            >>> action.eliminate(q_hat).expression
            q**2 - q - log(1 + (1 - q)/q) + 1
        """
        names = {symbol.name: symbol for symbol in self.order_parameters}
        asked = [names.get(each) if isinstance(each, str) else each for each in symbols]
        for given, symbol in zip(symbols, asked, strict=True):
            if symbol not in self.order_parameters:
                raise ValueError(f"symbols must be among the order parameters {', '.join(names)}, got {shown(given)}")
        pending, left = list(dict.fromkeys(asked)), dict(self.order_parameters)
        if not pending:
            raise ValueError(f"symbols must name at least one of the order parameters {', '.join(names)}")
        ranges = {s: Interval.open(d.low, d.high) for s, d in left.items() if d.has_edges}
        steps, expression = list(self.derivation.steps if self.derivation else ()), self.expression
        while pending:
            is_linear = {symbol: not gradient(expression, symbol).has(symbol) for symbol in pending}
            symbol = max(pending, key=is_linear.get)
            # A multiplier is eliminated with one of the order parameters that its equation contains.
            others = [*(each for each in pending if each != symbol), *(each for each in left if each not in pending)]
            slope, reasons = gradient(expression, symbol), []
            determined = [(symbol, each) for each in others if slope.has(each)]
            for which in determined if is_linear[symbol] else [(symbol,)]:
                eliminate = solving.eliminate_constrained if is_linear[symbol] else solving.eliminate
                try:
                    steps.append(eliminate(expression, *which, ranges, section="elimination of order parameters"))
                    expression = steps[-1].after
                    break
                except solving.RuleError as error:
                    reasons.append(str(error))
            else:
                reason = "; ".join(reasons) or f"dS/d{symbol.name} contains no order parameter"
                raise ValueError(f"{symbol.name} cannot be eliminated: {reason}")
            for each in which:
                del left[each]
            pending = [each for each in pending if each in left]
        if not left:
            raise ValueError("symbols must leave at least one order parameter, but all would be eliminated")
        sizes = self.derivation.sizes if self.derivation else ({}, {})
        sides = {s for symbol in self.symbols for side in getattr(symbol, "shape", ()) for s in side.free_symbols}
        sizes = tuple({**{s: 2 + i for s in sides}, **known} for i, known in enumerate(sizes))
        derivation = Derivation(tuple(steps), sizes)
        return replace(self, expression=expression, order_parameters=left, derivation=derivation)

    def with_nodes(self, nodes: int) -> Action:
        """Return the same action with `nodes` quadrature nodes in its Gaussian averages."""
        return replace(self, expression=with_nodes(self.expression, checked_whole_number("nodes", nodes, least=2)))

    @cached_property
    def refined(self) -> Action:
        """The same action with the composite rule for its Gaussian averages, unless it has averages of averages.

        Averages of averages keep their nodes, because the composite rule within itself has millions of nodes.
        """
        is_nested = any(average.integrand.has(GaussianAverage) for average in self.fixed_averages)
        return self if is_nested else replace(self, expression=with_nodes(self.expression, ADAPTIVE))

    @cached_property
    def can_refine(self) -> bool:
        """Whether S has Gaussian averages, all of which `refined` computes with the composite rule."""
        return self.has_averages and not self.refined.fixed_averages

    @cached_property
    def checking(self) -> Action:
        """The same action with many nodes in every Gaussian average: a cheap check of few nodes.

        Averages take at least twice as many nodes as they have.
        """
        of_averages = self.refined.fixed_averages
        twice = 2 * max((average.nodes for average in of_averages or self.fixed_averages), default=0)
        return self.with_nodes(min(twice if of_averages else max(twice, _MANY_NODES), MOST_NODES))

    @cached_property
    def bounds(self) -> Action:
        """The same action with `SIDE` error bounds added to every Gaussian average, for `SIDE` 1 and -1."""
        return replace(self, expression=bounded(self.expression, SIDE), parameters=(*self.parameters, SIDE))

    @cached_property
    def compiled(self) -> CompiledFunction:
        """JAX function of all symbols by name. It returns the terms of S, `term_0`, `term_1`, ..."""
        terms = {f"term_{i}": term for i, term in enumerate(self.terms)}
        return compile_expressions("action", terms, self.symbols)

    @cached_property
    def rounding_effects(self) -> Callable[..., Float[Array, "output part"]]:
        """JAX function of all symbols by name: effects of relative rounding errors of one in the sums within terms.

        The first row is the effect on S, and the others are the effects on `standard_equations`, if known. An effect
        may exceed the terms: at a small x, log(1 + x^2) is known only to the rounding error of 1.
        """
        return rounding_effects([self.expression, *(self.standard_equations or {}).values()], self.symbols)

    @cached_property
    def compiled_scale(self) -> CompiledFunction:
        """JAX function of all symbols by name. It returns the `scale`."""
        return compile_expressions("size_of_action", {"scale": self.scale}, self.symbols)

    @cached_property
    def compiled_slopes(self) -> CompiledFunction:
        """JAX function of all symbols by name. Results `slope_i_j` are the terms of `standard_equations`."""
        terms = {
            f"slope_{i}_{j}": term
            for i, slope in enumerate(self.standard_equations.values())
            for j, term in enumerate(Add.make_args(slope))
        }
        return compile_expressions("slopes", terms, self.symbols)

    @cached_property
    def compiled_fixed_point(self) -> CompiledFunction:
        """JAX function of all symbols by name. It returns the values of `fixed_point` by name."""
        return compile_expressions("fixed_point", {s.name: to for s, to in self.fixed_point.items()}, self.symbols)

    def latex(self, symbol_names: Mapping[Expr, str] | None = None) -> str:
        """Return S as LaTeX."""
        return latex(self.expression, symbol_names)


def _update(equation: Expr, symbol: Symbol, symbols: tuple[Symbol, ...]) -> tuple[int, Expr | None]:
    """Return the cost of solving an equation for `symbol`, and the resulting expression."""
    terms = Add.make_args(equation)
    proportional = [term for term in terms if term.as_powers_dict().get(symbol, 0) == 1]
    linear = [term for term in proportional if not (term / symbol).has(symbol)]
    if not linear:
        # The equation has a term x c(x), as in q / (1 - q)^2.
        return (
            (_VARYING + 1, -(equation - proportional[0]) * symbol / proportional[0]) if proportional else (_NONE, None)
        )
    coefficient, rest = Add(*(term / symbol for term in linear)), Add(*(term for term in terms if term not in linear))
    if coefficient.has(*symbols):
        return _VARYING, -rest / coefficient
    return (_IMPLICIT if rest.has(symbol) else _SOLVED), -rest / coefficient


def shapes_of(action: Action, given: Mapping[str, Any], guesses: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every symbol of the action, () for numbers. Raises `ValueError` if no value determines it."""
    given = {s.name: given[s.name] for s in action.parameters if isinstance(s, MatrixSymbol) or s in action.sizes}
    given |= {name: v if is_traced(v) else np.asarray(v) for name, v in guesses.items() if np.ndim(v) == 2}
    arrays = [symbol for symbol in action.symbols if symbol.name in given]
    shapes, known, sides = {symbol.name: () for symbol in action.symbols}, bound_sizes(arrays), {}
    for symbol in action.symbols:
        for axis, side in enumerate(getattr(symbol, "shape", ())):
            if unknown := sorted(size.name for size in side.free_symbols - known):
                raise ValueError(
                    f"no value determines the size {unknown[0]} of {symbol}; pass initial={{...}} "
                    f"with a start for {symbol}, or declare {unknown[0]} among the parameters"
                )
            sides[f"{symbol.name}_{axis}"] = side
            shapes[symbol.name] += (f"{symbol.name}_{axis}",)
    found = compile_expressions("shapes", sides, arrays)(**given) if sides else {}
    return {name: tuple(int(found[side]) for side in shape) for name, shape in shapes.items()}


def named(what: str, values: Mapping[Expr | str, Any], admitted: Iterable[Expr]) -> dict[str, Any]:
    """Return `values` by name. Raises `ValueError` for a name that is not in `admitted`."""
    given, names = by_name(what, values), [symbol.name for symbol in admitted]
    if unknown := [key for key in given if key not in names]:
        raise ValueError(f"{what} names {shown(unknown[0])}, which is not one of {', '.join(names) or 'none'}")
    return given


def indefinite(action: Action, values: Mapping[str, Any]) -> str:
    """Name the first matrix that is assumed to be positive definite and is not so at these values, or return ""."""
    assumed = sorted(action.expression.atoms(AssumedPositiveDefinite), key=lambda node: node.sort_key())
    matrices = {f"matrix_{i}": node.matrix for i, node in enumerate(assumed)}
    arrays = {name: value if isinstance(value, int) else jnp.asarray(value) for name, value in values.items()}
    found = compile_expressions("assumed", matrices, action.symbols)(**arrays) if assumed else {}
    for node, value in zip(assumed, map(np.asarray, found.values()), strict=True):
        # A matrix that contains the inverse of another such matrix may be NaN. The other one is then the cause.
        if np.all(np.isfinite(value)) and not (smallest := np.linalg.eigvalsh(value)[0]) > 0:
            return f"{shown(node.matrix)} is not positive definite, its smallest eigenvalue is {smallest:.3g}"
    return ""


@jit
def _evaluated(action: Action, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Float[Array, "..."]:
    """Evaluate S at numbers and matrices with leading axes that broadcast."""
    matrices = {symbol.name for symbol in action.symbols if isinstance(symbol, MatrixSymbol)}
    axes = ",".join(f"(row{i},column{i})" if name in matrices else "()" for i, name in enumerate(arrays))

    def evaluate(*values):
        results = action.compiled(**dict(zip(arrays, values, strict=True)), **sizes)
        return sum(jnp.asarray(value, dtype=float) for value in results.values())

    return jnp.vectorize(evaluate, signature=f"{axes}->()")(*arrays.values())


@checked_arguments
def render_latex(action: Action, symbol_names: Mapping[Expr, str] | None = None) -> str:
    """Write the action and its saddle-point equations as one LaTeX `align*` environment."""
    return align_environment([each for each in _blocks(action, symbol_names or {}) if isinstance(each, Equation)])


@checked_arguments
def render_markdown(action: Action, symbol_names: Mapping[Expr, str] | None = None) -> str:
    """Write the action and its saddle-point equations as Markdown, with a list of domains and parameters.

    Args:
        action: The action to write.
        symbol_names: LaTeX names of symbols that should be printed under another name.
    """
    return as_markdown(_blocks(action, symbol_names or {}))


def _blocks(action: Action, names: Mapping[Expr, str]) -> Iterator[Block]:
    yield Heading("Action", 1)
    yield Equation("S", action.latex(names), plain=f"S = {action.expression}")
    items = []
    for symbol, domain in action.order_parameters.items():
        sides = [f"${latex(side, names)}$" for side in getattr(symbol, "shape", ())]
        shape = f", {' x '.join(sides)}" if sides else ""
        items.append(f"order parameter ${domain.latex(latex(symbol, names))}${shape}")
    yield Items(tuple(items))
    if action.parameters:
        listed = ", ".join(f"${latex(symbol, names)}$" for symbol in action.parameters)
        yield Text(f"Parameters: {listed}.")
    if averages := action.expression.atoms(GaussianAverage):
        nodes = sorted({average.nodes for average in averages if not average.is_adaptive})
        rules = [f"with {' and '.join(map(str, nodes))} nodes"] if nodes else []
        rules += ["by a composite rule"] if any(average.is_adaptive for average in averages) else []
        yield Text(f"Angle brackets are averages over a standard normal variable, taken {' and '.join(rules)}.")
    yield Heading("Saddle-point equations")
    try:
        equations = action.equations
    except NotImplementedError as reason:
        yield Text(f"The equations have no symbolic form: {verbatim(reason)}")
        return
    yield from equations._view(names)
