"""Attention that is no softmax of queries and keys, and what the caller must say, refused with the reason."""

from pathlib import Path

import numpy as np
import pytest

from theorykit.checkpoints import read_heads
from theorykit.checkpoints.layouts import LAYOUTS

from .files import FEATURES, HEADS, case

PAGE = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text()
SQUARE, FEWER = np.ones((FEATURES, FEATURES)), np.ones((FEATURES // 3, FEATURES))
LLAMA, BERT = "model.layers.0.self_attn.", "encoder.layer.0.attention."


def beside(layout, name, array=SQUARE):
    """The arrays of a layout, with another."""
    return {**case(layout).arrays, name: array}


def squares(*names):
    return dict.fromkeys(names, SQUARE)


RELATIVE, KEYS = "relative positions", "key.kernel"
UNREADABLE = {
    "LLaMA": (squares(f"{LLAMA}q_proj.weight", "model.layers.0.mlp.gate_proj.weight"), "rotary"),
    "older LLaMA": (squares(f"{LLAMA}q_proj.weight", f"{LLAMA}rotary_emb.inv_freq"), "rotary"),
    "LLaMA as published": (squares("layers.0.attention.wq.weight", "rope_freqs"), "rotary"),
    "Mistral": ({f"{LLAMA}q_proj.weight": SQUARE, f"{LLAMA}k_proj.weight": FEWER}, "2 rows of keys for 6 of queries"),
    "T5": (squares("encoder.block.0.SelfAttention.q.weight", "SelfAttention.relative_attention_bias.weight"), RELATIVE),
    "DeBERTa": (squares(f"{BERT}self.query_proj.weight", "encoder.rel_embeddings.weight"), RELATIVE),
    "Swin": (squares(f"{BERT}self.query.weight", f"{BERT}self.relative_position_bias_table"), RELATIVE),
    "BERT of relative positions": (beside("bert", f"{BERT}self.distance_embedding.weight"), RELATIVE),
    "Longformer": (beside("bert", f"{BERT}self.query_global.weight"), "windows of tokens"),
    "BERT with norms first": (
        beside("bert", f"{BERT}LayerNorm.weight"),
        "a norm that transformers' BERT does not have",
    ),
    "GPT-1": (beside("gpt2", "transformer.tokens_embed.weight"), "as in GPT-1 but not GPT-2"),
    "norms of queries": (beside("bert", f"{BERT}self.q_norm.weight"), "norms of queries"),
    "flax's norms": (beside("flax", "query_ln.scale"), "norms of queries and keys"),
    "flax's shared keys": (beside("flax", KEYS, np.ones((FEATURES, 1, 2))), "grouped-query"),
    "flax's keys of others": (beside("flax", KEYS, np.ones((5, HEADS, 2))), "attention to other tokens"),
    "torch's keys of others": (
        beside("torch, separate", "attn.k_proj_weight", SQUARE[:, :5]),
        "attention to other tok",
    ),
    "torch's further key": (beside("torch", "bias_k"), "a key that does not belong to a token"),
    "GPT-2 with shared keys": (
        beside("gpt2, bare", "h.1.attn.c_attn.weight", np.ones((6, 10))),
        "heads may be pruned or share keys",
    ),
    "GPT-2 without a norm": (
        {name: array for name, array in case("gpt2").arrays.items() if "ln_1" not in name},
        r"no array 'transformer.h.1.ln_1.weight'",
    ),
    "encoder and decoder": (beside("torch_encoder", "decoder.layers.0.self_attn.in_proj_weight"), "in 2 places"),
    "two layouts": (
        {**case("gpt2").arrays, **case("bert").arrays},
        "gpt2 at 'transformer.h.0.', bert at 'encoder.layer.0.'",
    ),
    "another layout": (squares("blocks.0.attn.qkv.weight"), r"none of the layouts torch .* it has 'blocks.0.attn.qkv"),
    "an adapter alone": (squares("base_model.model.h.0.attn.c_attn.lora_A.weight"), "adapter: merge it"),
    "an adapter around its weights": (squares(f"{BERT}self.query.base_layer.weight"), "adapter: merge it"),
    "quantised weights": (squares("h.0.attn.c_attn.qweight", "h.0.attn.c_attn.qzeros"), "quantised weight: save"),
    "nothing": ({}, "it has no arrays"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_known_by_its_example_and_by_no_other(name):
    example = LAYOUTS[name].example
    assert [other for other, layout in LAYOUTS.items() if layout.stems({example: 0})] == [name]
    assert f"| `{name}` |" in PAGE and f"`{example}`" in PAGE and f'"{name}"' in read_heads.__doc__


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_with_the_reason(name):
    arrays, said = UNREADABLE[name]
    options = {"norm_first": True} if "encoder" in name else {}
    with pytest.raises(ValueError, match=said) as caught:
        read_heads(arrays, layer=1 if "BERT" not in name and "GPT-2" in name else 0, heads=HEADS, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "layout, options, said",
    [
        ("bert", {"layer": 2, "heads": HEADS}, "one of the 2 layers of checkpoint, 0 to 1, got 2"),
        ("equinox", {"layer": 1, "heads": HEADS}, "one of the 1 layers of checkpoint, 0 to 0, got 1"),
        ("bert", {"layer": 0}, "pass heads"),
        ("bert", {"layer": 0, "heads": 4}, "heads=4 does not divide the 6 rows"),
        ("flax", {"layer": 0, "heads": 2}, "heads=2 disagrees with checkpoint, which has 3"),
        (
            "bert",
            {"layer": 0, "heads": HEADS, "layout": "gpt2"},
            r"none of the layouts gpt2 \(h.0.attn.c_attn.weight\)",
        ),
        ("bert", {"layer": 0, "heads": HEADS, "layout": "llama"}, "layout must be one of 'torch', "),
        ("bert", {"layer": 0, "heads": HEADS, "epsilon": 1e-5}, "no norm before attention"),
        (
            "bert",
            {"layer": 0, "heads": HEADS, "norm_first": True},
            "norm_first=True is for the layout 'torch_encoder' only",
        ),
        (
            "torch_encoder",
            {"layer": 0, "heads": HEADS},
            "norm_first must be True if the layers apply the norm before attention .*, and False if after it",
        ),
    ],
)
def test_what_the_caller_must_say_is_asked_for(layout, options, said):
    with pytest.raises(ValueError, match=said):
        read_heads(case(layout).arrays, **options)
