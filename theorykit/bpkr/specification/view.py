"""Displays of an architecture: a line, and a table of its fields."""

from collections.abc import Iterator, Sequence
from typing import Any

from ...checks import counted
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import number
from .layers import AbstractLayer, Skip, activation_of

# At most this many entries of a list are shown.
_SHOWN = 12


def architecture_line(architecture: Any) -> str:
    """Describe layers, paths, temperature and outputs in words."""
    richness = "" if architecture.richness is None else f", richness {number(architecture.richness)}"
    return (
        f"{counted(architecture.depth, 'layer')}, {counted(architecture.paths, 'path')}, "
        f"temperature {number(architecture.temperature)}, {counted(architecture.outputs, 'output')}{richness}"
    )


def widths_in_words(architecture: Any) -> list[str]:
    """Return the widths as text; at infinite width with their ratios if these differ."""
    found = list(map(number, architecture.relative_widths))
    if not architecture.is_infinite:
        return found
    return ["infinite" if len(set(found)) == 1 else f"infinite ({width})" for width in found]


def architecture_view(architecture: Any) -> Iterator[Block]:
    """Yield the display of an architecture."""
    yield Text(f"**Architecture**: {architecture_line(architecture)}")
    rows = (
        ("embedding", verbatim(architecture.embedding.name)),
        ("layers", _listed(list(map(_kind, architecture.layers)))),
        ("widths", _listed(widths_in_words(architecture))),
        ("prior variances", _listed(list(map(number, architecture.prior_variances)))),
        ("read tokens", number(architecture.read_tokens)),
    )
    yield Table(rows)


def _listed(entries: Sequence[str]) -> str:
    return ", ".join([*entries[:_SHOWN], *(["..."] if len(entries) > _SHOWN else [])]) or "none"


def _kind(layer: AbstractLayer) -> str:
    if isinstance(layer, Skip):
        return f"{_kind(layer.layer)} with skip connection"
    name, activation = type(layer).__name__.lower(), activation_of(layer)
    heads = f" of {counted(layer.heads, 'head')}" if layer.heads else ""
    return verbatim(name) + heads + ("" if activation.is_linear else f" ({verbatim(activation.name)})")
