"""Bound the quadrature error of Gaussian averages with the composite rule."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sympy import Basic, Expr, MatrixSymbol, Symbol

from .._compat import require_float64
from ..checks import by_name, checked_instance
from ..symbolic.atoms import bound_outside
from ..symbolic.averages import GaussianAverage, bounded
from .compiled import CompiledFunction, bound_sizes, compile_expressions, symbols_of

# Number of error bounds to add to the averages, 1 or -1. It is a symbol, so one compiled function gives both ends.
_SIDE = Symbol("stated_errors", real=True)


def quadrature_error(expression: Expr, values: Mapping[str | Expr, Any]) -> np.ndarray | float:
    """Bound the error in the value of `expression` from the quadrature of its Gaussian averages.

    Args:
        expression: a scalar or matrix expression.
        values: numbers and arrays by symbol or by name.

    Returns:
        An array with the shape of the value. It is the sum over averages of the changes that their error bounds cause.
        It is zero if there are no averages, and infinite if an average is infinite or cannot be resolved.

    Raises:
        ValueError: a symbol has no value.

    Example:
        >>> from sympy import symbols
        >>> from theorykit.codegen import quadrature_error
        >>> from theorykit.symbolic import GaussianAverage
        >>> z = symbols("z")
        >>> float(quadrature_error(GaussianAverage(z**2, z), {})) < 1e-12
        True
    """
    arguments, given = _arguments(expression, values)
    found = _averages(expression, arguments, given)
    held = {average: Symbol(f"average_{i}_of", real=True) for i, average in enumerate(found)}
    # Averages inside functions of matrix entries have a different value per entry, and stay in the expression.
    left = expression.xreplace(held)
    function = _compiled((("value", left), ("bound", bounded(left, _SIDE))), (*arguments, *held.values(), _SIDE))
    means = {symbol.name: found[average][0] for average, symbol in held.items()}

    def at(name: str, side: float, **moved: Any) -> np.ndarray:
        return np.asarray(function(**{**given, **means, **moved, _SIDE.name: side})[name])

    value = at("value", 1.0)
    error = np.maximum(*(np.abs(at("bound", side) - value) for side in (1.0, -1.0)))
    for average, symbol in held.items():
        mean, own = found[average]
        ends = (at("value", 1.0, **{symbol.name: mean + side * own}) for side in (1, -1))
        error = error + np.maximum(*(np.abs(end - value) for end in ends))
    return np.where(np.isnan(error), np.inf, error)


def average_errors(
    expression: Expr, values: Mapping[str | Expr, Any]
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
    return _averages(expression, *_arguments(expression, values))


def _arguments(expression, values):
    require_float64()
    checked_instance("expression", expression, Expr, "a SymPy expression")
    given = {name: jnp.asarray(value) for name, value in by_name("values", values).items()}
    symbols = sorted(symbols_of(expression), key=lambda symbol: symbol.name)
    known = [symbol for symbol in symbols if symbol.name in given]
    # Read sizes from shapes: a size that is an argument would have no known value in compiled code.
    sizes = bound_sizes([symbol for symbol in known if isinstance(symbol, MatrixSymbol)])
    arguments = [symbol for symbol in known if symbol not in sizes]
    if missing := [symbol.name for symbol in symbols if symbol not in {*arguments, *bound_sizes(arguments)}]:
        raise ValueError(f"values has no entries for {', '.join(missing)}, which occur in the expression")
    return tuple(arguments), {symbol.name: given[symbol.name] for symbol in arguments}


def _averages(expression, arguments, given):
    averages = list(dict.fromkeys(_outermost(expression)))
    outputs = {f"value_{i}": average for i, average in enumerate(averages)}
    outputs |= {f"bound_{i}": bounded(average, _SIDE) for i, average in enumerate(averages)}
    function = _compiled(tuple(outputs.items()), (*arguments, _SIDE))
    upper, lower = (function(**given, **{_SIDE.name: side}) for side in (1.0, -1.0)) if averages else ({}, {})
    errors = {}
    for i, average in enumerate(averages):
        value = np.asarray(upper[f"value_{i}"])
        error = np.maximum(*(np.abs(np.asarray(each[f"bound_{i}"]) - value) for each in (upper, lower)))
        errors[average] = value, np.where(np.isnan(error), np.inf, error)
    return errors


def _outermost(expression: Basic) -> Iterator[GaussianAverage]:
    """Yield the averages that are not inside another average."""
    if isinstance(expression, GaussianAverage) and not bound_outside(expression):
        yield expression
    elif not isinstance(expression, GaussianAverage):
        for argument in expression.args:
            yield from _outermost(argument)


@lru_cache(maxsize=256)
def _compiled(outputs: tuple[tuple[str, Expr], ...], arguments: tuple[Expr, ...]):
    function: CompiledFunction = compile_expressions("errors", dict(outputs), arguments)
    return jax.jit(lambda **given: function(**given))
