"""Numeric functions: JAX code with a name, which JAX differentiates."""

import copyreg
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from sympy import Float, Function
from sympy.core.function import FunctionClass

from .._compat import require_float64
from ..checks import checked_function, checked_instance, shown
from .notation import enclosed, escaped, power


class _NumericClass(FunctionClass):
    """Class of numeric functions. Classes made at run time are pickled through their definitions."""

    def __repr__(cls):
        return type.__repr__(cls)


copyreg.pickle(_NumericClass, lambda cls: vars(cls).get("definition") or cls.__qualname__)


class NumericFunction(Function, metaclass=_NumericClass):
    """Function of numbers with JAX code, made by `numeric_function` or written as a subclass with its own `fdiff`."""

    # JAX code that acts on arrays and broadcasts.
    implementation: Callable
    # The function that makes the class, and its arguments, for pickling.
    definition: tuple[Callable, tuple[Any, ...]] | None = None
    # Orders of a derivative by JAX.
    orders: tuple[int, ...] = ()

    def fdiff(self, argindex=1):
        return type(self).derivative(argindex)(*self.args)

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


def numeric_function(name: str, f: Callable[..., Any]) -> type[NumericFunction]:
    """Make a scalar function from JAX code, for use in expressions and actions. JAX differentiates it.

    Two functions are equal if their names and code are equal. Expressions with such a function can be pickled if `f`
    can be imported by name.

    Args:
        name: An identifier, for printed expressions and generated code.
        f: JAX code that takes one or several numbers, such as `lambda x: jnp.arctan(x) ** 2`.

    Returns:
        A SymPy function class. Call it with expressions: `f(x)`.

    Raises:
        ValueError: If `f` is not JAX code that returns a real number.

    Example:
        >>> from sympy import symbols
        >>> from theorykit import enable_float64
        >>> from theorykit.symbolic import gradient, numeric_function
        >>> enable_float64()
        >>> x = symbols("x", real=True)
        >>> square = numeric_function("square", lambda x: x * x)
        >>> gradient(square(3 * x), x)
        3*square'(3*x)
    """
    require_float64()
    if not checked_instance("name", name, str).isidentifier():
        raise ValueError(f"name must be an identifier, got {shown(name)}")
    parameters = inspect.signature(checked_function("f", f)).parameters.values()
    count = sum(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters)
    made = _made(name, f, count)
    try:
        jax.eval_shape(made.implementation, *[jnp.zeros(())] * count)
    except Exception as error:  # JAX raises many kinds of errors
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"f of {name} must be JAX code of numbers: {reason}") from error
    return made


@cache
def _made(name: str, f: Callable, count: int) -> _NumericClass:
    """Return the class of a definition. It is kept, so that expressions are equal if their functions are."""
    code, definition = staticmethod(_of_arrays(name, f)), (_made, (name, f, count))
    attributes = {"__module__": __name__, "nargs": count, "implementation": code, "definition": definition}
    return _NumericClass(name, (NumericFunction,), attributes)


@cache
def _derivative(kind: _NumericClass, orders: tuple[int, ...]) -> _NumericClass:
    """Return the class of a derivative by JAX. It prints and is pickled through the class of the function."""
    value = kind.implementation
    for i, order in enumerate(orders):
        for _ in range(order):
            value = slope_along(value, i)
    code, definition = staticmethod(_of_arrays(kind.__name__, value)), (_derivative, (kind, orders))
    attributes = {"__module__": __name__, "implementation": code, "orders": orders, "definition": definition}
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
