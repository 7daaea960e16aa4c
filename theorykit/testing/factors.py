"""Which simple expression of known quantities a measured factor is: sqrt(layer.width), 1/layer.heads, -2, ..."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

import numpy as np

# measured factors are ratios of float64 numbers
_CLOSE = 1e-7
# normalisations are roots of sizes
_POWERS = (0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0)
_NUMBERS = (2.0, 3.0)
_MOST_NAMED = 3
EITHER = " or "
"""Between names that the quantities do not tell apart."""


def name_factor(
    values: Sequence[float] | np.ndarray, quantities: Sequence[Mapping[str, float]], tolerance: float = _CLOSE
) -> str:
    """The simplest product of powers that is worth `values`, each at its own `quantities` by name; "" if there is none.

    Numbers 2 and 3 are tried too. If the quantities do not tell two or three products apart, as a constant layer.heads
    of 2 and the number 2, all are named; of more, the number. `tolerance` is relative.
    """
    values = np.asarray(values, dtype=float)
    if not np.all(np.isfinite(values)) or np.any(values == 0):
        return ""
    sign = -1.0 if np.all(values < 0) else 1.0

    def is_worth(others: np.ndarray | float) -> bool:
        return bool(np.all(np.abs(values - sign * others) <= tolerance * np.abs(others)))

    if is_worth(1.0):
        return "-1" if sign < 0 else "1"
    bases = {name: np.asarray([each[name] for each in quantities]) for name in quantities[0]}
    bases |= {f"{number:g}": np.full(len(values), number) for number in _NUMBERS}
    bases = {name: base for name, base in bases.items() if np.all(base > 0) and not np.all(base == 1)}
    # Occam's razor: products of two powers only if no single power is worth it.
    for count in (1, 2):
        matches = [text for text, value in _monomials(bases, count) if is_worth(value)]
        if 0 < len(matches) <= _MOST_NAMED:
            return EITHER.join(f"-{text}" if sign < 0 else text for text in matches)
        if matches:
            break
    if np.ptp(values) <= tolerance * np.abs(values[0]):
        # a factor that is almost one is shown with what it differs by
        return f"{values[0]:.12g}" if is_almost_one(values[0]) else f"{values[0]:.6g}"
    return ""


def is_almost_one(value: float) -> bool:
    """Whether a factor differs from one or minus one by no more than constants of few digits and rounding do."""
    return bool(0 < abs(abs(value) - 1) < 1e-5)


def _monomials(bases: Mapping[str, np.ndarray], count: int) -> Iterator[tuple[str, np.ndarray]]:
    for names in combinations(bases, count):
        for powers in product(_POWERS, repeat=count):
            pairs = list(zip(names, powers, strict=True))
            above = [_power(name, power) for name, power in pairs if power > 0]
            below = [_power(name, -power) for name, power in pairs if power < 0]
            text = " * ".join(above) or "1"
            if below:
                text += f" / ({' * '.join(below)})" if len(below) > 1 else f" / {below[0]}"
            yield text, math.prod(bases[name] ** power for name, power in pairs)


def _power(name: str, power: float) -> str:
    whole = int(power)
    written = [f"{name}**{whole}" if whole > 1 else name] * (whole > 0) + [f"sqrt({name})"] * (power != whole)
    return " * ".join(written)
