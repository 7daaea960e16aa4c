"""Write numbers, array sizes, matrices and curves in a few characters, for views of objects."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .document import Text, verbatim

# Number of values that a sketch of a curve shows.
_BARS = 60
_LEVELS = "▁▂▃▄▅▆▇█"


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


def brief(values: Any, most: int = 6) -> str:
    """Write the first `most` numbers of an array with four digits, or the range of an array with several axes."""
    array = np.asarray(values)
    if array.ndim > 1:
        return f"{np.min(array):.4g} to {np.max(array):.4g}, shape {array.shape}"
    flat = array.ravel()
    more = f", ... ({flat.size} in all)" if flat.size > most else ""
    return ", ".join(f"{value:.4g}" for value in flat[:most]) + more


def sketch(values: Any, caption: str) -> Text:
    """Draw the last values of a curve as bars of eight heights, and a dot for a value that is not finite."""
    latest = np.asarray(values, dtype=float)[-_BARS:]
    known = latest[np.isfinite(latest)]
    low, spread = (float(known.min()), float(np.ptp(known)) or 1.0) if known.size else (0.0, 1.0)
    line = "".join(
        _LEVELS[round(7 * (value - low) / spread)] if np.isfinite(value) else "\N{MIDDLE DOT}" for value in latest
    )
    return Text(f"{line}  {caption}")


def curves(series: Mapping[str, Any], caption: str) -> list[Text]:
    """Draw named curves, one per line."""
    return [sketch(values, f"{verbatim(name)}: {caption}") for name, values in series.items()]
