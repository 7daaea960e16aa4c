"""Fluctuations of the order parameters about the saddle point: the theory to next order in 1/N.

In coordinates theta the exact posterior at finite width is exp(-V/2) with V = S + c - 2 log |dU/dtheta|. The action S
is of order N. The corrections c of the exact prior and the volume element are of order one. At the minimum of S, define
Sigma = (S''/2)^-1 and the drift

    delta_i = -1/4 sum_jkl Sigma_ij S'''_jkl Sigma_kl - 1/2 sum_j Sigma_ij d_j (c - 2 log |dU/dtheta|).

The mean of any function g is g + sum_i g_i delta_i + 1/2 sum_ij g_ij Sigma_ij + O(1/N^2). Its covariance with another
function h is sum_ij g_i Sigma_ij h_j + O(1/N^2). The log evidence is a Gaussian integral with covariance Sigma, up to
O(1/N). All orders hold at a fixed number of examples. JAX differentiates the compiled action.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import checked_whole_number, is_traced
from ...compilation import jit_and_keep
from ...saddle.diagnosis import AbstractOutcome
from ...saddle.problem import Coordinates
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text
from ...symbolic.documents.values import number
from ..evaluation.formulas import BoundAction
from ..evaluation.problem import Problem, as_problem
from ..evaluation.values import Prediction, prediction_at
from ..features.implicit import ImplicitFeatures
from ..order_parameters.coordinates import Level, finite_width_law, gp_coordinates, log_volume, log_volume_of_steps
from ..order_parameters.order_parameters import OrderParameters, gp_limit


class Fluctuations(DisplayMixin, eqx.Module):
    """The posterior of the order parameters to next order in 1/N.

    - `mean`: posterior mean of the order parameters.
    - `modes`: deviations of the order parameters along independent directions of unit variance, stacked along axis 0.
      The covariance of two entries is the sum over modes of the product of their deviations.
    - `prediction`: mean and variance of the outputs on the test examples; None without test examples.
    - `log_evidence`: log p(y).
    - `is_leading`: whether these are the leading orders at infinite width with a richness; see `fluctuations`.
    - `ansatz`: the assumption beyond large widths, or the parameterisation with a richness, in words; else empty.
    """

    mean: OrderParameters
    modes: OrderParameters
    prediction: Prediction | None
    log_evidence: Float[Array, ""]
    ansatz: str = eqx.field(static=True, default="")
    is_leading: bool = eqx.field(static=True, default=False)

    def _view(self) -> Iterator[Block]:
        per_width = ", to leading order, standard deviations times $N_1^{1/2}$" if self.is_leading else ""
        yield Text(f"**Fluctuations** about the saddle point{per_width or ', to next order in $1/N$'}")
        rows = [("log evidence per width" if self.is_leading else "log evidence", number(self.log_evidence, 8))]
        names = [*(f"$U_{layer}$" for layer in range(1, len(self.mean.matrices) + 1)), "$u$"]
        for name, *values in zip(names, jax.tree.leaves(self.mean), jax.tree.leaves(self.deviation), strict=True):
            mean, deviation = (number(np.diagonal(each) if each.ndim else each, 4) for each in values)
            rows.append((f"diagonal of {name}", f"{mean}, standard deviation {deviation}"))
        yield Table(tuple(rows))
        if self.prediction is not None:
            yield from self.prediction._view()
        elif self.ansatz:
            yield Text(self.ansatz)

    @property
    def deviation(self) -> OrderParameters:
        """The standard deviation of every entry of the order parameters."""
        return jax.tree.map(lambda mode: jnp.sqrt(jnp.sum(mode**2, axis=0)), self.modes)

    def covariance(self, layer: int) -> Float[Array, "n n n n"]:
        """Return the covariance of all entries of U_l; layers count from 1."""
        layer = checked_whole_number("layer", layer, least=1, most=len(self.modes.matrices))
        modes = self.modes.matrices[layer - 1]
        return jnp.einsum("mab,mcd->abcd", modes, modes)


@usual_settings()
def fluctuations(
    problem: Problem,
    order_parameters: OrderParameters | AbstractOutcome,
    test_features: ArrayLike | ImplicitFeatures | None = None,
) -> Fluctuations:
    """Expand about a saddle point to next order in 1/N.

    At infinite width with a richness, fluctuations are of order N_1^(-1/2). The result then has leading orders: modes
    are multiplied by N_1^(1/2) and variances by N_1, `log_evidence` is divided by N_1, and the means are those of the
    saddle point. At zero richness, a Gaussian process, variances of outputs are not multiplied, and fluctuations of the
    order parameters do not contribute to them.

    Args:
        problem: the architecture with its training data. Every layer must have at least as many units as partial paths.
        order_parameters: the saddle point, as `solve` returns it.
        test_features: path features (examples, paths, features) of test examples; by default the test features of
            the problem's data, if any.

    Raises:
        ValueError: the action has no minimum at `order_parameters`, or a layer is too narrow.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> data = bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        >>> problem = bpkr.Problem(bpkr.Architecture(layers=(2,), widths=10, temperature=0.1), data)
        >>> saddle = bpkr.solve(problem)
        >>> round(float(bpkr.fluctuations(problem, saddle).mean.readout), 3)  # 0.304 at the saddle point
        0.368
    """
    problem = as_problem(problem)
    problem.require_labels()
    data, architecture, levels = problem.data, problem.architecture, ()
    if test_features is not None or data.test_features is not None:
        test_features = problem.test_features(test_features)
    order_parameters = problem.point(order_parameters)
    if not architecture.is_infinite:
        law = finite_width_law(architecture)
        if not law.is_regular:
            raise ValueError(
                f"widths={tuple(map(float, architecture.widths))}: a layer has fewer units than partial paths, so the "
                "exact posterior has no density at the saddle point; use sampling.sample"
            )
        levels = law.levels
    found = _fluctuations(problem.canonical, order_parameters, test_features, levels)
    if not is_traced(found) and jnp.isnan(found.log_evidence) and jnp.all(jnp.isfinite(order_parameters.first)):
        raise ValueError(
            "the Hessian of the action is not positive definite at these order parameters, so they are not a minimum. "
            "Use the result of bpkr.solve for the same problem"
        )
    found, ansatz = problem.finite(found), problem.ansatz
    prediction = None if found.prediction is None else replace(found.prediction, ansatz=ansatz, classes=data.classes)
    return replace(found, prediction=prediction, ansatz=ansatz)


def prior_corrections(bound: BoundAction, order_parameters: OrderParameters) -> Float[Array, ""]:
    """Return -2 log p of the exact prior minus the entropy, up to a constant."""
    return bound(bound.point(order_parameters), corrections=bound.action.corrections)["corrections"]


@jit_and_keep
def corrected_evidence(problem: Problem, order_parameters: OrderParameters) -> Float[Array, ""]:
    """Return the log evidence of `fluctuations` alone, at the cost of one more step of Newton's method.

    The Hessian is in the steps of `coordinates.moved`, as solvers form it. At a minimum it is the Hessian in the
    coordinates, multiplied from both sides by the Jacobian of the coordinates in the steps.
    """
    architecture, coordinates = problem.architecture, problem.coordinates(order_parameters)
    origin = gp_coordinates(architecture)

    def entropy(theta):
        return problem.bound.entropy(problem.order_parameters(theta))

    def log_integral(leading, theta, log_determinant):
        corrections = prior_corrections(problem.bound, problem.order_parameters(theta))
        return log_volume(architecture, theta) - (leading(theta) + corrections + log_determinant) / 2

    factor = jnp.linalg.cholesky(problem.expansion(problem.at(coordinates)).hessian / 2)
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factor))) - 2 * log_volume_of_steps(architecture, coordinates)
    # The prior law of Bartlett factors is a product, so the Hessian of the entropy is diagonal: its rows sum to it.
    _, of_prior = jax.jvp(jax.grad(entropy), (origin,), (jnp.ones_like(origin),))
    posterior = log_integral(problem.action, coordinates, log_determinant)
    prior = log_integral(entropy, origin, jnp.sum(jnp.log(of_prior / 2)))
    return posterior - prior + problem.energy.label_constant


@jit_and_keep
def _fluctuations(problem: Problem, order_parameters, test_features, levels: tuple[Level, ...]) -> Fluctuations:
    bound, architecture, coordinates = problem.bound, problem.architecture, problem.coordinates(order_parameters)

    def action(theta):
        point = problem.order_parameters(theta)
        return bound.entropy(point) + problem.energy.value(point.first), point

    def corrections(theta, point):
        """Return the terms of order one in minus twice the log density of the coordinates."""
        return prior_corrections(bound, point) - 2 * log_volume(architecture, theta)

    def described(theta):
        (value, point), slope = jax.value_and_grad(action, has_aux=True)(theta)
        of_order_one = None if architecture.is_infinite else corrections(theta, point)
        prediction = None if test_features is None else prediction_at(problem, point, test_features)
        return _Described(value, slope, of_order_one, point, prediction)

    def derivatives(direction):
        """Return values, first and second derivatives along one direction, by forward over reverse mode."""
        along = lambda at: jax.jvp(described, (at,), (direction,))  # noqa: E731
        (here, first), (_, second) = jax.jvp(along, (coordinates,), (direction,))
        return here, first, second

    def whiten(directions, _):
        """Differentiate along the columns of `directions`, and make them orthonormal in half the Hessian."""
        here, first, second = jax.lax.map(derivatives, directions.T)
        factor = jnp.linalg.cholesky(first.slope @ directions / 2)
        here = jax.tree.map(lambda values: values[0], here)
        return solve_triangular(factor, directions.T, lower=True).T, (directions, here, first, second)

    # The first pass gives the Hessian and hence the directions, the second one the derivatives along them. Both passes
    # run one loop, because its compilation takes most of the time of a first call.
    _, passes = jax.lax.scan(whiten, jnp.eye(len(coordinates)), length=2)
    # The columns are independent deviations: Sigma = directions directions^T.
    directions, here, first, second = jax.tree.map(lambda each: each[1], passes)
    # Variance of the mean prediction, given independent deviations of the coordinates.
    between = 0.0 if test_features is None else jnp.sum(first.prediction.mean**2, axis=0)
    limit, prediction = gp_limit(architecture), here.prediction
    if architecture.is_infinite:
        if prediction is not None:
            # At zero richness the variance is of order one, and this contribution to it of order 1/N.
            between = jnp.where(architecture.richness == 0, 0.0, between)
            prediction = replace(prediction, variance=prediction.variance + between)
        log_evidence = (bound.entropy(limit) - here.action) / 2
        return Fluctuations(order_parameters, first.order_parameters, prediction, log_evidence, is_leading=True)

    # The gradient of tr(S'' Sigma)/2 + corrections moves the mean away from the minimum, by `drift` in each direction.
    drift = -(directions.T @ jnp.sum(second.slope, axis=0) / 2 + first.corrections) / 2

    def mean(value, slopes, bends):
        return value + jnp.tensordot(drift, slopes, axes=1) + jnp.sum(bends, axis=0) / 2

    means = jax.tree.map(mean, here, first, second)
    if prediction is not None:
        # Law of total variance: add the variance of the mean given the order parameters.
        prediction = Prediction(means.prediction.mean, jnp.maximum(means.prediction.variance + between, 0.0))
    # Take the ratio of posterior to prior, in which common errors of the two Gaussian integrals cancel. The entropy of
    # U_l given U_{l+1} is N_l (tr(B B^T + R R^T) - log det(B B^T)), so that half its Hessian at the limit is N_l, and
    # 2 N_l for the logarithms of the diagonal of B.
    of_posterior = here.action + here.corrections - 2 * jnp.sum(jnp.log(jnp.diagonal(directions)))
    of_prior = bound.entropy(limit) + corrections(gp_coordinates(architecture), limit)
    for level, width in zip(levels, reversed(architecture.widths), strict=True):
        of_prior += level.coordinates * jnp.log(width) + level.columns * np.log(2.0)
    log_evidence = (of_prior - of_posterior) / 2 + problem.energy.label_constant
    return Fluctuations(means.order_parameters, first.order_parameters, prediction, log_evidence)


class _Described(eqx.Module):
    """Values at coordinates, which are differentiated together. `corrections` are None at infinite width."""

    action: Float[Array, ""]
    slope: Coordinates
    corrections: Float[Array, ""] | None
    order_parameters: OrderParameters
    prediction: Prediction | None
