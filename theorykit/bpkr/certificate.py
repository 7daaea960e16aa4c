"""Evidence that a solution is a minimum: the smallest eigenvalue of the action's Hessian on the manifold.

Part of stage 4 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function -> solve -> predict`.
"""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from .geometry import dimension, displaced, largest_width
from .lanczos import ritz_values
from .problem import Expansion, Point, SaddleProblem, entropy

# Hessian-vector products spent on an extreme eigenvalue where the Hessian is not formed
_PRODUCTS = 24


def smallest_curvature(problem: SaddleProblem, expansion: Expansion) -> Float[Array, ""]:
    """Smallest eigenvalue of the Hessian of S at a stationary point, per largest width, from its exact expansion.

    In the affine-invariant metric, in which the prior's own curvature is of order one. Positive at a minimum.
    """
    factor = jnp.linalg.cholesky(expansion.metric)
    half = solve_triangular(factor, expansion.hessian, lower=True)
    on_manifold = solve_triangular(factor, half.T, lower=True)
    return jnp.linalg.eigvalsh(on_manifold)[0] / largest_width(problem.architecture)


def estimated_smallest_curvature(problem: SaddleProblem, point: Point) -> Float[Array, ""]:
    """The same where the Hessian is too large to form: by Lanczos iteration, from above."""
    architecture, here = problem.architecture, problem.order_parameters(point.coordinates)

    def action(tangent: Float[Array, " tangents"]) -> Float[Array, ""]:
        moved = displaced(architecture, here, tangent)
        return entropy(architecture, moved) + problem.energy.value(moved.matrices[0])

    size = dimension(architecture)
    gradient, origin = jax.grad(action), jnp.zeros(size)
    start = jax.random.normal(jax.random.key(0), (size,), dtype=jnp.float64)
    products = min(_PRODUCTS, size)
    ritz = ritz_values(lambda vector: jax.jvp(gradient, (origin,), (vector,))[1], start, products)
    return ritz[0] / largest_width(architecture)
