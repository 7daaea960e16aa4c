"""A pruned network is smaller, and gives what the whole one gives without the contributions of the heads removed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr import Dense, Head, Skip

from ..cases import (
    ALL_SKIPS,
    CORRELATED,
    Case,
    CorrelatedHeads,
    TiedHeads,
    assert_close,
    random_key_queries,
    random_projections,
    refused,
)
from ..problems import INPUT_FEATURES, random_inputs

TWO_BY_TWO = Case((2, 2), (9.0, 7.0, 8.0), (0.9, 1.3, 0.6, 1.7))
THREE_ONE_TWO = Case((3, 1, 2), (9.0, 7.0, 8.0, 6.0), (0.9, 1.3, 0.6, 1.1, 1.7), outputs=2)
MIXTURE = Case((Skip(3, 0.7), Dense(), Skip(Dense(), 1.3), 2), (7.0, 7.0, 5.0, 5.0, 6.0), 6 * (1.2,), outputs=3)
PRUNED = (
    (TWO_BY_TWO, [Head(1, 1), Head(2, 2)]),
    (THREE_ONE_TWO, [Head(1, 2), Head(3, 1)]),
    (ALL_SKIPS, [Head(1, 2)]),
    (MIXTURE, [Head(1, 3), Head(4, 1), Head(1, 1)]),
)
every_case = pytest.mark.parametrize(("case", "removed"), PRUNED)


def key_query(heads, rng):
    return bpkr.Heads(key_query=random_key_queries(heads, rng))


def projections(heads, rng):
    return bpkr.Heads(**random_projections(heads, rng))


def sampled(case, make_heads=key_query, readout="last", seed=0):
    heads = make_heads(case.heads, np.random.default_rng(seed))
    options = {"input_features": INPUT_FEATURES, "readout": readout, "key": jax.random.key(seed)}
    return bpkr.sample_network(case.architecture(), heads, **options)


def some_inputs(seed=1):
    return jnp.array(random_inputs(np.random.default_rng(seed)))


def silenced(network, removed):
    """The network of the same size whose weight blocks of the heads `removed` are zero."""
    weights = [np.array(blocks) for blocks in network.weights]
    for layer, head in removed:
        width = int(network.architecture.widths[layer - 1])
        weights[layer - 1][:, (head - 1) * width : head * width] = 0
    return eqx.tree_at(lambda network: network.weights, network, tuple(map(jnp.array, weights)))


@pytest.mark.quick(1)
@pytest.mark.parametrize(("make_heads", "readout"), [(key_query, "first"), (key_query, "last"), (projections, "mean")])
@every_case
def test_the_output_is_that_of_zero_blocks(case, removed, make_heads, readout):
    network, inputs = sampled(case, make_heads, readout), some_inputs()
    expected = silenced(network, removed)(inputs)
    assert_close(network.without_heads(removed)(inputs), expected, 1e-12)
    assert eqx.tree_equal(network.without_heads([]), network)
    assert np.max(np.abs(expected - network(inputs))) > 1e-3 * np.max(np.abs(expected))


def test_a_count_of_parameters_in_numbers():
    """Embedding 9 x 6, blocks of 7 x 9 and 8 x 7, readout 8, products of 6 x 6."""
    network = sampled(TWO_BY_TWO)
    assert network.parameter_count == 54 + 2 * 63 + 2 * 56 + 8 + 4 * 36
    assert network.without_heads([Head(2, 1)]).parameter_count == 54 + 2 * 63 + 56 + 8 + 3 * 36


@pytest.mark.parametrize("layer", [TiedHeads(3), Skip(TiedHeads(3), 0.5), CorrelatedHeads(CORRELATED, 2)])
def test_custom_layers_are_refused(layer):
    network = sampled(Case((layer, 2), (7.0, 7.0, 5.0), (1.0, 1.2, 0.8, 0.9)))
    with refused("heads of layer 1: only Attention"):
        network.without_heads([Head(1, 1)])
    np.testing.assert_array_equal(network.without_heads([Head(2, 1)]).weights[0], network.weights[0])


@given(data=st.data())
def test_removable_heads_are_in_order_of_their_score_and_leave_one_in_every_layer(data):
    counts = data.draw(st.lists(st.integers(0, 4), max_size=3))
    few = st.sampled_from([0.1, 0.2, 0.3])
    scores = [np.array(data.draw(st.lists(few, min_size=count, max_size=count))) for count in counts]
    layers = [[(s, (layer, i)) for i, s in enumerate(of, 1)] for layer, of in enumerate(scores, 1)]
    expected = sorted(pair for pairs in layers for pair in pairs if pair != max(pairs))
    assert bpkr.removable_heads(scores) == [head for _, head in expected]
