"""The exact posterior of the order parameters, at any width.

With the input projection V^0 integrated out, the likelihood is N(y; 0, K(U_1) + T I): it depends on the weights through
U_1 alone, whose prior is the law of `bpkr.finite_width_law`. Nothing is taken to a limit, and a few coordinates stand
for all weights.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..bpkr.derive import derive
from ..bpkr.energies import AbstractEnergy
from ..bpkr.evaluate import point_arguments
from ..bpkr.finite_width_law import Coordinates, FiniteWidthLaw
from .posterior import AbstractPosterior


class OrderParameterPosterior(AbstractPosterior):
    """p(U_1, ..., U_L, u | data), a density in the coordinates of `law`.

    - `law`: the prior. `energy`: the data's, by their kernel where U_1 is singular.
    - `data`: training features and labels, and test features, by symbol; empty if nothing is to be predicted.
    """

    law: FiniteWidthLaw
    energy: AbstractEnergy
    data: Mapping[str, Array]

    @property
    def dimension(self) -> int:
        return self.law.dimension

    def start(self, key: PRNGKeyArray) -> Coordinates:
        """A draw from the prior."""
        return self.law.sample(key)

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """log p(coordinates) + log p(y | coordinates), normalised: its integral is the evidence."""
        return self.law.log_prior(coordinates) + self.log_likelihood(coordinates)

    def log_likelihood(self, coordinates: Coordinates) -> Float[Array, ""]:
        """log N(y; 0, K(U_1) + T I)."""
        first = self.law.order_parameters(coordinates).matrices[0]
        return -(_value(self.energy, first) + self.energy.label_count * jnp.log(2 * jnp.pi)) / 2

    def record(self, coordinates: Coordinates) -> Mapping[str, Array]:
        """What is kept of a draw: U_l, u, and mean and variance of the output on test examples, given them."""
        order_parameters = self.law.order_parameters(coordinates)
        matrices = {f"U_{layer}": matrix for layer, matrix in enumerate(order_parameters.matrices, 1)}
        return {**matrices, "u": order_parameters.readout, **self._prediction(order_parameters)}

    def _prediction(self, order_parameters) -> Mapping[str, Array]:
        if not self.data:
            return {}
        architecture = self.law.architecture
        arguments = {**point_arguments(architecture, order_parameters), **self.data}
        values = derive(architecture).compiled_predictor.of(arguments)
        shape = (-1,) if architecture.outputs == 1 else (-1, architecture.outputs)
        variance = jnp.maximum(values["variance"], 0.0)
        return {"mean": values["mean"].reshape(shape), "variance": variance.reshape(shape)}


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
