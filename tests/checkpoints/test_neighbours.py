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
    "torch": "in_proj_weight.lora_A in_proj_scale q_norm.weight rel_pos_h",
    "torch_encoder": "self_attn.lora_A.weight self_attn.gate norm0.weight self_attn.q_norm.weight",
    "gpt2": "attn.c_attn.lora_A.weight attn.c_attn.weight_scale attn.alibi ln_0.weight attn.sinks",
    "bert": "attention.self.query.lora_A.weight attention.self.query.lora_B.default.weight "
    "attention.self.query.weight_scale attention.LayerNorm.weight attention.ln.weight attention.self.temperature "
    "norm.weight",
    "vit": "attention.attention.query.lora_A.weight lambda_1 norm1.weight attention.relative_position_bias",
    "equinox": "query_proj.lora_A query_norm.weight rope_embeddings.freqs_cis",
    "flax": "query.lora_a query_ln.scale query.kernel_scale",
    "attention_paths": "to_q.lora_A.weight norm.weight",
}
HARMLESS = {
    "torch_encoder": "linear1.weight norm2.bias self_attn.out_proj.weight",
    "gpt2": "attn.c_proj.bias attn.bias attn.masked_bias ln_2.weight mlp.c_fc.weight",
    "bert": "attention.output.LayerNorm.gamma intermediate.dense.weight output.adapter_modules.en.dense1.weight",
    "vit": "layernorm_after.weight mlp.fc1.weight output.dense.bias",
}
OUTPUTS = {"torch": "out_proj.weight", "equinox": "output_proj.weight", "flax": "out.kernel"}
SIZES = {"num_attention_heads": HEADS, "layer_norm_eps": 1e-12}


def stem(layout):
    """What the names of the layer that `options` reads begin with."""
    stems = [each for one in LAYOUTS[layout].stems(case(layout).arrays).values() for each in one.values()]
    return stems[-1]


def assert_read(one, arrays, **more):
    heads = read_heads(arrays, **{**options(one), **more})
    np.testing.assert_allclose(heads.attention(INPUTS), expected(one), atol=1e-12)


def advised(refused, pattern=r"prefix='(.*?)'"):
    return re.search(pattern, str(refused.value))[1]


def pairs(names):
    return pytest.mark.parametrize(
        "layout, name", [(layout, name) for layout in names for name in names[layout].split()]
    )


@pairs(CHANGING)
def test_what_may_change_attention_is_refused_by_its_name(layout, name):
    one = case(layout)
    with pytest.raises(ValueError, match=re.escape(f"{stem(layout)}{name}"[:60])) as refused:
        read_heads({**one.arrays, f"{stem(layout)}{name}": VECTOR}, **options(one), layout=layout)
    assert "is not read" in str(refused.value)


@pairs(HARMLESS)
def test_what_leaves_attention_as_it_is_does_not_matter(layout, name):
    one = case(layout)
    assert_read(one, {**one.arrays, f"{stem(layout)}{name}": VECTOR}, layout=layout)


def module(layout, place, mark, **more):
    """The arrays of a module at a place; None where the layout's names are apart by another mark."""
    arrays = {name.removeprefix(stem(layout)): array for name, array in (case(layout).arrays | more).items()}
    arrays = {f"{place}{mark}{name}": array for name, array in arrays.items()}
    if layout == "flax":
        return {name.replace(".", mark): array for name, array in arrays.items()}
    return arrays if mark == "." else None


ALONE = pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if layout.stands_alone])


@ALONE
@pytest.mark.parametrize("beside", ["ln_1.weight", "LayerNorm_0/scale", "layer.norm.weight", "head.weight"])
def test_a_module_is_read_alone_and_the_advice_reads_it(layout, beside):
    mark = "/" if "/" in beside else "."
    if arrays := module(layout, f"block{mark}attention", mark):
        arrays |= {f"block{mark}{beside}": VECTOR}
        with pytest.raises(ValueError, match=re.escape(f"block{mark}{beside}")) as refused:
            read_heads(arrays, **options(case(layout)))
        assert_read(case(layout), arrays, prefix=advised(refused))


@ALONE
@pytest.mark.parametrize("place", ["blocks.0.attention", "multihead_attn", "blocks/1/attention"])
def test_a_module_in_a_list_is_read_by_the_advised_beginning(layout, place):
    one, mark = case(layout), "/" if "/" in place else "."
    if arrays := module(layout, place, mark, **{OUTPUTS[layout]: SQUARE}):
        if place != "multihead_attn" or layout == "torch":
            with pytest.raises(ValueError, match="Names do not show what comes before it") as refused:
                read_heads({**arrays, f"blocks{mark}0{mark}norm{mark}weight": VECTOR}, **options(one))
            assert advised(refused) == f"{place}{mark}"
        for prefix in (place, f"{place}{mark}"):
            assert_read(one, arrays, prefix=prefix)


def renamed(layout, place):
    return {f"{place}{name}": array for name, array in case(layout).arrays.items()}


REFUSED = {
    **{
        place: (renamed("torch", place) | renamed("torch", "layers.0.self_attn."), place, "tokens of another model")
        for place in ("layers.0.multihead_attn.", "cross_attn.", "decoder.encoder_attn.", "a.EncDecAttention.")
    },
    **{
        name: ({name: SQUARE, "in_proj_bias": VECTOR}, None, f"has '{name}', which is not a weight but is used")
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
    both = one.arrays | {name.replace("encoder.", "decoder."): 2 * array for name, array in one.arrays.items()}
    with pytest.raises(ValueError, match="2 places") as refused:
        read_heads(both, **options(one))
    assert advised(refused) == "encoder."
    assert_read(one, both, prefix="encoder.")
    with pytest.raises(ValueError, match="is not the beginning of any name"):
        read_heads(one.arrays, **options(one), prefix="decoders.")


def test_a_layer_that_attends_to_another_model_is_causal_or_asks_for_its_mask():
    one, torch = case("bert"), case("torch_encoder")
    arrays = {**one.arrays, f"{stem('bert')}crossattention.self.query.weight": SQUARE}
    assert read_heads(arrays, **options(one), layout="bert").causal
    assert not read_heads(one.arrays, **options(one), layout="bert").causal
    arrays = {
        **torch.arrays,
        f"{stem('torch_encoder')}multihead_attn.in_proj_weight": np.ones((3 * FEATURES, FEATURES)),
    }
    with pytest.raises(ValueError, match="pass causal"):
        read_heads(arrays, **options(torch))
    assert read_heads(arrays, **options(torch), causal=True).causal


@pytest.mark.parametrize("layout", ["bert", "vit", "gpt2"])
def test_names_alone_draw_a_warning(layout):
    one = case(layout)
    with pytest.warns(AttentionWarning, match=f"Pass layout='{layout}'"):
        read_heads(one.arrays, **options(one))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_heads(one.arrays, **options(one), layout=layout)


def folder_of(path, arrays, **config):
    path.mkdir(parents=True)
    write(path / "model.safetensors", arrays)
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_folder_is_its_checkpoint(tmp_path):
    one = case("bert")
    assert_read(one, folder_of(tmp_path / "a", one.arrays, model_type="bert", **SIZES))
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"is a folder without model\.safetensors"):
        read_checkpoint(tmp_path / "b")
    for name, said in (
        ("model.bin", "the ending of a pickle"),
        ("adapter_model.safetensors", "has an adapter without its model"),
    ):
        (tmp_path / "b" / name).touch()
        with pytest.raises(ValueError, match=said):
            read_checkpoint(tmp_path / "b")
    part = write(tmp_path / "model-00001-of-00007.safetensors", one.arrays)
    with pytest.raises(ValueError, match=r"part 1 of 7 .* pass .*model\.safetensors\.index\.json, or the folder"):
        read_heads(part, layer=1, heads=HEADS)
    assert len(read_checkpoint(part)) == len(one.arrays)


@pytest.mark.parametrize("said, causal", [({"is_decoder": True}, True), ({}, False)])
def test_a_configuration_within_another_is_that_of_its_model(said, causal, tmp_path):
    arrays = renamed("bert", "encoder.") | renamed("bert", "decoder.")
    encoder, decoder = {"model_type": "bert", **SIZES}, {"model_type": "bert", **SIZES, **said}
    path = folder_of(tmp_path / "a", arrays, model_type="encoder-decoder", encoder=encoder, decoder=decoder)
    assert not read_heads(path, layer=1, prefix="encoder.").causal
    assert read_heads(path, layer=1, prefix="decoder.").causal == causal
    nested = {"text_config": encoder, "vision_config": decoder}
    with pytest.raises(ValueError, match=r"has several models \(text_config, vision_config\)"):
        read_heads(folder_of(tmp_path / "b", case("bert").arrays, model_type="clip", **nested), layer=1)


@pytest.mark.parametrize(
    "entry, said",
    [
        ({"model_type": "roformer"}, "positions are rotary"),
        ({"model_type": "yoso"}, "by hashing"),
        ({"model_type": "big_bird"}, "attention_type='block_sparse'"),
        ({"model_type": "xmod", "pre_norm": True}, "pre_norm=True"),
        ({"model_type": "bert", "attn_logit_softcapping": 50.0}, "scores are capped"),
        ({"model_type": "bert", "quantization_config": {"bits": 8}}, "weights are quantised"),
        ({"model_type": "bert", "rope_theta": 10000.0}, "rotary positions"),
        (
            {"model_type": "bert", "position_embedding_type": "relative_key"},
            "scores depend on relative or rotary positions",
        ),
        ({"model_type": "bert", "num_key_value_heads": 1}, "heads share keys"),
        ({"model_type": "another"}, "it is not known whether its attention is that of transformers' BERT"),
    ],
)
def test_what_config_json_says_of_attention_is_refused_with_its_reason(entry, said, tmp_path):
    path = folder_of(tmp_path / "a", case("bert").arrays, **entry, **SIZES)
    for layout in (None, "bert")[: 1 if entry["model_type"] == "another" else 2]:
        with pytest.raises(ValueError, match=re.escape(said)):
            read_heads(path, layer=1, layout=layout)


@pytest.mark.parametrize("layout", ["bert", "vit"])
@pytest.mark.parametrize("switch", ["is_decoder", "is_causal"])
def test_a_switch_that_a_model_ignores_is_asked_for(switch, layout, tmp_path):
    for kind in sorted(LAYOUTS[layout].model_types - {"big_bird"}):
        path = folder_of(tmp_path / kind, case(layout).arrays, **{"model_type": kind, switch: True}, **SIZES)
        if switch == "is_decoder" and kind in LAYOUTS[layout].decoders:
            assert read_heads(path, layer=1).causal
            continue
        with pytest.raises(ValueError, match=f"pass causal: .* has {switch}=True"):
            read_heads(path, layer=1)
        assert not read_heads(path, layer=1, causal=False).causal


def test_a_module_beside_the_configuration_of_a_model_is_asked_for(tmp_path):
    one = case("torch")
    path = folder_of(tmp_path / "a", one.arrays, model_type="siglip", num_attention_heads=HEADS)
    with pytest.raises(ValueError, match="whose layers have none of the layouts that are read") as refused:
        read_heads(path, layer=0)
    assert_read(one, path, layout=advised(refused, r"pass layout='(\w+)'"))


def test_types_that_are_not_read_matter_only_where_they_are(tmp_path):
    one, path = case("bert"), tmp_path / "model.safetensors"
    output, query = (f"{stem('bert')}{name}.weight" for name in ("output.dense", "attention.self.query"))
    arrays = {**one.arrays, output: np.ones((3, 5), np.uint8)}
    path.write_bytes(safetensors(arrays, {output: "F8_E4M3"}))
    assert_read(one, path, layout="bert")
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


@pytest.mark.parametrize("layout", CASES)
@pytest.mark.parametrize("dtype", ["torch.float64", "torch.bfloat16"])
@pytest.mark.filterwarnings("ignore::theorykit.bpkr.AttentionWarning")
def test_tensors_of_torch_are_taken_as_they_are(layout, dtype):
    one = case(layout)
    found = read_heads({name: Tensor(array, dtype) for name, array in one.arrays.items()}, **options(one))
    tolerance = 1e-5 if dtype == "torch.bfloat16" else 1e-12
    np.testing.assert_allclose(found.attention(INPUTS), expected(one), atol=tolerance)
    with pytest.raises(TypeError, match=r"tensor of type torch\.qint8 that NumPy cannot convert"):
        read_heads({name: Tensor(array, "torch.qint8") for name, array in one.arrays.items()}, **options(one))


@pytest.mark.parametrize("outer", ["", "model."])
@pytest.mark.parametrize("name", ["rel_pos_bias.weight", "relative_position_bias_table", "rotary_emb.inv_freq"])
def test_positions_around_a_model_are_refused(outer, name):
    one, arrays = case("torch_encoder"), renamed("torch_encoder", outer)
    with pytest.raises(ValueError, match=re.escape(f"has '{outer}{name}'")):
        read_heads({**arrays, f"{outer}{name}": VECTOR}, **options(one))
    # those of another model are no business of this one
    read_heads({**arrays, f"other.layers.0.self_attn.{name}": VECTOR}, **options(one), prefix=outer or "encoder.")


def test_norms_that_are_no_layer_norms_are_refused_or_warned_of():
    one = case("torch_encoder")
    bias = f"{stem('torch_encoder')}norm1.bias"
    with pytest.raises(ValueError, match="such as RMSNorm, are not read"):
        read_heads({name: array for name, array in one.arrays.items() if name != bias}, **options(one))
    bare = {name: array for name, array in one.arrays.items() if not name.endswith("bias")}
    with pytest.warns(AttentionWarning, match="RMSNorm uses the same names"):
        read_heads(bare, **options(one))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_heads(bare, **options(one), layout="torch_encoder")
