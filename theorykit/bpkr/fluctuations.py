"""Fluctuations of the order parameters about the saddle point: what the theory says to the next order in one over N.

In coordinates theta, the exact posterior at finite width is exp(-V/2), V = S + c - 2 log |dU/dtheta|: the action, of
order N, and the corrections c of the exact prior and the volume element, of order one. About the minimum of S, with
Sigma = (S''/2)^-1 and the drift

    delta_i = -1/4 sum_jkl Sigma_ij S'''_jkl Sigma_kl - 1/2 sum_j Sigma_ij d_j (c - 2 log |dU/dtheta|),

the mean of any function g is g + sum_i g_i delta_i + 1/2 sum_ij g_ij Sigma_ij + O(1/N^2), its covariance with another h
sum_ij g_i Sigma_ij h_j + O(1/N^2), and the log evidence that of a Gaussian of covariance Sigma, up to O(1/N): all at a
fixed number of examples. Derivatives are those of the compiled action.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .architecture import Architecture
from .checks import check_same_input_features, checked_data, checked_features, checked_results
from .coordinates import Coordinates, from_order_parameters, gp_coordinates, log_volume, to_order_parameters
from .derive import derive
from .energies import AbstractEnergy, energy_of
from .evaluate import architecture_arguments, flat_features, point_arguments
from .finite_width_law import law_of
from .order_parameters import OrderParameters, checked_order_parameters, readout_matrix
from .predict import Prediction
from .problem import entropy


class Fluctuations(eqx.Module):
    """The posterior of the order parameters to the next order in one over the widths.

    - `mean`: of the order parameters; `modes`: their deviations along independent directions of unit variance, stacked
      along a first axis, so that the covariance of any two entries is the sum of products over modes.
    - `prediction`: mean and variance of the network's output on the test examples; None if there were none.
    - `log_evidence`: log p(y).
    """

    mean: OrderParameters
    modes: OrderParameters
    prediction: Prediction | None
    log_evidence: Float[Array, ""]

    @property
    def deviation(self) -> OrderParameters:
        """The standard deviation of every entry of the order parameters."""
        return jax.tree.map(lambda mode: jnp.sqrt(jnp.sum(mode**2, axis=0)), self.modes)

    def covariance(self, layer: int) -> Float[Array, "n n n n"]:
        """The covariance of the entries of U_l with each other; layers count from 1."""
        modes = self.modes.matrices[layer - 1]
        return jnp.einsum("mab,mcd->abcd", modes, modes)


def fluctuations(
    architecture: Architecture,
    order_parameters: OrderParameters,
    features: ArrayLike,
    labels: ArrayLike,
    test_features: ArrayLike | None = None,
) -> Fluctuations:
    """Gaussian fluctuations about the saddle point `order_parameters`, as `solve` finds it.

    `features` (examples, paths, features), `labels` (examples,), or (examples, outputs) where there are several;
    `test_features` has the layout of `features`. Every layer must have as many units as partial paths. Raises
    `ValueError` where the action has no minimum at `order_parameters`.
    """
    features, labels = checked_data(architecture, features, labels)
    order_parameters = checked_order_parameters(architecture, order_parameters)
    if test_features is not None:
        test_features = checked_features(architecture, test_features, "test_features")
        check_same_input_features(features, test_features, "test_features")
    if not law_of(architecture).is_regular:
        raise ValueError(
            f"widths={architecture.widths}: a layer has fewer units than partial paths, where the exact posterior has "
            "no density about the saddle point; sample it instead"
        )
    # numbers as arrays: one compilation serves them all
    numbers = jax.tree.map(lambda number: jnp.asarray(number, dtype=jnp.float64), architecture)
    found = _fluctuations(numbers, order_parameters, features, labels, test_features)
    if jnp.isnan(found.log_evidence) and jnp.all(jnp.isfinite(order_parameters.matrices[0])):
        raise ValueError(
            "the Hessian of the action is not positive definite at these order parameters: they are no minimum. Give "
            "those that bpkr.solve found for the same architecture and data"
        )
    return checked_results(found, architecture)


class _Posterior(eqx.Module):
    """Minus twice the log density of the coordinates: `action` of order N, `corrections` of order one."""

    architecture: Architecture
    energy: AbstractEnergy

    def entropy(self, coordinates: Coordinates) -> Float[Array, ""]:
        return entropy(self.architecture, to_order_parameters(self.architecture, coordinates))

    def action(self, coordinates: Coordinates) -> Float[Array, ""]:
        first = to_order_parameters(self.architecture, coordinates).matrices[0]
        return self.entropy(coordinates) + self.energy.value(first)

    def corrections(self, coordinates: Coordinates) -> Float[Array, ""]:
        order_parameters = to_order_parameters(self.architecture, coordinates)
        return prior_corrections(self.architecture, order_parameters) - 2 * log_volume(self.architecture, coordinates)


def prior_corrections(architecture: Architecture, order_parameters: OrderParameters) -> Float[Array, ""]:
    """What the exact prior density, -2 log p, adds to the entropy; up to a constant."""
    action = derive(architecture)
    last = {action.overlaps[-1].name: readout_matrix(order_parameters.readout)}
    arguments = {**point_arguments(architecture, order_parameters), **last}
    return action.compiled_corrections.of(arguments)["corrections"]


@eqx.filter_jit
def _fluctuations(architecture, order_parameters, features, labels, test_features) -> Fluctuations:
    posterior = _Posterior(architecture, energy_of(architecture, features, labels))
    coordinates = from_order_parameters(architecture, order_parameters)
    hessian = jax.hessian(posterior.action)(coordinates) / 2
    factor = jnp.linalg.cholesky(hessian)
    # columns are independent deviations: Sigma = directions directions^T
    directions = solve_triangular(factor, jnp.eye(len(coordinates)), lower=True).T
    drift = -cho_solve((factor, True), _force(posterior, coordinates, directions)) / 2

    def mean_of(function):
        return _mean(function, coordinates, directions, drift)

    def at(theta):
        return to_order_parameters(architecture, theta)

    _, along = jax.linearize(at, coordinates)
    prediction = None
    if test_features is not None:
        prediction = _prediction(architecture, coordinates, directions, mean_of, (features, labels, test_features))
    log_integral = _log_gaussian_integral(posterior, posterior.action, coordinates)
    # the prior's own integral by the same formula, at its minimum: what both miss alike cancels
    of_prior = _log_gaussian_integral(posterior, posterior.entropy, gp_coordinates(architecture))
    log_evidence = log_integral - of_prior - posterior.energy.label_count * jnp.log(2 * jnp.pi) / 2
    return Fluctuations(mean_of(at), jax.vmap(along)(directions.T), prediction, log_evidence)


def _log_gaussian_integral(posterior: _Posterior, leading, coordinates: Coordinates) -> Float[Array, ""]:
    """log of the integral of exp(-(leading + corrections)/2) about the minimum of `leading`, up to a constant."""
    factor = jnp.linalg.cholesky(jax.hessian(leading)(coordinates) / 2)
    height = -(leading(coordinates) + posterior.corrections(coordinates)) / 2
    return height - jnp.sum(jnp.log(jnp.diagonal(factor)))


def _force(posterior: _Posterior, coordinates: Coordinates, directions: Float[Array, "n n"]) -> Coordinates:
    """The gradient of tr(S'' Sigma)/2 + corrections: what moves the mean away from the minimum."""

    def curvature_along(direction):
        return jax.grad(lambda theta: _second(posterior.action, theta, direction))(coordinates)

    curvatures = jax.lax.map(curvature_along, directions.T)
    return jnp.sum(curvatures, axis=0) / 2 + jax.grad(posterior.corrections)(coordinates)


def _second(function, theta: Coordinates, direction: Coordinates):
    """The second derivative of `function` along `direction`, of every output."""

    def first(at):
        return jax.jvp(function, (at,), (direction,))[1]

    return jax.jvp(first, (theta,), (direction,))[1]


def _mean(function, coordinates: Coordinates, directions: Float[Array, "n n"], drift: Coordinates):
    """The mean of a function of the coordinates, whose values are trees of arrays."""
    value, moved = jax.jvp(function, (coordinates,), (drift,))
    spread = jax.lax.map(lambda direction: _second(function, coordinates, direction), directions.T)
    return jax.tree.map(lambda v, m, s: v + m + jnp.sum(s, axis=0) / 2, value, moved, spread)


def _prediction(architecture, coordinates, directions, mean_of, data) -> Prediction:
    features, labels, test_features = data
    action = derive(architecture)
    symbols = action.symbols
    arrays = {
        symbols.features.name: flat_features(architecture, features),
        symbols.labels.name: labels.reshape(-1, 1),
        symbols.test_features.name: flat_features(architecture, test_features),
        **architecture_arguments(architecture),
    }
    shape = (len(test_features), *labels.shape[1:])

    def predicted(theta):
        point = point_arguments(architecture, to_order_parameters(architecture, theta))
        values = action.compiled_predictor.of({**arrays, **point})
        return values["mean"].reshape(shape), values["variance"].reshape(shape)

    mean, given = mean_of(predicted)
    # of the output, whose mean differs with the order parameters: the law of total variance
    _, along = jax.linearize(lambda theta: predicted(theta)[0], coordinates)
    between = jax.lax.map(lambda direction: along(direction) ** 2, directions.T)
    return Prediction(mean, jnp.maximum(given + jnp.sum(between, axis=0), 0.0))
