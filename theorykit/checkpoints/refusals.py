"""Attention that is no softmax of queries and keys of the tokens alone: told by names and config.json, and refused."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..arguments import shown
from .configuration import Configuration

_RELATIVE = (
    r"relative_attention_bias|relative_position|rel_pos|rel_embeddings|distance_embedding|pos_(?:key|query)_proj"
    r"|pos_proj|r_[rw]_bias|query_global"
)
# by a part of an array's name
_NAMES = {
    re.compile(r"rotary|inv_freq|rope_freqs|(?:^|\.)freqs_cis$"): "rotary positions, which turn queries and keys",
    re.compile(_RELATIVE): "scores that depend on relative positions, or windows of tokens, beside queries and keys",
    re.compile(r"(?:^|[._/])[qk](?:uery|ey)?_(?:norm|ln|layernorm|layer_norm)[./]"): "norms of queries and keys",
    # names are otherwise those of BERT and GPT-2
    re.compile(r"(?:^|\.)attention\.(?:LayerNorm|ln|self_attn_layer_norm)\."): "a norm before it, which BERT has not",
    re.compile(r"(?:^|\.)tokens_embed\.weight$"): "its norm after it, as GPT-1 and not GPT-2 has it",
}
# the linear maps of LLaMA and those after it, whose files need not say that positions are rotary
_GATED = re.compile(r"(?:.*\.)?layers\.\d+\.(?:mlp\.(?:gate_proj|gate_up_proj)|feed_forward\.w1)\.weight")
_QUERY = re.compile(r"(?P<stem>.*(?:^|[._]))(?P<query>q_proj|wq|query_proj|query)\.weight")
_KEYS = {"q_proj": "k_proj", "wq": "wk", "query_proj": "key_proj", "query": "key"}


def refuse_configuration(configuration: Configuration) -> None:
    """Raise `ValueError` if config.json says that scores are not those of queries and keys of the tokens alone."""
    values, where = configuration.values, configuration.path
    heads, shared = configuration.heads, values.get("num_key_value_heads")
    if values.get("multi_query") is True or (shared is not None and heads is not None and shared != heads):
        raise ValueError(f"{where} says that heads share keys: grouped-query attention is not read")
    if values.get("rope_theta") is not None or values.get("rope_parameters") is not None:
        raise ValueError(f"{where} says that positions are rotary, which turn queries and keys: this is not read")
    if values.get("position_embedding_type") not in (None, "absolute"):
        raise ValueError(
            f"{where} has the position_embedding_type {shown(values['position_embedding_type'])}: positions that "
            "enter the scores, relative or rotary, are not read"
        )
    if values.get("alibi") is True:
        raise ValueError(f"{where} says that scores have linear biases (ALiBi), which are not read")
    if values.get("pruned_heads"):
        raise ValueError(
            f"{where} says that heads were pruned, so that layers differ in their number: this is not read"
        )


def refuse_names(names: Iterable[str], called: str) -> None:
    """Raise `ValueError` if one of the arrays' names tells of scores that are not of queries and keys alone."""
    for name in names:
        for pattern, what in _NAMES.items():
            if pattern.search(name):
                raise ValueError(f"{called} has {shown(name)}: its attention has {what}, and is not read")


def refuse_unknown(arrays: Mapping[str, Any], called: str, examples: Mapping[str, str]) -> None:
    """Raise `ValueError` that says what the arrays are instead of one of the layouts, given by an example of each."""
    for name in arrays:
        if (match := _QUERY.fullmatch(name)) and (key := _key_beside(match)) in arrays:
            rows = [np.shape(arrays[each])[:1] for each in (name, key)]
            if rows[1] < rows[0]:
                raise ValueError(
                    f"{called} has {rows[1][0]} rows of keys for {rows[0][0]} of queries ({shown(key)}): grouped-query "
                    "attention, whose heads share keys, is not read"
                )
    refuse_names(arrays, called)
    if gated := [name for name in arrays if _GATED.fullmatch(name)]:
        raise ValueError(
            f"{called} has {shown(gated[0])}, as LLaMA and the models after it: positions are rotary, which turn "
            "queries and keys, and this is not read"
        )
    few = ", ".join(shown(name) for name in sorted(map(str, arrays))[:4])
    known = ", ".join(f"{name} ({example})" for name, example in examples.items())
    raise ValueError(
        f"{called} has attention in none of the layouts {known}; it has {f'{few}, ...' if few else 'no arrays'}"
    )


def _key_beside(match: re.Match[str]) -> str:
    return f"{match['stem']}{_KEYS[match['query']]}.weight"
