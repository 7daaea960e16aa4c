"""Slopes by differences, which gradients are compared with."""

from collections.abc import Callable


def slope_at_zero(function: Callable[[float], float], step: float) -> float:
    """The derivative of a function at zero by central differences, to fourth order in the step."""
    near = (function(step) - function(-step)) / (2 * step)
    far = (function(2 * step) - function(-2 * step)) / (4 * step)
    return float((4 * near - far) / 3)


def relative_error(found: float, expected: float) -> float:
    """The difference, relative where `expected` is above one."""
    return abs(found - expected) / max(abs(expected), 1.0)
