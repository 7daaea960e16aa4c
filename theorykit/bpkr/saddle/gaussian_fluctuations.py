"""The theory to next order in 1/N: the first-order saddle point, and fluctuations.

In coordinates theta the exact posterior is exp(-V/2), with V = S + c - 2 log |dU/dtheta|
and corrections c of the exact prior. At the minimum of S, with Sigma = (S''/2)^-1 and

    delta_i = -1/4 sum_jkl Sigma_ij S'''_jkl Sigma_kl
              - 1/2 sum_j Sigma_ij d_j (c - 2 log |dU/dtheta|),

the mean of g is g + sum_i g_i delta_i + 1/2 sum_ij g_ij Sigma_ij, and its covariance
with h is sum_ij g_i Sigma_ij h_j, up to O(1/N^2) at a fixed number of examples. The log
evidence is a Gaussian integral, up to O(1/N).
"""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ..._jit import jit, jit_and_keep, usual_settings
from ...checks import Requirement, array_module, is_traced, require
from ...symbolic.documents import DisplayMixin, Table, number
from .. import order_parameters as manifold
from ..evaluation.problem import Problem, as_problem
from ..evaluation.values import Prediction, prediction_at
from ..features.implicit import Features
from ..order_parameters import OrderParameters, gp_coordinates
from ..specification.architecture import require_finite_widths
from .solve import Saddle, solve

# Largest Newton step to a minimum that is known to rounding.
_FAR = 1e-3
FEW_UNITS = "a layer has fewer units than partial paths times outputs"


@usual_settings()
def first_order(problem: Problem) -> OrderParameters:
    """Return the saddle point to first order in 1/N.

    Without a richness it is accurate for widths above the number of examples. At small
    widths the matrices may not be positive definite.
    """
    problem = as_problem(problem)
    architecture, wide = problem.architecture, None
    require_finite_widths(architecture, "a correction of order 1/N")
    limit = gp_coordinates(architecture)
    if architecture.richness is not None:
        wide = Problem(architecture.at_infinite_width(), problem.data)
        limit = wide.coordinates(solve(wide, throw=True).order_parameters)
        wide = wide.canonical
    return problem.finite(_first_order(problem.canonical, wide, limit))


@jit
def _first_order(problem: Problem, wide: Problem | None, at) -> OrderParameters:
    def leading(at):
        if wide is None:
            return problem.bound.entropy(problem.order_parameters(at))
        return problem.architecture.widths[0] * wide.action(at)

    factor = jnp.linalg.cholesky(jax.hessian(leading)(at))
    step = -cho_solve((factor, True), jax.grad(problem.action)(at))
    here, change = jax.jvp((wide or problem).order_parameters, (at,), (step,))
    return jax.tree.map(jnp.add, here, change)


class Fluctuations(DisplayMixin, eqx.Module):
    """The posterior of the order parameters to next order in 1/N.

    - `mean`: of the order parameters.
    - `modes`: their changes along independent directions of unit variance (axis 0).
    - `prediction`: of the outputs on test examples, if any.
    - `log_evidence`: log p(y).
    """

    mean: OrderParameters
    modes: OrderParameters
    prediction: Prediction | None
    log_evidence: Float[Array, ""]

    def _view(self):
        evidence = "log evidence", number(self.log_evidence, 8)
        yield Table((evidence, *manifold.order_parameter_rows(self.mean)))

    @property
    def deviation(self) -> OrderParameters:
        """Standard deviations of the order parameters."""
        return jax.tree.map(lambda mode: jnp.sqrt(jnp.sum(mode**2, axis=0)), self.modes)


@usual_settings()
def fluctuations(
    problem: Problem, order_parameters: OrderParameters | Saddle, test_features: Features | None = None
) -> Fluctuations:
    """Expand about a saddle point to next order in 1/N.

    At infinite width with a richness: means of the saddle point, modes times
    N_1^(1/2), variances of outputs times N_1 (unless the richness is zero), and
    `log_evidence` per N_1.

    Args:
        problem: the architecture with its training data.
        order_parameters: the saddle point.
        test_features: (examples, paths, features), by default of the problem.

    Raises:
        ValueError: the action has no minimum there, or a layer has fewer units
            than paths times outputs.
    """
    problem = as_problem(problem)
    data, architecture = problem.data, problem.architecture
    if test_features is not None or data.test_features is not None:
        test_features = problem.test_features(test_features)
    point = problem.point(order_parameters)
    widths = array_module(architecture.widths).asarray(architecture.widths)
    enough = widths >= np.array(architecture.overlap_sizes)
    known = lambda: f"widths={tuple(widths.tolist())}: {FEW_UNITS}"  # noqa: E731
    point = require(point, [Requirement(FEW_UNITS, enough, known)])
    found, farthest = _fluctuations(problem.canonical, point, test_features)
    is_known = not is_traced(found) and jnp.all(jnp.isfinite(point.first))
    # A saddle may be of other data. A Hessian that is not positive has NaN.
    if is_known and not farthest <= _FAR:
        raise ValueError(f"order_parameters are not a minimum: Newton's step to one is {farthest:.2g}; use bpkr.solve")
    named = {"ansatz": problem.ansatz, "classes": data.classes}
    prediction = found.prediction and replace(found.prediction, **named)
    return replace(problem.finite(found), prediction=prediction)


def _of_order_one(problem: Problem, theta):
    """Return c - 2 log |dU/dtheta|."""
    bound = problem.bound
    point = problem.order_parameters(theta)
    corrections = bound(bound.point(point), value=bound.action.corrections)["value"]
    return corrections - 2 * manifold.log_volume(problem.architecture, theta)


def _evidence(problem: Problem, at, log_determinant):
    """Return the log evidence, given log det S''/2."""

    def entropy(theta):
        return problem.bound.entropy(problem.order_parameters(theta))

    # Errors of this integral and of that over the prior cancel. Bartlett factors are
    # independent, so the Hessian of the entropy is diagonal.
    origin = gp_coordinates(problem.architecture)
    _, of_prior = jax.jvp(jax.grad(entropy), (origin,), (jnp.ones_like(origin),))
    posterior = problem.action(at) + _of_order_one(problem, at) + log_determinant
    prior = entropy(origin) + _of_order_one(problem, origin) + jnp.sum(jnp.log(of_prior / 2))
    return (prior - posterior) / 2 + problem.energy.label_constant


@jit_and_keep
def corrected_evidence(problem: Problem, order_parameters: OrderParameters) -> Array:
    """Return the log evidence of `fluctuations` at the cost of a Newton step."""
    at = problem.coordinates(order_parameters)
    # The Hessian is one in steps, so the Jacobian of `moved` scales its determinant.
    factor = jnp.linalg.cholesky(problem.expansion(problem.at(at)).hessian / 2)
    moved = partial(problem.moved, at)
    _, of_steps = jnp.linalg.slogdet(jax.jacobian(moved)(jnp.zeros_like(at)))
    return _evidence(problem, at, 2 * jnp.sum(jnp.log(jnp.diagonal(factor))) - 2 * of_steps)


@jit_and_keep
def _fluctuations(problem: Problem, order_parameters, test_features) -> tuple[Fluctuations, Array]:
    architecture = problem.architecture
    at = problem.coordinates(order_parameters)
    is_infinite = architecture.is_infinite
    has_tests = test_features is not None

    def described(theta):
        point = problem.order_parameters(theta)
        of_order_one = None if is_infinite else _of_order_one(problem, theta)
        prediction = prediction_at(problem, point, test_features) if has_tests else None
        slope = jax.grad(problem.action)(theta)
        return {"slope": slope, "of order one": of_order_one, "results": (point, prediction)}

    def derivatives(direction):
        along = lambda theta: jax.jvp(described, (theta,), (direction,))  # noqa: E731
        (here, first), (_, second) = jax.jvp(along, (at,), (direction,))
        return here, first, second

    def whiten(directions, _):
        """Differentiate along `directions`, and orthonormalise them in half the Hessian."""
        here, first, second = jax.lax.map(derivatives, directions.T)
        factor = jnp.linalg.cholesky(first["slope"] @ directions / 2)
        here = jax.tree.map(lambda values: values[0], here)
        whitened = solve_triangular(factor, directions.T, lower=True).T
        return whitened, (directions, here, first, second)

    # The first pass gives directions, the second derivatives along them, in one loop
    # that is compiled once. Sigma = directions directions^T.
    _, passes = jax.lax.scan(whiten, jnp.eye(len(at)), length=2)
    directions, here, first, second = jax.tree.map(lambda each: each[1], passes)
    modes, of_mean = first["results"]
    farthest = jnp.max(jnp.abs(directions @ (directions.T @ here["slope"]))) / 2
    if has_tests:
        # Covariance of the mean prediction.
        slopes = of_mean.mean.reshape(len(directions), len(test_features), -1)
        between = jnp.einsum("mec,med->ecd", slopes, slopes).reshape(of_mean.covariance.shape[1:])
    if is_infinite:
        _, prediction = here["results"]
        if has_tests:
            # At zero richness the variance is of order one, and `between` of order 1/N.
            between = jnp.where(architecture.richness == 0, 0.0, between)
            prediction = replace(prediction, covariance=prediction.covariance + between)
        of_prior = problem.bound.entropy(manifold.gp_limit(architecture))
        log_evidence = (of_prior - problem.action(at)) / 2
        return Fluctuations(order_parameters, modes, prediction, log_evidence), farthest

    drift = -(directions.T @ jnp.sum(second["slope"], axis=0) / 2 + first["of order one"]) / 2

    def mean(value, slopes, bends):
        return value + jnp.tensordot(drift, slopes, axes=1) + jnp.sum(bends, axis=0) / 2

    point, prediction = jax.tree.map(mean, *(each["results"] for each in (here, first, second)))
    if has_tests:
        # Law of total variance.
        prediction = replace(prediction, covariance=prediction.covariance + between)
    log_evidence = _evidence(problem, at, -2 * jnp.sum(jnp.log(jnp.diagonal(directions))))
    return Fluctuations(point, modes, prediction, log_evidence), farthest
