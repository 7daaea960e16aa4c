"""Comparisons of numbers that more than one check makes."""

from collections.abc import Callable, Sequence

from .report import Finding, Passed, Result

# what is left of derivatives by differences, relative
_DIFFERENCES = 1e-6


def slope_at_zero(function: Callable[[float], float], step: float) -> float:
    """The derivative of a function at zero by central differences, to fourth order in the step."""
    # Richardson's extrapolation: the errors of second order in the step cancel between the two differences.
    near = (function(step) - function(-step)) / (2 * step)
    far = (function(2 * step) - function(-2 * step)) / (4 * step)
    return float((4 * near - far) / 3)


def check_slopes_agree(claim: str, slopes: Sequence[tuple[float, float]], meaning: str) -> Result:
    """Slopes (found, by differences) in several directions; the error is relative for slopes above one."""
    errors = [(abs(found - expected) / max(abs(expected), 1.0), found, expected) for found, expected in slopes]
    error, found, expected = max(errors)
    if error < _DIFFERENCES:
        return Passed(claim, f"to {error:.1g} in {len(errors)} directions")
    return Finding(claim, f"a slope of {found:.6g} where differences of the action have {expected:.6g}", meaning)
