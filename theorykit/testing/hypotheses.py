"""The engine that finds which mistake explains a difference, for layers and actions.

A hypothesis says what the reference would be if a mistake had been made: a fixed array, and others with unknown
factors. It explains a difference if least squares find factors for which it is the reference at every place.
Factors are named: sqrt(layer.width), 1/layer.heads, -2, ... The simplest explanation is reported.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

# measured factors are ratios of float64 numbers
_CLOSE = 1e-7
# normalisations are roots of sizes
_POWERS = (0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0)
_NUMBERS = (2.0, 3.0)
_MOST_NAMED = 3
EITHER = " or "
"""Between names that the quantities do not tell apart."""


class Place(NamedTuple):
    """Where statement and reference are compared.

    - `at`: what hypotheses are evaluated at.
    - `reference`, `tolerance`: the array there, and how far entries may be off.
    - `quantities`: what a factor may be made of, by name.
    """

    at: Any
    reference: np.ndarray
    tolerance: float
    quantities: Mapping[str, float]


class Explanation(NamedTuple):
    """How the reference differs, and the mistake that makes it so; simple ones cost 1."""

    measured: str
    meaning: str
    cost: float = 1.0


class Fit(NamedTuple):
    """Factors (places, arrays) of a hypothesis that fits, the quantities of each place, and if it fails at others."""

    factors: np.ndarray
    quantities: Sequence[Mapping[str, float]]
    fails_elsewhere: bool = False


class Hypothesis(NamedTuple):
    """A mistake that may have been made.

    - `parts`: at a place, the fixed array or 0, and the arrays with unknown factors; None if there is no such thing.
    - `words`: the explanation by a fit, or None if the fit is no difference.
    - `is_general`: whether it says anything of the further places.
    """

    parts: Callable[[Any], tuple[Any, Sequence[np.ndarray]] | None]
    words: Callable[[Fit], Explanation | None]
    is_general: bool = True


def explain(
    batches: Iterable[Iterable[Hypothesis]], places: Sequence[Place], further: Sequence[Place] = ()
) -> Explanation | None:
    """The simplest explanation in the first batch that has one.

    `further` places are of another structure, such as more heads: they tell apart quantities that are equal, or are
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
    # of more arrays, such as more weight blocks, the first and the last are those of the same names
    others = np.concatenate([others[:, : factors.shape[1] - 1], others[:, -1:]], axis=1)
    return Fit(np.concatenate([factors, others]), quantities + [place.quantities for place in further])


def _factors(hypothesis: Hypothesis, places: Sequence[Place]) -> np.ndarray | None:
    # Factors are free at every place, for sizes and parameters differ there. `name_factor` says what they depend on.
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
        # two arrays that are multiples of each other have no separate factors
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
