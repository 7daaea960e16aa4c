"""The saddle point against the exact posterior at finite width: the gap shrinks with the width, to the sampling error.

The likelihood depends on the weights through U_1 alone, so the exact posterior mean of U_1 is an average over networks
drawn from the prior, weighted by N(y; 0, K(U_1) + T). The network's own path weights give U_1: nothing of the action,
nor of its derivation, enters.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr import Attention, Dense, Skip
from theorykit.bpkr.evaluation.formulas import flat_features

NETWORKS = {
    "attention": ((Attention(2),), 1),
    "skip": ((Skip(2, 0.7),), 1),
    "dense between": ((Attention(2), Dense()), 1),
    "two outputs": ((Attention(2),), 2),
}
EXAMPLES, INPUT_FEATURES, TEMPERATURE = 6, 4, 0.2


def data(architecture):
    rng = np.random.default_rng(5)
    shape = (EXAMPLES, architecture.paths, INPUT_FEATURES)
    features = rng.normal(size=shape) / np.sqrt(architecture.paths * INPUT_FEATURES)
    return features, 1.5 * rng.normal(size=(EXAMPLES, architecture.outputs))


def posterior_mean(architecture, features, labels, draws):
    """Posterior mean of U_1, its standard error, and the effective number of draws."""
    attending = [head for head in architecture.heads if head]
    key_query = [np.zeros((head, INPUT_FEATURES, INPUT_FEATURES)) for head in attending]
    heads = bpkr.Heads(key_query=key_query)
    design = flat_features(architecture, jnp.asarray(features))
    regulariser = architecture.temperature * jnp.eye(len(design))

    def draw(key):
        network = bpkr.sample_network(architecture, heads, input_features=INPUT_FEATURES, key=key)
        overlap = bpkr.empirical_order_parameters(network).matrices[0]
        factor = jnp.linalg.cholesky(design @ jnp.kron(overlap, jnp.eye(INPUT_FEATURES)) @ design.T + regulariser)
        white = jax.scipy.linalg.solve_triangular(factor, labels.ravel(), lower=True)
        return overlap, -jnp.sum(jnp.log(jnp.diagonal(factor))) - jnp.sum(white**2) / 2

    overlaps, scores = jax.lax.map(draw, jax.random.split(jax.random.key(0), draws), batch_size=2000)
    weights = jax.nn.softmax(scores)
    mean = jnp.einsum("d,dab->ab", weights, overlaps)
    error = jnp.sqrt(jnp.einsum("d,dab->ab", weights**2, (overlaps - mean) ** 2))
    return mean, error, 1 / jnp.sum(weights**2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_saddle_point_approaches_the_exact_posterior_mean(name):
    draws = 100_000
    layers, outputs = NETWORKS[name]
    gaps, errors = [], []
    for width in (10, 80):
        architecture = bpkr.Architecture(layers, width, temperature=TEMPERATURE, outputs=outputs)
        features, labels = data(architecture)
        target = labels[:, 0] if outputs == 1 else labels
        saddle = bpkr.solve(architecture, bpkr.Data(features, target)).order_parameters.matrices[0]
        mean, error, effective = posterior_mean(architecture, features, labels, draws)
        assert effective > draws / 100
        gaps.append(np.max(np.abs(saddle - mean)))
        errors.append(np.max(error))
    # an eighth of the gap is left at eight times the width, and what sampling cannot tell
    assert gaps[1] < gaps[0] / 4 + 4 * errors[1]
    assert gaps[1] < 0.03 * np.max(np.abs(mean)) + 4 * errors[1]
    departure = np.max(np.abs(mean - bpkr.gp_limit(architecture).matrices[0]))
    assert departure > 5 * gaps[1], "the data must have moved the order parameters"
