"""A network comes back from its labelled weights, to the architecture that it is of."""

import equinox as eqx
import jax
import numpy as np
import pytest

from theorykit import bpkr, store
from theorykit.bpkr.training import initial_network, label_network, network_from


@pytest.mark.parametrize("layers", [(2, 3), (2, bpkr.Dense(), bpkr.Skip(bpkr.Attention(2), 0.5))])
def test_a_network_comes_back_from_a_file(layers, tmp_path):
    architecture = bpkr.Architecture(layers, 6, temperature=0.1, outputs=2)
    network = initial_network(architecture, 3, 5, readout="first", key=jax.random.key(0))
    store.write(label_network(network), tmp_path / "network.nc")
    again = network_from(architecture, store.read(tmp_path / "network.nc").to_dataset())
    assert eqx.tree_equal(network, again)


def test_biases_of_queries_and_keys_come_back_too():
    architecture, rng = bpkr.Architecture((2, 3), 6, temperature=0.1), np.random.default_rng(0)
    queries_and_keys = {name: [rng.normal(size=(heads, 4, 5)) for heads in (2, 3)] for name in ("query", "key")}
    for given in (("query_bias",), ("key_bias",), ("query_bias", "key_bias")):
        biases = {name: [rng.normal(size=(heads, 4)) for heads in (2, 3)] for name in given}
        heads = bpkr.heads(**queries_and_keys, **biases)
        network = bpkr.sample_network(architecture, heads, input_features=5, key=jax.random.key(0))
        assert eqx.tree_equal(network, network_from(architecture, label_network(network)))


def test_weights_of_another_architecture_are_refused():
    network = initial_network(bpkr.Architecture((2, 2), 6, temperature=0.1), 3, 5, key=jax.random.key(0))
    weights = label_network(network)
    with pytest.raises(ValueError, match=r"weights must have the shapes .* of the architecture, got"):
        network_from(bpkr.Architecture((2, 2), 7, temperature=0.1), weights)
    with pytest.raises(ValueError, match=r"weights have \(2, 2\) heads per layer, but the architecture has"):
        network_from(bpkr.Architecture((3, 2), 6, temperature=0.1), weights)
    with pytest.raises(ValueError, match="have no values_3, which an architecture of 3 layers needs"):
        network_from(bpkr.Architecture((2, 2, 2), 6, temperature=0.1), weights)


def test_heads_without_queries_and_keys_are_refused():
    architecture = bpkr.Architecture((2,), 6, temperature=0.1)
    heads = bpkr.heads(key_query=[jax.random.normal(jax.random.key(1), (2, 5, 5))])
    network = bpkr.sample_network(architecture, heads, input_features=5, key=jax.random.key(0))
    with pytest.raises(ValueError, match="must have queries and keys, got KeyQueryHeads"):
        label_network(network)
