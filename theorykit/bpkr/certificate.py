"""Evidence that a solution is a minimum, and how well it is known: curvature, what is left to gain, rounding.

Part of stage 4 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function -> solve -> predict`.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .geometry import dimension, displaced, largest_width
from .lanczos import ritz_values
from .problem import Expansion, Point, SaddleProblem, entropy
from .quadratic import QuadraticModel
from .rounding import MACHINE, MARGIN, entropy_rounding

# Hessian-vector products spent on an extreme eigenvalue where the Hessian is not formed
_PRODUCTS = 24


def smallest_curvature(problem: SaddleProblem, expansion: Expansion) -> Float[Array, ""]:
    """Smallest eigenvalue of the Hessian of S at a stationary point, per largest width, from its exact expansion.

    In the affine-invariant metric, in which the prior's own curvature is of order one. Positive at a minimum.
    """
    return QuadraticModel.of(expansion).curvatures[0] / largest_width(problem.architecture)


def estimated_smallest_curvature(problem: SaddleProblem, point: Point) -> Float[Array, ""]:
    """Smallest eigenvalue of the Hessian of S per largest width, in the affine-invariant metric: positive at a minimum.

    For where the Hessian is too large to form: by Lanczos iteration, from above. Otherwise a `QuadraticModel` has it.
    """
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


def action_error(problem: SaddleProblem, point: Point) -> Mapping[str, Float[Array, ""]]:
    """How well double precision knows the action, by where the uncertainty comes from; the error is their sum."""
    order_parameters = problem.order_parameters(point.coordinates)
    parts = {
        "order_parameters": entropy_rounding(problem.architecture, order_parameters),
        **problem.energy.rounding(point.energy),
    }
    return {name: MARGIN * MACHINE * part for name, part in parts.items()}
