"""Heads of checkpoints in every layout against attention written down plainly, and what the files say beside arrays."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit.checkpoints import read_checkpoint, read_heads

from .files import CASES, FEATURES, HEADS, case, safetensors, write

INPUTS = np.random.default_rng(1).standard_normal((2, 4, FEATURES))
PRESENT = np.array([[1, 1, 1, 0], [0, 1, 1, 1]])


def normalise(inputs, norm, epsilon):
    """A layer norm, token by token."""
    if norm is None:
        return inputs
    mean, variance = inputs.mean(-1, keepdims=True), inputs.var(-1, keepdims=True)
    return (inputs - mean) / np.sqrt(variance + epsilon) * norm[0] + norm[1]


def attention(inputs, query, key, query_bias, key_bias, *, causal=False, present=None):
    """Maps (examples, heads, keys, queries) of one layer, zero where a query may not attend to a key."""
    examples, tokens, _ = inputs.shape
    maps = np.zeros((examples, len(query), tokens, tokens))
    for e, h, t in np.ndindex(examples, len(query), tokens):
        q = query[h] @ inputs[e, t] + query_bias[h]
        keys = [s for s in range(tokens) if (s <= t or not causal) and (present is None or present[e, s])] or [t]
        scores = np.array([q @ (key[h] @ inputs[e, s] + key_bias[h]) for s in keys]) / np.sqrt(len(q))
        weights = np.exp(scores - scores.max())
        maps[e, h, keys, t] = weights / weights.sum()
    return maps


def options(one, layer=1):
    return {"layer": layer if one.layers > 1 else 0, "heads": HEADS, **(one.options or {})}


def expected(one, present=None):
    inputs = normalise(INPUTS, one.norm, one.epsilon)
    return attention(inputs, one.query, one.key, one.query_bias, one.key_bias, causal=one.causal, present=present)


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
@pytest.mark.parametrize("layout", CASES)
def test_the_attention_of_every_layout_is_that_of_its_arrays(layout, ending, tmp_path):
    one = case(layout)
    heads = read_heads(write(tmp_path / f"model{ending}", one.arrays), **options(one))
    assert (heads.layout, heads.layers) == (layout.partition(",")[0], one.layers)
    np.testing.assert_array_equal(heads.query, one.query)
    np.testing.assert_array_equal(heads.key, one.key)
    np.testing.assert_allclose(heads.attention(INPUTS), expected(one), atol=1e-14)
    np.testing.assert_allclose(
        heads.attention(INPUTS, mask=PRESENT, isolated="self"), expected(one, PRESENT), atol=1e-14
    )


@pytest.mark.parametrize("layout", CASES)
def test_a_mapping_of_arrays_is_read_as_a_file_is(layout, tmp_path):
    one = case(layout)
    path = write(tmp_path / "model.safetensors", one.arrays)
    from_path = read_heads(path, **options(one))
    for checkpoint in (one.arrays, read_checkpoint(path), {name: jnp.asarray(a) for name, a in one.arrays.items()}):
        heads = read_heads(checkpoint, layout=layout.partition(",")[0], **options(one))
        assert jax.tree.all(jax.tree.map(np.array_equal, heads, from_path))


@pytest.mark.parametrize("layout", ["gpt2", "bert", "vit"])
def test_what_config_json_says_is_used(layout, tmp_path):
    one = case(layout)
    path = write(tmp_path / "model.safetensors", one.arrays)
    settings = {"model_type": layout, "num_attention_heads": HEADS, "layer_norm_eps": 0.25}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    heads = read_heads(path, layer=1)
    assert len(heads.query) == HEADS
    if one.norm:
        assert heads.norm.epsilon == 0.25
        np.testing.assert_allclose(heads.normalise(INPUTS), normalise(INPUTS, one.norm, 0.25), atol=1e-14)
        assert read_heads(path, layer=1, epsilon=0.5).norm.epsilon == 0.5
    with pytest.raises(ValueError, match=r"heads=2 disagrees with .*config\.json, which has 3"):
        read_heads(path, layer=1, heads=2)
    (tmp_path / "config.json").write_text(json.dumps({**settings, "model_type": "another"}))
    with pytest.raises(ValueError, match="states that the model is 'another'"):
        read_heads(path, layer=1)
    assert read_heads(path, layer=1, layout=layout).layout == layout
    (tmp_path / "config.json").write_text('{"is_decoder": true}')
    assert read_heads(path, layer=0, heads=HEADS).causal
    assert not read_heads(path, layer=0, heads=HEADS, causal=False).causal


@pytest.mark.parametrize(
    "settings, factor",
    [({"scale_attn_weights": False}, np.sqrt(2)), ({"scale_attn_by_inverse_layer_idx": True}, 1 / 2)],
)
def test_other_scales_of_scores_that_gpt2_knows_are_in_the_queries(settings, factor, tmp_path):
    one = case("gpt2")
    path = write(tmp_path / "model.safetensors", one.arrays)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    heads = read_heads(path, layer=1, heads=HEADS)
    np.testing.assert_allclose(heads.query, factor * one.query)
    np.testing.assert_allclose(heads.query_bias, factor * one.query_bias)
    np.testing.assert_array_equal(heads.key, one.key)


def test_attention_is_differentiable_and_compiles():
    heads = read_heads(case("vit").arrays, layer=0, heads=HEADS)
    compiled = jax.jit(lambda inputs, mask: heads.attention(inputs, mask=mask))
    np.testing.assert_allclose(compiled(INPUTS, PRESENT), heads.attention(INPUTS, mask=PRESENT), atol=1e-14)
    gradient = jax.grad(lambda inputs: jnp.sum(heads.attention(inputs) ** 2))(jnp.asarray(INPUTS))
    assert jnp.all(jnp.isfinite(gradient)) and jnp.any(gradient != 0)


def test_single_precision_weights_come_exactly(tmp_path):
    arrays = {name: array.astype(np.float32) for name, array in case("bert").arrays.items()}
    (tmp_path / "model.safetensors").write_bytes(safetensors(arrays))
    heads = read_heads(tmp_path / "model.safetensors", layer=1, heads=HEADS)
    assert heads.query.dtype == jnp.float64
    weight = arrays["encoder.layer.1.attention.self.query.weight"]
    np.testing.assert_array_equal(heads.query, weight.reshape(HEADS, -1, FEATURES))


def test_inputs_that_do_not_fit_are_refused():
    heads = read_heads(case("bert").arrays, layer=0, heads=HEADS)
    with pytest.raises(ValueError, match="must have the 6 features of the layer"):
        heads.attention(INPUTS[..., :5])
    with pytest.raises(ValueError, match=r"mask(\[0\])? must be the number of real tokens"):
        heads.attention(INPUTS, mask=PRESENT[:, :3])
    with pytest.raises(ValueError, match="marks no token of the example as real"):
        heads.attention(INPUTS, mask=0 * PRESENT)
    causal = read_heads(case("gpt2").arrays, layer=0, heads=HEADS)
    with pytest.raises(ValueError, match="leaves query 0 of example 1, head 0, counted from 0, without any key"):
        causal.attention(INPUTS, mask=PRESENT)
    with pytest.raises(ValueError, match="beyond the range of double precision"):
        heads.attention(1e200 * INPUTS)


def test_inputs_that_were_recorded_after_the_norm_are_not_normalised_again():
    one = case("gpt2")
    heads = read_heads(one.arrays, layer=1, heads=HEADS)
    recorded = normalise(INPUTS, one.norm, one.epsilon)
    np.testing.assert_allclose(heads.attention(recorded, normalised=True), expected(one), atol=1e-14)
    np.testing.assert_allclose(heads.attention(INPUTS, normalised=False), expected(one), atol=1e-14)
    # without a word, what a norm has certainly made is refused, in half precision and under jit too
    for inputs in (recorded, recorded.astype(np.float16)):
        for call in (heads.attention, heads.normalise, jax.jit(lambda at: heads.attention(at))):
            with pytest.raises((ValueError, RuntimeError), match="inputs are normalised already"):
                jax.block_until_ready(call(inputs))
    # and the maps would be others
    assert np.max(np.abs(heads.attention(recorded, normalised=False) - expected(one))) > 0.01


def test_a_norm_that_keeps_what_it_made_may_be_applied_again():
    arrays = dict(case("gpt2").arrays)
    for name in arrays:
        if ".ln_1." in name:
            arrays[name] = np.full_like(arrays[name], float(name.endswith("weight")))
    heads = read_heads(arrays, layer=1, heads=HEADS)
    made = heads.normalise(INPUTS)
    np.testing.assert_allclose(heads.attention(made), heads.attention(made, normalised=True), atol=1e-4)


def test_normalised_is_refused_where_there_is_no_norm():
    heads = read_heads(case("bert").arrays, layer=0, heads=HEADS)
    with pytest.raises(ValueError, match="normalised=True needs a norm before attention"):
        heads.attention(INPUTS, normalised=True)
    np.testing.assert_array_equal(heads.attention(INPUTS, normalised=False), heads.attention(INPUTS))
