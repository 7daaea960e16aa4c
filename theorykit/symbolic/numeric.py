"""Numeric functions: JAX code with a name, and derivatives that are expressions or come from JAX."""

from __future__ import annotations

import copyreg
import inspect
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
from ..checks import checked_function, checked_instance, checked_sequence, counted, shown
from .notation import enclosed, escaped, power

# Test points in an infinite interval are within this distance of zero, or within twice this distance of its finite end.
_FAR = 8.0
_POINTS = 12
# Step of the differences with which derivatives are compared, and their relative tolerance.
_STEP, _TOLERANCE = 1e-5, 1e-6


class _NumericClass(FunctionClass):
    """Class of numeric functions. Classes made at run time are pickled through their definitions."""

    def __repr__(cls):
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
    # Orders of a derivative by JAX.
    orders: tuple[int, ...] = ()

    def fdiff(self, argindex=1):
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
        name = rf"\operatorname{{{escaped(type(self).__name__)}}}"
        return name, enclosed(", ".join(map(printer._print, self.args)))

    def _sympystr(self, printer):
        return f"{type(self).__name__}{self._marks('^(%s)')}({', '.join(map(printer._print, self.args))})"

    def _marks(self, form):
        if len(self.orders) == 1:
            return "'" * self.orders[0]
        return form % ", ".join(map(str, self.orders)) if self.orders else ""


def numeric_function(
    name: str,
    f: Callable[..., Any],
    df: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    *,
    domain: tuple[float, float] = (-math.inf, math.inf),
) -> type[NumericFunction]:
    """Make a scalar function from JAX code, for use in expressions and actions.

    The function must be real and finite on its domain, and its derivative must agree with differences of `f`, at test
    points. Two functions are equal if their names, code and derivatives are equal. Expressions with such a function can
    be pickled if `f` and `df` can be imported by name.

    Args:
        name: An identifier, for printed expressions and generated code.
        f: JAX code that takes one or several numbers, such as `lambda x: jnp.arctan(x) ** 2`.
        df: The derivative: a function of SymPy expressions, such as `lambda x: 2 * atan(x) / (1 + x**2)`, another
            numeric function, or JAX code. If `f` has several arguments, one derivative per argument. By default, JAX
            differentiates `f`.
        domain: The interval of each argument on which the function is defined. Ends may be infinite.

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
    if not checked_instance("name", name, str).isidentifier():
        raise ValueError(f"name must be an identifier, got {shown(name)}")
    checked_function("f", f)
    low, high = map(float, checked_sequence("domain", domain, "ends of an interval", length=2))
    if not low < high:
        raise ValueError(f"domain must be an interval (low, high) with low < high, got {shown(domain)}")
    parameters = inspect.signature(f).parameters.values()
    count = sum(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters)
    given = () if df is None else tuple(df) if isinstance(df, (list, tuple)) else (df,)
    if df is not None and len(given) != count:
        raise ValueError(f"df must be one derivative for each of {counted(count, 'argument')}, got {shown(df)}")
    for each in given:
        checked_function("df", each)
    made, points = _made(name, f, given, count, low, high), _test_points(count, low, high)
    _check(made, points)
    # Solvers need second derivatives. SymPy differentiates given expressions, and given JAX code has been checked.
    for i in range(1, count + 1) if df is None else ():
        _check(made.derivative(i), points)
    return made


@cache
def _made(name: str, f: Callable, df: tuple[Callable, ...], count: int, low: float, high: float) -> _NumericClass:
    """Return the class of a definition. It is kept, so that expressions are equal if their functions are."""
    attributes = {
        "__module__": __name__,
        "nargs": count,
        "implementation": staticmethod(_of_arrays(name, f)),
        "slopes": tuple(_slope(name, each, count, (low, high)) for each in df),
        "definition": (_made, (name, f, df, count, low, high)),
    }
    return _NumericClass(name, (NumericFunction,), attributes)


def _slope(name: str, df: Callable, count: int, domain: tuple[float, float]) -> Callable[..., Expr]:
    """Return a derivative as a function of expressions. JAX code becomes a numeric function."""
    # JAX rejects SymPy expressions with many kinds of errors.
    with suppress(Exception):
        if isinstance(sympify(df(*(Dummy(real=True) for _ in range(count)))), Expr):
            return df
    try:
        return numeric_function(f"{name}_slope", df, domain=domain)
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


def _test_points(count: int, low: float, high: float) -> Floats[np.ndarray, "points arguments"]:
    """Choose points in the domain by a Kronecker sequence. Its irrational steps avoid kinks."""
    if math.isinf(low):
        low = -_FAR if math.isinf(high) else high - 2 * _FAR
    high = low + 2 * _FAR if math.isinf(high) else high
    steps = np.sqrt(np.resize([2, 3, 5, 7, 11, 13], count))
    return low + (high - low) * (np.arange(1, _POINTS + 1)[:, None] * steps % 1)


def _check(kind: _NumericClass, points: Floats[np.ndarray, "points arguments"]) -> None:
    """Compare the derivatives of a function with central differences at test points."""
    name, count = kind.__name__, points.shape[1]
    what, by = "the derivative by JAX of f" if kind.orders else "f", "by df" if kind.slopes else "by JAX"
    step = _STEP * min(1.0, *np.ptp(points, axis=0))
    moves = step * np.concatenate([np.zeros((1, count)), np.eye(count), -np.eye(count)])
    try:
        here, *ends = np.asarray(compiled(kind)(*(points + moves[:, None]).T)).T
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{what} of {name} must be JAX code of numbers: {reason}") from error
    variables = [Dummy(real=True) for _ in range(count)]
    expressions = [sympify(kind(*variables).fdiff(i + 1)) for i in range(count)]
    for i, point in enumerate(points):
        place = ", ".join(f"{number:.6g}" for number in point)
        if not math.isfinite(here[i]):
            raise ValueError(
                f"{what} of {name} is {here[i]} at {place}; pass domain=(low, high) if its domain is an interval"
            )
        for j, expression in enumerate(expressions):
            slope = expression.subs(dict(zip(variables, point, strict=True))).evalf()
            found = float(slope) if slope.is_finite and slope.is_real else math.nan
            expected = (ends[j][i] - ends[count + j][i]) / (2 * step)
            if not np.isclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE * max(1.0, abs(here[i]))):
                raise ValueError(
                    f"the derivative of {name} at {place} is {expected:.6g} by differences, but {found:.6g} {by}"
                )
