"""Attention maps of Equinox's own module, from the names of its leaves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit.checkpoints import read_heads

HEADS, FEATURES, TOKENS = 3, 6, 5


@pytest.mark.parametrize("bias", [False, True])
def test_maps_of_equinox(bias, tmp_path):
    biases = dict.fromkeys(("use_query_bias", "use_key_bias"), bias)
    # values and output that hand a head's weights of one token on as they are
    sizes = {"value_size": FEATURES, "vo_size": TOKENS, "output_size": HEADS * TOKENS, "qk_size": 4}
    module = eqx.nn.MultiheadAttention(HEADS, FEATURES, **sizes, **biases, dtype=jnp.float64, key=jax.random.key(0))
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(module, eqx.is_array))
    named = {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}
    np.savez(tmp_path / "attention.npz", **named)
    heads = read_heads(tmp_path / "attention.npz", layer=0, heads=HEADS)
    inputs = jax.random.normal(jax.random.key(1), (TOKENS, FEATURES))
    # one-hot values: each head's output is its column of weights
    through = eqx.tree_at(
        lambda m: (m.value_proj.weight, m.output_proj.weight),
        module,
        (jnp.tile(jnp.eye(TOKENS, FEATURES), (HEADS, 1)), jnp.eye(HEADS * TOKENS)),
    )
    outputs = through(inputs, inputs, jnp.eye(TOKENS, FEATURES))  # (queries, heads keys)
    maps = outputs.reshape(TOKENS, HEADS, TOKENS).transpose(1, 2, 0)
    np.testing.assert_allclose(heads.attention(inputs[None])[0], maps, atol=1e-12, rtol=0)
