"""Posteriors for samplers: a density over flat coordinates, where to start, and the quantities to keep of a draw."""

import abc
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .. import OrderParameters
from ..evaluation.energies import AbstractEnergy
from ..evaluation.prediction import prediction_at
from ..features.implicit import Features, PathFeatures
from ..order_parameters.finite_width_law import Coordinates, FiniteWidthLaw


class AbstractPosterior(eqx.Module):
    """A probability density over `dimension` coordinates."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """The number of coordinates."""

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray) -> Float[Array, " coordinates"]:
        """Coordinates to start a chain from, spread more widely than the posterior."""

    @abc.abstractmethod
    def log_density(self, coordinates: Float[Array, " coordinates"]) -> Float[Array, ""]:
        """The logarithm of the density, up to a constant."""

    def log_densities(self, points: Float[Array, "points coordinates"]) -> Float[Array, " points"]:
        """`log_density` at each of some points."""
        return jax.lax.map(self.log_density, points)

    @abc.abstractmethod
    def record(self, coordinates: Float[Array, " coordinates"]) -> Mapping[str, Array]:
        """The quantities that are kept of a draw, by name."""


def named(order_parameters: OrderParameters, first: int = 1) -> Mapping[str, Array]:
    """U_1, ..., U_L and u by the names that draws are kept under; the matrices are of layer `first` and above."""
    matrices = {f"U_{layer}": matrix for layer, matrix in enumerate(order_parameters.matrices, first)}
    return {**matrices, "u": order_parameters.readout}


class OrderParameterPosterior(AbstractPosterior):
    """p(U_1, ..., U_L, u | data), exact at any width: a density in the coordinates of `law`.

    With the input projection V^0 integrated out, the likelihood is N(y; 0, K(U_1) + T I). It depends on the weights
    through U_1 alone, whose prior is the law of `bpkr.FiniteWidthLaw`, so a few coordinates stand for all weights.

    - `law`: the prior. `energy`: the data's, by their kernel if U_1 is singular.
    - `features`, `labels`: the data of `energy`. `test_features`: with no examples if nothing is to be predicted.
    """

    law: FiniteWidthLaw
    energy: AbstractEnergy
    features: PathFeatures
    labels: Float[Array, "examples *outputs"]
    test_features: Features

    @property
    def dimension(self) -> int:
        return self.law.dimension

    def start(self, key: PRNGKeyArray) -> Coordinates:
        return self.law.sample(key)

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """log p(coordinates) + log p(y | coordinates), normalised: its integral is the evidence."""
        first = self.law.unchecked_order_parameters(coordinates).first
        return self.law.unchecked_log_prior(coordinates) + self._log_likelihood(first)

    def log_densities(self, points: Float[Array, "points coordinates"]) -> Float[Array, " points"]:
        firsts = jax.vmap(lambda point: self.law.unchecked_order_parameters(point).first)(points)
        # the likelihoods one by one: LAPACK gains nothing by many small matrices at once
        return jax.vmap(self.law.unchecked_log_prior)(points) + jax.lax.map(self._log_likelihood, firsts)

    def _log_likelihood(self, first: Float[Array, "paths paths"]) -> Float[Array, ""]:
        """log N(y; 0, K(U_1) + T I)."""
        return -(_value(self.energy, first) + self.energy.label_count * jnp.log(2 * jnp.pi)) / 2

    def record(self, coordinates: Coordinates) -> Mapping[str, Array]:
        """U_l, u, and the mean and variance of the output on test examples given them."""
        point = self.law.unchecked_order_parameters(coordinates)
        if not len(self.test_features):
            return named(point)
        prediction = prediction_at(self.energy.bound, point, self.features, self.labels, self.test_features)
        return {**named(point), "mean": prediction.mean, "variance": prediction.variance}


@jax.custom_vjp
def _value(energy: AbstractEnergy, first: Float[Array, "paths paths"]) -> Float[Array, ""]:
    """The energy, with the gradient in U_1 that one evaluation gives: half the time of differentiating it."""
    return energy.value(first)


def _value_and_slope(energy, first):
    value, slope = energy.value_and_slope(first)
    return value, (energy, slope)


def _times_slope(kept, cotangent):
    energy, slope = kept
    return jax.tree.map(jnp.zeros_like, energy), cotangent * slope


_value.defvjp(_value_and_slope, _times_slope)
