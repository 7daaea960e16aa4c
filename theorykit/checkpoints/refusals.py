"""Raise errors for attention that is not a softmax of queries and keys alone, from names and config.json."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..checks import checked_flag, checked_number, checked_whole_number, shown
from .files import read_object
from .layouts import LAYOUTS, Layout

_ROTARY = "rotary positions, which turn queries and keys"
# Patterns in the names of all arrays of a model that reveal its attention.
_NAMES = {
    re.compile(r"rotary|rope_freqs|(?:^|\.)freqs_cis$|att(?:n|ention)\..*inv_freq$"): _ROTARY,
    re.compile(
        r"relative_attention_bias|relative_position|rel_pos|rel_embeddings|distance_embedding|pos_(?:key|query)_proj"
        r"|pos_proj|r_[rw]_bias|query_global"
    ): "scores that depend on relative positions, or windows of tokens, in addition to queries and keys",
    re.compile(r"(?:^|[._/])[qk](?:uery|ey)?_(?:norm|ln|layernorm|layer_norm)[./]"): "norms of queries and keys",
    re.compile(r"(?:^|[._])sinks?$"): "sinks, which are additional keys that do not belong to tokens",
}
# Patterns in the names of models whose layers have the same names as a layout.
NAMESAKES = {
    re.compile(r"(?:^|\.)encoder\.embed_positions\.weight$"): "rotary positions, as RoFormer has",
    re.compile(r"(?:^|\.)chars_to_molecules\."): "blocks of text within which tokens attend, as CANINE has",
    re.compile(r"(?:^|\.)bbox_embeddings\."): "a term for the places of boxes, as BROS has",
    re.compile(r"(?:^|\.)tokens_embed\.weight$"): "its norm after it, as in GPT-1 but not GPT-2",
}
# Patterns in names next to an attention module.
_SIBLINGS = {
    re.compile(r"(?:^|[._])(?:probe|query_tokens|latents|query)$"): "learned queries, which do not belong to tokens",
    re.compile(r"(?:^|[._])(?:alibi_?)?slopes$|(?:^|[._])att(?:n|ention)_(?:temperature|bias|scale)s?$"): (
        "a term or a factor of the scores in addition to queries and keys"
    ),
}
# Patterns in names within a layer that the layout lacks.
_UNKNOWN = {
    re.compile(r"lora_|adapter|\.base_layer\."): "an adapter that",
    re.compile(r"scales?(?:_inv)?$|qzeros|qweight|weight_[gv]$|original[01]$|parametrizations"): (
        "a part of its weights that"
    ),
    re.compile(r"(?:^|[._/])(?:ln|norm|layer_?norm)", re.IGNORECASE): "a norm that",
}
# Pattern in the path of a cross-attention module.
_CROSS_ATTENTION = re.compile(r"(?:^|[._/])(?:cross|enc(?:oder)?_(?:dec(?:oder)?_)?att|EncDec)", re.IGNORECASE)

# Keys in config.json that, if set, mean that the attention is not supported, with the reason.
_SETTINGS = {
    "multi_query": "heads share keys",
    "rope_theta": _ROTARY,
    "rope_parameters": _ROTARY,
    "pre_norm": "a norm comes before attention, with the names of the norm after attention",
    "alibi": "scores have linear biases (ALiBi)",
    "pruned_heads": "heads were pruned, so that layers have different numbers of heads",
    "quantization_config": "weights are quantised",
    "attn_logit_softcapping": "scores are capped",
    "sliding_window": "tokens attend within a window",
    "attention_window": "tokens attend within a window",
    **dict.fromkeys(("qk_norm", "use_qk_norm", "qk_layernorm"), "queries and keys are normalised"),
    **dict.fromkeys(("attention_multiplier", "query_pre_attn_scalar"), "scores have an additional factor"),
}
OTHERS: Mapping[str, str] = {
    "bros": "its scores have a term for the places of boxes",
    "canine": "its tokens attend within blocks of the text",
    "git": "its text attends to an image, and to earlier text",
    "mra": "its attention is an approximation of a softmax",
    "roformer": "its positions are rotary, which turn queries and keys",
    "yoso": "its attention is an approximation of a softmax, by hashing",
}
"""Kinds of models, by name in config.json, whose arrays have the names of a layout but whose attention differs."""

# Names of linear maps of LLaMA and its successors, whose files may not show that positions are rotary.
_GATED = re.compile(r"(?:.*\.)?layers\.\d+\.(?:mlp\.(?:gate_proj|gate_up_proj)|feed_forward\.w1)\.weight")
# Names of arrays from which torch.nn.utils computes weights, for parametrisation, pruning and weight norm.
_COMPUTED = re.compile(r"(?:^|\.)parametrizations\.|weight_(?:orig|mask|[guv])$")
# Patterns in names of files that lack plain weights, with what to do.
_WITHOUT_WEIGHTS = {
    re.compile(r"lora_[AB](?:\.|$)|\.base_layer\."): "an adapter: merge it into its model, and save the result",
    re.compile(r"\.(?:qweight|qzeros|weight_packed)$"): "a quantised weight: save the model in float32 or bfloat16",
}
_QUERY = re.compile(r"(?P<stem>.*(?:^|[._]))(?P<query>q_proj|wq|query_proj|query)\.weight")
_KEYS = {"q_proj": "k_proj", "wq": "wk", "query_proj": "key_proj", "query": "key"}


@dataclass(frozen=True)
class Configuration:
    """The content of a config.json of transformers. `values` is empty if there is no such file."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def of(self, name: str) -> "Configuration":
        """Return the part for the model with the array `name`, if there are several models, such as a decoder."""
        models = {
            key: value
            for key, value in self.values.items()
            if isinstance(value, Mapping) and {"num_attention_heads", "n_head", "model_type"} & set(value)
        }
        for part in name.split("."):
            for key, value in models.items():
                if part.partition("_")[0] == key.partition("_")[0]:  # An example is vision_tower and vision_config.
                    return Configuration(self.path, value).of(name)
        if not models or self.heads is not None:  # There is one model, possibly with others in it.
            return self
        raise ValueError(
            f"{self.path} has several models ({', '.join(models)}), and the name {shown(name)} does not identify one: "
            "pass the arrays of one model, with its options"
        )

    @property
    def heads(self) -> int | None:
        """Return the number of heads per layer."""
        value = self._first("num_attention_heads", "n_head")
        return None if value is None else checked_whole_number(f"the number of heads in {self.path}", value, least=1)

    @property
    def epsilon(self) -> float | None:
        """Return the number that layer norms add to the variance."""
        value = self._first("layer_norm_eps", "layer_norm_epsilon")
        return None if value is None else float(checked_number(f"layer_norm_eps in {self.path}", value, above=0.0))

    @property
    def model_type(self) -> str | None:
        """Return the name of the kind of model in transformers."""
        value = self.values.get("model_type")
        return value if isinstance(value, str) else None

    def is_set(self, name: str, default: bool = False) -> bool:
        """Return whether a switch of the model is on."""
        value = self.values.get(name)
        return default if value is None else checked_flag(f"{name} in {self.path}", value)

    def _first(self, *names: str) -> Any:
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def refuse(self) -> None:
        """Raise `ValueError` if scores depend on more than queries and keys of the tokens."""
        values, shared = self.values, self.values.get("num_key_value_heads")
        positions = values.get("position_embedding_type")
        # By default, Big Bird attends to blocks.
        attends = values.get("attention_type", "block_sparse" if self.model_type == "big_bird" else None)
        found = {}
        if shared is not None and self.heads is not None and shared != self.heads:
            found["num_key_value_heads"] = "heads share keys"
        if positions not in (None, "absolute"):
            found["position_embedding_type"] = "scores depend on relative or rotary positions"
        if attends not in (None, "original_full"):
            found["attention_type"] = "tokens do not attend to all other tokens"
        for key, what in _SETTINGS.items():
            value = values.get(key)
            if (value is not None and positions is None) if what is _ROTARY else value:
                found[key] = what
        for key, what in found.items():
            value = attends if key == "attention_type" else values[key]
            raise ValueError(f"{self.path} has {key}={shown(value)}: {what}, and this is not read")


def configuration_beside(checkpoint: Path) -> Configuration:
    """Read config.json in the folder of `checkpoint`, if it exists. Raises `ValueError` if it is damaged."""
    path = checkpoint.parent / "config.json"
    return Configuration(path, read_object(path, "a configuration")) if path.is_file() else Configuration()


def refuse_names(names: Iterable[str], called: str, patterns: Mapping[re.Pattern[str], str] = _NAMES) -> None:
    """Raise `ValueError` if a name reveals scores that depend on more than queries and keys."""
    for name in names:
        for pattern, what in patterns.items():
            if pattern.search(name):
                raise ValueError(f"{called} has {shown(name)}: its attention has {what}, and is not read")


def around(name: str, stem: str) -> bool:
    """Check whether an array belongs directly to a parent module of `stem` instead of a sibling of `stem`."""
    above = {stem[: mark.end()] for mark in re.finditer(r"[./]", stem)} | {""}
    module = re.sub(r"[./](?:weight|bias|scale|kernel|embedding|inv_freq|freqs_cis|\w+_table)$", "", name)
    return module[: max(module.rfind("."), module.rfind("/")) + 1] in above


def refuse_beside(names: Iterable[str], called: str, layout: Layout, stem: str) -> None:
    """Raise `ValueError` if an array within the layer at `stem` may change its attention."""
    for name in names:
        if name.startswith(stem) and not layout.beside.fullmatch(name.removeprefix(stem)):
            what = next((what for pattern, what in _UNKNOWN.items() if pattern.search(name)), "which")
            raise ValueError(f"{called} has {shown(name)}, {what} {layout.library} does not have, and is not read")


def refuse_outside(names: Collection[str], everything: Collection[str], called: str, stem: str) -> None:
    """Raise `ValueError` if there are arrays next to a single attention module at the path `stem`.

    They could be a norm before the module, whose name differs between models. `everything` includes names outside the
    prefix.
    """
    outer = stem[: max(stem.rfind(mark, 0, -1) for mark in "./") + 1]
    is_second = stem.endswith("multihead_attn.") and any(name.startswith(f"{outer}self_attn.") for name in everything)
    if is_second or _CROSS_ATTENTION.search(stem):
        raise ValueError(f"{called} has attention to the tokens of another model at {shown(stem)}, which is not read")
    refuse_names((name for name in everything if stem and name.startswith(outer)), called, _SIBLINGS)
    for name in names:
        if not name.startswith(stem):
            raise ValueError(f"{called} has {shown(name)} next to the attention at {shown(stem)}. {_advice(stem)}")


def _advice(stem: str) -> str:
    return (
        f"Names do not show what comes before it, such as a norm: pass prefix={stem!r}, and pass the module's own "
        "inputs, as recorded by a forward hook on it, to `attention`"
    )


def refuse_unknown(
    arrays: Mapping[str, Any], names: Collection[str], called: str, examples: Mapping[str, str]
) -> NoReturn:
    """Raise `ValueError` for names in none of the layouts of `examples`, with an explanation of the arrays."""
    for name in names:
        if match := _QUERY.fullmatch(name):
            key = f"{match['stem']}{_KEYS[match['query']]}.weight"
            rows = [np.shape(arrays[each])[:1] for each in (name, key)] if key in names else [0, 0]
            if rows[1] < rows[0]:
                raise ValueError(
                    f"{called} has {rows[1][0]} rows of keys for {rows[0][0]} of queries ({shown(key)}): grouped-query "
                    "attention is not read"
                )
    refuse_names(names, called)
    for name in names:
        for pattern, what in _WITHOUT_WEIGHTS.items():
            if pattern.search(name):
                raise ValueError(f"{called} has {shown(name)}, a part of {what}")
    if gated := [name for name in names if _GATED.fullmatch(name)]:
        raise ValueError(
            f"{called} has {shown(gated[0])}, as LLaMA and its successors do, most of which have {_ROTARY}"
        )
    if computed := [name for name in names if _COMPUTED.search(name)]:
        raise ValueError(
            f"{called} has {shown(computed[0])}, which is not a weight but is used to compute one: call "
            "torch.nn.utils.parametrize.remove_parametrizations or prune.remove, and save the checkpoint again"
        )
    for layout in LAYOUTS.values():
        stem = next((stem for stem in layout.listed_modules(names) if not _CROSS_ATTENTION.search(stem)), None)
        if stem is not None:
            raise ValueError(f"{called} has modules of {layout.library}, such as {shown(stem)}. {_advice(stem)}")
    few = ", ".join(shown(name) for name in sorted(names)[:4])
    known = ", ".join(f"{name} ({example})" for name, example in examples.items())
    raise ValueError(
        f"{called} has attention in none of the layouts {known}; it has {f'{few}, ...' if few else 'no arrays'}"
    )
