"""Functions of symmetric matrices through their eigenvalues, with derivatives of any order.

Let K = sum_i l_i P_i, with projectors P_i on the eigenvectors. Then f(K) = sum_i f(l_i) P_i. By the theorem of
Daleckii and Krein, the derivative of f(K) along E is sum_ij f[l_i, l_j] P_i E P_j, with the divided difference
f[a, b] = (f(a) - f(b)) / (a - b), which is f'(a) for a = b. The next derivative contains divided differences of three
eigenvalues, and so on. Unlike derivatives of eigenvectors, these derivatives remain finite for degenerate eigenvalues.

The derivative of each product is a sum of longer products. They are JAX primitives because of a limitation of custom
rules: in mixed forward and reverse mode, JAX ignores the custom rule of a function that is called inside a custom rule.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from string import ascii_letters
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from .gaussian_means import gauss_legendre

# Number of quadrature nodes for divided differences of close points.
_FINE = 6
# Number of nodes of the coarser rule that estimates the error.
_COARSE = 4


class Eigendecomposition(NamedTuple):
    """A symmetric matrix with its ascending eigenvalues, and its eigenvectors as columns.

    Derivatives are with respect to the matrix, not the eigenvectors, so they are finite at degenerate eigenvalues.
    """

    matrix: Float[Array, "n n"]
    eigenvalues: Float[Array, " n"]
    vectors: Float[Array, "n n"]


def eigendecomposition(matrix: Float[Array, "n n"]) -> Eigendecomposition:
    """Symmetrise the matrix and return its eigenvalues and eigenvectors."""
    symmetric = (matrix + matrix.T) / 2
    eigenvalues, vectors = jnp.linalg.eigh(jax.lax.stop_gradient(symmetric))
    return Eigendecomposition(symmetric, eigenvalues, vectors)


def eigenvalue_sum(function: Callable[[Array], Array | float | int], of: Eigendecomposition) -> Float[Array, ""]:
    """Sum `function` over the eigenvalues."""
    function, constants = _with_constants(function, of)
    return _SUM.bind(*of, *constants, function=function)


def spectral_function(function: Callable[[Array], Array | float | int], of: Eigendecomposition) -> Float[Array, "n n"]:
    """Return the matrix with `function` applied to its eigenvalues."""
    function, constants = _with_constants(function, of)
    return _PRODUCT.bind(*of, *constants, function=function, order=0)


def _with_constants(function: Callable, of: Eigendecomposition) -> tuple[Callable, tuple[Array, ...]]:
    """Convert the arrays that a function captures to arguments. Returns the new function and these arrays."""
    number = jax.lax.stop_gradient(of.eigenvalues[0])
    function, constants = jax.closure_convert(lambda x: jnp.asarray(function(x), number.dtype), number)
    return function, tuple(map(jnp.asarray, constants))


def _slope(function: Callable) -> Callable:
    return lambda x, *constants: jax.jvp(lambda at: function(at, *constants), (x,), (jnp.ones_like(x),))[1]


def _along_constant(function: Callable, i: int) -> Callable:
    """Differentiate with respect to constant i, along a direction that becomes an additional constant."""

    def derivative(x, *constants_and_direction):
        *constants, direction = constants_and_direction
        of_constant = lambda at: function(x, *constants[:i], at, *constants[i + 1 :])  # noqa: E731
        return jax.jvp(of_constant, (constants[i],), (direction,))[1]

    return derivative


def _sum(matrix, eigenvalues, vectors, *constants, function):
    return jnp.sum(_of_each(function, constants, eigenvalues))


def _sum_jvp(primals, tangents, *, function):
    of, constants = primals[:3], primals[3:]
    change = jnp.zeros_like(primals[1][0])
    if type(tangents[0]) is not ad.Zero:
        change += jnp.sum(_PRODUCT.bind(*of, *constants, function=_slope(function), order=0) * tangents[0])
    for i, tangent in _changes(tangents[3:]):
        change += _contracted(
            tangent, lambda along, i=i: _SUM.bind(*of, *constants, along, function=_along_constant(function, i))
        )
    return _SUM.bind(*primals, function=function), change


def _product(matrix, eigenvalues, vectors, *between_and_constants, function, order):
    """Return sum f[l_i, l_j, ..., l_k] P_i E_1 P_j E_2 ... P_k for `order` matrices E between the projectors."""
    between, constants = between_and_constants[:order], between_and_constants[order:]
    shape = (len(eigenvalues),) * (order + 1)
    axes = [eigenvalues.reshape([-1 if i == axis else 1 for i in range(order + 1)]) for axis in range(order + 1)]
    points = jnp.sort(jnp.stack([jnp.broadcast_to(axis, shape) for axis in axes]), axis=0)
    weights = _divided_difference(lambda x: function(x, *constants), list(points))[0]
    if order == 0:
        return (vectors * weights) @ vectors.T
    letters = ascii_letters[: order + 1]
    terms = ",".join([letters, *(letters[i : i + 2] for i in range(order))])
    rotated = [vectors.T @ matrix @ vectors for matrix in between]
    return vectors @ jnp.einsum(f"{terms}->{letters[0]}{letters[-1]}", weights, *rotated) @ vectors.T


def _product_jvp(primals, tangents, *, function, order):
    of, between, constants = primals[:3], primals[3 : 3 + order], primals[3 + order :]
    bind = partial(_PRODUCT.bind, *of, function=function)
    value = bind(*between, *constants, order=order)
    change = jnp.zeros_like(value)
    if type(tangents[0]) is not ad.Zero:
        for i in range(order + 1):
            change += bind(*between[:i], tangents[0], *between[i:], *constants, order=order + 1)
    for i, tangent in _changes(tangents[3 : 3 + order]):
        change += bind(*between[:i], tangent, *between[i + 1 :], *constants, order=order)
    for i, tangent in _changes(tangents[3 + order :]):
        derivative = partial(
            _PRODUCT.bind, *of, *between, *constants, function=_along_constant(function, i), order=order
        )
        change += _contracted(tangent, derivative)
    return value, change


def _product_transpose(cotangent, matrix, eigenvalues, vectors, *between_and_constants, function, order):
    """Return the cotangent of the matrix in which the product is linear. It is a cyclic permutation of the product."""
    between, constants = between_and_constants[:order], between_and_constants[order:]
    found: list[Any] = [None] * (3 + len(between_and_constants))
    (i,) = (i for i, each in enumerate(between) if ad.is_undefined_primal(each))
    if type(cotangent) is not ad.Zero:
        turned = (*between[i + 1 :], cotangent.T, *between[:i])
        bound = (matrix, eigenvalues, vectors, *turned, *constants)
        found[3 + i] = _PRODUCT.bind(*bound, function=function, order=order).T
    return found


def _changes(tangents: Sequence[Any]) -> list[tuple[int, Any]]:
    return [(i, tangent) for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]


def _contracted(tangent: Array, derivative: Callable[[Array], Array]) -> Array:
    """Return the derivative along `tangent`, from the derivatives along its entries."""
    units = jnp.eye(tangent.size, dtype=tangent.dtype).reshape(tangent.size, *tangent.shape)
    if tangent.size == 1:
        return tangent.reshape(()) * derivative(units[0])
    return jnp.tensordot(tangent.reshape(-1), jnp.stack([derivative(unit) for unit in units]), 1)


def _primitive(name: str, body: Callable, shape_of: Callable, jvp: Callable) -> Primitive:
    made = Primitive(name)
    made.def_impl(body)
    made.def_abstract_eval(lambda matrix, *others, **_: jax.core.ShapedArray(shape_of(matrix), matrix.dtype))
    mlir.register_lowering(made, mlir.lower_fun(body, multiple_results=False))
    ad.primitive_jvps[made] = jvp

    def of_a_batch(operands, axes, **parameters):
        # Loop instead of vectorising, because batched code would have different derivatives.
        batched = [i for i, axis in enumerate(axes) if axis is not None]

        def of_one(chosen):
            chosen = dict(zip(batched, chosen, strict=True))
            return made.bind(*(chosen.get(i, operand) for i, operand in enumerate(operands)), **parameters)

        return jax.lax.map(of_one, [jnp.moveaxis(operands[i], axes[i], 0) for i in batched]), 0

    batching.primitive_batchers[made] = of_a_batch
    return made


_SUM = _primitive("eigenvalue_sum", _sum, lambda matrix: (), _sum_jvp)
_PRODUCT = _primitive("spectral_product", _product, lambda matrix: matrix.shape, _product_jvp)
ad.primitive_transposes[_PRODUCT] = _product_transpose


def _divided_difference(function: Callable, points: Sequence[Array]) -> tuple[Array, Array]:
    """Return the divided difference f[x_0, ..., x_k] for arrays of ascending points, and its error.

    The result is either the quotient of differences or the mean of the k-th derivative over the simplex of the points
    (Hermite and Genocchi), whichever has the smaller error.
    """
    if len(points) == 1:
        value = _of_each(function, (), points[0])
        return value, jnp.finfo(value.dtype).eps * jnp.abs(value)
    (low, low_error), (high, high_error) = (_divided_difference(function, part) for part in (points[:-1], points[1:]))
    gap = points[-1] - points[0]
    divisor = jnp.where(gap > 0, gap, 1.0)
    error = jnp.where(gap > 0, (low_error + high_error) / divisor, jnp.inf)
    fine, coarse = (_simplex_mean(function, points, nodes) for nodes in (_FINE, _COARSE))
    error_of_mean = jnp.abs(fine - coarse) + jnp.finfo(fine.dtype).eps * jnp.abs(fine)
    by_mean = error_of_mean < error
    return jnp.where(by_mean, fine, (high - low) / divisor), jnp.where(by_mean, error_of_mean, error)


def _of_each(function: Callable, constants: Sequence[Array], points: Array) -> Array:
    return jax.vmap(lambda x: function(x, *constants))(points.reshape(-1)).reshape(points.shape)


def _simplex_mean(function: Callable, points: Sequence[Array], nodes: int) -> Array:
    """Integrate the k-th derivative over the simplex of k + 1 points, by Gauss-Legendre quadrature."""
    order = len(points) - 1
    derivative = function
    for _ in range(order):
        derivative = _slope(derivative)
    abscissas, weights = gauss_legendre(nodes)
    total = jnp.zeros_like(points[0])
    for chosen in product(range(nodes), repeat=order):
        position, reach, weight = points[0], 1.0, 1.0
        for i, node in enumerate(chosen):
            weight = weight * weights[node] * reach
            reach = reach * abscissas[node]
            position = position + reach * (points[i + 1] - points[i])
        total = total + weight * _of_each(derivative, (), position)
    return total
