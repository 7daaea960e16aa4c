"""Numeric functions of users: a name, JAX code, and a derivative that is checked when the function is defined."""

from __future__ import annotations

import copyreg
import inspect
import keyword
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sympy import Dummy, Expr, Float, Function, sympify
from sympy.core.function import ArgumentIndexError, FunctionClass

from ..checks import checked_function, checked_sequence, checked_text, counted, first_line, shown
from ..precision import require_float64

Interval = tuple[float | int | Expr, float | int | Expr]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# Test points in an infinite interval are within this distance of zero, or within twice this distance of its finite end.
_FAR = 8.0
# Number of test points.
_POINTS = 12
# Relative tolerance of derivatives against finite differences. The estimated error of the differences is added.
_TOLERANCE = 1e-6


class _NumericClass(FunctionClass):
    """Class of numeric functions. They are pickled through their definitions."""

    def __repr__(cls):
        # Print like other classes, because checks of annotations rely on this.
        return type.__repr__(cls)


class NumericFunction(Function, metaclass=_NumericClass):
    """Function of numbers with JAX code, made by `numeric_function`, which sets these attributes on each new class."""

    # JAX code that acts on arrays.
    implementation: Callable
    # For each argument, a function of expressions that returns the derivative. None to differentiate with JAX.
    slopes: tuple[Callable[..., Expr], ...] | None = None
    # Arguments of `_made` that rebuild the class, for pickling.
    definition: tuple[Any, ...] = ()
    # Name of the function without marks of derivatives.
    own_name: str = ""
    # Order of the derivative with respect to each argument.
    orders: tuple[int, ...] = ()

    def fdiff(self, argindex=1):
        """Return the given derivative, or the derivative by JAX if none was given."""
        if not 1 <= argindex <= len(self.args):
            raise ArgumentIndexError(self, argindex)
        slope = self.slopes[argindex - 1] if self.slopes else type(self).derivative(argindex)
        return slope(*self.args)

    @classmethod
    def derivative(cls, index: int = 1) -> _NumericClass:
        """Return the JAX derivative with respect to argument `index`."""
        orders = tuple(order + (i == index - 1) for i, order in enumerate(cls.orders))
        return _made(*cls.definition[:4], orders)

    def _eval_evalf(self, prec):
        # Evaluate the JAX code. SymPy would use an mpmath function that happens to have the same name.
        numbers = [argument._eval_evalf(prec) if argument.args else argument for argument in self.args]
        if not all(number.is_number and number.is_real for number in numbers):
            return None
        return Float(float(type(self).implementation(*map(float, numbers))), precision=min(prec, 53))

    def _eval_is_real(self):
        return True if all(argument.is_real for argument in self.args) else None

    def _latex(self, printer, exp=None):
        name = rf"\operatorname{{{self.own_name.replace('_', chr(92) + '_')}}}" + self._order("^{(%s)}", 3)
        text = rf"{name}\left({', '.join(map(printer._print, self.args))}\right)"
        return text if exp is None else rf"\left({text}\right)^{{{exp}}}"

    def _sympystr(self, printer):
        return f"{self.own_name}{self._order('^(%s)')}({', '.join(map(printer._print, self.args))})"

    def _order(self, form, most=math.inf):
        """Write the derivative of a function of one argument with dashes, and otherwise with the orders."""
        if not any(self.orders):
            return ""
        if len(self.orders) == 1 and self.orders[0] <= most:
            return "'" * self.orders[0]
        return form % ", ".join(map(str, self.orders))


def numeric_function(
    name: str,
    f: Callable[..., Any],
    df: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    *,
    domain: Interval | Sequence[Interval] = (-math.inf, math.inf),
) -> type[NumericFunction]:
    """Make a scalar function from JAX code, for use in expressions and actions.

    The function must be finite on its domain, and its derivative must agree with differences of `f`. Both are checked
    at test points. Two functions are equal if their names, code and derivatives are equal. Expressions with such a
    function can be pickled if `f` and `df` can be imported by name.

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
    values = checked_sequence("domain", domain, "the ends of an interval, or one interval per argument")
    if len(values) == 2 and all(np.ndim(value) == 0 for value in values):
        try:
            parameters = inspect.signature(f).parameters.values()
        except (TypeError, ValueError):  # of built-in functions
            parameters = ()
        needed = sum(each.kind in _POSITIONAL and each.default is each.empty for each in parameters)
        values = (values,) * max(1, needed)
    intervals = []
    for i, interval in enumerate(values):
        ends = checked_sequence(f"domain[{i}]", interval, "the ends of an interval", length=2)
        if not all(isinstance(end, (int, float, Expr)) and not isinstance(end, bool) for end in ends):
            raise TypeError(f"domain[{i}] must be two numbers, got {shown(interval)}")
        low, high = map(float, ends)
        if not low < high:
            raise ValueError(f"domain[{i}] must be two numbers in ascending order, got {shown(interval)}")
        intervals.append((low, high))
    if not intervals:
        raise ValueError("domain must be an interval, got none")
    intervals = tuple(intervals)
    try:
        given = tuple(df) if isinstance(df, (list, tuple)) else df
        made = _made(name, f, given, intervals, (0,) * len(intervals))
    except TypeError as error:
        raise TypeError(f"f and df must be hashable: {first_line(error)}") from error
    _check(made, intervals)
    return made


# Cache classes by definition, so that expressions are equal if their functions are.
_MADE: dict[tuple[Any, ...], _NumericClass] = {}


def _made(name: str, f: Callable, df: Any, intervals: tuple[Interval, ...], orders: tuple[int, ...]) -> _NumericClass:
    definition = (name, f, df, intervals, orders)
    if definition in _MADE:
        return _MADE[definition]
    slopes = None
    if any(orders):
        value = slope_of_orders(_made(name, f, df, intervals, (0,) * len(orders)).implementation, orders)
    else:
        value = f
        given = df if isinstance(df, tuple) else (df,)
        if df is not None and len(given) != len(intervals):
            raise ValueError(
                f"df must be one derivative for each of {counted(len(intervals), 'argument')}, got {shown(df)}"
            )
        slopes = None if df is None else tuple(_slope(name, each, intervals) for each in given)

    def of_numbers(*numbers):
        found = jnp.asarray(value(*numbers), float)
        if found.ndim:
            raise TypeError(f"f must return a number if its arguments are numbers, got an array of shape {found.shape}")
        return found

    def of_arrays(*arrays):
        arrays = jnp.broadcast_arrays(*(jnp.asarray(array, float) for array in arrays))
        if arrays[0].ndim == 0:
            return of_numbers(*arrays)
        flat = jax.vmap(of_numbers)(*(array.reshape(-1) for array in arrays))
        return flat.reshape(arrays[0].shape)

    attributes = {
        "__module__": __name__,
        "nargs": len(orders),
        "implementation": staticmethod(of_arrays),
        "slopes": slopes,
        "definition": definition,
        "own_name": name,
        "orders": orders,
    }
    _MADE[definition] = _NumericClass(name, (NumericFunction,), attributes)
    return _MADE[definition]


copyreg.pickle(_NumericClass, lambda cls: (_made, cls.definition) if cls.definition else cls.__qualname__)


def _slope(name: str, df: Any, intervals: tuple[Interval, ...]) -> Callable[..., Expr]:
    checked_function("df", df)
    try:
        written = sympify(df(*(Dummy(real=True) for _ in intervals)))
    except Exception:
        # JAX rejects SymPy expressions with many kinds of errors.
        written = None
    if isinstance(written, Expr):
        return df
    try:
        return numeric_function(f"{name}_slope", df, domain=intervals)
    except ValueError as error:
        raise ValueError(f"df of {name} must be a function of expressions or JAX code: {error}") from error


def slope_along(value: Callable, i: int) -> Callable:
    """Differentiate JAX code with respect to argument i. Forward mode also allows loops of unknown length."""

    def slope(*numbers):
        def of_one(number):
            found = jnp.asarray(value(*numbers[:i], number, *numbers[i + 1 :]), float)
            return jnp.broadcast_to(found, jnp.broadcast_shapes(found.shape, *map(jnp.shape, numbers)))

        return jax.jvp(of_one, (numbers[i],), (jnp.ones_like(numbers[i]),))[1]

    return slope


def slope_of_orders(value: Callable, orders: Sequence[int]) -> Callable:
    """Differentiate JAX code with respect to each argument as many times as its order."""
    for i, order in enumerate(orders):
        for _ in range(order):
            value = slope_along(value, i)
    return value


def _check(function: _NumericClass, intervals: tuple[Interval, ...]) -> None:
    # Choose test points in the domain, one per row, by a Kronecker sequence. Its irrational steps avoid kinks at round
    # numbers.
    columns = []
    for i, (low, high) in enumerate(intervals):
        if math.isinf(low):
            low = -_FAR if math.isinf(high) else high - 2 * _FAR
        high = low + 2 * _FAR if math.isinf(high) else high
        steps = np.arange(1, _POINTS + 1) * math.sqrt((2, 3, 5, 7, 11, 13)[i % 6])
        columns.append(low + (high - low) * (steps % 1))
    points = np.stack(columns, axis=1)
    _values(function, points, "f")
    # Solvers need second derivatives, so check the derivative of the JAX derivative as well. A derivative given as JAX
    # code was checked when it was defined, and a derivative given as an expression is differentiated symbolically.
    indices = range(1, len(intervals) + 1)
    for each in (function, *(function.derivative(i) for i in indices if function.slopes is None)):
        for i in indices:
            _check_slope(each, i, points, intervals[i - 1])


def _values(function: _NumericClass, points: np.ndarray, what: str) -> np.ndarray:
    try:
        values = np.asarray(jax.jit(function.implementation)(*points.T))
    except Exception as error:
        raise ValueError(f"{what} of {function.own_name} must be JAX code of numbers: {first_line(error)}") from error
    for point, value in zip(points, values, strict=True):
        if not math.isfinite(value):
            raise ValueError(
                f"{what} of {function.own_name} is {value} at {_shown_point(point)}; pass domain=(low, high) if it is "
                "defined only on an interval"
            )
    return values


def _check_slope(function: _NumericClass, index: int, points: np.ndarray, interval: Interval) -> None:
    """Compare a derivative with fourth-order differences, at the step size at which the differences change least."""
    if function.slopes is None:
        given = _values(function.derivative(index), points, "the derivative by JAX of f")
    else:
        variables = [Dummy(real=True) for _ in points[0]]
        slope = sympify(function.slopes[index - 1](*variables))
        given = np.empty(len(points))
        for i, point in enumerate(points):
            value = slope.xreplace(dict(zip(variables, map(Float, point), strict=True))).evalf()
            if not (value.is_number and value.is_finite and value.is_real):
                raise ValueError(f"df of {function.own_name} is {value} at {_shown_point(point)}")
            given[i] = float(value)
    place = points[:, index - 1]
    room = np.minimum(place - interval[0], interval[1] - place)
    steps = [np.minimum(10.0**-k * np.maximum(1, np.abs(place)), room / 4) for k in (1, 2, 3, 4)]
    along = np.eye(points.shape[1])[index - 1]

    # Evaluate all points at once, so that JAX compiles once.
    steps = np.stack([*steps, *(step / 2 for step in steps)])
    shifts = np.array([-2, -1, 1, 2])[:, None, None] * steps
    ends = (points + shifts[..., None] * along).reshape(-1, points.shape[1])
    low, below, above, high = np.asarray(jax.jit(function.implementation)(*ends.T)).reshape(shifts.shape)
    # Use five-point differences, whose error is of fourth order in the step.
    found, finer = np.split((8 * (above - below) - (high - low)) / (12 * steps), 2)
    errors = np.where(np.isfinite(found - finer), np.abs(found - finer), np.inf)
    best = np.argmin(errors, axis=0), np.arange(len(points))
    tolerance = 10 * errors[best] + _TOLERANCE * np.abs(finer[best]) + 1e-9 * np.max(np.abs(given))
    for point, slope, expected, allowed in zip(points, given, finer[best], tolerance, strict=True):
        if not abs(slope - expected) <= allowed:
            which = f"by argument {index} " if len(point) > 1 else ""
            raise ValueError(
                f"the derivative of {function.own_name} {which}at {_shown_point(point)} is {expected:.6g} by "
                f"differences, but {slope:.6g} {'by df' if function.slopes is not None else 'by JAX'}"
            )


def _shown_point(point: np.ndarray) -> str:
    return ", ".join(f"{number:.6g}" for number in point)
