"""Short texts and small drawings of numbers, for views of objects."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .document import Picture

# Size of a drawing in pixels, with space for numbers at the left and for names at the right.
_WIDTH, _HEIGHT, _LEFT, _RIGHT = 440, 90, 64, 90
# A curve of this width cannot show more points.
_POINTS = 600
_DASHES = ("none", "5 3", "1.5 2.5")
_LEVELS = "▁▂▃▄▅▆▇█"


def brief(values: Any, most: int = 6) -> str:
    """Write the first `most` numbers of an array to four digits, or the range of an array with several axes."""
    array = np.asarray(values)
    if array.ndim > 1:
        return f"{np.min(array):.4g} to {np.max(array):.4g}, shape {array.shape}"
    flat = array.ravel()
    more = f", ... ({flat.size} in all)" if flat.size > most else ""
    return ", ".join(f"{value:.4g}" for value in flat[:most]) + more


def curves(series: Mapping[str, Any], caption: str, across: Any = None) -> Picture:
    """Draw named curves in one frame, over their index or `across`. A terminal shows the first one as a row of bars."""
    drawn = {name: _thinned(values) for name, values in series.items()}
    finite = np.concatenate([values[np.isfinite(values)] for values in drawn.values()])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    marks = [_label(4, 12, f"{high:.3g}"), _label(4, _HEIGHT - 4, f"{low:.3g}")]
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
        marks.append(_label(right + 20, row, name))
    first = next(iter(drawn.values()))
    return Picture(_svg(marks, caption), f"{_sparkline(first)}  {caption}")


def bars(values: Any, errors: Any, caption: str) -> Picture:
    """Draw numbers as bars from zero with their errors. A dot marks a value that is not finite."""
    values, errors = np.asarray(values, dtype=float), np.nan_to_num(np.asarray(errors, dtype=float))
    known = values[np.isfinite(values)]
    low, high = min(0.0, float(known.min(initial=0.0))), max(0.0, float(known.max(initial=0.0)))
    scale = (_HEIGHT - 12) / ((high - low) or 1.0)
    zero, pitch = 6 + high * scale, (_WIDTH - _LEFT) / len(values)
    marks = [_label(4, 12, f"{high:.3g}"), _label(4, _HEIGHT - 4, f"{low:.3g}")]
    marks.append(f'<path d="M{_LEFT} {zero:.1f}H{_WIDTH}" stroke="currentColor" stroke-width="0.5"/>')
    for number, (value, error) in enumerate(zip(values, errors, strict=True)):
        middle = _LEFT + (number + 0.5) * pitch
        if not np.isfinite(value):
            marks.append(f'<circle cx="{middle:.1f}" cy="{_HEIGHT - 6}" r="1.5" fill="currentColor"/>')
            continue
        top, height, width = zero - max(value, 0.0) * scale, abs(value) * scale, min(0.7 * pitch, 24)
        place = f'x="{middle - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
        marks.append(f'<rect {place} fill="currentColor" fill-opacity="0.35"/>')
        end, reach = zero - value * scale, error * scale
        marks.append(f'<path d="M{middle:.1f} {end - reach:.1f}V{end + reach:.1f}" stroke="currentColor"/>')
    return Picture(_svg(marks, caption), f"{_sparkline(values)}  {caption}")


def _thinned(values: Any) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    return values[:: max(1, len(values) // _POINTS)]


def _label(x: float | int, y: float | int, text: str) -> str:
    return f'<text x="{x}" y="{y}" font-size="11" fill="currentColor">{text}</text>'


def _svg(marks: list[str], caption: str) -> str:
    words = _label(_LEFT, _HEIGHT + 14, caption)
    box = f'width="{_WIDTH}" height="{_HEIGHT + 20}" viewBox="0 0 {_WIDTH} {_HEIGHT + 20}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join(marks)}{words}</svg>'


def _sparkline(values: np.ndarray, most: int = 60) -> str:
    """Write the latest values as characters of eight heights, with a dot for a value that is not finite."""
    latest = values[-most:]
    known = latest[np.isfinite(latest)]
    low, spread = (float(known.min()), float(np.ptp(known)) or 1.0) if known.size else (0.0, 1.0)
    return "".join(
        _LEVELS[round(7 * (value - low) / spread)] if np.isfinite(value) else "\N{MIDDLE DOT}" for value in latest
    )
