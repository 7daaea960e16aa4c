"""The saddle point to first order in 1/N, about infinite width."""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from ...compilation import jit
from ...settings import usual_settings
from ..evaluation.problem import Problem, as_problem
from ..order_parameters.coordinates import gp_coordinates
from ..order_parameters.order_parameters import OrderParameters
from ..specification.architecture import require_finite_widths
from .saddle import solve


@usual_settings()
def first_order(problem: Problem) -> OrderParameters:
    """Return the saddle point to first order in 1/N.

    The entropy, or with a richness the action at infinite width per N_1, is stationary at the limit. The rest of the
    action moves the stationary point by one Newton step. In the standard parameterisation the result is accurate if the
    widths are large compared to the number of examples. With a richness, the action is solved at infinite width, and
    the result is accurate if the widths are large. At smaller widths the matrices may fail to be positive definite.

    Raises:
        ValueError: the widths are infinite, so there is no correction.
    """
    problem = as_problem(problem)
    problem.require_labels()
    architecture = problem.architecture
    require_finite_widths(architecture, "a correction of order 1/N")
    if architecture.richness is None:
        return problem.finite(_about_gaussian_process(problem.canonical))
    wide = Problem(architecture.at_infinite_width(), problem.data)
    limit = wide.coordinates(solve(wide, throw=True).order_parameters)
    return problem.finite(_about_limit(problem.canonical, wide.canonical, limit))


@jit
def _about_gaussian_process(problem: Problem) -> OrderParameters:
    at = gp_coordinates(problem.architecture)
    return _moved(problem, problem, at, jax.hessian(lambda at: problem.bound.entropy(problem.order_parameters(at)))(at))


@jit
def _about_limit(problem: Problem, wide: Problem, at) -> OrderParameters:
    return _moved(problem, wide, at, problem.architecture.widths[0] * jax.hessian(wide.action)(at))


def _moved(problem: Problem, limit: Problem, at, hessian) -> OrderParameters:
    """Return the order parameters after a step, to first order in its length."""
    step = -cho_solve((jnp.linalg.cholesky(hessian), True), jax.grad(problem.action)(at))
    here, change = jax.jvp(limit.order_parameters, (at,), (step,))
    return jax.tree.map(jnp.add, here, change)
