"""Find the mistake that explains a difference, for layers and actions.

A hypothesis gives the reference that a mistake would produce: a fixed array, and others with unknown factors. It
explains a difference if least squares find factors for which it equals the reference at every place.
Factors are named: sqrt(layer.width), 1/layer.heads, -2, ... The simplest explanation is reported.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

# Measured factors are ratios of float64 numbers.
_CLOSE = 1e-7
# Normalisations are roots of sizes.
_POWERS = (0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0)
_NUMBERS = (2.0, 3.0)
_MOST_NAMED = 3
EITHER = " or "
"""Separator of names that the quantities cannot distinguish."""


class Place(NamedTuple):
    """Point of comparison between statement and reference.

    - `at`: the argument of hypotheses.
    - `reference`, `tolerance`: the array there, and the allowed error of entries.
    - `quantities`: possible ingredients of a factor, by name.
    """

    at: Any
    reference: np.ndarray
    tolerance: float
    quantities: Mapping[str, float]


class Explanation(NamedTuple):
    """Difference of the reference, and the mistake that causes it. Simple ones cost 1."""

    measured: str
    meaning: str
    cost: float = 1.0


class Fit(NamedTuple):
    """Factors (places, arrays) of a fitting hypothesis, the quantities of each place, and if it fails at others."""

    factors: np.ndarray
    quantities: Sequence[Mapping[str, float]]
    fails_elsewhere: bool = False


class Hypothesis(NamedTuple):
    """Possible mistake.

    - `parts`: at a place, the fixed array or 0, and the arrays with unknown factors. None if it does not apply.
    - `words`: the explanation from a fit, or None if the fit is no difference.
    - `is_general`: whether it applies to the further places.
    """

    parts: Callable[[Any], tuple[Any, Sequence[np.ndarray]] | None]
    words: Callable[[Fit], Explanation | None]
    is_general: bool = True


def explain(
    batches: Iterable[Iterable[Hypothesis]], places: Sequence[Place], further: Sequence[Place] = ()
) -> Explanation | None:
    """Return the simplest explanation in the first batch that has one.

    `further` places have another structure, such as more heads. They distinguish quantities that are equal, or
    constant, at all `places`.
    """
    for batch in batches:
        best = None
        for hypothesis in batch:
            fit = _fit(hypothesis, places, further)
            said = None if fit is None else hypothesis.words(fit)
            if said is not None and (best is None or said.cost < best.cost):
                best = said
            # Nothing costs less than 1, and later hypotheses of a batch take longer to evaluate.
            if best is not None and best.cost <= 1:
                break
        if best is not None:
            return best
    return None


def _fit(hypothesis: Hypothesis, places: Sequence[Place], further: Sequence[Place]) -> Fit | None:
    factors = _factors(hypothesis, places)
    if factors is None:
        return None
    quantities = [place.quantities for place in places]
    if not further or not hypothesis.is_general:
        return Fit(factors, quantities)
    others = _factors(hypothesis, further)
    if others is None or others.shape[1] < factors.shape[1]:
        return Fit(factors, quantities, fails_elsewhere=True)
    # If there are more arrays, such as weight blocks, the first and the last correspond to the same names.
    others = np.concatenate([others[:, : factors.shape[1] - 1], others[:, -1:]], axis=1)
    return Fit(np.concatenate([factors, others]), quantities + [place.quantities for place in further])


def _factors(hypothesis: Hypothesis, places: Sequence[Place]) -> np.ndarray | None:
    # Factors are free at every place, because sizes and parameters differ there. `name_factor` finds their dependence.
    rows = []
    for place in places:
        parts = hypothesis.parts(place.at)
        if parts is None:
            return None
        fixed, columns = parts
        rest = np.ravel(place.reference - fixed)
        matrix = np.stack([np.ravel(column) for column in columns], axis=1) if columns else np.zeros((len(rest), 0))
        if not (np.all(np.isfinite(matrix)) and np.all(np.isfinite(rest))):
            return None
        # Two arrays that are multiples of each other have no separate factors.
        if columns and np.linalg.matrix_rank(matrix) < len(columns):
            return None
        found = np.linalg.lstsq(matrix, rest, rcond=None)[0] if columns else np.zeros(0)
        if np.max(np.abs(matrix @ found - rest)) > place.tolerance:
            return None
        rows.append(found)
    return np.asarray(rows)


def name_factor(
    values: Sequence[float] | np.ndarray, quantities: Sequence[Mapping[str, float]], tolerance: float = _CLOSE
) -> str:
    """Name the simplest product of powers that equals `values`, each at its own `quantities` by name, or return "".

    Numbers 2 and 3 are tried too. If the quantities cannot distinguish two or three products, such as a constant
    layer.heads of 2 and the number 2, all are named. For more, the number is given. `tolerance` is relative.
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
    # Occam's razor: try products of two powers only if no single power fits.
    for count in (1, 2):
        matches = [text for text, value in _monomials(bases, count) if is_worth(value)]
        if 0 < len(matches) <= _MOST_NAMED:
            return EITHER.join(f"-{text}" if sign < 0 else text for text in matches)
        if matches:
            break
    if np.ptp(values) <= tolerance * np.abs(values[0]):
        # Show the difference of a factor that is almost one.
        return f"{values[0]:.12g}" if is_almost_one(values[0]) else f"{values[0]:.6g}"
    return ""


def is_almost_one(value: float) -> bool:
    """Return whether a factor is one or minus one, up to rounding or constants with few digits."""
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
