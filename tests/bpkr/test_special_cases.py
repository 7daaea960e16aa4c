"""Published theories that are special cases, against their formulas written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr import Dense

from ..marks import slow
from .cases import assert_close

P, N0, T = 12, 5, 0.2
RNG = np.random.default_rng(0)


def free_energy(kernel, labels, temperature=T):
    """logdet(K + T) + y^T (K + T)^-1 y."""
    regularised = kernel + temperature * np.eye(len(kernel))
    return np.linalg.slogdet(regularised)[1] + labels @ np.linalg.solve(regularised, labels)


def stationary(action, at, step=1e-6):
    """The largest slope of a function of a vector, by differences."""
    return max(abs(action(at + step * unit) - action(at - step * unit)) / (2 * step) for unit in np.eye(len(at)))


@pytest.mark.slow
def test_deep_linear_networks():
    inputs, labels = RNG.normal(size=(P, 1, N0)), RNG.normal(size=P)
    widths, variances = (20.0, 30.0, 15.0), (1.2, 0.8, 1.1, 0.9)
    architecture = bpkr.Architecture((Dense(), Dense()), widths, variances, temperature=T)
    found = bpkr.solve(architecture, bpkr.Data(bpkr.path_features(inputs, [], architecture), labels), tolerance=1e-10)
    gram = variances[0] * inputs[:, 0] @ inputs[:, 0].T / N0
    overlaps = np.array([*(float(u[0, 0]) for u in found.order_parameters.matrices), found.order_parameters.readout])
    ratios = overlaps / np.array([variances[1] * overlaps[1], variances[2] * overlaps[2], variances[3]])

    def action(ratios):
        entropies = sum(n * (q - np.log(q)) for n, q in zip(widths, ratios, strict=True))
        return entropies + free_energy(np.prod(ratios) * np.prod(variances[1:]) * gram, labels)

    assert stationary(action, ratios) < 1e-5


@pytest.mark.slow
def test_gated_linear_networks():
    inputs, labels, gates = RNG.normal(size=(P, 1, N0)), RNG.normal(size=P), RNG.normal(size=(P, 3))
    architecture = bpkr.Architecture((3,), 20.0, temperature=T)
    features = bpkr.path_features(inputs, [gates[:, :, None, None]], architecture, layout="keys-first")
    found = bpkr.solve(architecture, bpkr.Data(features, labels))
    gram = inputs[:, 0] @ inputs[:, 0].T / N0
    u1 = np.asarray(found.order_parameters.matrices[0])
    kernel = np.einsum("mn,ma,ab,nb->mn", gram, gates, u1, gates) / 3
    assert_close(bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(features)), found), kernel, 1e-12)
    assert_close(found.energy, free_energy(kernel, labels))


@pytest.mark.slow
def test_graph_convolutions():
    count = 3
    adjacency = np.abs(RNG.normal(size=(6, 6)))
    powers = np.stack([np.linalg.matrix_power(adjacency, hop) for hop in range(count)])
    tokens = RNG.normal(size=(6, N0))
    architecture = bpkr.Architecture((count,), 20.0, temperature=T)
    repeated = np.broadcast_to(tokens, (6, 6, N0))
    features = bpkr.path_features(repeated, [powers], architecture, np.arange(6), layout="keys-first")
    for hop in range(count):
        assert_close(features[:, hop], powers[hop].T @ tokens / np.sqrt(count * N0), 1e-12)


@pytest.mark.parametrize("function", ["identity", *slow(["erf"])])
def test_local_kernels(function):
    patches, labels = RNG.normal(size=(P, 3, N0)), RNG.normal(size=P)
    architecture = bpkr.Architecture((), 20.0, (1.3, 0.8), temperature=T, read_tokens=3, embedding=function)
    features = bpkr.path_features(patches, [], architecture)
    found = bpkr.solve(architecture, bpkr.Data(features, labels))
    covariance = 1.3 * np.einsum("mik,njk->minj", patches, patches) / N0
    own = np.einsum("mimi->mi", covariance)
    if function == "erf":
        scale = np.sqrt((1 + 2 * own)[:, :, None, None] * (1 + 2 * own))
        covariance = 2 / np.pi * np.arcsin(2 * covariance / scale)
    u = np.asarray(found.order_parameters.readout)
    kernel = np.einsum("ij,minj->mn", u, covariance) / 3
    assert_close(found.energy, free_energy(kernel, labels))
    entropy = 20 * (np.trace(u) / 0.8 - np.linalg.slogdet(u)[1])
    assert_close(found.action, entropy + free_energy(kernel, labels))
    # the gradient vanishes: N (1/0.8 - U^-1) + dE/dU
    inverse = np.linalg.inv(kernel + T * np.eye(P))
    force = np.einsum("mn,minj->ij", inverse - np.outer(inverse @ labels, inverse @ labels), covariance) / 3
    assert np.max(np.abs(20 * (np.eye(3) / 0.8 - np.linalg.inv(u)) + force)) < 1e-6


@pytest.mark.slow
def test_a_readout_of_every_token_has_the_prior_of_networks():
    architecture = bpkr.Architecture((2,), 6, (1.2, 0.7, 1.5), temperature=T, read_tokens=3, outputs=2)
    inputs = jnp.asarray(RNG.normal(size=(4, 3, N0)))
    heads = bpkr.Heads(key_query=[RNG.normal(size=(2, N0, N0))])
    features = bpkr.path_features(inputs, heads(inputs), architecture)

    def outputs(key):
        network = bpkr.sample_network(architecture, heads, input_features=N0, key=key)
        return network(inputs).ravel()

    drawn = np.asarray(jax.jit(jax.vmap(outputs))(jax.random.split(jax.random.key(0), 20_000)))
    expected = np.asarray(bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(features)), bpkr.gp_limit(architecture)))
    covariance, error = drawn.T @ drawn / len(drawn), np.sqrt(np.var(drawn[:, :, None] * drawn[:, None], axis=0))
    assert np.max(np.abs(covariance - expected) / error) * np.sqrt(len(drawn)) < 5
    network = bpkr.sample_network(architecture, heads, input_features=N0, key=jax.random.key(1))
    assert_close(network.path_outputs(features).sum(axis=1), network(inputs), 1e-12)
