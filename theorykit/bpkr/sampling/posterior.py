"""Posteriors for samplers: a log density over flat coordinates, a starting point, and quantities to keep from a draw.

`OrderParameterPosterior` integrates the weights out. `WeightPosterior` has all weights of the finite network, Eqs. (5),
(6) and (8), in whitened coordinates, in which the prior of every weight is N(0, 1).
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .. import OrderParameters
from ..evaluation.formulas import Energy
from ..evaluation.problem import Problem
from ..evaluation.values import prediction_at
from ..features.implicit import Features, ImplicitFeatures, PathFeatures
from ..network.network import colour_layers, overlaps, read_paths
from ..order_parameters.coordinates import FiniteWidthLaw
from ..specification import layer_functions
from ..specification.activations import apply_to
from ..specification.architecture import Architecture, nonlinear_layers

Coordinates = Float[Array, " coordinates"]
White = tuple[Float[Array, "_ _"], ...]


def _named(order_parameters: OrderParameters, first: int = 1) -> Mapping[str, Array]:
    """Return U_l of layers `first` and above, and u, by the names used in draws."""
    matrices = {f"U_{layer}": matrix for layer, matrix in enumerate(order_parameters.matrices, first)}
    return {**matrices, "u": order_parameters.readout}


class OrderParameterPosterior(eqx.Module):
    """The posterior p(U_1, ..., U_L, u | data), exact at any width, as a density in the coordinates of `law`.

    With the input projection V^0 integrated out, the likelihood is N(y; 0, K(U_1) + T I). It depends on the weights
    only through U_1, so a few coordinates replace all weights. `law` is the prior. `test_features` is empty if there
    are no test examples.
    """

    law: FiniteWidthLaw
    problem: Problem
    test_features: Features

    def start(self, key: PRNGKeyArray) -> Coordinates:
        """Draw from the prior."""
        return self.law.sample(key)

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return log p(coordinates) + log N(y; 0, K(U_1) + T I), whose integral is the evidence."""
        first = self.law.order_parameters(coordinates).first
        energy = self.problem.energy
        log_likelihood = energy.label_constant - _value(energy, first) / 2
        return self.law.log_prior(coordinates) + log_likelihood

    def record(self, coordinates: Coordinates) -> Mapping[str, Array]:
        """Return U_l, u, and, given these, the mean and variance of the output on test examples."""
        point = self.law.order_parameters(coordinates)
        if not len(self.test_features):
            return _named(point)
        prediction = prediction_at(self.problem, point, self.test_features)
        return {**_named(point), "mean": prediction.mean, "variance": prediction.variance}


@jax.custom_vjp
def _value(energy: Energy, first: Float[Array, "paths paths"]) -> Float[Array, ""]:
    """Return the energy. Its gradient with respect to U_1 comes from the same evaluation, in half the time."""
    return energy.value(first)


def _value_and_slope(energy, first):
    point = energy.at(first)
    return point.value, (energy, point.slope)


def _times_slope(kept, cotangent):
    energy, slope = kept
    return jax.tree.map(jnp.zeros_like, energy), cotangent * slope


_value.defvjp(_value_and_slope, _times_slope)


class WeightPosterior(eqx.Module):
    """The posterior p(weights | data) as a density in whitened weights: embedding, layers from the input side, readout.

    `labels` and `outputs` have the scale of the standard parameterisation: with a richness, both are multiplied by
    `architecture.root_power`. `shapes` are the shapes of these arrays. `test_features` is empty if there are no
    test examples. Features given by kernels include the tokens, which nonlinear networks need.
    """

    architecture: Architecture
    features: PathFeatures
    labels: Float[Array, "examples outputs"]
    test_features: Features
    shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    keeps_weights: bool = eqx.field(static=True)

    def start(self, key: PRNGKeyArray) -> Coordinates:
        """Draw from the prior."""
        return jax.random.normal(key, (sum(map(math.prod, self.shapes)),))

    def path_weights(self, white: White) -> tuple[Float[Array, "_ _"], ...]:
        """Return (w^(1), ..., w^(L+1)), Eq. (6), starting above the last nonlinear layer."""
        _, *layers, readout = white
        nonlinear = nonlinear_layers(self.architecture.layers)
        blocks = colour_layers(self.architecture, layers)[nonlinear:]
        readout = jnp.sqrt(self.architecture.prior_variances[-1]) * readout
        forms, numbers = self.architecture.forms[nonlinear:], self.architecture.layer_numbers()
        return layer_functions.all_path_weights(forms, numbers, blocks, readout)

    def outputs(self, white: White, features: Features) -> Array:
        """Return f(x) (examples, outputs), Eq. (5). The features include the variance of the embedding."""
        first = self.path_weights(white)[0]
        if not isinstance(features, ImplicitFeatures):
            return read_paths(first, white[0], features)
        variances = (1.0, *self.architecture.prior_variances[1:-1])
        hidden = features.tokens
        for layer, activation in enumerate(self.architecture.activations):
            # Features include the scale of the first layer.
            scale = jnp.sqrt(variances[layer] / hidden.shape[2]) if layer else 1.0
            hidden = apply_to(activation, scale * jnp.einsum("mn,esn->esm", white[layer], hidden))
        return read(first, jnp.einsum("esn,esp->epn", hidden, features.readings) / jnp.sqrt(hidden.shape[2]))

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return log p(weights) + log p(y | weights), Eq. (8), up to a constant."""
        residual = self.outputs(split_weights(coordinates, self.shapes), self.features) - self.labels
        return -(jnp.sum(coordinates**2) + jnp.sum(residual**2) / self.architecture.temperature) / 2  # Eq. (8)

    def record(self, coordinates: Coordinates) -> Mapping[str, Array]:
        """Return U_l and u of the path weights, Eq. (13), and the output on test examples."""
        white = split_weights(coordinates, self.shapes)
        recorded = dict(_named(overlaps(self.path_weights(white)), nonlinear_layers(self.architecture.layers) + 1))
        if self.keeps_weights:
            recorded["weights"] = coordinates
        if len(self.test_features):
            outputs = self.outputs(white, self.test_features) / self.architecture.root_power
            recorded["sampled_output"] = outputs[:, 0] if outputs.shape[1] == 1 else outputs
        return recorded


def split_weights(coordinates: Coordinates, shapes: Sequence[tuple[int, int]]) -> White:
    """Split flat coordinates into arrays of the given shapes."""
    ends = itertools.accumulate(map(math.prod, shapes))
    pieces = jnp.split(coordinates, list(ends)[:-1])
    return tuple(piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True))


def read(
    first: Float[Array, "rows width"], readings: Float[Array, "examples paths width"]
) -> Float[Array, "examples outputs"]:
    """Return outputs from w^(1), with one row per path and output, and hidden readings, Eq. (5)."""
    by_output = first.reshape(readings.shape[1], -1, readings.shape[2])
    return jnp.einsum("kcn,pkn->pc", by_output, readings)  # Eq. (5)
