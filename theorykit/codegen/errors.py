"""Bound errors in the values of expressions: of the quadrature of averages, and of rounding in sums."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sympy import Add, Basic, Expr, Function, Inverse, KroneckerProduct, MatrixSymbol, Mul, Pow, Symbol

from .._compat import require_float64
from .._jit import usual_settings
from ..checks import by_name, checked_instance
from ..symbolic.atoms import LogDet, bound_outside
from ..symbolic.averages import GaussianAverage
from ..symbolic.matrix_functions import AssumedPositiveDefinite
from .compiled import bound_sizes, compile_expressions, symbols_of
from .evaluate import At
from .jax_algebra import Jax
from .sizes import sizes_of

Values = Mapping[str | Expr, Any]


def average_errors(
    expression: Expr, values: Values
) -> dict[GaussianAverage, tuple[np.ndarray | float, np.ndarray | float]]:
    """Return the value and an error bound for every Gaussian average in `expression`.

    Args:
        expression: a scalar or matrix expression.
        values: numbers and arrays by symbol or by name.

    Returns:
        Pairs of value and error by average. The error is infinite if the average is infinite or cannot be resolved. An
        average inside another average is included in the outer one. Averages inside functions of matrix entries are
        omitted.

    Raises:
        ValueError: a symbol has no value.

    Example:
        >>> from sympy import symbols, tanh
        >>> from theorykit.codegen import average_errors
        >>> from theorykit.symbolic import GaussianAverage
        >>> z = symbols("z")
        >>> [(value, error)] = average_errors(GaussianAverage(tanh(50 * z - 10), z), {}).values()
        >>> bool(abs(value + 0.1585) < error < 0.1)
        True
    """
    checked_instance("expression", expression, Expr, "a SymPy expression")
    return {each: _value_and_error(each, values) for each in dict.fromkeys(_outermost(expression))}


def _outermost(expression: Basic) -> Iterator[GaussianAverage]:
    """Yield the averages that are not inside another average."""
    if not isinstance(expression, GaussianAverage):
        for argument in expression.args:
            yield from _outermost(argument)
    elif not bound_outside(expression):
        yield expression


@usual_settings()
def _value_and_error(expression: Expr, values: Values) -> tuple[np.ndarray, np.ndarray]:
    require_float64()
    given = {name: jnp.asarray(value) for name, value in by_name("values", values).items()}
    symbols = sorted(symbols_of(expression), key=lambda symbol: symbol.name)
    known = [symbol for symbol in symbols if symbol.name in given]
    # Read sizes from shapes: a size that is an argument would have no known value in compiled code.
    sizes = bound_sizes([symbol for symbol in known if isinstance(symbol, MatrixSymbol)])
    arguments = tuple(symbol for symbol in known if symbol not in sizes)
    if missing := [symbol.name for symbol in symbols if symbol not in {*arguments, *bound_sizes(arguments)}]:
        raise ValueError(f"values has no entries for {', '.join(missing)}, which occur in the expression")
    function, count = _with_sides(expression, arguments)
    own = {symbol.name: given[symbol.name] for symbol in arguments}
    results = [function(own, sides) for sides in np.concatenate([np.zeros((1, count)), np.eye(count), -np.eye(count)])]
    value, (centre, *ends) = np.asarray(results[0]["value"]), [np.asarray(each["end"]) for each in results]
    with np.errstate(invalid="ignore"):
        changes = [np.maximum(*(np.abs(end - centre) for end in ends[i::count])) for i in range(count)]
        error = np.abs(centre - value) + np.sum(changes, axis=0)
    return value, np.where(np.isnan(error), np.inf, error)


@lru_cache(maxsize=256)
def _with_sides(expression: Expr, arguments: tuple[Expr, ...]) -> tuple[Callable[..., dict[str, Array]], int]:
    """Compile the value, and the end to which each average moves by a number of its error bounds, its side."""
    sides: dict[tuple[Expr, Expr], Symbol] = {}

    def with_side(integrand: Expr, variable: Symbol, *_: Expr) -> GaussianAverage:
        side = sides.setdefault((integrand, variable), Symbol(f"stated_errors_{len(sides)}", real=True))
        return GaussianAverage(integrand, variable, "adaptive", side)

    outputs = {"value": expression, "end": expression.replace(GaussianAverage, with_side)}
    function = compile_expressions("errors", outputs, (*arguments, *sides.values()))
    names = [side.name for side in sides.values()]
    return jax.jit(lambda given, numbers: function(**given, **dict(zip(names, numbers, strict=True)))), len(names)


def rounding_effects(outputs: Sequence[Expr], arguments: Sequence[Expr]) -> Callable[..., Float[Array, "output part"]]:
    """Return a function of the arguments by name: effects of rounding on each output, to first order.

    The parts of inner sums have relative errors of one. Inner sums add numbers inside the terms of an output,
    except inside averages, whose errors are stated separately. A factorised n x n matrix A has the errors of Cholesky's
    algorithm, (n + 1) sqrt(A_ii A_jj) (N. J. Higham, Accuracy and Stability of Numerical Algorithms, Theorem 10.3).
    """
    parts: list[Expr] = []
    changes: dict[Expr, MatrixSymbol] = {}

    @cache
    def perturbed(node: Basic) -> Basic:
        has_parts = isinstance(node, (Add, Mul, Pow, Function)) or node.has(Inverse, LogDet)
        if isinstance(node, GaussianAverage) or not has_parts:
            return node
        inner = list(map(perturbed, node.args))
        if isinstance(node, AssumedPositiveDefinite):
            # Errors are not symmetric.
            return inner[0]
        if isinstance(node, (Inverse, LogDet)) and not isinstance(node.args[0], KroneckerProduct):
            change = MatrixSymbol(f"rounding_errors_{len(changes)}", *node.args[0].shape)
            return node.func(inner[0] + changes.setdefault(node.args[0], change))
        if isinstance(node, Add) and not node.is_number:
            first = len(parts)
            parts.extend(inner)
            inner = [part * (1 + errors[first + i, 0]) for i, part in enumerate(inner)]
        return node.func(*inner)

    errors = MatrixSymbol("rounding_errors", 10**6, 1)
    perturbed_outputs = [Add(*map(perturbed, Add.make_args(each))) for each in outputs]

    def effects(**values: Any) -> Array:
        given = {**values, **sizes_of(arguments, values, Jax)}
        matrices = {change.name: At(given, Jax)(matrix) for matrix, change in changes.items()}

        def results(relative: Array, changed: dict[str, Array]) -> Array:
            at = At({**given, errors.name: relative[:, None], **changed}, Jax)
            return jnp.stack([jnp.asarray(at(each), float) for each in perturbed_outputs])

        found, by_entry = jax.jacrev(results, (0, 1))(jnp.zeros(len(parts)), jax.tree.map(jnp.zeros_like, matrices))
        for name, matrix in matrices.items():
            size = jnp.sqrt((len(matrix) + 1) * jnp.abs(jnp.diagonal(matrix)))
            effect = jnp.einsum("oij,i,j->o", jnp.abs(by_entry[name]), size, size)
            found = jnp.concatenate([found, effect[:, None]], axis=1)
        return found

    return effects
