"""The published network's output, from its weights as they were saved, is that of the theory's network."""

import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import bpkr
from theorykit.checkpoints import read_network_weights

from .files import FEATURES, HEADS, attention_paths, write

INPUTS = np.random.default_rng(1).standard_normal((3, 5, FEATURES))


def published_network(arrays, inputs, heads, residual=False, token=0):
    """The published network's output (examples, outputs), from its arrays by their own names."""
    hidden = inputs
    if "learned_input_layer.weight" in arrays:
        hidden = inputs @ arrays["learned_input_layer.weight"].T
    layer = 0
    while f"transformer.layers.{layer}.to_q.weight" in arrays:
        q, k, v = (
            (of @ arrays[f"transformer.layers.{layer}.to_{name}.weight"].T).reshape(*of.shape[:2], heads, -1)
            for name, of in (("q", inputs), ("k", inputs), ("v", hidden))
        )
        scores = np.einsum("bthg,bshg->bhts", q, k) * q.shape[-1] ** -0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        after = heads**-0.5 * np.einsum("bhts,bshm->btm", weights, v)
        hidden = after + hidden if residual else after
        layer += 1
    return hidden[:, token] @ arrays["readout_layer.weight"].T


def output(arrays, layers, readout="first"):
    weights, heads = read_network_weights(arrays, heads=HEADS)
    widths = [len(weight) for weight in weights[:-1]]
    architecture = bpkr.Architecture(layers, widths, temperature=0.1, outputs=len(weights[-1]))
    return bpkr.Network.of_weights(architecture, weights, heads, readout=readout)(jnp.asarray(INPUTS))


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("learned", [True, False])
def test_outputs_are_theirs(outputs, learned, tmp_path):
    widths = (5, 4, 7) if learned else (FEATURES, 4, 7)
    arrays = attention_paths(np.random.default_rng(0), widths, outputs, learned=learned)
    found = output(write(tmp_path / "model.safetensors", arrays), (HEADS, HEADS))
    theirs = published_network(arrays, INPUTS, HEADS)
    np.testing.assert_allclose(found, theirs[:, 0] if outputs == 1 else theirs, rtol=1e-12)


def test_outputs_with_skip_connections_are_theirs():
    arrays = attention_paths(np.random.default_rng(0), (5, 5, 5))
    found = output(arrays, [bpkr.Skip(bpkr.Attention(HEADS))] * 2, readout="last")
    np.testing.assert_allclose(found, published_network(arrays, INPUTS, HEADS, residual=True, token=-1), rtol=1e-12)


@pytest.mark.parametrize(
    "name, shape, said",
    [
        ("readout_layer.bias", (2,), "no biases"),
        ("transformer.layers.1.to_q.bias", (6,), "no biases"),
        ("transformer.layers.0.to_out.weight", (4, 4), "summed, not projected"),
        ("transformer.layers.1.to_v.weight", (HEADS * 7, 5), "is inconsistent: matrix 2 of 4"),
        ("transformer.layers.1.to_v.weight", (HEADS * 7 + 1, 4), "does not divide the 22 rows"),
        ("transformer.layers.3.to_q.weight", (6, FEATURES), "layers between them are missing"),
        ("readout_layer.weight", (2, 6), "is inconsistent: matrix 3 of 4"),
        ("learned_input_layer.weight", (5, FEATURES + 1), "is inconsistent: matrix 0 of 4"),
    ],
)
def test_what_the_network_of_the_theory_has_not_is_refused(name, shape, said):
    arrays = {**attention_paths(np.random.default_rng(0)), name: np.ones(shape)}
    with pytest.raises(ValueError, match=said):
        read_network_weights(arrays, heads=HEADS)
