"""Attention maps of the libraries themselves, of small models with random weights, from the files that they write."""

import numpy as np
import pytest

from theorykit.checkpoints import read_checkpoint, read_heads

pytestmark = pytest.mark.slow
FEATURES, HEADS, LAYERS, TOKENS = 12, 3, 2, 7
# of entries of maps, which are at most one
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
PRECISIONS = pytest.mark.parametrize("precision", TOLERANCE)


@pytest.fixture
def torch(monkeypatch):
    library = pytest.importorskip("torch")
    library.manual_seed(0)
    softmax = library.nn.functional.softmax
    # transformers' ViT takes the softmax in float32 whatever its own precision
    monkeypatch.setattr(library.nn.functional, "softmax", lambda scores, dim, dtype=None: softmax(scores, dim=dim))
    return library


def scattered(torch, model, precision):
    """The model in a precision, with weights large enough for maps that are far from uniform, and no bias zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return model.to(getattr(torch, precision)).eval()


def saved(model, folder, how):
    """The file that transformers writes of a model, with its config.json; or one of its arrays as they are called."""
    if how == "save_pretrained":
        model.save_pretrained(folder)
        return folder / "model.safetensors"
    if how == "in parts":
        model.save_pretrained(folder, max_shard_size="4KB")
        assert len(list(folder.glob("model-*.safetensors"))) > 1
        return folder / "model.safetensors.index.json"
    pytest.importorskip("safetensors.torch").save_file(
        {name: array.contiguous() for name, array in model.state_dict().items()}, folder / "model.safetensors"
    )
    return folder / "model.safetensors"


def model_of(transformers, name):
    sizes = {"hidden_size": FEATURES, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    options = {**sizes, "intermediate_size": 8, "attn_implementation": "eager"}
    if name == "gpt2":
        settings = {"n_embd": FEATURES, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": 50, "n_positions": TOKENS}
        return transformers.GPT2Model(transformers.GPT2Config(**settings, attn_implementation="eager"))
    if name == "gpt2, scaled by layer":
        settings = {"n_embd": FEATURES, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": 50, "n_positions": TOKENS}
        scale = {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False}
        return transformers.GPT2Model(transformers.GPT2Config(**settings, **scale, attn_implementation="eager"))
    if name == "bert":
        return transformers.BertModel(transformers.BertConfig(**options, vocab_size=50, max_position_embeddings=TOKENS))
    return transformers.ViTModel(transformers.ViTConfig(**options, image_size=8, patch_size=4))


def forward(torch, model, present=None):
    """Hidden states that enter each layer, and the maps of each, (examples, heads, queries, keys)."""
    options = {"output_attentions": True, "output_hidden_states": True}
    with torch.no_grad():
        if type(model).__name__ == "ViTModel":
            done = model(torch.randn(2, 3, 8, 8, dtype=model.dtype), **options)
        else:
            mask = None if present is None else torch.tensor(present)
            done = model(torch.randint(0, 50, (2, TOKENS)), attention_mask=mask, **options)
    return [state.numpy() for state in done.hidden_states], [maps.numpy() for maps in done.attentions]


@PRECISIONS
@pytest.mark.parametrize("how", ["save_pretrained", "in parts", "state_dict"])
@pytest.mark.parametrize("name", ["gpt2", "gpt2, scaled by layer", "bert", "vit"])
def test_maps_of_transformers_models(torch, name, how, precision, tmp_path):
    if how == "state_dict" and "scaled" in name:
        pytest.skip("only config.json says so")
    transformers = pytest.importorskip("transformers")
    model = scattered(torch, model_of(transformers, name), precision)
    path = saved(model, tmp_path, how)
    given = {"heads": HEADS} if how == "state_dict" else {}
    states, maps = forward(torch, model)
    for layer in range(LAYERS):
        heads = read_heads(path, layer=layer, **given)
        assert heads.layers == LAYERS
        found = np.asarray(heads.attention(states[layer]))
        assert np.std(found) > 0.05
        np.testing.assert_allclose(found, maps[layer].swapaxes(2, 3), atol=TOLERANCE[precision], rtol=0)


@PRECISIONS
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_maps_of_transformers_models_with_padding(torch, name, precision, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = scattered(torch, model_of(transformers, name), precision)
    present = np.ones((2, TOKENS), int)
    present[0, 5:] = 0
    states, maps = forward(torch, model, present)
    path = saved(model, tmp_path, "save_pretrained")
    for layer in range(LAYERS):
        found = read_heads(path, layer=layer).attention(states[layer], mask=present)
        np.testing.assert_allclose(found, maps[layer].swapaxes(2, 3), atol=TOLERANCE[precision], rtol=0)


@PRECISIONS
@pytest.mark.parametrize("sizes", [{}, {"vdim": 5}])
@pytest.mark.parametrize("causal", [False, True])
def test_maps_of_torch_attention(torch, causal, sizes, precision, tmp_path):
    model = scattered(torch, torch.nn.MultiheadAttention(FEATURES, HEADS, batch_first=True, **sizes), precision)
    inputs = torch.randn(2, TOKENS, FEATURES, dtype=getattr(torch, precision))
    values = inputs[..., : sizes.get("vdim", FEATURES)]
    mask = torch.triu(torch.ones(TOKENS, TOKENS, dtype=bool), 1) if causal else None
    with torch.no_grad():
        _, maps = model(inputs, inputs, values, need_weights=True, average_attn_weights=False, attn_mask=mask)
    heads = read_heads(saved(model, tmp_path, "state_dict"), layer=0, heads=HEADS, causal=causal)
    found = heads.attention(inputs.numpy())
    np.testing.assert_allclose(found, maps.numpy().swapaxes(2, 3), atol=TOLERANCE[precision], rtol=0)


@PRECISIONS
@pytest.mark.parametrize("norm_first", [False, True])
def test_maps_of_torch_encoders(torch, norm_first, precision, tmp_path):
    made = torch.nn.TransformerEncoderLayer(FEATURES, HEADS, 8, dropout=0.0, batch_first=True, norm_first=norm_first)
    encoder = torch.nn.TransformerEncoder(made, LAYERS, enable_nested_tensor=False)
    encoder = scattered(torch, encoder, precision)
    hidden = torch.randn(2, TOKENS, FEATURES, dtype=getattr(torch, precision))
    path = saved(encoder, tmp_path, "state_dict")
    for number, layer in enumerate(encoder.layers):
        heads = read_heads(path, layer=number, heads=HEADS, norm_first=norm_first)
        with torch.no_grad():
            inputs = layer.norm1(hidden) if norm_first else hidden
            _, maps = layer.self_attn(inputs, inputs, inputs, average_attn_weights=False)
            found = heads.attention(hidden.numpy())
            recorded = heads.attention(inputs.numpy(), normalised=norm_first)
            hidden = layer(hidden)
        np.testing.assert_allclose(recorded, maps.numpy().swapaxes(2, 3), atol=TOLERANCE[precision], rtol=0)
        np.testing.assert_allclose(found, maps.numpy().swapaxes(2, 3), atol=TOLERANCE[precision], rtol=0)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int8", "uint8", "bool"])
def test_every_type_comes_as_safetensors_wrote_it(torch, dtype, tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    tensors = {
        "a": (100 * torch.randn(3, 4)).to(getattr(torch, dtype)),
        "scalar": torch.tensor(1, dtype=getattr(torch, dtype)),
        "empty": torch.ones((0, 2), dtype=getattr(torch, dtype)),
    }
    save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    found = read_checkpoint(tmp_path / "a.safetensors")
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found.shape(name) == found[name].shape == tuple(tensor.shape)
        wanted = (tensor.float() if dtype == "bfloat16" else tensor).numpy()
        assert found[name].dtype == wanted.dtype
        np.testing.assert_array_equal(found[name], wanted)


def test_pickles_of_torch_are_refused_by_what_is_in_them(torch, tmp_path):
    model = torch.nn.MultiheadAttention(FEATURES, HEADS)
    for name, said in (
        ("model.pt", "is a pickle by its ending"),
        ("model.npz", "pickles in it"),
        ("a", "ends in none"),
    ):
        torch.save(model.state_dict(), tmp_path / name)
        with pytest.raises(ValueError, match=said):
            read_checkpoint(tmp_path / name)


@PRECISIONS
@pytest.mark.parametrize("bias", [False, True])
def test_maps_of_flax(bias, precision, tmp_path):
    nnx = pytest.importorskip("flax.nnx")
    import jax
    import jax.numpy as jnp

    options = {"use_bias": bias, "param_dtype": precision, "decode": False, "bias_init": jax.nn.initializers.normal(1)}
    model = nnx.MultiHeadAttention(HEADS, FEATURES, rngs=nnx.Rngs(0), **options)
    inputs = jax.random.normal(jax.random.key(1), (2, TOKENS, FEATURES), precision)
    model(inputs, sow_weights=True)
    (maps,) = nnx.pop(model, nnx.Intermediate)["attention_weights"].get_value()
    state = nnx.to_flat_state(nnx.state(model, nnx.Param))
    np.savez(tmp_path / "a.npz", **{".".join(path): np.asarray(array.get_value()) for path, array in state})
    found = read_heads(tmp_path / "a.npz", layer=0).attention(inputs)
    assert jnp.std(found) > 0.02
    np.testing.assert_allclose(found, maps.swapaxes(2, 3), atol=TOLERANCE[precision], rtol=0)
