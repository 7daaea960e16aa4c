"""Read the attention heads of one layer from a checkpoint in any layout, or a complete network of Tiberi et al."""

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
from .._compat import require_float64
from ..checks import Count, Index, Positive, checked_arguments, checked_choice, checked_flag, checked_path, shown
from .attention_heads import CheckpointHeads, LayerNorm
from .files import Checkpoint, read_checkpoint, refuse_part
from .layouts import LAYOUTS, Layout, Source
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
    # Do not check the arrays of a mapping, because they are loaded later, one by one.
    return value if isinstance(value, Mapping) else checked_path(name, value)


_Given = Annotated[Mapping[str, Any] | str | Path, _checked_given]


@dataclass(frozen=True)
class _Found:
    """A layout that was found in a checkpoint.

    - `name`: name of the layout.
    - `stems`: the beginning of the names of arrays in each layer, by layer number.
    - `prefix`: the beginning that all layers share.
    """

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
        checkpoint: a file or folder, the result of `read_checkpoint`, or any mapping from names to arrays, including
            torch tensors.
        layer: number of the layer, from 0, as in the names of arrays.
        prefix: read only arrays whose names begin with this text, such as "decoder." if there are several models.
        layout: "torch", "torch_encoder", "gpt2", "bert", "vit", "equinox", "flax" or "attention_paths". The default is
            inferred from the names of arrays.
        heads: number of heads of the layer. Most files do not state it. The default is taken from a config.json next to
            the file, or from the arrays if they have an axis for heads.
        epsilon: epsilon of the layer norm. The default is taken from config.json. Without it, the library's default is
            used: 1e-5 for "torch_encoder" and "gpt2", 1e-12 for "vit".
        causal: whether tokens attend only to themselves and earlier tokens. The default is True for GPT-2 and decoders,
            and False for other models. It is required if config.json sets a switch that the model ignores.
        norm_first: whether the norm is before attention (pre-norm), only for "torch_encoder". Pass the value that was
            passed to `nn.TransformerEncoderLayer`. Checkpoints do not record it.

    Raises:
        FileNotFoundError, ImportError: see `read_checkpoint`.
        ValueError: the file cannot be read, or an argument or array is missing or does not fit. Attention that is not a
            softmax of queries and keys, such as with rotary or relative positions or shared keys, also raises this
            error, as do arrays outside the layout, such as an adapter.
        TypeError: weights are not floating-point numbers.

    Warns:
        bpkr.AttentionWarning: several models use the same names, and neither `layout` nor config.json identifies the
            model.

    Example:
        >>> import numpy as np
        >>> from theorykit import checkpoints
        >>> arrays = {"h.0.attn.c_attn.weight": np.ones((4, 12)), "h.0.attn.c_attn.bias": np.zeros(12)}
        >>> arrays |= {"h.0.ln_1.weight": np.ones(4), "h.0.ln_1.bias": np.zeros(4)}
        >>> heads = checkpoints.read_heads(arrays, layer=0, heads=2, layout="gpt2")
        >>> heads.causal, heads.query.shape  # (heads, size, features)
        (True, (2, 2, 4))
    """
    require_float64()
    arrays, called, configuration = _open(checkpoint)
    names = list(arrays)
    if prefix is not None:
        behind = {name[len(prefix) : len(prefix) + 1] for name in arrays if name.startswith(prefix)}
        if behind in ({"."}, {"/"}):  # The prefix is the path of a module without the final separator.
            prefix += behind.pop()
        names = [name for name in arrays if name.startswith(prefix)]
        if not names:
            example = shown(next(iter(arrays), ""))
            raise ValueError(f"prefix={shown(prefix)} is not the beginning of any name in {called}, such as {example}")
    found = _find_layout(arrays, names, called, layout, prefix)
    if layer not in found.stems:
        numbers = sorted(found.stems)
        layers = f"one of the {len(numbers)} layers of {called}, {numbers[0]} to {numbers[-1]}"
        raise ValueError(f"layer must be {layers}, got {layer}")
    source = Source(arrays, called, found.stems[layer])
    # Check names before loading arrays. Names around the layer matter, but not names in parallel models.
    refuse_names([name for name in arrays if name.startswith(found.prefix) or around(name, source.prefix)], called)
    if found.layout.namesakes:
        refuse_names(names, called, NAMESAKES)
    refuse_beside(names, called, found.layout, source.prefix)
    configuration = configuration.of(source.prefix)
    configuration.refuse()
    if found.layout.stands_alone:
        refuse_outside(names, arrays, called, source.prefix)
    kind, form, is_given = configuration.model_type, found.layout, layout is not None
    if kind is None and form.namesakes and not is_given:
        warnings.warn(
            f"there is no config.json that states the kind of model: it is read as {form.library} because of its "
            f"names, but the names of {form.namesakes} are the same, with different attention. Pass "
            f"layout={found.name!r} to confirm",
            bpkr.AttentionWarning,
            stacklevel=3,
        )
    if kind is not None and kind not in form.model_types:
        said = f"{configuration.path} states that the model is {shown(kind)}"
        if kind in OTHERS:
            raise ValueError(f"{said}, which has the names of {form.library}, but {OTHERS[kind]}: this is not read")
        if not is_given and found.name != "attention_paths":
            raise ValueError(
                f"{said}, whose layers have none of the layouts that are read. To read the module at "
                f"{shown(found.prefix)} alone, pass layout={found.name!r}, and its own inputs to `attention`"
                if form.stands_alone
                else f"{said}, and it is not known whether its attention is that of {form.library}: if it is, pass "
                f"layout={found.name!r}"
            )
    if found.name == "torch_encoder" and norm_first is True and not is_given and not source.has("norm1.bias"):
        warnings.warn(
            f"{called} has norms without biases at {shown(source.prefix)}, which are read as layer norms; RMSNorm uses "
            "the same names. Pass layout='torch_encoder' if they are layer norms",
            bpkr.AttentionWarning,
            stacklevel=3,
        )
    projections = found.layout.read(source)
    count, rows = heads, len(projections.query)
    for known, where in ((projections.heads, called), (configuration.heads, configuration.path)):
        if known is not None and count not in (None, known):
            raise ValueError(f"heads={count} disagrees with {where}, which has {known} heads")
        count = known if count is None else count
    if count is None:
        raise ValueError(f"pass heads: neither {called} nor a config.json next to it states their number")
    _check_divides(count, rows, f"the {rows} rows of the queries in {called}")
    query, key = (matrix.reshape(count, -1, matrix.shape[1]) for matrix in (projections.query, projections.key))
    biases = (projections.query_bias.reshape(count, -1), projections.key_bias.reshape(count, -1))
    factor = 1.0
    if found.name == "gpt2":  # Switches in config.json select other scales of scores than 1/sqrt(G).
        factor = 1.0 if configuration.is_set("scale_attn_weights", default=True) else math.sqrt(query.shape[1])
        factor /= layer + 1 if configuration.is_set("scale_attn_by_inverse_layer_idx") else 1
    return CheckpointHeads(
        query=jnp.asarray(factor * query),
        # The factor of the scores is already in the queries.
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
        raise TypeError(f"checkpoint must be a mapping from names to arrays, but has the key {shown(others[0])}")
    return checkpoint, "checkpoint", Configuration()


def _find_layout(
    arrays: Mapping[str, Any], names: Collection[str], called: str, layout: str | None, prefix: str | None = None
) -> _Found:
    """Find the layout of arrays with these names. Raises `ValueError` if there is none, or if there are several.

    All names begin with `prefix`. A module in a list can be selected only by its `prefix`.
    """
    chosen = LAYOUTS if layout is None else {layout: LAYOUTS[checked_choice("layout", layout, LAYOUTS)]}
    found = [_Found(name, stems, first) for name, one in chosen.items() for first, stems in one.stems(names).items()]
    if not found and prefix:
        found = [_Found(name, {0: prefix}, prefix) for name, one in chosen.items() if one.module_at(prefix, names)]
    if not found:
        refuse_unknown(arrays, names, called, {name: one.example for name, one in chosen.items()})
    if len(found) > 1:
        places = ", ".join(f"{each.name} at {shown(next(iter(each.stems.values())))}" for each in found[:4])
        # Suggest a prefix that selects only the first place.
        first, stems = found[0].prefix, [list(each.stems.values()) for each in found]
        if not first or any(stem.startswith(first) for each in stems[1:] for stem in each):
            shared = os.path.commonprefix(stems[0])  # noqa: RUF071 - of names, not of paths
            first = shared[: max(shared.rfind("."), shared.rfind("/")) + 1]
        alone = ". A single module needs its own inputs, as recorded by a forward hook on it"
        raise ValueError(
            f"{called} has attention in {len(found)} places ({places}): select one by the beginning of its names, such "
            f"as prefix={first!r}{alone if found[0].layout.stands_alone else ''}"
        )
    return found[0]


def _check_divides(heads: int, rows: int, what: str) -> None:
    if rows % heads:
        raise ValueError(f"heads={heads} does not divide {what}")


def _is_causal(
    given: bool | None, found: _Found, names: Collection[str], stem: str, configuration: Configuration
) -> bool:
    if given is not None:
        return given
    is_decoder = found.layout.is_decoder(names, stem)
    if is_decoder and not found.layout.model_types:
        raise ValueError(f"pass causal: the layer at {shown(stem)} belongs to a decoder whose mask is unknown")
    said = configuration.values.get("is_causal")
    if said is not None and checked_flag(f"is_causal in {configuration.path}", said) < found.layout.causal:
        raise ValueError(f"pass causal: {configuration.path} has is_causal=False, but {found.name} is causal")
    kind, decodes = configuration.model_type, configuration.is_set("is_decoder")
    if found.layout.causal or is_decoder or (decodes and kind in found.layout.decoders):
        return True
    if kind is None or not (said or decodes):
        return bool(said or decodes)
    # Most models ignore these switches: they attend as encoders do, whatever config.json states.
    switch = "is_decoder" if decodes else "is_causal"
    raise ValueError(
        f"pass causal: {configuration.path} has {switch}=True, but it is not known whether {shown(kind)} is causal then"
    )


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
        raise ValueError(
            "norm_first must be True if the layers apply the norm before attention (pre-norm), and False if after it: "
            "the value passed to nn.TransformerEncoderLayer, whose default is False. The file does not record it"
            if norm_first is None
            else f"norm_first={norm_first} is for the layout 'torch_encoder' only, and this is {found.name!r}"
        )
    if layout.norm is None or norm_first is False:
        if epsilon is not None:
            raise ValueError(f"epsilon={epsilon} is given, but a layer of {found.name!r} has no norm before attention")
        return None
    if epsilon is None:
        epsilon = (configuration.epsilon if layout.model_types else None) or layout.epsilon
    weight = source.vector(f"{layout.norm}.weight", features)
    # In torch the bias is optional.
    may_lack = not layout.model_types
    if may_lack and source.has("self_attn.in_proj_bias") and not source.has(f"{layout.norm}.bias"):
        raise source.refuse(f"{layout.norm} without a bias: other norms, such as RMSNorm, are not read")
    bias = source.vector(f"{layout.norm}.bias", features, may_lack=may_lack)
    return LayerNorm(jnp.asarray(weight), jnp.asarray(bias), float(epsilon))


@checked_arguments
def read_network_weights(
    checkpoint: _Given, *, heads: Count | None = None
) -> tuple[tuple[Float[Array, "_ _"], ...], bpkr.Heads]:
    """Read all weights of a network in the layout "attention_paths", and its heads, for `bpkr.Network.of_weights`.

    This is the network of Tiberi et al., arXiv 2405.15926, as their published program saves it. The program divides
    only by the square root of the number of heads. The theory's Eqs. (1), (2) and (4) also divide by the square roots
    of the widths, so we multiply the weights by them.

    Args:
        checkpoint: see `read_heads`.
        heads: number of heads, which is the same for all layers; see `read_heads`.

    Returns:
        The weights with which the theory's network has the same outputs, and the heads, which act on the input itself.
        The weights are the embedding V^0 (N_1, N_0), V_l (N_{l+1}, heads N_l) for every layer, and the readout a
        (outputs, N_a). A missing embedding is the identity. The file states neither skip connections nor which token is
        read.

    Raises:
        ValueError: see `read_heads`. Biases and projections after attention also raise this error, because the theory's
            network lacks them.
    """
    require_float64()
    arrays, called, _ = _open(checkpoint)
    found = _find_layout(arrays, list(arrays), called, "attention_paths")
    numbers, source = sorted(found.stems), Source(arrays, called, found.prefix)
    if numbers != list(range(len(numbers))):
        raise ValueError(f"{called} has only the layers {numbers}: layers between them are missing")
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
        _check_divides(count, len(stacked), f"the {len(stacked)} rows of {shown(f'{stem}to_v.weight')} in {called}")
        # V_l has the blocks of its heads side by side. In the file they are stacked along rows, (heads N_{l+1}).
        blocks = math.sqrt(stacked.shape[1]) * stacked.reshape(count, -1, stacked.shape[1])
        values.append(blocks.transpose(1, 0, 2).reshape(blocks.shape[1], -1))
    readout = source.matrix(f"{_READOUT}.weight")
    weights = (math.sqrt(features) * embedding, *values, math.sqrt(readout.shape[1]) * readout)
    width = features
    for number, (weight, count) in enumerate(zip(weights, (1, *counts, 1), strict=True)):
        if weight.shape[1] != count * width:
            raise ValueError(
                f"{called} is inconsistent: matrix {number} of {len(weights)}, from the input, takes "
                f"{weight.shape[1] // count} features, but gets {width}"
            )
        width = weight.shape[0]
    projections = bpkr.Heads(query=[each.query for each in layers], key=[each.key for each in layers])
    return tuple(jnp.asarray(weight) for weight in weights), projections
