"""Displays of an architecture: a line, a table of the layers, and a drawing of the paths through the layers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...checks import counted
from ...symbolic.documents.document import Block, Picture, Table, Text
from ...symbolic.documents.values import drawing, number, written
from .layers import AbstractLayer, Skip, activation_of

# An architecture with more layers than this is not drawn.
_LAYERS = 10
# A drawing shows at most this many branches per layer.
_BRANCHES = 6
# Distances of columns and rows, radius of a circle, and height of the titles, in pixels.
_COLUMN, _ROW, _RADIUS, _TOP = 110, 30, 11, 24


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


def architecture_view(architecture: Any, labels: Mapping[int, Sequence[str]]) -> Iterator[Block]:
    """Yield the display of an architecture, given a label for every branch of each layer."""
    yield Text(f"**Architecture**: {architecture_line(architecture)}")
    if architecture.depth <= _LAYERS:
        paths = architecture.path_labels() if architecture.paths <= 1000 else ()
        named = ", ".join(paths[:12]) + (", ..." if len(paths) > 12 else "") if paths else f"{architecture.paths:,}"
        yield Picture(_drawing(architecture, labels), f"paths: {named}")
    read = f"{architecture.read_tokens} tokens" if architecture.read_tokens > 1 else "one token, or the mean of all"
    names = ["embedding", *(f"layer {layer}" for layer in labels), "readout"]
    function = "linear" if architecture.embedding.is_linear else architecture.embedding.name
    kinds = [function, *map(_kind, architecture.layers), f"of {read}"]
    widths = [*widths_in_words(architecture), counted(architecture.outputs, "output")]
    rows = zip(names, kinds, widths, map(number, architecture.prior_variances), strict=True)
    yield Table(tuple(rows), ("from the input", "kind", "width after it", "prior variance"))


def _kind(layer: AbstractLayer) -> str:
    if isinstance(layer, Skip):
        return f"{_kind(layer.layer)}, skip connection of gain {number(layer.gain)}"
    words = [type(layer).__name__.lower()]
    words += [counted(layer.heads, "head")] if layer.heads else []
    activation = activation_of(layer)
    return ", ".join([*words, *([] if activation.is_linear else [activation.name])])


def _drawing(architecture: Any, labels: Mapping[int, Sequence[str]]) -> str:
    """Draw layers from left to right with one circle per branch; a path passes one circle in every layer."""
    titles = ["embedding", *(f"layer {layer}" for layer in labels), "readout"]
    branches = [[""], *labels.values(), [""]]
    most = min(max(map(len, branches)), _BRANCHES + 1)
    middle, marks, columns = _TOP + most * _ROW / 2, [], []
    for place, (title, of_layer) in enumerate(zip(titles, branches, strict=True)):
        x = (place + 0.5) * _COLUMN
        shown = [*of_layer[:_BRANCHES], *([f"{len(of_layer) - _BRANCHES} more"] if len(of_layer) > _BRANCHES else [])]
        column = [(x, middle + (i - (len(shown) - 1) / 2) * _ROW, label) for i, label in enumerate(shown)]
        marks.append(written(x, 12, title))
        if place:
            width = f"{widths_in_words(architecture, 4)[place - 1]} units"
            marks.append(written(x - _COLUMN / 2, _TOP + most * _ROW + 12, width))
            marks += [
                f'<line x1="{a + _RADIUS:g}" y1="{b:g}" x2="{c - _RADIUS:g}" y2="{d:g}" stroke="currentColor" '
                'stroke-opacity="0.35"/>'
                for a, b, left in columns[-1]
                for c, d, right in column
                if "more" not in left + right
            ]
        for _, y, label in column:
            if "more" not in label:
                dashes = ' stroke-dasharray="3 2"' if label == "0" else ""
                marks.append(f'<circle cx="{x:g}" cy="{y:g}" r="{_RADIUS}" fill="none" stroke="currentColor"{dashes}/>')
            marks.append(written(x, y, label))
        columns.append(column)
    words = f"a network of {architecture_line(architecture)}"
    return drawing(len(titles) * _COLUMN, _TOP + most * _ROW + 24, words, marks)
