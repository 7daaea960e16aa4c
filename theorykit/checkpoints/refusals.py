"""Attention that is no softmax of queries and keys of the tokens alone: told by names and config.json, and refused."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from ..checks import shown
from .configuration import Configuration
from .layouts import LAYOUTS, Layout

# what a part of an array's name tells of its attention: of any array of the model,
_NAMES = {
    re.compile(r"rotary|rope_freqs|(?:^|\.)freqs_cis$|att(?:n|ention)\..*inv_freq$"): (
        "rotary positions, which turn queries and keys"
    ),
    re.compile(
        r"relative_attention_bias|relative_position|rel_pos|rel_embeddings|distance_embedding|pos_(?:key|query)_proj"
        r"|pos_proj|r_[rw]_bias|query_global"
    ): "scores that depend on relative positions, or windows of tokens, beside queries and keys",
    re.compile(r"(?:^|[._/])[qk](?:uery|ey)?_(?:norm|ln|layernorm|layer_norm)[./]"): "norms of queries and keys",
    re.compile(r"(?:^|[._])sinks?$"): "sinks, further keys that are no token's",
}
# of one in a model whose layers have the names of a layout,
NAMESAKES = {
    re.compile(r"(?:^|\.)encoder\.embed_positions\.weight$"): "rotary positions, as RoFormer's",
    re.compile(r"(?:^|\.)chars_to_molecules\."): "blocks of text within which tokens attend, as CANINE's",
    re.compile(r"(?:^|\.)bbox_embeddings\."): "a term for the places of boxes, as BROS's",
    re.compile(r"(?:^|\.)tokens_embed\.weight$"): "its norm after it, as GPT-1 and not GPT-2 has it",
}
# of one that stands beside an attention module,
_SIBLINGS = {
    re.compile(r"(?:^|[._])(?:probe|query_tokens|latents|query)$"): "learned queries, which are of no token",
    re.compile(r"(?:^|[._])(?:alibi_?)?slopes$|(?:^|[._])att(?:n|ention)_(?:temperature|bias|scale)s?$"): (
        "a term or a factor of its own in the scores"
    ),
}
# what the path of an attention module tells,
_CROSS_ATTENTION = re.compile(r"(?:^|[._/])(?:cross|enc(?:oder)?_(?:dec(?:oder)?_)?att|EncDec)", re.IGNORECASE)
# and of one behind the layer's name that the layout has not
_UNKNOWN = {
    re.compile(r"lora_|adapter|\.base_layer\."): "an adapter that",
    re.compile(r"scales?(?:_inv)?$|qzeros|qweight|weight_[gv]$|original[01]$|parametrizations"): (
        "a part of its weights that"
    ),
    re.compile(r"(?:^|[._/])(?:ln|norm|layer_?norm)", re.IGNORECASE): "a norm that",
}

# by a key of config.json that is set
_SETTINGS = {
    "pre_norm": "a norm comes before attention, whose names are those of the one after it",
    "alibi": "scores have linear biases (ALiBi)",
    "pruned_heads": "heads were pruned, so that layers differ in their number",
    "quantization_config": "weights are quantised",
    "attn_logit_softcapping": "scores are capped",
    "sliding_window": "tokens attend within a window",
    "attention_window": "tokens attend within a window",
    "qk_norm": "queries and keys are normalised",
    "use_qk_norm": "queries and keys are normalised",
    "qk_layernorm": "queries and keys are normalised",
    "attention_multiplier": "scores have a factor of their own",
    "query_pre_attn_scalar": "scores have a factor of their own",
}
OTHERS: Mapping[str, str] = {
    "bros": "its scores have a term for the places of boxes",
    "canine": "its tokens attend within blocks of the text",
    "git": "its text attends to an image, and to earlier text",
    "mra": "its attention is an approximation of a softmax",
    "roformer": "its positions are rotary, which turn queries and keys",
    "yoso": "its attention is an approximation of a softmax, by hashing",
}
"""Kinds of models with the names of a layout, whose attention is another, by what config.json calls them."""

# the linear maps of LLaMA and those after it, whose files need not say that positions are rotary
_GATED = re.compile(r"(?:.*\.)?layers\.\d+\.(?:mlp\.(?:gate_proj|gate_up_proj)|feed_forward\.w1)\.weight")
# parts of weights, as torch.nn.utils has them for parametrisations, pruning and norms of weights
_COMPUTED = re.compile(r"(?:^|\.)parametrizations\.|weight_(?:orig|mask|[guv])$")
_QUERY = re.compile(r"(?P<stem>.*(?:^|[._]))(?P<query>q_proj|wq|query_proj|query)\.weight")
_KEYS = {"q_proj": "k_proj", "wq": "wk", "query_proj": "key_proj", "query": "key"}


def refuse_configuration(configuration: Configuration) -> None:
    """Raise `ValueError` if config.json says that scores are not those of queries and keys of the tokens alone."""
    values, where = configuration.values, configuration.path
    heads, shared = configuration.heads, values.get("num_key_value_heads")
    positions = values.get("position_embedding_type")
    if values.get("multi_query") is True or (shared is not None and heads is not None and shared != heads):
        raise ValueError(f"{where} says that heads share keys: grouped-query attention is not read")
    if positions not in (None, "absolute"):
        raise ValueError(
            f"{where} has the position_embedding_type {shown(positions)}: positions that enter the scores, relative or "
            "rotary, are not read"
        )
    if positions is None and any(values.get(key) is not None for key in ("rope_theta", "rope_parameters")):
        raise ValueError(f"{where} says that positions are rotary, which turn queries and keys: this is not read")
    # Big Bird attends to blocks unless another type is named
    attends = values.get("attention_type", "block_sparse" if configuration.model_type == "big_bird" else None)
    if attends not in (None, "original_full"):
        raise ValueError(
            f"{where} has the attention_type {shown(attends)}: tokens do not attend to all others, and this is not read"
        )
    for key, what in _SETTINGS.items():
        if values.get(key):
            raise ValueError(f"{where} has {key}={shown(values[key])}: {what}, and this is not read")


def refuse_names(names: Iterable[str], called: str, patterns: Mapping[re.Pattern[str], str] = _NAMES) -> None:
    """Raise `ValueError` if one of the arrays' names tells of scores that are not of queries and keys alone."""
    for name in names:
        for pattern, what in patterns.items():
            if pattern.search(name):
                raise ValueError(f"{called} has {shown(name)}: its attention has {what}, and is not read")


def around(name: str, stem: str) -> bool:
    """Whether an array stands in one of the modules that the module at `stem` is in, and in none beside it."""
    above = {stem[: mark.end()] for mark in re.finditer(r"[./]", stem)} | {""}
    module = re.sub(r"[./](?:weight|bias|scale|kernel|embedding|inv_freq|freqs_cis|\w+_table)$", "", name)
    return module[: max(module.rfind("."), module.rfind("/")) + 1] in above


def refuse_beside(names: Iterable[str], called: str, layout: Layout, stem: str) -> None:
    """Raise `ValueError` if there is an array behind the `stem` of a layer that may change its attention."""
    for name in names:
        if name.startswith(stem) and not layout.beside.fullmatch(name.removeprefix(stem)):
            what = next((what for pattern, what in _UNKNOWN.items() if pattern.search(name)), "which")
            raise ValueError(
                f"{called} has {shown(name)}, {what} {layout.library} has not: what it does to attention is not known, "
                "and it is not read"
            )


def refuse_outside(names: Collection[str], everything: Collection[str], called: str, stem: str) -> None:
    """Raise `ValueError` if an attention module that stands alone, at the path `stem`, has arrays beside it.

    A norm before it has another name in every model. `everything` are all names in the checkpoint, also those that a
    prefix leaves out.
    """
    outer = stem[: max(stem.rfind(mark, 0, -1) for mark in "./") + 1]
    is_second = stem.endswith("multihead_attn.") and any(name.startswith(f"{outer}self_attn.") for name in everything)
    if is_second or _CROSS_ATTENTION.search(stem):
        raise ValueError(
            f"{called} has at {shown(stem)} attention to the tokens of another model, as its name tells, and the "
            "theory is of self-attention"
        )
    refuse_names((name for name in everything if stem and name.startswith(outer)), called, _SIBLINGS)
    for name in names:
        if not name.startswith(stem):
            raise ValueError(
                f"{called} has {shown(name)} beside the attention module at {shown(stem)}, and names do not say what "
                f"comes before the module, such as a norm. {_advice(stem)}"
            )


def _advice(stem: str) -> str:
    return f"Give prefix={stem!r}, and to `attention` the inputs of that module, as a forward hook on it records them"


def refuse_unknown(
    arrays: Mapping[str, Any], names: Collection[str], called: str, examples: Mapping[str, str]
) -> NoReturn:
    """Raise `ValueError` that says what the arrays of these names are, in none of the layouts of the `examples`."""
    for name in names:
        if match := _QUERY.fullmatch(name):
            key = f"{match['stem']}{_KEYS[match['query']]}.weight"
            rows = [np.shape(arrays[each])[:1] for each in (name, key)] if key in names else [0, 0]
            if rows[1] < rows[0]:
                raise ValueError(
                    f"{called} has {rows[1][0]} rows of keys for {rows[0][0]} of queries ({shown(key)}): grouped-query "
                    "attention, whose heads share keys, is not read"
                )
    refuse_names(names, called)
    if gated := [name for name in names if _GATED.fullmatch(name)]:
        raise ValueError(
            f"{called} has {shown(gated[0])}, as LLaMA and the models after it, in most of which rotary positions turn "
            "queries and keys: it is in no layout that is read"
        )
    if computed := [name for name in names if _COMPUTED.search(name)]:
        raise ValueError(
            f"{called} has {shown(computed[0])}, from which a weight is computed when the model runs: remove the "
            "parametrisation, the normalisation or the pruning in torch, which leaves the weight, and save it again"
        )
    for layout in LAYOUTS.values():
        stem = next((stem for stem in layout.listed_modules(names) if not _CROSS_ATTENTION.search(stem)), None)
        if stem is not None:
            raise ValueError(
                f"{called} has modules as {layout.library} has them, {shown(stem)} among them, and names do not say "
                f"what comes before each, such as a norm. {_advice(stem)}"
            )
    few = ", ".join(shown(name) for name in sorted(names)[:4])
    known = ", ".join(f"{name} ({example})" for name, example in examples.items())
    raise ValueError(
        f"{called} has attention in none of the layouts {known}; it has {f'{few}, ...' if few else 'no arrays'}"
    )
