"""Numeric functions: JAX code with a name, and derivatives that are expressions or come from JAX."""

from __future__ import annotations

import copyreg
import inspect
import keyword
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float as Floats
from sympy import Dummy, Expr, Float, Function, sympify
from sympy.core.function import FunctionClass

from .._compat import require_float64
from ..checks import checked_function, checked_sequence, checked_text, counted, first_line, shown
from .notation import enclosed, escaped, power

Interval = tuple[float | int | Expr, float | int | Expr]

# Test points in an infinite interval are within this distance of zero, or within twice this distance of its finite end.
_FAR = 8.0
# Number of test points.
_POINTS = 12
# Step of the differences with which derivatives are compared, and their relative tolerance.
_STEP, _TOLERANCE = 1e-5, 1e-6


class _NumericClass(FunctionClass):
    """Class of numeric functions. Classes made at run time are pickled through their definitions."""

    def __repr__(cls):
        # Print like other classes, because checks of annotations rely on this.
        return type.__repr__(cls)


copyreg.pickle(_NumericClass, lambda cls: vars(cls).get("definition") or cls.__qualname__)


class NumericFunction(Function, metaclass=_NumericClass):
    """Function of numbers with JAX code. Subclasses set these attributes, by hand or through `numeric_function`."""

    # JAX code that acts on arrays and broadcasts.
    implementation: Callable
    # For each argument, the derivative as a function of expressions, or None to differentiate with JAX.
    slopes: tuple[Callable[..., Expr] | None, ...] = ()
    # The function that makes the class, and its arguments, for pickling.
    definition: tuple[Callable, tuple[Any, ...]] | None = None
    # Order of the derivative with respect to each argument, in classes that JAX differentiates.
    orders: tuple[int, ...] = ()

    def fdiff(self, argindex=1):
        """Return the given derivative, or the derivative by JAX if none was given."""
        slope = self.slopes[argindex - 1] if self.slopes else None
        return (slope or type(self).derivative(argindex))(*self.args)

    @classmethod
    def derivative(cls, index: int = 1) -> _NumericClass:
        """Return the JAX derivative with respect to argument `index`."""
        kind = cls.__base__ if cls.orders else cls
        orders = cls.orders or (0,) * max(cls.nargs)
        return _derivative(kind, tuple(order + (i == index - 1) for i, order in enumerate(orders)))

    def _eval_evalf(self, prec):
        # Evaluate the JAX code. SymPy would use an mpmath function that happens to have the same name.
        numbers = [argument._eval_evalf(prec) if argument.args else argument for argument in self.args]
        if not all(number.is_number and number.is_real for number in numbers):
            return None
        return Float(float(compiled(type(self))(*map(float, numbers))), precision=min(prec, 53))

    def _eval_is_real(self):
        return True if all(argument.is_real for argument in self.args) else None

    def _latex(self, printer, exp=None):
        name, arguments = self._notation(printer)
        return power(name + self._marks("^{(%s)}") + arguments, exp)

    def _notation(self, printer):
        """Return the LaTeX of the function and of its arguments in brackets."""
        name = rf"\operatorname{{{escaped(type(self).__name__)}}}"
        return name, enclosed(", ".join(map(printer._print, self.args)))

    def _sympystr(self, printer):
        return f"{type(self).__name__}{self._marks('^(%s)')}({', '.join(map(printer._print, self.args))})"

    def _marks(self, form):
        """Mark the derivative of a function of one argument with dashes, and otherwise with the orders."""
        if len(self.orders) == 1:
            return "'" * self.orders[0]
        return form % ", ".join(map(str, self.orders)) if self.orders else ""


def numeric_function(
    name: str,
    f: Callable[..., Any],
    df: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    *,
    domain: Interval | Sequence[Interval] = (-math.inf, math.inf),
) -> type[NumericFunction]:
    """Make a scalar function from JAX code, for use in expressions and actions.

    The function must be real and finite on its domain, and its derivative must agree with differences of `f`. Both are
    checked at test points. Two functions are equal if their names, code and derivatives are equal. Expressions with
    such a function can be pickled if `f` and `df` can be imported by name.

    Args:
        name: An identifier, for printed expressions and generated code.
        f: JAX code that takes one or several numbers, such as `lambda x: jnp.arctan(x) ** 2`.
        df: The derivative: a function of SymPy expressions, such as `lambda x: 2 * atan(x) / (1 + x**2)`, another
            numeric function, or JAX code. If `f` has several arguments, one derivative per argument. By default, JAX
            differentiates `f`.
        domain: The interval on which the function is defined, or one interval per argument. Ends may be infinite.

    Returns:
        A SymPy function class. Call it with expressions: `f(x)`.

    Raises:
        ValueError: If the function or its derivative is wrong at a point. The message names the point.

    Example:
        >>> import jax.numpy as jnp
        >>> import theorykit
        >>> from sympy import symbols
        >>> from theorykit.symbolic import gradient, numeric_function
        >>> theorykit.enable_float64()
        >>> x = symbols("x", real=True)
        >>> square = numeric_function("square", lambda x: x * x)
        >>> gradient(square(3 * x), x)
        3*square'(3*x)
    """
    require_float64()
    checked_text("name", name)
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"name must be an identifier, got {shown(name)}")
    checked_function("f", f)
    intervals = checked_sequence("domain", domain, "the ends of an interval, or one interval per argument")
    if len(intervals) == 2 and np.ndim(intervals[0]) == np.ndim(intervals[1]) == 0:
        parameters = inspect.signature(f).parameters.values()
        required = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
        intervals = (intervals,) * len(required)
    intervals = tuple(tuple(map(float, interval)) for interval in intervals)
    if not intervals or not all(len(interval) == 2 and interval[0] < interval[1] for interval in intervals):
        raise ValueError(f"domain must be one interval (low, high) per argument with low < high, got {shown(domain)}")
    given = () if df is None else tuple(df) if isinstance(df, (list, tuple)) else (df,)
    if df is not None and len(given) != len(intervals):
        count = counted(len(intervals), "argument")
        raise ValueError(f"df must be one derivative for each of {count}, got {shown(df)}")
    for each in given:
        checked_function("df", each)
    made = _made(name, f, given, intervals)
    points = _test_points(intervals)
    _check(made, points)
    # Solvers need second derivatives. A derivative given as JAX code was checked when it was defined, and a derivative
    # given as an expression is differentiated symbolically.
    for i in range(1, len(intervals) + 1) if df is None else ():
        _check(made.derivative(i), points)
    return made


@cache
def _made(name: str, f: Callable, df: tuple[Callable, ...], intervals: tuple[Interval, ...]) -> _NumericClass:
    """Return the class of a definition. It is kept, so that expressions are equal if their functions are."""
    attributes = {
        "__module__": __name__,
        "nargs": len(intervals),
        "implementation": staticmethod(_of_arrays(name, f)),
        "slopes": tuple(_slope(name, each, intervals) for each in df),
        "definition": (_made, (name, f, df, intervals)),
    }
    return _NumericClass(name, (NumericFunction,), attributes)


def _slope(name: str, df: Callable, intervals: tuple[Interval, ...]) -> Callable[..., Expr]:
    """Return a derivative as a function of expressions. JAX code becomes a numeric function."""
    # JAX rejects SymPy expressions with many kinds of errors.
    with suppress(Exception):
        if isinstance(sympify(df(*(Dummy(real=True) for _ in intervals))), Expr):
            return df
    try:
        return numeric_function(f"{name}_slope", df, domain=intervals)
    except ValueError as error:
        raise ValueError(f"df of {name} must be a function of expressions or JAX code: {error}") from error


@cache
def _derivative(kind: _NumericClass, orders: tuple[int, ...]) -> _NumericClass:
    """Return the class of a derivative by JAX. It prints and is pickled through the class of the function."""
    value = kind.implementation
    for i, order in enumerate(orders):
        for _ in range(order):
            value = slope_along(value, i)
    attributes = {
        "__module__": __name__,
        "implementation": staticmethod(_of_arrays(kind.__name__, value)),
        "orders": orders,
        "definition": (_derivative, (kind, orders)),
    }
    return _NumericClass(kind.__name__, (kind,), attributes)


@cache
def compiled(kind: type[NumericFunction]) -> Callable[..., Any]:
    """Return the code of a function, compiled. The interpreter calls it often, and operations alone are slow."""
    return jax.jit(kind.implementation)


def _of_arrays(name: str, value: Callable) -> Callable:
    """Return JAX code of numbers as a function of arrays."""

    def real(number, verb):
        if jnp.iscomplexobj(number):
            raise ValueError(f"{name} must {verb} real numbers, got complex numbers")
        return jnp.asarray(number, float)

    @jnp.vectorize
    def of_numbers(*numbers):
        found = real(value(*numbers), "return")
        if found.ndim:
            raise TypeError(f"f must return a number if its arguments are numbers, got an array of shape {found.shape}")
        return found

    return lambda *arrays: of_numbers(*(real(array, "take") for array in arrays))


def slope_along(value: Callable, i: int) -> Callable:
    """Differentiate JAX code with respect to argument i. Forward mode also allows loops of unknown length."""

    def slope(*numbers):
        def of_one(number):
            found = jnp.asarray(value(*numbers[:i], number, *numbers[i + 1 :]), float)
            return jnp.broadcast_to(found, jnp.broadcast_shapes(found.shape, *map(jnp.shape, numbers)))

        return jax.jvp(of_one, (numbers[i],), (jnp.ones_like(numbers[i]),))[1]

    return slope


def _test_points(intervals: Sequence[Interval]) -> Floats[np.ndarray, "points arguments"]:
    """Choose points in the domain by a Kronecker sequence. Its irrational steps avoid kinks."""
    columns = []
    for i, (low, high) in enumerate(intervals):
        if math.isinf(low):
            low = -_FAR if math.isinf(high) else high - 2 * _FAR
        high = low + 2 * _FAR if math.isinf(high) else high
        steps = np.arange(1, _POINTS + 1) * math.sqrt((2, 3, 5, 7, 11, 13)[i % 6])
        columns.append(low + (high - low) * (steps % 1))
    return np.stack(columns, axis=1)


def _check(function: _NumericClass, points: Floats[np.ndarray, "points arguments"]) -> None:
    """Compare the derivatives of a function with central differences at test points."""
    name, count = function.__name__, points.shape[1]
    what, by = "the derivative by JAX of f" if function.orders else "f", "by df" if function.slopes else "by JAX"
    step = _STEP * min(1.0, *np.ptp(points, axis=0))
    moves = step * np.concatenate([np.zeros((1, count)), np.eye(count), -np.eye(count)])
    variables = [Dummy(real=True) for _ in range(count)]
    derivatives = [sympify(function(*variables).fdiff(i + 1)) for i in range(count)]
    for point in points:
        place = ", ".join(f"{number:.6g}" for number in point)
        try:
            here, *ends = np.asarray(compiled(function)(*(point + moves).T))
        except Exception as error:
            raise ValueError(f"{what} of {name} must be JAX code of numbers: {first_line(error)}") from error
        if not math.isfinite(here):
            raise ValueError(
                f"{what} of {name} is {here} at {place}; pass domain=(low, high) if it is defined only on an interval"
            )
        given = [each.subs(dict(zip(variables, point, strict=True))).evalf() for each in derivatives]
        for slope in given:
            if not (slope.is_number and slope.is_finite and slope.is_real):
                raise ValueError(f"the derivative of {name} {by} is {slope} at {place}")
        above, below = np.split(np.array(ends), 2)
        found, expected = np.array(given, float), (above - below) / (2 * step)
        if not np.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE * max(1.0, abs(here))):
            found, expected = (", ".join(f"{number:.6g}" for number in numbers) for numbers in (found, expected))
            raise ValueError(f"the derivative of {name} at {place} is {expected} by differences, but {found} {by}")
