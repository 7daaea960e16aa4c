"""Short texts and small drawings of numbers, for views of objects."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .document import Picture
from .values import drawing, written

# Width of a drawing in pixels.
_WIDTH = 440
# Height of a drawing in pixels.
_HEIGHT = 90
# Space for numbers at the left, in pixels.
_LEFT = 64
# Space for names at the right, in pixels.
_RIGHT = 90
# Maximum number of points of a curve. A drawing of this width cannot show more.
_POINTS = 600
# Number of values that a terminal shows.
_BARS = 60
_DASHES = ("none", "5 3", "1.5 2.5")
_LEVELS = "▁▂▃▄▅▆▇█"


def brief(values: Any, most: int = 6) -> str:
    """Write the first `most` numbers of an array with four digits, or the range of an array with several axes."""
    array = np.asarray(values)
    if array.ndim > 1:
        return f"{np.min(array):.4g} to {np.max(array):.4g}, shape {array.shape}"
    flat = array.ravel()
    more = f", ... ({flat.size} in all)" if flat.size > most else ""
    return ", ".join(f"{value:.4g}" for value in flat[:most]) + more


def curves(series: Mapping[str, Any], caption: str, across: Any = None) -> Picture:
    """Draw named curves in one frame against `across`, by default their index. A terminal shows the first as bars."""
    drawn = {name: _thinned(values) for name, values in series.items()}
    finite = np.concatenate([values[np.isfinite(values)] for values in drawn.values()])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    marks = _ends(low, high)
    for number, (name, values) in enumerate(drawn.items()):
        place = np.arange(len(values)) if across is None else _thinned(across)
        place = _LEFT + (_WIDTH - _LEFT - _RIGHT - 8) * (place - place.min()) / (float(np.ptp(place)) or 1.0)
        up = 6 + (_HEIGHT - 12) * (high - values) / ((high - low) or 1.0)
        # Break the curve at values that are not finite.
        begins = ~np.isfinite(np.roll(up, 1))
        begins[:1] = True
        there = np.isfinite(up)
        corners = zip(np.where(begins, "M", "L")[there], place[there], up[there], strict=True)
        points = (f"{command}{x:.1f} {y:.1f}" for command, x, y in corners)
        dash, right, row = _DASHES[number % len(_DASHES)], _WIDTH - _RIGHT, 14 + 14 * number
        line = f'fill="none" stroke="currentColor" stroke-dasharray="{dash}"'
        marks += [f'<path d="{"".join(points)}" {line}/>', f'<path d="M{right} {row - 4}h16" {line}/>']
        marks.append(written(right + 20, row - 4, name, "start"))
    return _captioned(marks, caption, next(iter(drawn.values())))


def bars(values: Any, errors: Any, caption: str) -> Picture:
    """Draw numbers as bars from zero with error bars. A dot marks a value that is not finite."""
    values, errors = np.asarray(values, dtype=float), np.nan_to_num(np.asarray(errors, dtype=float))
    known = values[np.isfinite(values)]
    low, high = min(0.0, float(known.min(initial=0.0))), max(0.0, float(known.max(initial=0.0)))
    scale = (_HEIGHT - 12) / ((high - low) or 1.0)
    zero, pitch = 6 + high * scale, (_WIDTH - _LEFT) / len(values)
    marks = _ends(low, high)
    marks.append(f'<path d="M{_LEFT} {zero:.1f}H{_WIDTH}" stroke="currentColor" stroke-width="0.5"/>')
    for number, (value, error) in enumerate(zip(values, errors, strict=True)):
        middle = _LEFT + (number + 0.5) * pitch
        if not np.isfinite(value):
            marks.append(f'<circle cx="{middle:.1f}" cy="{_HEIGHT - 6}" r="1.5"/>')
            continue
        top, height, width = zero - max(value, 0.0) * scale, abs(value) * scale, min(0.7 * pitch, 24)
        place = f'x="{middle - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
        marks.append(f'<rect {place} fill-opacity="0.35"/>')
        end, reach = zero - value * scale, error * scale
        marks.append(f'<path d="M{middle:.1f} {end - reach:.1f}V{end + reach:.1f}" stroke="currentColor"/>')
    return _captioned(marks, caption, values)


def _thinned(values: Any) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    return values[:: max(1, len(values) // _POINTS)]


def _ends(low: float, high: float) -> list[str]:
    return [written(4, 8, f"{high:.3g}", "start"), written(4, _HEIGHT - 8, f"{low:.3g}", "start")]


def _captioned(marks: list[str], caption: str, values: np.ndarray) -> Picture:
    """Make the picture. Its text shows the last values as bars of eight heights, and a dot for a non-finite value."""
    latest = values[-_BARS:]
    known = latest[np.isfinite(latest)]
    low, spread = (float(known.min()), float(np.ptp(known)) or 1.0) if known.size else (0.0, 1.0)
    line = "".join(
        _LEVELS[round(7 * (value - low) / spread)] if np.isfinite(value) else "\N{MIDDLE DOT}" for value in latest
    )
    svg = drawing(_WIDTH, _HEIGHT + 20, caption, [*marks, written(_LEFT, _HEIGHT + 10, caption, "start")])
    return Picture(svg, f"{line}  {caption}")
