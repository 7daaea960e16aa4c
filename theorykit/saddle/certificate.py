"""Evidence that a stationary point is a minimum: the smallest eigenvalue of the Hessian there."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .problem import AbstractSaddleProblem, Point
from .solvers.lanczos import ritz_values
from .solvers.quadratic_model import QuadraticModel

# Hessian-vector products spent on an extreme eigenvalue where the Hessian is not formed
_PRODUCTS = 24


def min_hessian_eigenvalue(problem: AbstractSaddleProblem, model: QuadraticModel) -> Float[Array, ""]:
    """Smallest eigenvalue of the Hessian of S at a stationary point, per `problem.scale`, from the `model` of S there.

    In the affine-invariant metric, in which the prior's own curvature is of order one. Positive at a minimum.
    """
    return model.curvatures[0] / problem.scale


def estimated_min_hessian_eigenvalue(problem: AbstractSaddleProblem, point: Point) -> Float[Array, ""]:
    """The same by Lanczos iteration, from above: for where the Hessian is too large to form."""
    action, size = problem.along(point.coordinates)
    gradient, origin = jax.grad(action), jnp.zeros(size)
    start = jax.random.normal(jax.random.key(0), (size,), dtype=jnp.float64)
    products = min(_PRODUCTS, size)
    ritz = ritz_values(lambda vector: jax.jvp(gradient, (origin,), (vector,))[1], start, products)
    return ritz[0] / problem.scale
