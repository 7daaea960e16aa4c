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


def saved(model, folder):
    """The file of a model's arrays by their names."""
    pytest.importorskip("safetensors.torch").save_file(
        {name: array.contiguous() for name, array in model.state_dict().items()}, folder / "model.safetensors"
    )
    return folder / "model.safetensors"


@PRECISIONS
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "gpt2, scaled by layer", "bert"])
def test_maps_of_transformers_models(torch, name, padded, precision, tmp_path):
    """Families without padding, in double precision, are in test_families."""
    transformers = pytest.importorskip("transformers")
    if name == "bert":
        options = {"hidden_size": FEATURES, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
        options |= {"intermediate_size": 8, "max_position_embeddings": TOKENS, "vocab_size": 50}
        model = transformers.BertModel(transformers.BertConfig(**options, attn_implementation="eager"))
    else:
        options = {"n_embd": FEATURES, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": 50, "n_positions": TOKENS}
        if "scaled" in name:
            options |= {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False}
        model = transformers.GPT2Model(transformers.GPT2Config(**options, attn_implementation="eager"))
    model = scattered(torch, model, precision)
    model.save_pretrained(tmp_path)
    present = np.ones((2, TOKENS), int)
    present[0, 5:] = 1 - padded
    options = {"output_attentions": True, "output_hidden_states": True}
    with torch.no_grad():
        done = model(torch.randint(0, 50, (2, TOKENS)), attention_mask=torch.tensor(present), **options)
    for layer in range(LAYERS):
        heads = read_heads(tmp_path, layer=layer)
        found = np.asarray(heads.attention(done.hidden_states[layer].numpy(), mask=present if padded else None))
        assert heads.layers == LAYERS and np.std(found) > 0.05
        maps = done.attentions[layer].numpy().swapaxes(2, 3)
        np.testing.assert_allclose(found, maps, atol=TOLERANCE[precision], rtol=0)


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
    heads = read_heads(saved(model, tmp_path), layer=0, heads=HEADS, causal=causal)
    found = heads.attention(inputs.numpy())
    np.testing.assert_allclose(found, maps.numpy().swapaxes(2, 3), atol=TOLERANCE[precision], rtol=0)


@PRECISIONS
@pytest.mark.parametrize("norm_first", [False, True])
def test_maps_of_torch_encoders(torch, norm_first, precision, tmp_path):
    made = torch.nn.TransformerEncoderLayer(FEATURES, HEADS, 8, dropout=0.0, batch_first=True, norm_first=norm_first)
    encoder = torch.nn.TransformerEncoder(made, LAYERS, enable_nested_tensor=False)
    encoder = scattered(torch, encoder, precision)
    hidden = torch.randn(2, TOKENS, FEATURES, dtype=getattr(torch, precision))
    path = saved(encoder, tmp_path)
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
        ("model.pt", "has the ending of a pickle"),
        ("model.npz", "contain pickles"),
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
