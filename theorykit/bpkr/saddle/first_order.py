"""The saddle point to first order in 1/N, about infinite width.

In the standard parameterisation this is a closed form about the Gaussian process, from the derived expansion. With a
richness, N S_inf + log det (K + T I) is expanded about the minimum of S_inf, the action at infinite width.
"""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from ...compilation import jit
from ...settings import usual_settings
from ..data.data import Data
from ..evaluation.bound_action import BoundAction
from ..evaluation.energies import energy_of
from ..evaluation.problem import Problem, as_problem
from ..order_parameters.coordinates import from_order_parameters
from ..order_parameters.order_parameters import OrderParameters, from_overlaps, gp_limit
from ..specification.architecture import require_finite_widths
from .problem import SaddleProblem
from .saddle import solve


@usual_settings()
def first_order(problem: Problem) -> OrderParameters:
    """Return the saddle point to first order in 1/N.

    In the standard parameterisation the result is a closed form about the Gaussian-process limit. It is accurate if the
    widths are large compared to the number of examples. With a richness, the action is solved at infinite width, and
    the result is accurate if the widths are large. At smaller widths the matrices may fail to be positive definite.

    Raises:
        ValueError: the widths are infinite, so there is no correction.
    """
    problem = as_problem(problem)
    problem.require_labels()
    architecture = problem.architecture
    require_finite_widths(architecture, "a correction of order 1/N")
    data = problem.data.training
    if architecture.richness is None:
        return problem.finite(_about_gaussian_process(problem.bound, data))
    wide = Problem(architecture.at_infinite_width(), problem.data)
    limit = solve(wide, throw=True).order_parameters
    return problem.finite(_about_limit(problem.bound, wide.bound, limit, data))


@jit
def _about_gaussian_process(bound: BoundAction, data: Data) -> OrderParameters:
    force = energy_of(bound, data).at(gp_limit(bound.architecture).first).slope
    given = bound.numbers() | {bound.action.expansion.force: force}
    return from_overlaps(bound.compiled.first_order.call_from(given).values())


@jit
def _about_limit(bound: BoundAction, wide: BoundAction, limit: OrderParameters, data: Data) -> OrderParameters:
    action, of_limit = (SaddleProblem(energy_of(each, data)) for each in (bound, wide))
    at = from_order_parameters(wide.architecture, limit)
    # The action at infinite width is stationary here, so this is the slope of the log-determinant.
    slope = jax.grad(action.action)(at)
    factor = jnp.linalg.cholesky(bound.architecture.widths[0] * jax.hessian(of_limit.action)(at))
    step = -cho_solve((factor, True), slope)
    _, change = jax.jvp(of_limit.order_parameters, (at,), (step,))
    return jax.tree.map(jnp.add, limit, change)
