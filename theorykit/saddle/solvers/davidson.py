"""Smallest eigenvalue of a large symmetric matrix by Davidson's method, from few products and a cheap model.

The next search vector is M^{-1} r for the residual r. The model M approximates the matrix, has cheap products, and is
most accurate in its softest directions.

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

# Relative tolerance of solves with the model. A rough search direction suffices.
_MODEL_TOLERANCE = 0.01
# Maximum number of conjugate-gradient iterations of such a solve.
_MODEL_STEPS = 20
# Number of inverse iterations with the model that produce the second search vector.
_WARMUP = 2
# Minimum number of products. After fewer, the residual of a wrong eigenvalue may be small by chance.
_LEAST = 5
# Two directions count as the same if their cosine differs from one by less than this.
_ALIKE = 1e-6


class Eigenvalue(eqx.Module):
    """Smallest eigenvalue of a symmetric matrix in a subspace.

    - `value`: an upper bound on the smallest eigenvalue of the matrix.
    - `residual`: some eigenvalue of the matrix is within this distance of `value`.
    - `products`: the number of products used.
    """

    value: Float[Array, ""]
    residual: Float[Array, ""]
    products: Int[Array, ""]


class _State(eqx.Module):
    basis: Float[Array, "products size"]
    images: Float[Array, "products size"]
    ahead: Vector
    softened: Vector
    warmup: Int[Array, ""]
    found: Eigenvalue
    is_exhausted: Array


def smallest_eigenvalue(
    product: Product, model: Product, start: Vector, *, products: int, tolerance: float
) -> Eigenvalue:
    """Find the smallest eigenvalue of a symmetric matrix. Memory: two vectors per product.

    Args:
        product: Function that multiplies a vector by the matrix.
        model: Function that multiplies a vector by an approximate matrix.
        start: First search vector (size,). Choose it at random: directions orthogonal to it are not found.
        products: Maximum number of products.
        tolerance: Stop when the residual is below this multiple of the value.
    """
    size, turn = len(start), _unit(start)
    products = min(products, size)

    def solve(vector: Vector) -> Vector:
        """Approximate M^{-1} v. If M is not positive and conjugate gradients fail, return the vector itself."""
        structure = jax.ShapeDtypeStruct((size,), vector.dtype)
        operator = lx.FunctionLinearOperator(model, structure, lx.positive_semidefinite_tag)
        solver = lx.CG(
            rtol=_MODEL_TOLERANCE, atol=0.0, max_steps=_MODEL_STEPS, norm=jnp.linalg.norm, stabilise_every=None
        )
        found = lx.linear_solve(operator, _unit(vector), solver, throw=False).value
        return jnp.where(jnp.all(jnp.isfinite(found)), found, vector)

    def goes_on(state: _State):
        found = state.found
        small = found.residual <= tolerance * jnp.abs(found.value)
        done = (small & (found.products >= min(_LEAST, products))) | state.is_exhausted
        return (found.products < products) & ~done

    def expanded(state: _State) -> tuple[Array, Array, Eigenvalue, Vector]:
        """Return the basis with one more vector, its images, the eigenvalue, and the residual."""
        taken = state.found.products
        basis = state.basis.at[taken].set(state.ahead)
        images = state.images.at[taken].set(product(state.ahead))
        projected = basis @ images.T
        # Give unused rows an eigenvalue larger than all others, so that they are not selected.
        used = jnp.arange(products) <= taken
        beyond = 2 * jnp.sum(jnp.abs(projected)) + 1
        projected = jnp.where(used[:, None] & used, (projected + projected.T) / 2, beyond * jnp.eye(products))
        values, vectors = jnp.linalg.eigh(projected)
        weights = vectors[:, 0]
        residual = weights @ images - values[0] * (weights @ basis)
        return basis, images, Eigenvalue(values[0], jnp.linalg.norm(residual), taken + 1), residual

    def step(state: _State) -> _State:
        # The warm-up is part of this loop, so that the compiled program contains the solve with the model only once.
        warms = state.warmup > 0
        unchanged = state.basis, state.images, state.found, state.softened
        basis, images, found, target = jax.lax.cond(warms, lambda: unchanged, lambda: expanded(state))
        solved = solve(target)
        softened = jnp.where(warms, _unit(solved), state.softened)
        # A model that does not distinguish directions, such as the identity, leaves the start unchanged.
        is_second = (found.products == 1) & (jnp.abs(softened @ turn) < 1 - _ALIKE)
        remaining = _beyond(basis, _unit(jnp.where(is_second, softened, solved)))
        is_exhausted = ~warms & (jnp.linalg.norm(remaining) < jnp.sqrt(jnp.finfo(remaining.dtype).eps))
        ahead = jnp.where(warms, turn, _beyond(basis, _unit(remaining)))
        return _State(basis, images, ahead, softened, jnp.maximum(state.warmup - 1, 0), found, is_exhausted)

    empty = jnp.zeros((products, size))
    nothing = Eigenvalue(jnp.array(jnp.inf), jnp.array(jnp.inf), jnp.array(0))
    first = _State(empty, empty, turn, turn, jnp.array(_WARMUP), nothing, jnp.array(False))
    return jax.lax.while_loop(goes_on, step, first).found


def _unit(vector: Vector) -> Vector:
    length = jnp.linalg.norm(vector)
    return vector / jnp.where(length > 0, length, 1.0)


def _beyond(basis: Float[Array, "k size"], vector: Vector) -> Vector:
    """Return the part of a vector orthogonal to the rows of `basis`, which are orthonormal or zero."""
    return vector - (basis @ vector) @ basis
