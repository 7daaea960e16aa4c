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
