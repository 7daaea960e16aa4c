"""Write numbers and arrays in a few characters, for views of objects."""

from typing import Any

import numpy as np


def number(value: Any, digits: int = 6) -> str:
    """Write a number with `digits` significant digits, or several numbers as their range."""
    array = np.asarray(value, dtype=float).ravel()
    if not len(array):
        return "none"
    finite = array[np.isfinite(array)]
    ends = (finite.min(), finite.max()) if len(finite) else (array[0], array[0])
    least, most = (f"{each:,.0f}" if abs(each) < 1e9 and each == round(each) else f"{each:.{digits}g}" for each in ends)
    lost = f", {len(array) - len(finite)} not finite" if 0 < len(finite) < len(array) else ""
    return f"{least if least == most else f'{least} to {most}'}{lost}"


def brief(values: Any, most: int = 6) -> str:
    """Write the first `most` numbers of an array, or the range of an array with several axes."""
    array = np.asarray(values)
    if array.ndim > 1:
        return f"{np.min(array):.4g} to {np.max(array):.4g}, shape {array.shape}"
    flat = array.ravel()
    more = f", ... ({flat.size} in all)" if flat.size > most else ""
    return ", ".join(f"{value:.4g}" for value in flat[:most]) + more
