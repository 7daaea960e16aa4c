"""Attention that is no softmax of queries and keys, and what the caller must say, refused with the reason."""

from pathlib import Path

import numpy as np
import pytest

from theorykit.checkpoints import read_heads
from theorykit.checkpoints.layouts import LAYOUTS

from .files import FEATURES, HEADS, case

PAGE = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text()
SQUARE, FEWER = np.ones((FEATURES, FEATURES)), np.ones((FEATURES // 3, FEATURES))
LLAMA = "model.layers.0.self_attn."
BERT = case("bert").arrays
UNREADABLE = {
    "LLaMA": ({f"{LLAMA}q_proj.weight": SQUARE, "model.layers.0.mlp.gate_proj.weight": SQUARE}, "rotary"),
    "older LLaMA": ({f"{LLAMA}q_proj.weight": SQUARE, f"{LLAMA}rotary_emb.inv_freq": np.ones(2)}, "rotary"),
    "LLaMA as published": ({"layers.0.attention.wq.weight": SQUARE, "rope_freqs": np.ones(2)}, "rotary"),
    "Mistral": ({f"{LLAMA}q_proj.weight": SQUARE, f"{LLAMA}k_proj.weight": FEWER}, "2 rows of keys for 6 of queries"),
    "T5": (
        {
            "encoder.block.0.layer.0.SelfAttention.q.weight": SQUARE,
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": np.ones((32, HEADS)),
        },
        "relative positions",
    ),
    "DeBERTa": (
        {"encoder.layer.0.attention.self.query_proj.weight": SQUARE, "encoder.rel_embeddings.weight": SQUARE},
        "relative positions",
    ),
    "Swin": (
        {
            "encoder.layers.0.blocks.0.attention.self.query.weight": SQUARE,
            "encoder.layers.0.blocks.0.attention.self.relative_position_bias_table": SQUARE,
        },
        "relative positions",
    ),
    "BERT of relative positions": (
        {**BERT, "encoder.layer.0.attention.self.distance_embedding.weight": SQUARE},
        "relative positions",
    ),
    "Longformer": ({**BERT, "encoder.layer.0.attention.self.query_global.weight": SQUARE}, "windows of tokens"),
    "BERT with norms first": (
        {**BERT, "encoder.layer.0.attention.LayerNorm.weight": SQUARE[0]},
        "a norm that transformers' BERT has not",
    ),
    "GPT-1": ({**case("gpt2").arrays, "transformer.tokens_embed.weight": SQUARE}, "as GPT-1 and not GPT-2"),
    "norms of queries": ({**BERT, "encoder.layer.0.attention.self.q_norm.weight": SQUARE[0]}, "norms of queries"),
    "flax's norms": ({**case("flax").arrays, "query_ln.scale": np.ones(2)}, "norms of queries and keys"),
    "flax's shared keys": ({**case("flax").arrays, "key.kernel": np.ones((FEATURES, 1, 2))}, "grouped-query"),
    "flax's keys of others": (
        {**case("flax").arrays, "key.kernel": np.ones((5, HEADS, 2))},
        "keys are of other tokens",
    ),
    "torch's keys of others": (
        {**case("torch, separate").arrays, "attn.k_proj_weight": SQUARE[:, :5]},
        "keys are of other tokens",
    ),
    "torch's further key": ({**case("torch").arrays, "bias_k": SQUARE[0]}, "a key that is no token's"),
    "GPT-2 with shared keys": (
        {**case("gpt2, bare").arrays, "h.1.attn.c_attn.weight": np.ones((FEATURES, FEATURES + 4))},
        "do they share keys",
    ),
    "GPT-2 without a norm": (
        {name: array for name, array in case("gpt2").arrays.items() if "ln_1" not in name},
        r"no array 'transformer.h.1.ln_1.weight'",
    ),
    "encoder and decoder": (
        {**case("torch_encoder").arrays, "decoder.layers.0.self_attn.in_proj_weight": SQUARE},
        "attention in 2 places",
    ),
    "two layouts": ({**case("gpt2").arrays, **BERT}, "gpt2 at 'transformer.h.0.', bert at 'encoder.layer.0.'"),
    "another layout": ({"blocks.0.attn.qkv.weight": SQUARE}, r"none of the layouts torch .* it has 'blocks.0.attn.qkv"),
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
        ("bert", {"layer": 0}, "heads must be given"),
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
            "norm_first must be given for the layout",
        ),
        ("torch_encoder", {"layer": 0, "heads": HEADS}, "norm_first must be given"),
    ],
)
def test_what_the_caller_must_say_is_asked_for(layout, options, said):
    with pytest.raises(ValueError, match=said):
        read_heads(case(layout).arrays, **options)
