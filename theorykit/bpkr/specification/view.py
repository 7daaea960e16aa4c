"""Displays of an architecture: a line, the paths through the layers, and a table of the layers."""

from collections.abc import Iterator
from typing import Any

from ...checks import counted
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import number
from .layers import AbstractLayer, Skip, activation_of

# Paths of an architecture with more layers than this are not listed.
_LAYERS = 10


def architecture_line(architecture: Any) -> str:
    """Describe layers, paths, temperature and outputs in words."""
    richness = "" if architecture.richness is None else f", richness {number(architecture.richness)}"
    return (
        f"{counted(architecture.depth, 'layer')}, {counted(architecture.paths, 'path')}, "
        f"temperature {number(architecture.temperature)}, {counted(architecture.outputs, 'output')}{richness}"
    )


def widths_in_words(architecture: Any, digits: int = 6) -> list[str]:
    """Return the widths as text; at infinite width with their ratios if these differ."""
    found = [number(width, digits) for width in architecture.relative_widths]
    if not architecture.is_infinite:
        return found
    return ["infinite" if len(set(found)) == 1 else f"infinite ({width})" for width in found]


def architecture_view(architecture: Any) -> Iterator[Block]:
    """Yield the display of an architecture."""
    yield Text(f"**Architecture**: {architecture_line(architecture)}")
    if architecture.depth <= _LAYERS:
        paths = architecture.path_labels() if architecture.paths <= 1000 else ()
        named = ", ".join(paths[:12]) + (", ..." if len(paths) > 12 else "") if paths else f"{architecture.paths:,}"
        yield Text(f"paths: {verbatim(named)}")
    read = f"{architecture.read_tokens} tokens" if architecture.read_tokens > 1 else "one token, or the mean of all"
    names = ["embedding", *(f"layer {layer}" for layer in range(1, architecture.depth + 1)), "readout"]
    function = "linear" if architecture.embedding.is_linear else verbatim(architecture.embedding.name)
    kinds = [function, *map(_kind, architecture.layers), f"of {read}"]
    widths = [*widths_in_words(architecture), counted(architecture.outputs, "output")]
    rows = zip(names, kinds, widths, map(number, architecture.prior_variances), strict=True)
    yield Table(tuple(rows), ("from the input", "kind", "width after it", "prior variance"))


def _kind(layer: AbstractLayer) -> str:
    if isinstance(layer, Skip):
        return f"{_kind(layer.layer)}, skip connection of gain {number(layer.gain)}"
    words = [verbatim(type(layer).__name__.lower())]
    words += [counted(layer.heads, "head")] if layer.heads else []
    activation = activation_of(layer)
    return ", ".join([*words, *([] if activation.is_linear else [verbatim(activation.name)])])
