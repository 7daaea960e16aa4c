"""The attention heads of one layer out of a checkpoint, whatever layout they are in."""

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import bpkr
from ..checks import (
    checked_choice,
    checked_flag,
    checked_number,
    checked_path,
    checked_text,
    checked_whole_number,
    shown,
)
from ..precision import require_float64
from .attention_heads import CheckpointHeads, LayerNorm
from .configuration import Configuration, configuration_beside
from .files import Checkpoint, read_checkpoint, refuse_part
from .layouts import LAYOUTS, Layout, Projections, Source
from .refusals import (
    NAMESAKES,
    OTHERS,
    around,
    refuse_beside,
    refuse_configuration,
    refuse_names,
    refuse_outside,
    refuse_unknown,
)


@dataclass(frozen=True)
class Found:
    """A layout found in a checkpoint: its name, and what the names of each layer's arrays begin with."""

    name: str
    stems: Mapping[int, str]
    prefix: str

    @property
    def layout(self) -> Layout:
        """How to read it."""
        return LAYOUTS[self.name]


def read_heads(
    checkpoint: Mapping[str, Any] | str | Path,
    *,
    layer: int,
    prefix: str | None = None,
    layout: str | None = None,
    heads: int | None = None,
    epsilon: float | None = None,
    causal: bool | None = None,
    norm_first: bool | None = None,
) -> CheckpointHeads:
    """The attention heads of one layer of a trained transformer, with the layer norm that the model applies first.

    - `checkpoint`: a file or folder that `read_checkpoint` reads, what it returns, or any mapping from names to arrays,
      tensors of torch among them.
    - `layer`: counted from 0, as names count layers.
    - `prefix`: only arrays whose names begin with it are looked at, such as "decoder." of a model of several.
    - `layout`: "torch", "torch_encoder", "gpt2", "bert", "vit", "equinox", "flax" or "attention_paths"; None tells it
      by the arrays' names.
    - `heads`: how many the layer has, which most files do not say. None takes the number from a config.json beside the
      file, or from the arrays where they have an axis for it.
    - `epsilon`: of the layer norm. None takes that of config.json, or else the library's default: 1e-5 for
      "torch_encoder" and "gpt2", 1e-12 for "vit".
    - `causal`: whether tokens attend to no later ones. None means that those of GPT-2, of decoders, and of models that
      config.json says to be causal do not.
    - `norm_first`: for "torch_encoder", which has it in no file, whether the norm is before attention.

    Raises `FileNotFoundError` and `ValueError` as `read_checkpoint` does; `ValueError` where the layer, a number of
    heads or an array is missing or does not fit; for attention that is no softmax of queries and keys: with rotary or
    relative positions, or with keys that heads share; and for arrays beside the heads, such as an adapter's, that the
    layout has not; `TypeError` for weights that are no floating-point numbers. Warns with `bpkr.AttentionWarning` where
    neither `layout` nor a config.json says which of several models with the same names it is.
    """
    require_float64()
    everything, called, configuration = open_checkpoint(checkpoint)
    layer = checked_whole_number("layer", layer, least=0)
    prefix = None if prefix is None else _whole_prefix(checked_text("prefix", prefix), everything)
    arrays = everything if prefix is None else _behind(prefix, everything, called)
    found = find_layout(arrays, called, layout, prefix)
    if layer not in found.stems:
        numbers = sorted(found.stems)
        raise ValueError(
            f"layer must be one of the {len(numbers)} layers of {called}, {numbers[0]} to {numbers[-1]}, got {layer}"
        )
    source = Source(arrays, called, found.stems[layer])
    refuse_names([name for name in everything if name.startswith(found.prefix) or around(name, source.prefix)], called)
    if found.layout.namesakes:
        refuse_names(arrays, called, NAMESAKES)
    refuse_beside(arrays, called, found.layout, source.prefix)
    configuration = configuration.of(source.prefix)
    refuse_configuration(configuration)
    if found.layout.stands_alone:
        refuse_outside(arrays, everything, called, source.prefix)
    _refuse_other_kind(found, configuration, layout is not None)
    if found.name == "torch_encoder" and norm_first is True and layout is None and not source.has("norm1.bias"):
        warnings.warn(
            f"{called} has norms without biases at {shown(source.prefix)}, which are read as layer norms; those of "
            "RMSNorm have the same names. Give layout='torch_encoder' if they are layer norms",
            bpkr.AttentionWarning,
            stacklevel=2,
        )
    projections = found.layout.read(source)
    count = _head_count(projections, heads, configuration, called)
    query, query_bias = _by_head(count, projections.query, projections.query_bias)
    key, key_bias = _by_head(count, projections.key, projections.key_bias)
    factor = _score_factor(configuration, layer, query.shape[1]) if found.name == "gpt2" else 1.0
    return CheckpointHeads(
        query=factor * query,
        key=key,
        query_bias=factor * query_bias,
        key_bias=key_bias,
        norm=_norm(source, found.layout, query.shape[2], _norm_options(found, epsilon, norm_first), configuration),
        causal=_is_causal(causal, found, arrays, source.prefix, configuration),
        layout=found.name,
        layer=layer,
        layers=len(found.stems),
    )


def open_checkpoint(
    checkpoint: Mapping[str, Any] | str | Path,
) -> tuple[Mapping[str, Any], str, Configuration]:
    """The arrays of a checkpoint, what errors call it, and the configuration beside its file."""
    if not isinstance(checkpoint, Mapping):
        checkpoint = read_checkpoint(checked_path("checkpoint", checkpoint))
    if isinstance(checkpoint, Checkpoint):
        refuse_part(checkpoint.path)
        return checkpoint, str(checkpoint.path), configuration_beside(checkpoint.path)
    if others := [name for name in checkpoint if not isinstance(name, str)]:
        raise TypeError(f"checkpoint must be a mapping from names to arrays, it has {shown(others[0])} for a name")
    return checkpoint, "checkpoint", Configuration()


def _whole_prefix(prefix: str, arrays: Mapping[str, Any]) -> str:
    """The path of a module with the mark behind it, which may be left out."""
    behind = {name[len(prefix) : len(prefix) + 1] for name in arrays if name.startswith(prefix)}
    return prefix + behind.pop() if prefix and behind in ({"."}, {"/"}) else prefix


def _behind(prefix: str, arrays: Mapping[str, Any], called: str) -> Mapping[str, Any]:
    """The arrays whose names begin with `prefix`, each loaded when it is asked for."""
    names = [name for name in arrays if name.startswith(prefix)]
    if not names:
        raise ValueError(
            f"prefix={shown(prefix)} begins none of the names in {called}, such as {shown(next(iter(arrays), ''))}"
        )
    return _Selection(arrays, tuple(names))


@dataclass(frozen=True)
class _Selection(Mapping):
    """Some of the arrays of a checkpoint."""

    arrays: Mapping[str, Any]
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise KeyError(name)
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def find_layout(arrays: Mapping[str, Any], called: str, layout: str | None, prefix: str | None = None) -> Found:
    """The one layout that the arrays are in, or `layout`, where they are; `ValueError` where there is none, or more.

    `prefix` begins all of their names; it may be the path of a module in a list, which is found by it alone.
    """
    chosen = LAYOUTS if layout is None else {layout: LAYOUTS[checked_choice("layout", layout, LAYOUTS)]}
    found = [Found(name, stems, first) for name, one in chosen.items() for first, stems in one.stems(arrays).items()]
    if not found and prefix:
        found = [Found(name, {0: prefix}, prefix) for name, one in chosen.items() if one.module_at(prefix, arrays)]
    if not found:
        refuse_unknown(arrays, called, {name: one.example for name, one in chosen.items()})
    if len(found) > 1:
        places = ", ".join(f"{each.name} at {shown(next(iter(each.stems.values())))}" for each in found[:4])
        alone = (
            ". A module that stands alone is read without the norms around it: give `attention` the module's own "
            "inputs, as a forward hook on it records them"
        )
        raise ValueError(
            f"{called} has attention in {len(found)} places ({places}): say which by the beginning of its names, such "
            f"as prefix={_place(found)!r}{alone if found[0].layout.stands_alone else ''}"
        )
    return found[0]


def _place(found: Sequence[Found]) -> str:
    """What the names of the first place, and of no other, begin with."""
    stems = [list(each.stems.values()) for each in found]
    if found[0].prefix and not any(stem.startswith(found[0].prefix) for each in stems[1:] for stem in each):
        return found[0].prefix
    shared = os.path.commonprefix(stems[0])  # noqa: RUF071 - of names, not of paths
    return shared[: max(shared.rfind("."), shared.rfind("/")) + 1]


def _refuse_other_kind(found: Found, configuration: Configuration, is_given: bool) -> None:
    """Raise `ValueError` where config.json is of a model whose attention may be another than that of the layout.

    Where no config.json is beside the arrays, and no layout is given, models with the same names draw a warning.
    """
    kind, layout = configuration.model_type, found.layout
    if kind is None and layout.namesakes and not is_given:
        warnings.warn(
            f"no config.json says of which kind the model is, and it is read as {layout.library} by its names, which "
            f"layers of {layout.namesakes} have, too, whose attention is another. Give layout={found.name!r} to say so",
            bpkr.AttentionWarning,
            stacklevel=3,
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
            f"{said}, whose layers are in no layout that is read. To read the attention module at "
            f"{shown(found.prefix)} alone, give layout={found.name!r}, and to `attention` that module's own inputs"
        )
    raise ValueError(
        f"{said}, and it is not known whether its attention is that of {layout.library}, by whose names it goes. Where "
        f"the model's own code says so, give layout={found.name!r}"
    )


def _head_count(projections: Projections, given: int | None, configuration: Configuration, called: str) -> int:
    """How many heads the layer has, as the arrays, config.json or the caller say, who must agree."""
    rows = len(projections.query)
    if given is not None:
        given = checked_whole_number("heads", given, least=1)
    for known, where in ((projections.heads, called), (configuration.heads, configuration.path)):
        if known is not None and given not in (None, known):
            raise ValueError(f"heads={given} disagrees with {where}, which has {known}")
        given = known if given is None else given
    if given is None:
        raise ValueError(f"heads must be given: neither {called} nor a config.json beside it says how many there are")
    if rows % given:
        raise ValueError(f"heads={given} does not divide the {rows} rows of the queries in {called}")
    return given


def _by_head(
    heads: int, matrix: Float[np.ndarray, "rows features"], bias: Float[np.ndarray, " rows"]
) -> tuple[Float[Array, "heads G features"], Float[Array, "heads G"]]:
    return jnp.asarray(matrix.reshape(heads, -1, matrix.shape[1])), jnp.asarray(bias.reshape(heads, -1))


def _score_factor(configuration: Configuration, layer: int, size: int) -> float:
    """What GPT-2 multiplies scores by, beside 1/sqrt(G) for queries of `size` G; the switches are in config.json."""
    factor = 1.0 if configuration.is_set("scale_attn_weights", default=True) else math.sqrt(size)
    return factor / (layer + 1) if configuration.is_set("scale_attn_by_inverse_layer_idx") else factor


def _is_causal(
    given: bool | None, found: Found, arrays: Mapping[str, Any], stem: str, configuration: Configuration
) -> bool:
    if given is not None:
        return checked_flag("causal", given)
    is_decoder = found.layout.is_decoder(arrays, stem)
    if is_decoder and not found.layout.model_types:
        raise ValueError(
            f"causal must be given, True or False: the layer at {shown(stem)} is a decoder's, and no file says which "
            "mask it was called with"
        )
    said = configuration.values.get("is_causal")
    if said is not None and checked_flag(f"is_causal in {configuration.path}", said) < found.layout.causal:
        raise ValueError(f"causal must be given: {configuration.path} has is_causal=False, which {found.name} has not")
    return found.layout.causal or is_decoder or bool(said) or configuration.is_set("is_decoder")


@dataclass(frozen=True)
class _NormOptions:
    """Whether the layer has a norm before attention, and the epsilon that the caller gave."""

    present: bool
    epsilon: float | None


def _norm_options(found: Found, epsilon: float | None, norm_first: bool | None) -> _NormOptions:
    is_encoder = found.name == "torch_encoder"
    if norm_first is not None:
        norm_first = checked_flag("norm_first", norm_first)
        if not is_encoder:
            raise ValueError(
                f"norm_first is for the layout 'torch_encoder'; {found.name!r} has its norms in their place"
            )
    elif is_encoder:
        raise ValueError(
            "norm_first must be given, True or False as it was for torch.nn.TransformerEncoderLayer: no file says it"
        )
    present = found.layout.norm is not None and norm_first is not False
    if epsilon is not None:
        epsilon = float(checked_number("epsilon", epsilon, above=0.0))
        if not present:
            raise ValueError(f"epsilon={epsilon} is given, but a layer of {found.name!r} has no norm before attention")
    return _NormOptions(present, epsilon)


def _norm(
    source: Source, layout: Layout, features: int, options: _NormOptions, configuration: Configuration
) -> LayerNorm | None:
    if not options.present or layout.norm is None:
        return None
    epsilon = options.epsilon
    if epsilon is None and layout.model_types:
        epsilon = configuration.epsilon
    weight = source.vector(f"{layout.norm}.weight", features)
    if not layout.model_types and source.has("self_attn.in_proj_bias") and not source.has(f"{layout.norm}.bias"):
        raise ValueError(
            f"{source.called} has {shown(source.prefix + layout.norm)} without a bias, and attention with one: a norm "
            f"that {layout.library} has not, such as RMSNorm, is not read"
        )
    # torch leaves the bias out where it is told to have none
    may_lack_bias = not layout.model_types
    read = source.vector_or_zeros if may_lack_bias else source.vector
    bias = read(f"{layout.norm}.bias", features)
    return LayerNorm(jnp.asarray(weight), jnp.asarray(bias), layout.epsilon if epsilon is None else epsilon)
