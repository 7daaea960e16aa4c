"""The posterior of all weights of the finite network, in whitened coordinates: every weight N(0, 1) in the prior.

The network is the sum over paths, Eqs. (5) and (6), of the tokens after all nonlinear functions. Only the forward maps
of its layers and the Gaussian likelihood, Eq. (8), enter: nothing is integrated out.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..features.implicit import Features, ImplicitFeatures, PathFeatures
from ..network.network import colour_layers, overlaps, read_paths
from ..specification import layer_functions
from ..specification.activations import apply_to
from ..specification.architecture import Architecture, nonlinear_layers
from .posterior import AbstractPosterior, named

Coordinates = Float[Array, " weights"]
White = tuple[Float[Array, "_ _"], ...]


class WeightPosterior(AbstractPosterior):
    """p(weights | data), a density in whitened weights: embedding, layers from the input side, readout, side by side.

    - `features` (examples, paths, features), `labels` (examples, outputs), `test_features`, with no examples if nothing
      is to be predicted. Features given by their kernels hold the tokens, which nonlinear networks need.
    - `shapes`: of embedding, weights of every layer, and readout. `keeps_weights`: whether they are recorded.
    """

    architecture: Architecture
    features: PathFeatures
    labels: Float[Array, "examples outputs"]
    test_features: Features
    shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    keeps_weights: bool = eqx.field(static=True)

    @property
    def dimension(self) -> int:
        return sum(map(math.prod, self.shapes))

    def start(self, key: PRNGKeyArray) -> Coordinates:
        return jax.random.normal(key, (self.dimension,))

    def split(self, coordinates: Coordinates) -> White:
        """The whitened weights of embedding, layers and readout."""
        return split_weights(coordinates, self.shapes)

    def path_weights(self, white: White) -> tuple[Float[Array, "_ _"], ...]:
        """(w^(1), ..., w^(L+1)), Eq. (6), from the first layer on above which all layers are linear."""
        _, *layers, readout = white
        nonlinear = nonlinear_layers(self.architecture.layers)
        blocks = colour_layers(self.architecture, layers)[nonlinear:]
        readout = jnp.sqrt(self.architecture.prior_variances[-1]) * readout
        forms, numbers = self.architecture.forms[nonlinear:], self.architecture.layer_numbers()
        return layer_functions.all_path_weights(forms, numbers, blocks, readout)

    def outputs(self, white: White, features: Features) -> Array:
        """f(x) (examples, outputs) of every example, Eq. (5); the embedding's own variance is in the features."""
        first = self.path_weights(white)[0]
        if not isinstance(features, ImplicitFeatures):
            return read_paths(first, white[0], features)
        variances = (1.0, *self.architecture.prior_variances[1:-1])
        hidden = features.tokens
        for layer, activation in enumerate(self.architecture.activations):
            # the tokens' own scale is in the features
            scale = jnp.sqrt(variances[layer] / hidden.shape[2]) if layer else 1.0
            hidden = apply_to(activation, scale * jnp.einsum("mn,esn->esm", white[layer], hidden))
        return read(first, jnp.einsum("esn,esp->epn", hidden, features.readings) / jnp.sqrt(hidden.shape[2]))

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """log p(weights) + log p(y | weights), Eq. (8), up to a constant."""
        residual = self.outputs(self.split(coordinates), self.features) - self.labels
        return -(jnp.sum(coordinates**2) + jnp.sum(residual**2) / self.architecture.temperature) / 2  # Eq. (8)

    def record(self, coordinates: Coordinates) -> Mapping[str, Array]:
        """U_l and u of the path weights, Eq. (13), and the output on test examples."""
        white = self.split(coordinates)
        recorded = dict(named(overlaps(self.path_weights(white)), nonlinear_layers(self.architecture.layers) + 1))
        if self.keeps_weights:
            recorded["weights"] = coordinates
        if len(self.test_features):
            outputs = self.outputs(white, self.test_features)
            recorded["sampled_output"] = outputs[:, 0] if outputs.shape[1] == 1 else outputs
        return recorded


def split_weights(coordinates: Coordinates, shapes: Sequence[tuple[int, int]]) -> White:
    """Arrays of the given shapes, from all their entries side by side."""
    ends = itertools.accumulate(map(math.prod, shapes))
    pieces = jnp.split(coordinates, list(ends)[:-1])
    return tuple(piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True))


def read(
    first: Float[Array, "rows width"], readings: Float[Array, "examples paths width"]
) -> Float[Array, "examples outputs"]:
    """The network's outputs from w^(1), with one row per path and output, and the hidden readings, Eq. (5)."""
    by_output = first.reshape(readings.shape[1], -1, readings.shape[2])
    return jnp.einsum("kcn,pkn->pc", by_output, readings)  # Eq. (5)
