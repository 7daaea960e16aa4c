"""The prior's fluctuations: the covariance of U_1 over sampled finite networks is what the second route's law says.

Given U_{l+1}, the new rows of path weights are N_l independent Gaussian columns. So, exactly and at every width,
Var tr(G U_1) = E Var(tr(G U_1) | U_2) + Var tr(G E[U_1 | U_2]), the first a Gaussian fourth moment.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import MatrixSymbol

from theorykit import bpkr
from theorykit.codegen import interpret

from ..cases import random_key_queries

VARIANCES, READOUT_VARIANCE = (1.0, 0.8), 1.3
KINDS = {
    "attention": (bpkr.Attention(2), 1, 9, 7),
    "dense": (bpkr.Dense(), 1, 6, 8),
    "skip": (bpkr.Skip(2, 0.7), 1, 8, 8),
    "skip around dense, two outputs": (bpkr.Skip(bpkr.Dense(), 1.2), 2, 7, 7),
    "attention, two outputs": (bpkr.Attention(2), 2, 9, 6),
}


def prior_mean(architecture, outer):
    """E[U_1 | U_2] for many U_2 at once, by the interpreter on the layer's own expression."""
    (form,) = architecture.forms
    symbol = MatrixSymbol("U_2", *outer.shape[1:])
    values = {**architecture.head_counts(), **architecture.layer_numbers(), "sigma2_1": VARIANCES[1]}
    return np.array([interpret(form.prior_mean(symbol), {**values, "U_2": one}) for one in outer])


def readout_overlaps(architecture, draws, rng):
    """U_2 drawn from its Wishart law, outputs x outputs."""
    width = int(architecture.widths[-1])
    weights = np.sqrt(READOUT_VARIANCE) * rng.normal(size=(draws, architecture.outputs, width))
    return weights @ weights.transpose(0, 2, 1) / width


def conditional_variance(architecture, means, directions):
    """Var(tr(G U_1) | U_2): 2 tr(G M G M)/N_1, without the leading block that a skip connection carries over."""
    (form,), width = architecture.forms, architecture.widths[0]
    product = np.einsum("gab,dbc->dgac", directions, means)
    total = np.einsum("dgab,dgba->dg", product, product)
    if form.has_skip:
        block = product[..., : architecture.outputs, : architecture.outputs]
        total -= np.einsum("dgab,dgba->dg", block, block)
    return 2 * total / width


def sampled(architecture, draws, seed):
    """U_1 of `draws` networks from the prior."""
    attending = tuple(filter(None, architecture.heads))
    parameters = bpkr.Heads(key_query=random_key_queries(attending, np.random.default_rng(0)))

    def overlap(key):
        drawn = bpkr.sample_network(architecture, parameters, input_features=6, key=key)
        return bpkr.empirical_order_parameters(drawn).matrices[0]

    return jax.lax.map(overlap, jax.random.split(jax.random.key(seed), draws), batch_size=2000)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_covariance_of_the_order_parameters_is_that_of_the_exact_law(name):
    draws = 100_000
    kind, outputs, first, last = KINDS[name]
    variances = (*VARIANCES, READOUT_VARIANCE)
    architecture = bpkr.Architecture((kind,), (first, last), variances, temperature=1.0, outputs=outputs)
    rng = np.random.default_rng(1)
    size = architecture.overlap_sizes[0]
    directions = rng.normal(size=(4, size, size))
    directions = directions + directions.transpose(0, 2, 1)
    means = prior_mean(architecture, readout_overlaps(architecture, 20_000, rng))
    inner = conditional_variance(architecture, means, directions)
    projected = np.einsum("gab,dab->dg", directions, means)
    expected = inner.mean(axis=0) + projected.var(axis=0)
    expected_error = np.hypot(inner.std(axis=0), ((projected - projected.mean(axis=0)) ** 2).std(axis=0)) / np.sqrt(
        20_000
    )

    found = np.asarray(jnp.einsum("gab,dab->dg", directions, sampled(architecture, draws, 2)))
    squares = (found - found.mean(axis=0)) ** 2
    error = np.hypot(squares.std(axis=0) / np.sqrt(draws), expected_error)
    assert np.all(np.abs(squares.mean(axis=0) - expected) < 4 * error)
    assert np.all(error < 0.1 * expected), "the test would not see an error of a factor"
