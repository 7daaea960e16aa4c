"""Evidence that a stationary point is a minimum: the smallest eigenvalue of the Hessian there."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .problem import AbstractSaddleProblem, Point, Tangent
from .solvers.davidson import smallest_eigenvalue
from .solvers.quadratic_model import QuadraticModel

# where the Hessian is not formed: most products with it, and how well its smallest eigenvalue is to be known
_PRODUCTS, _TOLERANCE = 16, 0.1


def min_hessian_eigenvalue(problem: AbstractSaddleProblem, model: QuadraticModel) -> Float[Array, ""]:
    """Smallest eigenvalue of the Hessian of S at a stationary point, per `problem.scale`, from the `model` of S there.

    In the affine-invariant metric, in which the prior's own curvature is of order one. Positive at a minimum.
    """
    return model.curvatures[0] / problem.scale


def estimated_min_hessian_eigenvalue(problem: AbstractSaddleProblem, point: Point) -> Float[Array, ""]:
    """The same by few products with the Hessian, from above: for where it is too large to form."""
    action, size = problem.along(point)
    model, start = problem.modelled_along(point), jax.random.normal(jax.random.key(0), (size,), dtype=jnp.float64)
    products = (_hessian_product(function, size) for function in (action, model))
    found = smallest_eigenvalue(*products, start, products=_PRODUCTS, tolerance=_TOLERANCE)
    return found.value / problem.scale


def _hessian_product(function: Callable[[Tangent], Float[Array, ""]], size: int) -> Callable[[Tangent], Tangent]:
    """Products with the Hessian of a function of a tangent, at none."""
    return jax.linearize(jax.grad(function), jnp.zeros(size))[1]
