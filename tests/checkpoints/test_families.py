"""Every family of transformers: read with the maps that the model itself makes, or refused with a true reason."""

import re
from pathlib import Path

import numpy as np
import pytest

from theorykit.checkpoints import read_heads
from theorykit.checkpoints.layouts import LAYOUTS

from . import families

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::theorykit.bpkr.AttentionWarning")]
TOLERANCE = 1e-12
KINDS = [(name, kind) for name, layout in LAYOUTS.items() for kind in sorted(layout.model_types)]


@pytest.fixture(scope="module", autouse=True)
def libraries():
    pytest.importorskip("torch")
    pytest.importorskip("safetensors.torch")
    return pytest.importorskip("transformers")


def test_every_family_is_read_with_its_own_maps_or_refused(tmp_path):
    """And those that are read are those that the page says."""
    outcomes = [families.outcome(kind, tmp_path / kind) for kind in families.families()]
    wrong = [one for one in outcomes if one.what == "read" and one.difference > TOLERANCE]
    assert not wrong
    unnamed = [one for one in outcomes if one.what == "refused" and families.category(one.reason) == one.reason]
    assert not unnamed
    page = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text()
    said = {kind for row in re.findall(r"\| read \| .*: (.*) \|", page) for kind in row.split(", ")}
    assert said == {one.kind for one in outcomes if one.what == "read"}


@pytest.mark.parametrize("decodes", [False, True])
@pytest.mark.parametrize("layout, kind", KINDS)
def test_kinds_that_a_layout_names_are_read_in_every_form(layout, kind, decodes, tmp_path):
    """As a folder, in parts, as tensors, those of one layer alone, and as decoders, where they can be one."""
    if kind == "chinese_clip_text_model":
        pytest.skip("it is built within another model only")
    config = families.configuration(kind)
    if kind == "big_bird":
        config.attention_type = "original_full"
    if decodes:
        if kind not in LAYOUTS[layout].decoders:
            pytest.skip("it never decodes")
        config.is_decoder = config.add_cross_attention = True
    model = families.build(config)
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "parts", max_shard_size="8KB")
    tensors = model.state_dict(keep_vars=True)
    one_layer = {name: tensor for name, tensor in tensors.items() if re.search(r"(?:^|\.)(?:layers?|h)\.0\.", name)}
    said = {"heads": families.HEADS}
    if layout != "bert":
        said["epsilon"] = config.layer_norm_epsilon if layout == "gpt2" else config.layer_norm_eps
    forms = [(tmp_path / "whole", {}), (tmp_path / "parts", {})]
    # of arrays alone, only attention to another model's tokens says that a layer decodes
    if not decodes or any("crossattention" in name for name in tensors):
        forms += [(tensors, said), (one_layer, said)]
    for saved, options in forms:
        one = families.read(kind, model, saved, **options)
        assert one.what == "read" and one.difference < TOLERANCE, one


@pytest.mark.parametrize("switch", ["is_decoder", "is_causal"])
@pytest.mark.parametrize("layout, kind", KINDS)
def test_a_switch_of_the_mask_is_read_as_the_model_reads_it_or_asked_for(layout, kind, switch, tmp_path):
    if kind in ("big_bird", "chinese_clip_text_model"):
        pytest.skip("by default it attends to blocks, or is built within another model only")
    config = families.configuration(kind)
    setattr(config, switch, True)
    model = families.build(config)
    model.save_pretrained(tmp_path)
    one = families.read(kind, model, tmp_path)
    assert one.reason.startswith("pass causal") if one.what == "refused" else one.difference < TOLERANCE, one


def test_models_of_several_are_read_by_their_prefix(libraries, tmp_path):
    """Encoders and decoders, each with its own configuration: a decoder is causal, and GPT-2's scale is used."""
    gpt2 = families.configuration("gpt2", scale_attn_by_inverse_layer_idx=True, add_cross_attention=True)
    bert = families.configuration("bert", is_decoder=True, add_cross_attention=True)
    pairs = {
        "bert-bert": (libraries.EncoderDecoderModel, families.configuration("bert"), bert),
        "bert-gpt2": (libraries.EncoderDecoderModel, families.configuration("bert"), gpt2),
        "vit-bert": (libraries.VisionEncoderDecoderModel, families.configuration("vit"), bert),
    }
    for name, (kind, encoder, decoder) in pairs.items():
        config = kind.config_class.from_encoder_decoder_configs(encoder, decoder)
        config._attn_implementation = "eager"
        model = families.scattered(kind(config))
        folder = tmp_path / name
        model.save_pretrained(folder)
        with pytest.raises(ValueError, match="attention in 2 places") as refused:
            read_heads(folder, layer=0)
        advised = re.search(r"prefix='(.*?)'", str(refused.value))[1]
        for prefix in (advised, "encoder.", "decoder."):
            heads = read_heads(folder, layer=1, prefix=prefix)
            assert heads.causal == prefix.startswith("decoder.")
            states, maps = families.own_maps(model, heads)
            found = np.asarray(heads.attention(states)).swapaxes(2, 3)
            np.testing.assert_allclose(found, maps, atol=TOLERANCE, rtol=0)
