"""The exact posterior of the order parameters, at any width.

With the input projection V^0 integrated out, the likelihood is N(y; 0, K(U_1) + T I): it depends on the weights through
U_1 alone, whose prior is the law of `bpkr.FiniteWidthLaw`. Nothing is taken to a limit, and a few coordinates stand
for all weights.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..evaluation.energies import AbstractEnergy
from ..evaluation.prediction import prediction_at
from ..features.implicit import Features, PathFeatures
from ..order_parameters.finite_width_law import Coordinates, FiniteWidthLaw
from .posterior import AbstractPosterior, named


class OrderParameterPosterior(AbstractPosterior):
    """p(U_1, ..., U_L, u | data), a density in the coordinates of `law`.

    - `law`: the prior. `energy`: the data's, by their kernel where U_1 is singular.
    - `features`, `labels`: what `energy` is of. `test_features`: with no examples if nothing is to be predicted.
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
        """A draw from the prior."""
        return self.law.sample(key)

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """log p(coordinates) + log p(y | coordinates), normalised: its integral is the evidence."""
        return self.law.unchecked_log_prior(coordinates) + self.log_likelihood(coordinates)

    def log_densities(self, points: Float[Array, "points coordinates"]) -> Float[Array, " points"]:
        # the likelihoods one by one: LAPACK gains nothing by many small matrices at once
        likelihoods = jax.lax.map(self._log_likelihood_of, jax.vmap(self._first)(points))
        return jax.vmap(self.law.unchecked_log_prior)(points) + likelihoods

    def log_likelihood(self, coordinates: Coordinates) -> Float[Array, ""]:
        """log N(y; 0, K(U_1) + T I)."""
        return self._log_likelihood_of(self._first(coordinates))

    def _first(self, coordinates: Coordinates) -> Float[Array, "paths paths"]:
        """U_1."""
        return self.law.unchecked_order_parameters(coordinates).first

    def _log_likelihood_of(self, first: Float[Array, "paths paths"]) -> Float[Array, ""]:
        return -(_value(self.energy, first) + self.energy.label_count * jnp.log(2 * jnp.pi)) / 2

    def record(self, coordinates: Coordinates) -> Mapping[str, Array]:
        """What is kept of a draw: U_l, u, and mean and variance of the output on test examples, given them."""
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
