"""The smallest eigenvalue of a large symmetric matrix by Davidson's method: few products with it, and a cheap model.

The next vector to search along is M^{-1} r of the residual r, M being an approximate matrix that costs little to
multiply by and is nearest in its softest directions.

Sources: E. R. Davidson, J. Comput. Phys. 17 (1975) 87; R. B. Morgan, D. S. Scott, "Generalizations of Davidson's method
for computing eigenvalues of sparse symmetric matrices", SIAM J. Sci. Stat. Comput. 7 (1986) 817.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, Int

Vector = Float[Array, " size"]
Product = Callable[[Vector], Vector]

# conjugate gradients with the model, for a direction: roughly is enough
_MODEL_TOLERANCE, _MODEL_STEPS = 0.01, 20
# inverse iterations with the model that the second vector is made by
_WARMUP = 2
# products before the residual is believed: that of a wrong eigenvalue may be small by chance
_LEAST = 5
# how far the cosine of two directions is from one where they count as the same
_ALIKE = 1e-6


class Eigenvalue(eqx.Module):
    """An eigenvalue of a symmetric matrix, the smallest within the space searched, and so an upper bound of it.

    `residual`: some eigenvalue is no farther than this from `value`. `products`: how many found it.
    """

    value: Float[Array, ""]
    residual: Float[Array, ""]
    products: Int[Array, ""]


class _State(eqx.Module):
    basis: Float[Array, "products size"]
    images: Float[Array, "products size"]
    ahead: Vector
    found: Eigenvalue
    is_exhausted: Array


def smallest_eigenvalue(
    product: Product, model: Product, start: Vector, *, products: int, tolerance: float
) -> Eigenvalue:
    """The smallest eigenvalue of the matrix that `product` multiplies by, `model` being products with one like it.

    `start` is random: directions orthogonal to it are not seen. Ends when the residual is below `tolerance` times the
    value, or after so many `products`. Memory: two vectors per product.
    """
    size, turn = len(start), _unit(start)
    products = min(products, size)

    def solve(vector: Vector) -> Vector:
        """About M^{-1} v; the vector itself where M is not positive, and conjugate gradients fail."""
        structure = jax.ShapeDtypeStruct((size,), vector.dtype)
        operator = lx.FunctionLinearOperator(model, structure, lx.positive_semidefinite_tag)
        solver = lx.CG(rtol=_MODEL_TOLERANCE, atol=0.0, max_steps=_MODEL_STEPS, norm=jnp.linalg.norm)
        found = lx.linear_solve(operator, _unit(vector), solver, throw=False).value
        return jnp.where(jnp.all(jnp.isfinite(found)), found, vector)

    softened = turn
    for _ in range(_WARMUP):
        softened = _unit(solve(softened))

    def goes_on(state: _State):
        found = state.found
        small = found.residual <= tolerance * jnp.abs(found.value)
        done = (small & (found.products >= min(_LEAST, products))) | state.is_exhausted
        return (found.products < products) & ~done

    def step(state: _State) -> _State:
        taken = state.found.products
        basis = state.basis.at[taken].set(state.ahead)
        images = state.images.at[taken].set(product(state.ahead))
        projected = basis @ images.T
        # rows not taken yet have an eigenvalue beyond all others
        used = jnp.arange(products) <= taken
        beyond = 2 * jnp.sum(jnp.abs(projected)) + 1
        projected = jnp.where(used[:, None] & used, (projected + projected.T) / 2, beyond * jnp.eye(products))
        values, vectors = jnp.linalg.eigh(projected)
        weights = vectors[:, 0]
        residual = weights @ images - values[0] * (weights @ basis)
        # a model that tells no directions apart, such as the identity, has softened nothing
        is_second = (taken == 0) & (jnp.abs(softened @ turn) < 1 - _ALIKE)
        ahead = jnp.where(is_second, softened, solve(residual))
        remaining = _beyond(basis, _unit(ahead))
        found = Eigenvalue(values[0], jnp.linalg.norm(residual), taken + 1)
        is_exhausted = jnp.linalg.norm(remaining) < jnp.sqrt(jnp.finfo(remaining.dtype).eps)
        return _State(basis, images, _beyond(basis, _unit(remaining)), found, is_exhausted)

    empty = jnp.zeros((products, size))
    nothing = Eigenvalue(jnp.array(jnp.inf), jnp.array(jnp.inf), jnp.array(0))
    return jax.lax.while_loop(goes_on, step, _State(empty, empty, turn, nothing, jnp.array(False))).found


def _unit(vector: Vector) -> Vector:
    length = jnp.linalg.norm(vector)
    return vector / jnp.where(length > 0, length, 1.0)


def _beyond(basis: Float[Array, "k size"], vector: Vector) -> Vector:
    """The part of a vector orthogonal to the rows of `basis`, which are orthonormal or zero."""
    return vector - (basis @ vector) @ basis
