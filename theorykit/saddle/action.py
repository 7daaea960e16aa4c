"""Action of your own: an expression in order parameters, each with a domain, and in parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float
from sympy import Add, Expr, Interval, MatrixSymbol, S, Symbol, Trace, sympify

from .._compat import require_float64
from .._jit import jit
from ..checks import (
    by_name,
    checked_instance,
    checked_number,
    checked_sequence,
    checked_whole_number,
    is_traced,
    numeric_array,
    shown,
)
from ..codegen import compile_expressions
from ..codegen.compiled import CompiledFunction, bound_sizes, check_covered
from ..codegen.errors import rounding_effects
from ..derivation import Derivation, solving
from ..symbolic import GaussianAverage, gradient
from ..symbolic.averages import MOST_NODES, with_nodes
from ..symbolic.by_parts import in_standard_form
from ..symbolic.documents import Block, DisplayMixin, Equation, Heading, Items, Text, as_latex, as_markdown, verbatim
from ..symbolic.documents.rendering import latex
from ..symbolic.functions import with_log_normal_cdf
from ..symbolic.matrix_functions import AssumedPositiveDefinite
from ..symbolic.numeric import NumericFunction
from .domains import AbstractDomain, check_fits, check_value

# Largest number of nodes whose code is not optimised.
_FEW = 256
# Number of nodes with which a computation is repeated if averages are inaccurate.
_FINEST = 4096
# Costs of assigning an equation to an order parameter x: the equation is solved for x;
# x also occurs elsewhere in it; the coefficient of x varies; no term is proportional to
# x, which exceeds any sum of other costs.
_SOLVED, _IMPLICIT, _VARYING, _NONE = 0, 1, 3, 1000


class Slopes(DisplayMixin, dict):
    """Gradient of an action by order parameter, displayed as the saddle-point equations."""

    def _view(self) -> Iterator[Block]:
        for symbol, slope in self.items():
            left = rf"\frac{{\partial S}}{{\partial {latex(symbol)}}}"
            yield Equation(left, f"{latex(slope)} = 0", plain=f"dS/d{symbol} = {slope} = 0")


@dataclass(frozen=True, eq=False, repr=False)
class Action(DisplayMixin):
    """Action S, or a free energy, to be made stationary in its `order_parameters`.

    - `expression`: S, a scalar SymPy expression.
    - `order_parameters`: the domain of every order parameter, by symbol.
    - `parameters`: all other symbols of S: numbers, matrices and columns of data. A size
      may be omitted if the shape of a given matrix determines it.
    - `scale`: the large number that S is proportional to, such as N. Gradients and
      curvatures are divided by it.
    - `derivation`: the recorded steps that led to S, if any.

    Raises:
        ValueError: If S has an undeclared symbol or a function that cannot be compiled, or
            if a domain does not fit its order parameter.

    Example:
        >>> from sympy import cosh, log, symbols
        >>> from theorykit.saddle import Action, Real
        >>> m, beta = symbols("m beta", real=True)
        >>> curie_weiss = Action(beta * m**2 / 2 - log(2 * cosh(beta * m)), {m: Real()}, [beta])
        >>> curie_weiss.equations[m]
        beta*m - beta*sinh(beta*m)/cosh(beta*m)

    `action(m=0.5, beta=1.5)` or `action({m: 0.5, beta: 1.5})` evaluates S.
    """

    expression: Expr | float
    order_parameters: Mapping[Expr, AbstractDomain]
    parameters: Sequence[Expr] = ()
    scale: Expr | float = S.One
    derivation: Derivation | None = field(default=None, repr=False)

    def __post_init__(self):
        domains = dict(checked_instance("order_parameters", self.order_parameters, Mapping))
        fields = {
            "expression": _scalar("expression", self.expression),
            "order_parameters": domains,
            "parameters": checked_sequence("parameters", self.parameters, "symbols"),
            "scale": _scalar("scale", self.scale),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        if self.scale == 0:
            raise ValueError("scale must not be zero")
        if not domains:
            raise ValueError("order_parameters must name at least one order parameter, got none")
        for symbol in self.symbols:
            checked_instance("a symbol", symbol, (Symbol, MatrixSymbol))
        for symbol, domain in domains.items():
            check_fits(symbol, checked_instance(f"order_parameters[{symbol}]", domain, AbstractDomain))
        names = [symbol.name for symbol in self.symbols]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)}: declared twice, but values are identified by name")
        free = {s for s in (self.expression + self.scale).free_symbols if isinstance(s, (Symbol, MatrixSymbol))}
        if unknown := sorted(s.name for s in free - {*_sides(self.symbols), *self.symbols}):
            where = "in order_parameters or parameters, with the same assumptions"
            raise ValueError(f"{', '.join(unknown)} of {shown(self.expression)} must be {where}")
        for name in ("expression", "scale"):
            try:
                check_covered(getattr(self, name))
            except (NotImplementedError, ValueError) as error:
                raise ValueError(f"{name} cannot be compiled: {error}") from error
        if idle := ", ".join(symbol.name for symbol in domains if symbol not in free):
            raise ValueError(f"the action does not depend on the order parameter {idle}: {shown(self.expression)}")

    @cached_property
    def _content(self) -> tuple:
        return self.expression, tuple(self.order_parameters.items()), self.parameters, self.scale

    def __eq__(self, other):
        return self._content == other._content if isinstance(other, Action) else NotImplemented

    def __hash__(self):
        return hash(self._content)

    def __reduce__(self):
        # Compiled functions cannot be pickled.
        return Action, (self.expression, self.order_parameters, self.parameters, self.scale, self.derivation)

    def __call__(
        self, values: Mapping[Expr | str, Any] = MappingProxyType({}), /, **by_name: Any
    ) -> Float[Array, "..."]:
        """Evaluate S at values of all symbols, as keywords or as a dictionary by symbol.

        Numbers may be arrays, which are broadcast. Order parameters may lie on an edge of
        their domain. Averages have 9,999 nodes. Nested ones, those with 4,096 or more
        (`with_nodes`), and those in code that JAX traces keep theirs. If S is NaN because a
        matrix is not positive definite as assumed, a `RuntimeWarning` names it.

        Raises:
            ValueError: If a value is missing, unknown, invalid or outside its domain.
        """
        require_float64()
        values = {**checked_instance("values", values, Mapping), **by_name}
        arrays, sizes = checked_values(self, self.symbols, "values", values, "{}", closed=True)
        matrices = {name: array for name, array in arrays.items() if name in self._matrices}
        check_shapes(matrices, shapes_of(self, arrays | sizes, arrays), "{}")
        found = _evaluated(self, arrays, sizes)
        if self.finest is not self and not is_traced(found):
            finer = _evaluated(self.finer, arrays, sizes)
            # Farther nodes may be where a function overflows.
            found = jnp.where(jnp.isfinite(finer), finer, found)
        if np.ndim(found) == 0 and not is_traced(found) and np.isnan(found):
            warnings.warn(f"S is NaN: {indefinite(self, arrays | sizes)}", RuntimeWarning, stacklevel=2)
        return found

    def _view(self) -> Iterator[Block]:
        yield Heading("Action", 1)
        yield Equation("S", latex(self.expression), plain=f"S = {self.expression}")
        items = []
        for symbol, domain in self.order_parameters.items():
            shape = " x ".join(f"${latex(side)}$" for side in getattr(symbol, "shape", ()))
            items.append(f"order parameter ${domain.latex(latex(symbol))}${shape and f', {shape}'}")
        yield Items(tuple(items))
        if self.parameters:
            yield Text(f"Parameters: {', '.join(f'${latex(symbol)}$' for symbol in self.parameters)}.")
        yield Heading("Saddle-point equations")
        try:
            yield from self.equations._view()
        except NotImplementedError as reason:
            yield Text(f"The equations have no symbolic form: {verbatim(reason)}")

    @property
    def symbols(self) -> tuple[Expr, ...]:
        """Order parameters, then parameters."""
        return (*self.order_parameters, *self.parameters)

    @cached_property
    def sizes(self) -> tuple[Symbol, ...]:
        """Parameters that are sizes of matrices. They are whole numbers."""
        sides = _sides(self.symbols)
        return tuple(symbol for symbol in self.parameters if symbol in sides)

    @cached_property
    def _matrices(self) -> frozenset[str]:
        return frozenset(symbol.name for symbol in self.symbols if isinstance(symbol, MatrixSymbol))

    @cached_property
    def is_of_numbers(self) -> bool:
        """Whether all symbols are numbers, and no function is the user's own."""
        return not self._matrices and not self.expression.has(NumericFunction)

    @cached_property
    def is_of_few_numbers(self) -> bool:
        """Whether to compile its code without optimisation, which is worth its time with many nodes."""
        return self.is_of_numbers and self.nodes <= _FEW

    @property
    def terms(self) -> tuple[Expr, ...]:
        """Terms of the sum S."""
        return Add.make_args(self.expression)

    @cached_property
    def equations(self) -> Mapping[Expr, Expr]:
        """Gradient of S by order parameter. It vanishes at a saddle point."""
        return Slopes({symbol: gradient(self.expression, symbol) for symbol in self.order_parameters})

    @cached_property
    def standard_equations(self) -> Mapping[Expr, Expr] | None:
        """`equations` in standard form. None if one is a matrix, or if S has a jump."""
        if not all(isinstance(symbol, Symbol) for symbol in self.order_parameters):
            return None
        try:
            equations = self.equations
        except NotImplementedError:
            return None
        return Slopes({symbol: in_standard_form(slope) for symbol, slope in equations.items()})

    @cached_property
    def fixed_point(self) -> Mapping[Expr, Expr] | None:
        """Expression that the equations assign to each order parameter, or None.

        Iterating the map keeps overlaps of replica theories in their physical range. Each
        equation c x + r = 0 assigns -r / c to one x, with c free of order parameters if
        possible.
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

    def eliminate(self, *symbols: Symbol | MatrixSymbol | str) -> Action:
        r"""Return the action with some order parameters at their stationary values.

        The equation dS/dx = 0 must have one solution for x in its domain. If S is linear
        in x, the equation constrains the others. It is then solved for another order
        parameter, one of `symbols` if possible, and both are eliminated.

        Both actions have the same stationary points, values and derivatives. The index
        falls by the number of negative eigenvalues of the eliminated block of the
        Hessian. Values are in `definitions` of the steps of the new `derivation`.

        Raises:
            ValueError: If a symbol is not an order parameter, if none would be left, or
                if an equation has no solution or several.
        """
        names = {symbol.name: symbol for symbol in self.order_parameters}
        asked = [names.get(each) if isinstance(each, str) else each for each in symbols]
        if not asked or not set(asked) <= set(self.order_parameters):
            raise ValueError(f"symbols must be among the order parameters {', '.join(names)}, got {shown(symbols)}")
        pending, left = list(dict.fromkeys(asked)), dict(self.order_parameters)
        ranges = {s: Interval.open(d.low, d.high) for s, d in left.items() if d.has_edges}
        steps, expression = list(self.derivation.steps if self.derivation else ()), self.expression
        while pending:
            slopes = {symbol: gradient(expression, symbol) for symbol in pending}
            symbol = max(pending, key=lambda each: not slopes[each].has(each))
            eliminate, choices, reasons = solving.eliminate, [(symbol,)], []
            if not slopes[symbol].has(symbol):
                # A multiplier is eliminated with an order parameter of its equation.
                eliminate, others = solving.eliminate_constrained, [*pending, *(s for s in left if s not in pending)]
                choices = [(symbol, other) for other in others if slopes[symbol].has(other)]
            for which in choices:
                try:
                    steps.append(eliminate(expression, *which, ranges, section="elimination of order parameters"))
                    break
                except solving.RuleError as error:
                    reasons.append(str(error))
            else:
                reason = "; ".join(reasons) or f"dS/d{symbol.name} contains no order parameter"
                raise ValueError(f"{symbol.name} cannot be eliminated: {reason}")
            expression = steps[-1].after
            left = {each: domain for each, domain in left.items() if each not in which}
            pending = [each for each in pending if each in left]
        if not left:
            raise ValueError("symbols must leave at least one order parameter, but all would be eliminated")
        sizes = self.derivation.sizes if self.derivation else ({}, {})
        sizes = tuple({**{s: 2 + i for s in _sides(self.symbols)}, **known} for i, known in enumerate(sizes))
        derivation = Derivation(tuple(steps), sizes)
        return replace(self, expression=expression, order_parameters=left, derivation=derivation)

    def render_latex(self) -> str:
        """Return the action and its saddle-point equations as one LaTeX `align*` environment."""
        return as_latex([each for each in self._view() if isinstance(each, Equation)], fragment=True)

    def render_markdown(self) -> str:
        """Return the action, its domains and its saddle-point equations as Markdown."""
        return as_markdown(self._view())

    def with_nodes(self, nodes: int) -> Action:
        """Return the same action with `nodes` quadrature nodes, up to 10,000, in its Gaussian averages."""
        return replace(self, expression=with_nodes(self.expression, checked_whole_number("nodes", nodes, least=2)))

    @cached_property
    def nodes(self) -> int:
        """Largest number of nodes in the averages, zero without averages."""
        averages = self.expression.atoms(GaussianAverage)
        return max((_FINEST if each.is_adaptive else each.nodes for each in averages), default=0)

    @cached_property
    def is_nested(self) -> bool:
        """Whether an average contains another."""
        return any(each.integrand.has(GaussianAverage) for each in self.expression.atoms(GaussianAverage))

    @cached_property
    def finer(self) -> Action:
        """The same action with more nodes, or fewer next to the limit. The changes are the errors of averages."""
        # Few nodes more may miss the same narrow bump, and an even number that at zero.
        more = min(2 * self.nodes, MOST_NODES) if self.is_nested else MOST_NODES - 1
        return self.with_nodes(more if more >= 2 * self.nodes else self.nodes // 4)

    @cached_property
    def finest(self) -> Action:
        """The same action with so many nodes that averages are accurate in all but extreme cases."""
        # Averages of averages would have millions of nodes.
        return self if self.is_nested or not 0 < self.nodes < _FINEST else self.with_nodes(_FINEST)

    # Functions of all symbols by name, in JAX.

    @cached_property
    def compiled(self) -> CompiledFunction:
        """The terms of S, `term_0`, `term_1`, ..."""
        terms = {f"term_{i}": term for i, term in enumerate(self.terms)}
        return compile_expressions("action", terms, self.symbols)

    @cached_property
    def compiled_scale(self) -> CompiledFunction:
        return compile_expressions("size_of_action", {"scale": self.scale}, self.symbols)

    @cached_property
    def compiled_slopes(self) -> CompiledFunction:
        """The terms `slope_i_j` of `standard_equations`."""
        slopes = [Add.make_args(slope) for slope in self.standard_equations.values()]
        terms = {f"slope_{i}_{j}": term for i, slope in enumerate(slopes) for j, term in enumerate(slope)}
        return compile_expressions("slopes", terms, self.symbols)

    @cached_property
    def compiled_fixed_point(self) -> CompiledFunction:
        """The values of `fixed_point` by name."""
        return compile_expressions("fixed_point", {s.name: to for s, to in self.fixed_point.items()}, self.symbols)

    @cached_property
    def rounding_effects(self) -> Callable[..., Float[Array, "output part"]]:
        """Effects of relative errors of one in sums within terms, on S and on `standard_equations`.

        They may exceed the terms: at a small x, log(1 + x^2) has the rounding error of 1.
        """
        return rounding_effects([self.expression, *(self.standard_equations or {}).values()], self.symbols)


def _scalar(name: str, value: Any) -> Expr:
    """Return a scalar expression. A matrix of one entry, such as x^T K x, becomes its trace."""
    expression = value if isinstance(value, Expr) else sympify(checked_number(name, value))
    if expression.is_Matrix and expression.shape != (1, 1):
        raise ValueError(f"{name} must be a scalar expression, got one of shape {expression.shape}")
    return with_log_normal_cdf(Trace(expression) if expression.is_Matrix else expression)


def _sides(symbols: Iterable[Expr]) -> dict[Symbol, None]:
    """Return the symbols in the shapes of matrices, each once."""
    sides = [side for symbol in symbols for side in getattr(symbol, "shape", ())]
    return dict.fromkeys(size for side in sides for size in sorted(side.free_symbols, key=str))


def _update(equation: Expr, symbol: Symbol, symbols: tuple[Symbol, ...]) -> tuple[int, Expr | None]:
    """Return the cost of solving an equation for `symbol`, and the resulting expression."""
    terms = Add.make_args(equation)
    proportional = [term for term in terms if term.as_powers_dict().get(symbol, 0) == 1]
    linear = [term for term in proportional if not (term / symbol).has(symbol)]
    if not proportional:
        return _NONE, None
    if not linear:
        # The equation has a term x c(x), as in q / (1 - q)^2.
        return _VARYING + 1, -(equation - proportional[0]) * symbol / proportional[0]
    coefficient, rest = Add(*(term / symbol for term in linear)), Add(*(term for term in terms if term not in linear))
    if coefficient.has(*symbols):
        return _VARYING, -rest / coefficient
    return (_IMPLICIT if rest.has(symbol) else _SOLVED), -rest / coefficient


def shapes_of(action: Action, given: Mapping[str, Any], guesses: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every symbol of the action, () for numbers."""
    given = {s.name: given[s.name] for s in action.parameters if s.name in action._matrices or s in action.sizes}
    given |= {name: guess for name, guess in guesses.items() if np.ndim(guess) == 2}
    arrays = [symbol for symbol in action.symbols if symbol.name in given]
    shapes, known, sides = {symbol.name: () for symbol in action.symbols}, bound_sizes(arrays), {}
    for symbol in action.symbols:
        for axis, side in enumerate(getattr(symbol, "shape", ())):
            if unknown := sorted(size.name for size in side.free_symbols - known):
                raise ValueError(f"no value determines the size {unknown[0]} of {symbol}; give one in `initial`")
            sides[f"{symbol.name}_{axis}"] = side
            shapes[symbol.name] += (f"{symbol.name}_{axis}",)
    given = {name: value if is_traced(value) else np.asarray(value) for name, value in given.items()}
    found = compile_expressions("shapes", sides, arrays)(**given) if sides else {}
    return {name: tuple(int(found[side]) for side in shape) for name, shape in shapes.items()}


def named(
    what: str, values: Mapping[Expr | str, Any], admitted: Iterable[Expr], *, every: bool = False
) -> dict[str, Any]:
    """Return `values` by name. Only `admitted` names may occur, and all must if `every`."""
    given, names = by_name(what, values), [symbol.name for symbol in admitted]
    if unknown := [key for key in given if key not in names]:
        raise ValueError(f"{what} names {shown(unknown[0])}, which is not one of {', '.join(names) or 'none'}")
    if every and (missing := [name for name in names if name not in given]):
        raise ValueError(f"{what} has no value for {', '.join(missing)}")
    return given


def checked_values(
    action: Action, symbols: Sequence[Expr], what: str, values: Mapping, label: str, *, closed: bool = False
) -> tuple[dict[str, Array], dict[str, int]]:
    """Return arrays of numbers and matrices, and sizes, by name, from values in their domains.

    `what` and `label` make names in error messages. `closed`: edges belong to domains.
    """
    arrays, sizes, given = {}, {}, named(what, values, symbols, every=True)
    for symbol in symbols:
        name, value = label.format(symbol.name), given[symbol.name]
        if symbol in action.sizes:
            sizes[symbol.name] = checked_whole_number(name, value, least=1)
            continue
        array = numeric_array(name, value)
        if symbol.name in action._matrices and array.ndim != 2:
            raise ValueError(f"{name} must be a matrix, got shape {array.shape}")
        check_value(name, symbol, array, action.order_parameters.get(symbol), closed=closed)
        arrays[symbol.name] = jnp.asarray(array)
    return arrays, sizes


def check_shapes(arrays: Mapping[str, Array], shapes: Mapping[str, tuple], label: str) -> None:
    for name, array in arrays.items():
        if array.shape != shapes[name]:
            hint = "" if shapes[name] else "; for several values use jax.vmap"
            raise ValueError(f"{label.format(name)} must have shape {shapes[name]}, got {array.shape}{hint}")


def indefinite(action: Action, values: Mapping[str, Any]) -> str:
    """Name the first matrix that is not positive definite as assumed at these values, or return ""."""
    assumed = sorted(action.expression.atoms(AssumedPositiveDefinite), key=lambda node: node.sort_key())
    matrices = {f"matrix_{i}": node.matrix for i, node in enumerate(assumed)}
    arrays = {name: value if isinstance(value, int) else jnp.asarray(value) for name, value in values.items()}
    found = compile_expressions("assumed", matrices, action.symbols)(**arrays) if assumed else {}
    for node, value in zip(assumed, map(np.asarray, found.values()), strict=True):
        # NaN comes from the inverse of another such matrix.
        if np.all(np.isfinite(value)) and not (smallest := np.linalg.eigvalsh(value)[0]) > 0:
            return f"{shown(node.matrix)} is not positive definite, its smallest eigenvalue is {smallest:.3g}"
    return ""


@jit
def _evaluated(action: Action, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Float[Array, "..."]:
    """Evaluate S at matrices, and at numbers that broadcast."""
    numbers = [name for name in arrays if name not in action._matrices]

    def evaluate(*values):
        results = action.compiled(**{**arrays, **dict(zip(numbers, values, strict=True))}, **sizes)
        return sum(jnp.asarray(value, dtype=float) for value in results.values())

    return jnp.vectorize(evaluate)(*map(arrays.get, numbers)) if numbers else evaluate()
