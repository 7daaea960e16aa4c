"""The attention heads of one layer out of a checkpoint, whatever layout they are in."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..arguments import checked_choice, checked_flag, checked_number, checked_path, checked_whole_number, shown
from ..precision import require_float64
from .attention_heads import CheckpointHeads, LayerNorm
from .configuration import Configuration, configuration_beside
from .files import Checkpoint, read_checkpoint
from .layouts import LAYOUTS, Layout, Projections, Source
from .refusals import refuse_configuration, refuse_names, refuse_unknown


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
    checkpoint: Mapping[str, ArrayLike] | str | Path,
    *,
    layer: int,
    layout: str | None = None,
    heads: int | None = None,
    epsilon: float | None = None,
    causal: bool | None = None,
    norm_first: bool | None = None,
) -> CheckpointHeads:
    """The attention heads of one layer of a trained transformer, with the layer norm that the model applies first.

    - `checkpoint`: a file that `read_checkpoint` reads, what it returns, or any mapping from names to arrays.
    - `layer`: counted from 0, as names count layers.
    - `layout`: "torch", "torch_encoder", "gpt2", "bert", "vit", "equinox", "flax" or "attention_paths"; None tells it
      by the arrays' names.
    - `heads`: how many the layer has, which most files do not say. None takes the number from a config.json beside the
      file, or from the arrays where they have an axis for it.
    - `epsilon`: of the layer norm. None takes that of config.json, or else the library's default: 1e-5 for
      "torch_encoder" and "gpt2", 1e-12 for "vit".
    - `causal`: whether tokens attend to no later ones. None means that those of GPT-2 and of decoders do not.
    - `norm_first`: for "torch_encoder", which has it in no file, whether the norm is before attention.

    Raises `FileNotFoundError` and `ValueError` as `read_checkpoint` does; `ValueError` where the layer, a number of
    heads or an array is missing or does not fit, and for attention that is no softmax of queries and keys: with rotary
    or relative positions, or with keys that heads share; `TypeError` for weights that are no floating-point numbers.
    """
    require_float64()
    arrays, called, configuration = open_checkpoint(checkpoint)
    layer = checked_whole_number("layer", layer, least=0)
    refuse_configuration(configuration)
    found = find_layout(arrays, called, layout, configuration)
    if layer not in found.stems:
        numbers = sorted(found.stems)
        raise ValueError(
            f"layer must be one of the {len(numbers)} layers of {called}, {numbers[0]} to {numbers[-1]}, got {layer}"
        )
    source = Source(arrays, called, found.stems[layer])
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
        causal=_is_causal(causal, found.layout, configuration),
        layout=found.name,
        layer=layer,
        layers=len(found.stems),
    )


def open_checkpoint(
    checkpoint: Mapping[str, ArrayLike] | str | Path,
) -> tuple[Mapping[str, Any], str, Configuration]:
    """The arrays of a checkpoint, what errors call it, and the configuration beside its file."""
    if not isinstance(checkpoint, Mapping):
        checkpoint = read_checkpoint(checked_path("checkpoint", checkpoint))
    if isinstance(checkpoint, Checkpoint):
        return checkpoint, str(checkpoint.path), configuration_beside(checkpoint.path)
    if others := [name for name in checkpoint if not isinstance(name, str)]:
        raise TypeError(f"checkpoint must be a mapping from names to arrays, it has {shown(others[0])} for a name")
    return checkpoint, "checkpoint", Configuration()


def find_layout(arrays: Mapping[str, Any], called: str, layout: str | None, configuration: Configuration) -> Found:
    """The one layout that the arrays are in, or `layout`, where they are; `ValueError` where there is none, or more."""
    chosen = LAYOUTS if layout is None else {layout: LAYOUTS[checked_choice("layout", layout, LAYOUTS)]}
    found = [Found(name, stems, prefix) for name, one in chosen.items() for prefix, stems in one.stems(arrays).items()]
    if not found:
        refuse_unknown(arrays, called, {name: one.example for name, one in chosen.items()})
    if len(found) > 1:
        places = ", ".join(f"{each.name} at {shown(next(iter(each.stems.values())))}" for each in found[:4])
        raise ValueError(
            f"{called} has attention in {len(found)} places ({places}): give the arrays of one of them, such as "
            "{name: array for name, array in read_checkpoint(path).items() if name.startswith(...)}, or its layout"
        )
    refuse_names((name for name in arrays if name.startswith(found[0].prefix)), called)
    kind, known = configuration.model_type, found[0].layout.model_types
    if layout is None and known and kind is not None and kind not in known:
        raise ValueError(
            f"{configuration.path} says that the model is {shown(kind)}, whose attention may be another than that of "
            f"{found[0].layout.library}, by whose names it goes; give layout={found[0].name!r} if it is the same"
        )
    return found[0]


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


def _is_causal(given: bool | None, layout: Layout, configuration: Configuration) -> bool:
    if given is not None:
        return checked_flag("causal", given)
    return layout.causal or (bool(layout.model_types) and configuration.is_set("is_decoder"))


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
    # torch leaves the bias out where it is told to have none
    may_lack_bias = not layout.model_types
    read = source.vector_or_zeros if may_lack_bias else source.vector
    bias = read(f"{layout.norm}.bias", features)
    return LayerNorm(jnp.asarray(weight), jnp.asarray(bias), layout.epsilon if epsilon is None else epsilon)
