"""The algebra of compiled functions: JAX arrays and the structure of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array
from sympy import Expr, Lambda, Piecewise, Symbol

from ..symbolic.atoms import EntryVariable, matrix_scalars
from ..symbolic.averages import (
    GaussianAverage,
    breaks,
    coefficients,
    exponential_factor,
    features,
    singularities,
)
from ..symbolic.envelopes import FunctionOfLoss, ProximalPoint, derivative
from ..symbolic.functions import partial_derivative
from ..symbolic.numeric import NumericFunction, slope_along
from . import primitives
from .evaluate import At
from .functions import ScalarFunction, proximal_point
from .quadrature import composite_mean, gaussian_mean
from .structured import Structured


def differentiable(value: Callable, node: Callable[..., Expr], places: Sequence[int]) -> Callable[..., Array]:
    """Add symbolic derivatives to `value`, an elementwise function of arrays.

    `node` returns the expression of the function for symbols. `places` are the positions of these symbols among the
    arguments of the expression, from 1.
    """
    symbols = [Symbol(f"x_{k}", real=True) for k in range(len(places))]

    @cache
    def slope(i: int) -> Callable[..., Array]:
        expression = partial_derivative(node(*symbols), places[i])
        names = [symbol.name for symbol in symbols]
        return lambda *numbers: At(dict(zip(names, numbers, strict=True)), Jax)(expression)

    return with_slopes(value, slope)


def with_slopes(value: Callable, slope: Callable[[int], Callable[..., Array]]) -> Callable[..., Array]:
    """Add derivatives to `value`, an elementwise function of arrays: `slope(i)` with respect to argument i."""
    function = jax.custom_jvp(value)

    @partial(function.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        result = function(*primals)
        # Skip zero tangents, because their product with an infinite derivative would be NaN.
        changes = [
            slope(i)(*primals) * tangent for i, tangent in enumerate(tangents) if not isinstance(tangent, SymbolicZero)
        ]
        return result, jnp.broadcast_to(sum(changes), result.shape)

    return lambda *numbers: function(*(jnp.asarray(number, float) for number in numbers))


@cache
def _of_row(row: ScalarFunction, arguments: tuple[int | None, ...]) -> Callable[..., Array]:
    """Return a function of the table with derivatives. Its known arguments are whole numbers."""

    def filled(numbers):
        given = iter(numbers)
        return [next(given) if known is None else known for known in arguments]

    return differentiable(
        lambda *numbers: row.jax(*filled(numbers)),
        lambda *symbols: row.kind(*filled(symbols)),
        [i for i, known in enumerate(arguments, 1) if known is None],
    )


# Nodes with bound variables, which cases contain as numbers.
_NUMBERS = (GaussianAverage, FunctionOfLoss)


@lru_cache(maxsize=4096)
def _cases(node: Piecewise) -> tuple[dict[Expr, EntryVariable], list[tuple[Expr, Expr]]]:
    """Write the conditions and values of the cases as functions of the numbers in them."""
    leaves: dict[Expr, EntryVariable] = {}

    def visit(each):
        is_leaf = each.is_Symbol or isinstance(each, _NUMBERS) or each in held
        if is_leaf and each not in leaves:
            leaves[each] = EntryVariable(f"case {len(leaves)}")
        elif not is_leaf:
            for argument in each.args:
                visit(argument)

    held = set(matrix_scalars(node))
    visit(node)
    return leaves, [(condition.xreplace(leaves), value.xreplace(leaves)) for value, condition in node.args]


def _piecewise(node: Piecewise, at: At) -> Array:
    leaves, cases = _cases(node)

    def of_leaves(expression):
        return lambda *numbers: At(dict(zip(leaves.values(), numbers, strict=True)), Jax)(expression)

    return _first_case(list(map(at, leaves)), [tuple(map(of_leaves, case)) for case in cases])


def _first_case(numbers: Sequence[Array], cases: Sequence[tuple[Callable, Callable]]) -> Array:
    """Return the value of the first case whose condition holds, or NaN.

    The derivative contains only this case. The derivative of another case may be infinite there, and zero times
    infinity would be NaN.
    """

    def value(*numbers):
        result = jnp.nan
        for condition, of_case in reversed(cases):
            result = jnp.where(condition(*numbers), of_case(*numbers), result)
        return jnp.asarray(result, float)

    def slope(i: int) -> Callable[..., Array]:
        slopes = [(condition, slope_along(of_case, i)) for condition, of_case in cases]
        return lambda *numbers: _first_case(numbers, slopes)

    return with_slopes(value, slope)(*numbers)


@lru_cache(maxsize=1024)
def _quadrature(node: GaussianAverage) -> tuple[Expr, tuple | None, list[Expr], list[tuple[Expr, ...]]]:
    """Return the integrand without an exponential factor, this factor, the kinks, and the roots of steep functions."""
    rest, tilt = exponential_factor(node)
    kinks = breaks(node)
    if node.is_adaptive:
        kinks += [each for each in singularities(node) if each not in kinks]
    return rest, tilt, kinks, features(rest, node.variable, is_widened=tilt is not None and tilt[2] != 0)


def _average(node: GaussianAverage, at: At) -> Array:
    """Average over a standard normal variable by quadrature."""
    rest, tilt, kinks, steep = _quadrature(node)

    def of_variable(expression):
        return at.function((node.variable,), expression)

    def numbers(polynomial):
        *lower, last = polynomial
        return tuple(map(at, lower if last == 0 else polynomial))

    def zeros(expression):
        polynomial = coefficients(expression, node.variable)
        return numbers(polynomial) if polynomial else of_variable(expression)

    function, zeros_of_kinks = of_variable(rest), list(map(zeros, kinks))
    factor = tilt and (of_variable(tilt[0]), *map(at, tilt[1:]))
    if not node.is_adaptive:
        return gaussian_mean(function, node.nodes, zeros_of_kinks, factor)
    mean, error = composite_mean(function, zeros_of_kinks, list(map(numbers, steep)), factor)
    return mean if node.side == 0 else mean + at(node.side) * error


def _of_loss(node: FunctionOfLoss, at: At) -> Array:
    return _function_of_loss(type(node), node.loss)(*map(at, node.numbers))


@cache
def _function_of_loss(kind: type, loss: Lambda) -> Callable[..., Array]:
    """Return a proximal point or an envelope as a function of omega, V and the parameters of the loss."""
    orders = [derivative(loss, order) for order in range(3)]

    @jax.jit
    def value(omega, variance, *parameters):
        omega, variance, *parameters = jnp.broadcast_arrays(omega, variance, *parameters)

        def of_loss(order: int, x: Array) -> Array:
            values = dict(zip(loss.variables, (x, *parameters), strict=True))
            return jnp.broadcast_to(At(values, Jax)(orders[order]), x.shape)

        functions = [partial(of_loss, order) for order in range(len(orders))]
        point = proximal_point(*functions[1:], omega, variance)
        if kind is ProximalPoint:
            return point
        return variance * functions[1](point) ** 2 / 2 + functions[0](point)

    return differentiable(
        value,
        lambda omega, variance, *parameters: kind(omega, variance, loss, *parameters),
        (1, 2, *range(4, 3 + len(loss.variables))),
    )


def _numeric_function(node: NumericFunction, at: At) -> Array:
    return _implementation(type(node), len(node.args))(*map(at, node.args))


@cache
def _implementation(kind: type[NumericFunction], count: int) -> Callable[..., Array]:
    return differentiable(kind.implementation, kind, range(1, count + 1))


class Jax(Structured):
    """Evaluate in JAX. Functions of this algebra can be compiled, differentiated and mapped."""

    xp = jnp
    operations: Any = primitives
    is_traced = True
    stop_gradient = staticmethod(jax.lax.stop_gradient)
    rules: ClassVar = {
        **Structured.rules,
        Piecewise: _piecewise,
        GaussianAverage: _average,
        FunctionOfLoss: _of_loss,
        NumericFunction: _numeric_function,
    }

    @staticmethod
    def function(row: ScalarFunction, node: Expr, at: At) -> Array:
        """Evaluate a scalar function of the table."""
        if row.by_jax:
            return row.jax(*map(at, node.args))
        whole = row.whole_numbers(node)
        arguments = tuple(int(each) if i in whole else None for i, each in enumerate(node.args))
        return _of_row(row, arguments)(*(at(each) for i, each in enumerate(node.args) if i not in whole))
