"""Posteriors as densities over flat coordinates, and their samplers: NUTS, and block Gibbs."""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float, PRNGKeyArray

from ..._compat import needed
from .. import OrderParameters, Problem
from ..evaluation.values import prediction_at
from ..features.between import BranchFeatures
from ..features.implicit import Features, ImplicitFeatures, PathFeatures
from ..network.network import Weights, colour_layers, overlaps, read_paths
from ..order_parameters import FiniteWidthLaw, of_kernel
from ..specification.activations import apply_to
from ..specification.architecture import Architecture, nonlinear_layers
from ..specification.layers import activation_of, all_path_weights, evaluate_form

Coordinates = Float[Array, " coordinates"]
White = tuple[Weights, ...]


def _named(point: OrderParameters, first: int = 1) -> dict[str, Array]:
    matrices = {f"U_{layer}": matrix for layer, matrix in enumerate(point.matrices, first)}
    return {**matrices, "u": point.readout}


def recorded(problem: Problem, point: OrderParameters, test_features: Features) -> dict[str, Array]:
    if not len(test_features):
        return _named(point)
    prediction = prediction_at(problem, point, test_features)
    return {**_named(point), "mean": prediction.mean, "variance": prediction.variance}


class OrderParameterPosterior(eqx.Module):
    """The posterior of the order parameters, exact up to any ansatz, in coordinates of `law`."""

    law: FiniteWidthLaw
    problem: Problem
    test_features: Features

    def start(self, key: PRNGKeyArray, chain: Array | int = 0) -> Coordinates:
        return self.law.sample(key)

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return log p(coordinates) + log N(y; 0, K(U_1) + T I)."""
        in_kernel = of_kernel(self.law.architecture, self.law.order_parameters(coordinates))
        return self.law.log_prior(coordinates) + self.problem.energy.log_likelihood(in_kernel)

    def record(self, coordinates: Coordinates) -> Mapping[str, Array]:
        return recorded(self.problem, self.law.order_parameters(coordinates), self.test_features)


class WeightPosterior(eqx.Module):
    """The posterior of all weights, Eqs. (5), (6) and (8), whose prior is N(0, 1).

    `labels` and `outputs` are multiplied by `architecture.root_power`. `shapes` are of
    embedding, layers, readout.
    """

    architecture: Architecture
    features: PathFeatures
    labels: Float[Array, "examples outputs"]
    test_features: Features
    shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def start(self, key: PRNGKeyArray, chain: Array | int = 0) -> Coordinates:
        return jax.random.normal(key, (sum(map(math.prod, self.shapes)),))

    def path_weights(self, white: White) -> tuple[Weights, ...]:
        """Return (w^(1), ..., w^(L+1)), Eq. (6), above the last nonlinear layer."""
        _, *layers, readout = white
        nonlinear = nonlinear_layers(self.architecture.layers)
        blocks = colour_layers(self.architecture, layers)[nonlinear:]
        readout = jnp.sqrt(self.architecture.prior_variances[-1]) * readout
        forms = self.architecture.forms[nonlinear:]
        return all_path_weights(forms, self.architecture.layer_numbers(), blocks, readout)

    def outputs(self, white: White, features: Features) -> Array:
        """Return f(x) (examples, outputs), Eq. (5)."""
        if isinstance(features, BranchFeatures):
            return self._through_layers(white, features)
        first = self.path_weights(white)[0]
        if not isinstance(features, ImplicitFeatures):
            return read_paths(first, white[0], features)
        variances = (1.0, *self.architecture.prior_variances[1:-1])
        hidden = features.tokens
        for layer, activation in enumerate(self.architecture.activations):
            # Tokens include the scale of the first layer.
            scale = jnp.sqrt(variances[layer] / hidden.shape[2]) if layer else 1.0
            hidden = apply_to(activation, scale * jnp.einsum("mn,esn->esm", white[layer], hidden))
        readings = jnp.einsum("esn,esp->epn", hidden, features.readings) / jnp.sqrt(hidden.shape[2])
        by_output = first.reshape(readings.shape[1], -1, readings.shape[2])
        return jnp.einsum("kcn,pkn->pc", by_output, readings)

    def _through_layers(self, white: White, features: BranchFeatures) -> Array:
        """Return outputs layer by layer, Eqs. (1), (2) and (4)."""
        architecture = self.architecture
        numbers = self.architecture.layer_numbers()
        hidden = jnp.einsum("mi,esi->ems", white[0], features.tokens)
        layers = colour_layers(architecture, white[1:-1])
        for kind, form, weights, stage in zip(
            architecture.layers, architecture.forms, layers, features.stages, strict=True
        ):
            width = hidden.shape[1]
            mixed = jnp.einsum("ems,esat->eamt", hidden, stage.mixing)
            skip = evaluate_form(form.gain, numbers) * mixed[:, 0] if form.has_skip else 0.0
            blocks = weights.reshape(len(weights), -1, width) / jnp.sqrt(width)
            hidden = skip + jnp.einsum("nam,eamt->ent", blocks, mixed[:, int(form.has_skip) :])
            hidden = apply_to(activation_of(kind), hidden)
        read = jnp.einsum("ems,esr->erm", hidden, features.readout) / jnp.sqrt(hidden.shape[1])
        weights = white[-1].reshape(read.shape[1], -1, read.shape[2])
        return jnp.sqrt(architecture.prior_variances[-1]) * jnp.einsum("rcm,erm->ec", weights, read)

    def log_density(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return log p(weights) + log p(y | weights), Eq. (8), up to a constant."""
        residual = self.outputs(split_weights(coordinates, self.shapes), self.features) - self.labels
        misfit = jnp.sum(residual**2) / self.architecture.temperature
        return -(jnp.sum(coordinates**2) + misfit) / 2  # Eq. (8)

    def record(self, coordinates: Coordinates) -> Mapping[str, Array]:
        white = split_weights(coordinates, self.shapes)
        first = nonlinear_layers(self.architecture.layers) + 1
        recorded = _named(overlaps(self.path_weights(white)), first)
        if len(self.test_features):
            outputs = self.outputs(white, self.test_features) / self.architecture.root_power
            recorded["sampled_output"] = outputs[:, 0] if outputs.shape[1] == 1 else outputs
        return recorded


def split_weights(coordinates: Coordinates, shapes) -> tuple[Array, ...]:
    pieces = jnp.split(coordinates, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
    return tuple(piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True))


class NoUTurn(eqx.Module):
    """NumPyro's No-U-Turn sampler: M. D. Hoffman and A. Gelman, J. Mach. Learn. Res. 15 (2014)."""

    posterior: Any
    target_accept: float = eqx.field(static=True)
    warmup: int = eqx.field(static=True)

    def start(self, key, chain):
        start_key, chain_key = jax.random.split(key)
        return self._kernel_and_state(chain_key, {"x": self.posterior.start(start_key, chain)})[1]

    def step(self, state):
        # `init` gives the kernel its settings; the state that it returns is not used.
        info = needed("numpyro.infer.util", "NUTS").ParamInfo
        there = info(state.z, state.potential_energy, state.z_grad)
        return self._kernel_and_state(state.rng_key, there)[0].sample(state, (), {})

    def draw(self, state):
        return {
            **self.posterior.record(state.z["x"]),
            "lp": -state.potential_energy,
            "energy": state.energy,
            "diverging": state.diverging,
            "n_steps": state.num_steps,
        }

    def _kernel_and_state(self, key, initial):
        def potential(z):
            return -self.posterior.log_density(z["x"])

        kernel = needed("numpyro.infer", "NUTS").NUTS(potential_fn=potential, target_accept_prob=self.target_accept)
        return kernel, kernel.init(key, self.warmup, initial, (), {})


class Gibbs(eqx.Module):
    """Exact block Gibbs sampling of embedding, layers and readout.

    Outputs are A w + c in each block w; skip connections add c. Given the others,
    Matheron's rule draws w from a draw w_0 of the prior and noise e,

        w = w_0 + A^T (A A^T + T I)^-1 (y - c - A w_0 - e).
    """

    posterior: WeightPosterior

    def start(self, key, chain):
        key, prior_key = jax.random.split(key)
        return split_weights(self.posterior.start(prior_key), self.posterior.shapes), key

    def step(self, state):
        white, key = state
        key, *keys = jax.random.split(key, len(white) + 1)
        for block, block_key in enumerate(keys):
            white = (*white[:block], self._drawn(white, block, block_key), *white[block + 1 :])
        return white, key

    def draw(self, state):
        coordinates = jnp.concatenate([block.ravel() for block in state[0]])
        return {**self.posterior.record(coordinates), "lp": self.posterior.log_density(coordinates)}

    def _drawn(self, white, block, key) -> Weights:
        temperature = self.posterior.architecture.temperature
        labels = self.posterior.labels

        def outputs(own, features):
            return self.posterior.outputs((*white[:block], own, *white[block + 1 :]), features)

        slopes = jax.vmap(jax.jacrev(outputs), (None, 0))(white[block], self.posterior.features[:, None])
        design = slopes.reshape(labels.size, -1)
        prior_key, noise_key = jax.random.split(key)
        prior = jax.random.normal(prior_key, white[block].shape)
        noise = jnp.sqrt(temperature) * jax.random.normal(noise_key, labels.shape)
        factor = jnp.linalg.cholesky(design @ design.T + temperature * jnp.eye(labels.size))
        residual = (labels - noise - outputs(prior, self.posterior.features)).ravel()
        return prior + (design.T @ cho_solve((factor, True), residual)).reshape(prior.shape)
