"""What stands beside the heads and may change their attention: used, or refused by its name, in every layout."""

import json
import re
import warnings

import numpy as np
import pytest

from theorykit.bpkr import AttentionWarning
from theorykit.checkpoints import read_checkpoint, read_heads
from theorykit.checkpoints.layouts import LAYOUTS

from .files import CASES, FEATURES, HEADS, case, safetensors, write
from .test_heads import INPUTS, expected, options

SQUARE, VECTOR = np.eye(FEATURES), np.ones(FEATURES)
# behind the name of the layer or of the module
CHANGING = {
    "torch": ("in_proj_weight.lora_A", "in_proj_scale", "q_norm.weight", "rel_pos_h"),
    "torch_encoder": ("self_attn.lora_A.weight", "self_attn.gate", "norm0.weight", "self_attn.q_norm.weight"),
    "gpt2": ("attn.c_attn.lora_A.weight", "attn.c_attn.weight_scale", "attn.alibi", "ln_0.weight", "attn.sinks"),
    "bert": (
        *(f"attention.self.query.{name}" for name in ("lora_A.weight", "lora_B.default.weight", "weight_scale")),
        *("attention.LayerNorm.weight", "attention.ln.weight", "attention.self.temperature", "norm.weight"),
    ),
    "vit": ("attention.attention.query.lora_A.weight", "lambda_1", "norm1.weight", "attention.relative_position_bias"),
    "equinox": ("query_proj.lora_A", "query_norm.weight", "rope_embeddings.freqs_cis"),
    "flax": ("query.lora_a", "query_ln.scale", "query.kernel_scale"),
    "attention_paths": ("to_q.lora_A.weight", "norm.weight"),
}
OUTPUTS = {"torch": "out_proj.weight", "equinox": "output_proj.weight", "flax": "out.kernel"}
HARMLESS = {
    "torch_encoder": ("linear1.weight", "norm2.bias", "self_attn.out_proj.weight"),
    "gpt2": ("attn.c_proj.bias", "attn.bias", "attn.masked_bias", "ln_2.weight", "mlp.c_fc.weight"),
    "bert": (
        "attention.output.LayerNorm.gamma",
        "intermediate.dense.weight",
        "output.adapter_modules.en.dense1.weight",
    ),
    "vit": ("layernorm_after.weight", "mlp.fc1.weight", "output.dense.bias"),
}


def stem(layout):
    """What the names of the layer that `options` reads begin with."""
    stems = [each for one in LAYOUTS[layout].stems(case(layout).arrays).values() for each in one.values()]
    return stems[-1]


@pytest.mark.parametrize("layout, name", [(layout, name) for layout, names in CHANGING.items() for name in names])
def test_what_may_change_attention_is_refused_by_its_name(layout, name):
    one = case(layout)
    arrays = {**one.arrays, f"{stem(layout)}{name}": VECTOR}
    with pytest.raises(ValueError, match=re.escape(f"{stem(layout)}{name}"[:60])) as refused:
        read_heads(arrays, **options(one), layout=layout)
    assert "is not read" in str(refused.value)


@pytest.mark.parametrize("layout, name", [(layout, name) for layout, names in HARMLESS.items() for name in names])
def test_what_leaves_attention_as_it_is_does_not_matter(layout, name):
    one = case(layout)
    heads = read_heads({**one.arrays, f"{stem(layout)}{name}": VECTOR}, **options(one), layout=layout)
    np.testing.assert_allclose(heads.attention(INPUTS), expected(one), atol=1e-12)


@pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if layout.stands_alone])
@pytest.mark.parametrize("beside", ["ln_1.weight", "LayerNorm_0/scale", "layer.norm.weight", "head.weight"])
def test_a_module_is_read_alone_and_the_advice_reads_it(layout, beside):
    one = case(layout)
    mark = "/" if "/" in beside else "."
    bare = {name.removeprefix(stem(layout)): array for name, array in one.arrays.items()}
    arrays = {f"block{mark}attention{mark}{name}": array for name, array in bare.items()}
    if layout == "flax" and mark == "/":
        arrays = {name.replace(".", "/"): array for name, array in arrays.items()}
    elif mark == "/":
        return  # names of the others are apart by points
    with pytest.raises(ValueError, match=re.escape(f"block{mark}{beside}")) as refused:
        read_heads({**arrays, f"block{mark}{beside}": VECTOR}, **options(one))
    advised = re.search(r"prefix='(.*?)'", str(refused.value))[1]
    heads = read_heads({**arrays, f"block{mark}{beside}": VECTOR}, **options(one), prefix=advised)
    np.testing.assert_allclose(heads.attention(INPUTS), expected(one), atol=1e-12)


@pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if layout.stands_alone])
@pytest.mark.parametrize("place", ["blocks.0.attention", "multihead_attn", "blocks/1/attention"])
def test_a_module_in_a_list_is_read_by_the_advised_beginning(layout, place):
    one = case(layout)
    mark = "/" if "/" in place else "."
    bare = {name.removeprefix(stem(layout)): array for name, array in one.arrays.items()}
    bare |= {OUTPUTS[layout]: SQUARE}
    arrays = {f"{place}{mark}{name}": array for name, array in bare.items()}
    if layout == "flax":
        arrays = {name.replace(".", mark): array for name, array in arrays.items()}
    elif mark == "/":
        return  # names of the others are apart by points
    if place != "multihead_attn" or layout == "torch":
        with pytest.raises(ValueError, match="Names do not say what comes before it") as refused:
            read_heads({**arrays, f"blocks{mark}0{mark}norm{mark}weight": VECTOR}, **options(one))
        assert re.search(r"prefix='(.*?)'", str(refused.value))[1] == f"{place}{mark}"
    for prefix in (place, f"{place}{mark}"):
        heads = read_heads(arrays, **options(one), prefix=prefix)
        np.testing.assert_allclose(heads.attention(INPUTS), expected(one), atol=1e-12)


def renamed(layout, place):
    return {f"{place}{name}": array for name, array in case(layout).arrays.items()}


BESIDE_SELF = {f"layers.0.self_attn.{name}": array for name, array in case("torch").arrays.items()}
REFUSED = {
    **{
        place: (renamed("torch", place) | BESIDE_SELF, place, "attention to the tokens of another model")
        for place in ("layers.0.multihead_attn.", "cross_attn.", "decoder.encoder_attn.", "a.EncDecAttention.")
    },
    **{
        name: ({name: SQUARE, "in_proj_bias": VECTOR}, None, f"has '{name}', from which a weight is computed")
        for name in ("parametrizations.in_proj_weight.original0", "in_proj_weight_orig", "q_proj_weight_g")
    },
    **{
        f"block.{name}, prefix={prefix}": (
            {**renamed("torch", "block.attn."), f"block.{name}": VECTOR},
            prefix,
            f"has 'block.{name}': its attention has {what}",
        )
        for prefix in (None, "block.attn.")
        for name, what in (
            ("probe", "learned queries"),
            *((name, "a term or a factor") for name in ("slopes", "attn_temperature", "attention_bias")),
            ("relative_position_bias_table", "scores that depend on relative positions"),
        )
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_enters_attention_beside_its_module_is_refused(name):
    arrays, prefix, said = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(said)):
        read_heads(arrays, layer=0, heads=HEADS, prefix=prefix)


def test_of_several_places_each_is_read_by_the_advised_beginning():
    one = case("torch_encoder")
    other = {name.replace("encoder.", "decoder."): 2 * array for name, array in one.arrays.items()}
    with pytest.raises(ValueError, match="2 places") as refused:
        read_heads({**one.arrays, **other}, **options(one))
    advised = re.search(r"prefix='(.*?)'", str(refused.value))[1]
    assert advised == "encoder."
    heads = read_heads({**one.arrays, **other}, **options(one), prefix=advised)
    np.testing.assert_allclose(heads.attention(INPUTS), expected(one), atol=1e-12)
    with pytest.raises(ValueError, match="begins none of the names"):
        read_heads(one.arrays, **options(one), prefix="decoders.")


def test_a_torch_decoder_asks_for_its_mask():
    one = case("torch_encoder")
    arrays = {**one.arrays, f"{stem('torch_encoder')}multihead_attn.in_proj_weight": np.ones((3 * FEATURES, FEATURES))}
    with pytest.raises(ValueError, match="causal must be given"):
        read_heads(arrays, **options(one))
    assert read_heads(arrays, **options(one), causal=True).causal


def test_a_layer_that_attends_to_another_model_is_causal():
    one = case("bert")
    arrays = {**one.arrays, f"{stem('bert')}crossattention.self.query.weight": SQUARE}
    assert read_heads(arrays, **options(one), layout="bert").causal
    assert not read_heads(one.arrays, **options(one), layout="bert").causal


@pytest.mark.parametrize("layout", ["bert", "vit", "gpt2"])
def test_names_alone_draw_a_warning(layout):
    one = case(layout)
    with pytest.warns(AttentionWarning, match=f"Give layout='{layout}'"):
        read_heads(one.arrays, **options(one))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_heads(one.arrays, **options(one), layout=layout)


def folder_of(path, one, **config):
    path.mkdir(parents=True)
    write(path / "model.safetensors", one.arrays)
    (path / "config.json").write_text(json.dumps(config))
    return path


SIZES = {"num_attention_heads": HEADS, "layer_norm_eps": 1e-12}


def test_a_folder_is_its_checkpoint(tmp_path):
    one = case("bert")
    heads = read_heads(folder_of(tmp_path / "a", one, model_type="bert", **SIZES), layer=1)
    np.testing.assert_allclose(heads.attention(INPUTS), expected(one), atol=1e-12)
    with pytest.raises(ValueError, match=r"is a folder without model\.safetensors"):
        read_checkpoint(tmp_path)
    for name, said in (("adapter_model.safetensors", "has an adapter, and no model"), ("model.bin", "a pickle by its")):
        (tmp_path / "b").mkdir(exist_ok=True)
        (tmp_path / "b" / name).touch()
        with pytest.raises(ValueError, match=said):
            read_checkpoint(tmp_path / "b")
        (tmp_path / "b" / name).unlink()


def test_a_part_of_a_checkpoint_is_refused(tmp_path):
    part = write(tmp_path / "model-00001-of-00007.safetensors", case("bert").arrays)
    with pytest.raises(ValueError, match=r"part 1 of 7 .* give model\.safetensors\.index\.json, or the folder"):
        read_heads(part, layer=1, heads=HEADS)
    assert len(read_checkpoint(part)) == len(case("bert").arrays)


@pytest.mark.parametrize("said, causal", [({"is_decoder": True}, True), ({"is_causal": True}, True), ({}, False)])
def test_a_configuration_within_another_is_that_of_its_model(said, causal, tmp_path):
    one = case("bert")
    arrays = {f"{model}.{name}": array for model in ("encoder", "decoder") for name, array in one.arrays.items()}
    nested = {"encoder": {"model_type": "bert", **SIZES}, "decoder": {"model_type": "bert", **SIZES, **said}}
    path = folder_of(tmp_path / "a", one, model_type="encoder-decoder", **nested)
    write(path / "model.safetensors", arrays)
    assert not read_heads(path, layer=1, prefix="encoder.").causal
    assert read_heads(path, layer=1, prefix="decoder.").causal == causal
    nested = {"text_config": nested["encoder"], "vision_config": nested["decoder"]}
    with pytest.raises(ValueError, match=r"is of several models \(text_config, vision_config\)"):
        read_heads(folder_of(tmp_path / "b", one, model_type="clip", **nested), layer=1)


@pytest.mark.parametrize(
    "entry, said",
    [
        ({"model_type": "roformer"}, "positions are rotary"),
        ({"model_type": "yoso"}, "by hashing"),
        ({"model_type": "big_bird"}, "attention_type='block_sparse'"),
        ({"model_type": "xmod", "pre_norm": True}, "pre_norm=True"),
        ({"model_type": "bert", "attn_logit_softcapping": 50.0}, "scores are capped"),
        ({"model_type": "bert", "quantization_config": {"bits": 8}}, "weights are quantised"),
        ({"model_type": "another"}, "it is not known whether its attention is that of transformers' BERT"),
    ],
)
def test_what_config_json_says_of_attention_is_refused_with_its_reason(entry, said, tmp_path):
    path = folder_of(tmp_path / "a", case("bert"), **entry, **SIZES)
    with pytest.raises(ValueError, match=re.escape(said)):
        read_heads(path, layer=1)
    if entry["model_type"] != "another":
        with pytest.raises(ValueError, match=re.escape(said)):
            read_heads(path, layer=1, layout="bert")


def test_a_module_beside_the_configuration_of_a_model_is_asked_for(tmp_path):
    one = case("torch")
    path = folder_of(tmp_path / "a", one, model_type="siglip", num_attention_heads=HEADS)
    with pytest.raises(ValueError, match="whose layers are in no layout that is read") as refused:
        read_heads(path, layer=0)
    advised = re.search(r"give layout='(\w+)'", str(refused.value))[1]
    np.testing.assert_allclose(read_heads(path, layer=0, layout=advised).attention(INPUTS), expected(one), atol=1e-12)


def test_types_that_are_not_read_matter_only_where_they_are(tmp_path):
    one = case("bert")
    arrays = {**one.arrays, f"{stem('bert')}output.dense.weight": np.ones((3, 5), np.uint8)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(arrays, {f"{stem('bert')}output.dense.weight": "F8_E4M3"}))
    heads = read_heads(path, **options(one), layout="bert")
    np.testing.assert_allclose(heads.attention(INPUTS), expected(one), atol=1e-12)
    query = f"{stem('bert')}attention.self.query.weight"
    path.write_bytes(safetensors({**arrays, query: np.ones((6, 6), np.uint8)}, {query: "F8_E4M3"}))
    with pytest.raises(ValueError, match=r"query\.weight.* of type 'F8_E4M3'.*quantised"):
        read_heads(path, **options(one), layout="bert")


class Tensor:
    """What torch's tensors do: NumPy takes them only without gradients, on the processor, and in its own types."""

    def __init__(self, array, dtype="torch.float64", requires_grad=True, device="cuda"):
        self.array, self.dtype, self.requires_grad, self.device = array, dtype, requires_grad, device
        self.shape = array.shape

    def detach(self):
        return Tensor(self.array, self.dtype, False, self.device)

    def cpu(self):
        return Tensor(self.array, self.dtype, self.requires_grad, "cpu")

    def float(self):
        return Tensor(self.array.astype(np.float32), "torch.float32", self.requires_grad, self.device)

    def numpy(self):
        if self.requires_grad or self.device != "cpu" or self.dtype not in ("torch.float64", "torch.float32"):
            raise RuntimeError("can't call numpy() on this tensor")
        return self.array

    def __array__(self, *_, **__):
        return self.numpy()


@pytest.mark.parametrize("layout", CASES)
@pytest.mark.parametrize("dtype", ["torch.float64", "torch.bfloat16"])
def test_tensors_of_torch_are_taken_as_they_are(layout, dtype):
    one = case(layout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttentionWarning)
        tensors = {name: Tensor(array, dtype) for name, array in one.arrays.items()}
        found = read_heads(tensors, **options(one)).attention(INPUTS)
        np.testing.assert_allclose(found, expected(one), atol=1e-5 if dtype == "torch.bfloat16" else 1e-12)
        quantised = {name: Tensor(array, "torch.qint8") for name, array in one.arrays.items()}
        with pytest.raises(TypeError, match=r"tensor of type torch\.qint8 that NumPy cannot take"):
            read_heads(quantised, **options(one))


@pytest.mark.parametrize("outer", ["", "model."])
@pytest.mark.parametrize("name", ["rel_pos_bias.weight", "relative_position_bias_table", "rotary_emb.inv_freq"])
def test_positions_around_a_model_are_refused(outer, name):
    one = case("torch_encoder")
    arrays = {f"{outer}{each}": array for each, array in one.arrays.items()}
    with pytest.raises(ValueError, match=re.escape(f"has '{outer}{name}'")):
        read_heads({**arrays, f"{outer}{name}": VECTOR}, **options(one))
    # those of another model are no business of this one
    read_heads({**arrays, f"other.layers.0.self_attn.{name}": VECTOR}, **options(one), prefix=outer or "encoder.")


def test_norms_that_are_no_layer_norms_are_refused_or_warned_of():
    one = case("torch_encoder")
    bias = f"{stem('torch_encoder')}norm1.bias"
    without = {name: array for name, array in one.arrays.items() if name != bias}
    with pytest.raises(ValueError, match="such as RMSNorm, is not read"):
        read_heads(without, **options(one))
    bare = {name: array for name, array in one.arrays.items() if not name.endswith("bias")}
    with pytest.warns(AttentionWarning, match="those of RMSNorm have the same names"):
        read_heads(bare, **options(one))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_heads(bare, **options(one), layout="torch_encoder")
