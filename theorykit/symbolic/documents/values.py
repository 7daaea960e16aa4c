"""Write numbers, array sizes and matrices for views of objects."""

import html
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from .document import Picture

# Maximum number of rows of a matrix that are drawn.
_DRAWN = 32
# Maximum number of drawn rows with labels.
_LABELLED = 16
# Maximum number of drawn rows with the values of entries.
_WRITTEN = 8
# Maximum number of rows of a matrix that a terminal prints.
_PRINTED = 4
# Colours of positive and negative entries, legible on white and on black.
_COLOURS = ("#3b82d6", "#e07b39")


def number(value: Any, digits: int = 6) -> str:
    """Write a number with `digits` significant digits, or several numbers as their range."""
    array = np.asarray(value, dtype=float).ravel()
    if not len(array):
        return "none"
    finite = array[np.isfinite(array)]
    least, most = (
        f"{each:,.0f}" if abs(each) < 1e9 and each == round(each) else f"{each:.{digits}g}"
        for each in ((finite.min(), finite.max()) if len(finite) else (array[0],) * 2)
    )
    lost = f", {len(array) - len(finite)} not finite" if 0 < len(finite) < len(array) else ""
    return f"{least if least == most else f'{least} to {most}'}{lost}"


def data_size(size: float | int) -> str:
    """Write a number of bytes in a suitable unit."""
    power = min(int(math.log(max(size, 1), 1000)), 4)
    return f"{size / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


def heat_map(name: str, matrix: Float[np.ndarray, "rows columns"], labels: Sequence[str] = ()) -> Picture:
    """Draw a symmetric matrix, with blue for positive and orange for negative entries. Larger entries are stronger.

    A terminal prints a small matrix, and only the ranges of entries of a large matrix.
    """
    rows = len(matrix)
    labels = labels or [str(row) for row in range(1, rows + 1)]
    off = matrix[~np.eye(rows, dtype=bool)]
    words = f"{name}  {rows:,} x {rows:,}, diagonal {number(np.diagonal(matrix), 4)}"
    words += f", off the diagonal {number(off, 4)}" if rows > 1 else ""
    text = words
    if 1 < rows <= _PRINTED:
        cells = [[name, *labels]] + [
            [label, *(f"{entry:.4g}" for entry in row)] for label, row in zip(labels, matrix, strict=True)
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        text = "\n".join("  ".join(map(str.rjust, row, widths)) for row in cells)
    shown = min(rows, _DRAWN)
    cell = max(10, min(46, 320 // max(shown, 1)))
    has_labels = shown <= _LABELLED
    left, top = (10 + 7 * max(map(len, labels[:shown]), default=0), 20) if has_labels else (2, 2)
    largest = np.max(np.abs(matrix), initial=0.0, where=np.isfinite(matrix)) or 1.0
    marks = []
    for i in range(shown):
        y = top + (i + 0.5) * cell
        if has_labels:
            name = html.escape(labels[i])
            marks += [written(left - 5, y, name, "end"), written(left + (i + 0.5) * cell, 11, name)]
        for j in range(shown):
            entry = float(matrix[i, j])
            # Use the square root, to make the signs of small entries visible.
            strength = 0.75 * math.sqrt(abs(entry) / largest) if math.isfinite(entry) else 0.0
            marks.append(
                f'<rect x="{left + j * cell}" y="{top + i * cell}" width="{cell - 1}" height="{cell - 1}" '
                f'fill="{_COLOURS[entry < 0]}" fill-opacity="{strength:.3f}" stroke="#888" stroke-opacity="0.3">'
                f"<title>{html.escape(labels[i])}, {html.escape(labels[j])}: {entry:.6g}</title></rect>"
            )
            if shown <= _WRITTEN:
                marks.append(written(left + (j + 0.5) * cell, y, f"{entry:.2g}"))
    width, height = left + shown * cell, top + shown * cell
    words += "; blue is positive, orange negative"
    words += f"; the first {shown} rows and columns are drawn" if shown < rows else ""
    caption = re.sub(r"_(\w)", r"<sub>\1</sub>", html.escape(words))
    return Picture(f"{drawing(width, height, words, marks)}<p>{caption}</p>", text)


def drawing(width: float | int, height: float | int, words: str, marks: Sequence[str]) -> str:
    """Make an SVG picture in the colour of the surrounding text. `words` describe the content of the picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{html.escape(words)}" '
        f'font-size="11" font-family="sans-serif" fill="currentColor">{"".join(marks)}</svg>'
    )


def written(x: float | int, y: float | int, text: str, anchor: str = "middle") -> str:
    """Write escaped text in a picture, centred vertically."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" dominant-baseline="central">{text}</text>'
