"""Read the attention heads of one layer from a checkpoint in any layout, or a complete published network."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import bpkr
from ..checks import (
    Count,
    Index,
    Positive,
    checked_arguments,
    checked_choice,
    checked_flag,
    checked_path,
    shown,
)
from ..precision import require_float64
from .attention_heads import CheckpointHeads, LayerNorm
from .files import Checkpoint, read_checkpoint, refuse_part
from .layouts import LAYOUTS, Layout, Projections, Source
from .refusals import (
    NAMESAKES,
    OTHERS,
    Configuration,
    around,
    configuration_beside,
    refuse_beside,
    refuse_names,
    refuse_outside,
    refuse_unknown,
)

_EMBEDDING, _READOUT = "learned_input_layer", "readout_layer"


def _checked_given(name: str, value: Any) -> Any:
    # The arrays of a mapping are loaded later, one by one.
    return value if isinstance(value, Mapping) else checked_path(name, value)


_Given = Annotated[Mapping[str, Any] | str | Path, _checked_given]


@dataclass(frozen=True)
class _Found:
    """A layout found in a checkpoint: its name, and the beginning of names of arrays in each layer."""

    name: str
    stems: Mapping[int, str]
    prefix: str

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.name]


@checked_arguments
def read_heads(
    checkpoint: _Given,
    *,
    layer: Index,
    prefix: str | None = None,
    layout: str | None = None,
    heads: Count | None = None,
    epsilon: Positive | None = None,
    causal: bool | None = None,
    norm_first: bool | None = None,
) -> CheckpointHeads:
    """Read the attention heads of one layer of a trained transformer, with the layer norm before them.

    Args:
        checkpoint: a file or folder for `read_checkpoint`, its result, or any mapping from names to arrays, including
            torch tensors.
        layer: number of the layer, from 0, as in the names of arrays.
        prefix: read only arrays whose names begin with it, such as "decoder." if there are several models.
        layout: "torch", "torch_encoder", "gpt2", "bert", "vit", "equinox", "flax" or "attention_paths"; by default
            inferred from the names of arrays.
        heads: number of heads of the layer. Most files do not state it. By default it is taken from a config.json next
            to the file, or from the arrays if they have an axis for it.
        epsilon: epsilon of the layer norm. By default it is taken from config.json, or else the library's default: 1e-5
            for "torch_encoder" and "gpt2", 1e-12 for "vit".
        causal: whether tokens attend only to themselves and earlier tokens. By default this holds for GPT-2, decoders,
            and models that are causal according to config.json.
        norm_first: for "torch_encoder", whether the norm is before attention. No file states it.

    Raises:
        FileNotFoundError, ImportError: as in `read_checkpoint`.
        ValueError: the file cannot be read; the layer, a number of heads or an array is missing or does not fit;
            attention is not a softmax of queries and keys, as with rotary or relative positions or shared keys; or
            there are arrays outside the layout, such as an adapter.
        TypeError: weights are not floating-point numbers.

    Warns:
        bpkr.AttentionWarning: several models use the same names, and neither `layout` nor a config.json identifies it.
    """
    require_float64()
    arrays, called, configuration = _open(checkpoint)
    names = list(arrays)
    if prefix is not None:
        behind = {name[len(prefix) : len(prefix) + 1] for name in arrays if name.startswith(prefix)}
        if behind in ({"."}, {"/"}):  # The prefix is a module's path without the final separator.
            prefix += behind.pop()
        names = [name for name in arrays if name.startswith(prefix)]
        if not names:
            example = shown(next(iter(arrays), ""))
            raise ValueError(f"prefix={shown(prefix)} begins none of the names in {called}, such as {example}")
    found = _find_layout(arrays, names, called, layout, prefix)
    if layer not in found.stems:
        numbers = sorted(found.stems)
        layers = f"one of the {len(numbers)} layers of {called}, {numbers[0]} to {numbers[-1]}"
        raise ValueError(f"layer must be {layers}, got {layer}")
    source = Source(arrays, called, found.stems[layer])
    # Refuse models before loading arrays. Names around the layer matter, but not names in parallel models.
    refuse_names([name for name in arrays if name.startswith(found.prefix) or around(name, source.prefix)], called)
    if found.layout.namesakes:
        refuse_names(names, called, NAMESAKES)
    refuse_beside(names, called, found.layout, source.prefix)
    configuration = configuration.of(source.prefix)
    configuration.refuse()
    if found.layout.stands_alone:
        refuse_outside(names, arrays, called, source.prefix)
    _refuse_other_kind(found, configuration, layout is not None)
    if found.name == "torch_encoder" and norm_first is True and layout is None and not source.has("norm1.bias"):
        warnings.warn(
            f"{called} has norms without biases at {shown(source.prefix)}, read as layer norms; those of RMSNorm have "
            "the same names. Give layout='torch_encoder' if they are layer norms",
            bpkr.AttentionWarning,
            stacklevel=3,
        )
    projections = found.layout.read(source)
    count = _head_count(projections, heads, configuration, called)
    query, key = (matrix.reshape(count, -1, matrix.shape[1]) for matrix in (projections.query, projections.key))
    biases = (projections.query_bias.reshape(count, -1), projections.key_bias.reshape(count, -1))
    factor = 1.0
    if found.name == "gpt2":  # Switches in config.json select scales of scores other than 1/sqrt(G).
        factor = 1.0 if configuration.is_set("scale_attn_weights", default=True) else math.sqrt(query.shape[1])
        factor /= layer + 1 if configuration.is_set("scale_attn_by_inverse_layer_idx") else 1
    return CheckpointHeads(
        query=jnp.asarray(factor * query),
        # The factor of the scores is in the queries.
        key=jnp.asarray(key),
        query_bias=jnp.asarray(factor * biases[0]),
        key_bias=jnp.asarray(biases[1]),
        norm=_norm(source, found, query.shape[2], epsilon, norm_first, configuration),
        causal=_is_causal(causal, found, names, source.prefix, configuration),
        layout=found.name,
        layer=layer,
        layers=len(found.stems),
    )


def _open(checkpoint: _Given) -> tuple[Mapping[str, Any], str, Configuration]:
    if not isinstance(checkpoint, Mapping):
        checkpoint = read_checkpoint(checkpoint)
    if isinstance(checkpoint, Checkpoint):
        refuse_part(checkpoint.path)
        return checkpoint, str(checkpoint.path), configuration_beside(checkpoint.path)
    if others := [name for name in checkpoint if not isinstance(name, str)]:
        raise TypeError(f"checkpoint must be a mapping from names to arrays, it has {shown(others[0])} for a name")
    return checkpoint, "checkpoint", Configuration()


def _find_layout(
    arrays: Mapping[str, Any], names: Collection[str], called: str, layout: str | None, prefix: str | None = None
) -> _Found:
    """Find the layout of arrays with these names; `ValueError` if there are none or several.

    All names begin with `prefix`. Only a `prefix` can select a module in a list.
    """
    chosen = LAYOUTS if layout is None else {layout: LAYOUTS[checked_choice("layout", layout, LAYOUTS)]}
    found = [_Found(name, stems, first) for name, one in chosen.items() for first, stems in one.stems(names).items()]
    if not found and prefix:
        found = [_Found(name, {0: prefix}, prefix) for name, one in chosen.items() if one.module_at(prefix, names)]
    if not found:
        refuse_unknown(arrays, names, called, {name: one.example for name, one in chosen.items()})
    if len(found) > 1:
        places = ", ".join(f"{each.name} at {shown(next(iter(each.stems.values())))}" for each in found[:4])
        # Suggest a prefix that matches names in the first place, and in no other.
        first, stems = found[0].prefix, [list(each.stems.values()) for each in found]
        if not first or any(stem.startswith(first) for each in stems[1:] for stem in each):
            shared = os.path.commonprefix(stems[0])  # noqa: RUF071 - of names, not of paths
            first = shared[: max(shared.rfind("."), shared.rfind("/")) + 1]
        alone = ". A module that stands alone takes its own inputs, as a forward hook on it records them"
        raise ValueError(
            f"{called} has attention in {len(found)} places ({places}): say which by the beginning of its names, such "
            f"as prefix={first!r}{alone if found[0].layout.stands_alone else ''}"
        )
    return found[0]


def _refuse_other_kind(found: _Found, configuration: Configuration, is_given: bool) -> None:
    """Refuse a config.json with different attention; warn of ambiguous names if there is neither it nor a layout."""
    kind, layout = configuration.model_type, found.layout
    if kind is None and layout.namesakes and not is_given:
        warnings.warn(
            f"no config.json says of which kind the model is: it is read as {layout.library} by its names, which "
            f"{layout.namesakes} have, too, whose attention is another. Give layout={found.name!r} to say so",
            bpkr.AttentionWarning,
            stacklevel=4,
        )
    if kind is None or kind in layout.model_types:
        return
    said = f"{configuration.path} says that the model is {shown(kind)}"
    if kind in OTHERS:
        raise ValueError(f"{said}, whose names are those of {layout.library}, but {OTHERS[kind]}: this is not read")
    if is_given or found.name == "attention_paths":
        return
    if layout.stands_alone:
        raise ValueError(
            f"{said}, whose layers are in no layout that is read. To read the module at {shown(found.prefix)} alone, "
            f"give layout={found.name!r}, and to `attention` its own inputs"
        )
    raise ValueError(
        f"{said}, and it is not known whether its attention is that of {layout.library}: if it is, give "
        f"layout={found.name!r}"
    )


def _head_count(projections: Projections, given: int | None, configuration: Configuration, called: str) -> int:
    rows = len(projections.query)
    for known, where in ((projections.heads, called), (configuration.heads, configuration.path)):
        if known is not None and given not in (None, known):
            raise ValueError(f"heads={given} disagrees with {where}, which has {known}")
        given = known if given is None else given
    if given is None:
        raise ValueError(f"heads must be given: neither {called} nor a config.json next to it states their number")
    return _divided(rows, given, f"the {rows} rows of the queries in {called}")


def _divided(rows: int, heads: int, what: str) -> int:
    if rows % heads:
        raise ValueError(f"heads={heads} does not divide {what}")
    return heads


def _is_causal(
    given: bool | None, found: _Found, names: Collection[str], stem: str, configuration: Configuration
) -> bool:
    if given is not None:
        return given
    is_decoder = found.layout.is_decoder(names, stem)
    if is_decoder and not found.layout.model_types:
        raise ValueError(f"causal must be given: the layer at {shown(stem)} is a decoder's of unknown mask")
    said = configuration.values.get("is_causal")
    if said is not None and checked_flag(f"is_causal in {configuration.path}", said) < found.layout.causal:
        raise ValueError(f"causal must be given: {configuration.path} has is_causal=False, which {found.name} has not")
    return found.layout.causal or is_decoder or bool(said) or configuration.is_set("is_decoder")


def _norm(
    source: Source,
    found: _Found,
    features: int,
    epsilon: float | None,
    norm_first: bool | None,
    configuration: Configuration,
) -> LayerNorm | None:
    layout = found.layout
    if (norm_first is None) == (found.name == "torch_encoder"):
        raise ValueError(f"norm_first must be given for the layout 'torch_encoder', and for no other: {found.name!r}")
    if layout.norm is None or norm_first is False:
        if epsilon is not None:
            raise ValueError(f"epsilon={epsilon} is given, but a layer of {found.name!r} has no norm before attention")
        return None
    if epsilon is None:
        epsilon = (configuration.epsilon if layout.model_types else None) or layout.epsilon
    weight = source.vector(f"{layout.norm}.weight", features)
    # torch can leave out the bias.
    may_lack = not layout.model_types
    if may_lack and source.has("self_attn.in_proj_bias") and not source.has(f"{layout.norm}.bias"):
        raise source.refuse(f"{layout.norm} without a bias: another norm, such as RMSNorm, is not read")
    bias = source.vector(f"{layout.norm}.bias", features, may_lack=may_lack)
    return LayerNorm(jnp.asarray(weight), jnp.asarray(bias), float(epsilon))


@checked_arguments
def read_network_weights(
    checkpoint: _Given, *, heads: Count | None = None
) -> tuple[tuple[Float[Array, "_ _"], ...], bpkr.AbstractHeads]:
    """Read all weights of a network in the layout "attention_paths", and its heads, for `bpkr.Network.of_weights`.

    This is the network of Tiberi et al., arXiv 2405.15926, as their published program saves it. The program divides
    only by the root of the number of heads. The theory's Eqs. (1), (2) and (4) also divide by the roots of the widths,
    so the weights are multiplied by these here.

    Args:
        checkpoint: as in `read_heads`.
        heads: as in `read_heads`; all layers have the same number of heads.

    Returns:
        The embedding V^0 (N_1, N_0), every layer's V_l (N_{l+1}, heads N_l), and the readout a (outputs, N_a); with
        these weights the theory's network has the same outputs. Also the heads, which act on the bare input. A missing
        embedding is the identity. The file states neither skip connections nor which token is read.

    Raises:
        ValueError: as in `read_heads`, and for biases or projections after attention, which the theory's network lacks.
    """
    require_float64()
    arrays, called, _ = _open(checkpoint)
    found = _find_layout(arrays, list(arrays), called, "attention_paths")
    numbers, source = sorted(found.stems), Source(arrays, called, found.prefix)
    if numbers != list(range(len(numbers))):
        raise ValueError(f"{called} has the layers {numbers}, with others missing between them")
    stems = [found.stems[number] for number in numbers]
    unread = dict.fromkeys((f"{found.prefix}{name}.bias" for name in (_EMBEDDING, _READOUT)), "no biases")
    for stem in stems:
        unread |= dict.fromkeys((f"{stem}{name}.bias" for name in ("to_q", "to_k", "to_v", "to_out")), "no biases")
        unread[f"{stem}to_out.weight"] = "heads that are summed, not projected"
    for name, what in unread.items():
        if name in arrays:
            raise ValueError(f"{called} has {shown(name)}: the theory's network has {what}")
    layers = [read_heads(arrays, layer=number, layout="attention_paths", heads=heads) for number in numbers]
    counts, features = [len(each.query) for each in layers], layers[0].query.shape[2]
    embedding = source.matrix(f"{_EMBEDDING}.weight") if source.has(f"{_EMBEDDING}.weight") else np.eye(features)
    values = []
    for stem, count in zip(stems, counts, strict=True):
        stacked = Source(arrays, called, stem).matrix("to_v.weight")
        _divided(len(stacked), count, f"the {len(stacked)} rows of {shown(f'{stem}to_v.weight')} in {called}")
        # V_l has the blocks of its heads side by side; in the file they are stacked as rows (heads N_{l+1}).
        blocks = math.sqrt(stacked.shape[1]) * stacked.reshape(count, -1, stacked.shape[1])
        values.append(blocks.transpose(1, 0, 2).reshape(blocks.shape[1], -1))
    readout = source.matrix(f"{_READOUT}.weight")
    weights = (math.sqrt(features) * embedding, *values, math.sqrt(readout.shape[1]) * readout)
    width = features
    for number, (weight, count) in enumerate(zip(weights, (1, *counts, 1), strict=True)):
        if weight.shape[1] != count * width:
            raise ValueError(
                f"{called} does not fit together: matrix {number} of {len(weights)}, from the input, takes "
                f"{weight.shape[1] // count} features, but gets {width}"
            )
        width = weight.shape[0]
    projections = bpkr.heads(query=[each.query for each in layers], key=[each.key for each in layers])
    return tuple(jnp.asarray(weight) for weight in weights), projections
