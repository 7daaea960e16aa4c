"""Find the mistake that explains a difference, for layers and actions.

A hypothesis is the reference that a mistake would produce, as the sum of a fixed array and arrays with unknown factors.
It explains a difference if least squares find factors for which it equals the reference at every place. Factors get
names such as sqrt(layer.width), 1/layer.heads or -2. The simplest explanation is reported.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

# Largest relative error of a measured factor, which is a ratio of float64 numbers.
_CLOSE = 1e-7
# Exponents of the sizes and parameters in a factor. Normalisations are square roots of sizes.
_POWERS = (0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0)
# Numbers that a factor may contain.
_NUMBERS = (2.0, 3.0)
# Largest number of names of one factor that are reported.
_MOST_NAMED = 3
EITHER = " or "
"""Separator of names that the quantities cannot distinguish."""


class Place(NamedTuple):
    """A point at which statement and reference are compared.

    - `at`: the argument of hypotheses.
    - `reference`: the array of the reference there.
    - `tolerance`: the allowed error of its entries.
    - `quantities`: possible ingredients of a factor, by name.
    """

    at: Any
    reference: np.ndarray
    tolerance: float
    quantities: Mapping[str, float]


class Explanation(NamedTuple):
    """An explanation of a difference.

    - `measured`: description of the difference.
    - `meaning`: the mistake that causes it.
    - `cost`: 1 for simple mistakes, and more for complicated ones.
    """

    measured: str
    meaning: str
    cost: float = 1.0


class Fit(NamedTuple):
    """The fit of a hypothesis.

    - `factors` (places, arrays): factors of the arrays at each place.
    - `quantities`: possible ingredients of the factors at each place.
    - `fails_elsewhere`: whether the hypothesis fails at the further places.
    """

    factors: np.ndarray
    quantities: Sequence[Mapping[str, float]]
    fails_elsewhere: bool = False


class Hypothesis(NamedTuple):
    """A possible mistake.

    - `parts`: function that returns the fixed array (or 0) at a place, and the arrays with unknown factors. It returns
      None if the hypothesis does not apply.
    - `words`: function that returns the explanation for a fit, or None if the fit is not a difference.
    - `is_general`: whether the hypothesis applies to the further places.
    """

    parts: Callable[[Any], tuple[Any, Sequence[np.ndarray]] | None]
    words: Callable[[Fit], Explanation | None]
    is_general: bool = True


def explain(
    batches: Iterable[Iterable[Hypothesis]], places: Sequence[Place], further: Sequence[Place] = ()
) -> Explanation | None:
    """Return the simplest explanation in the first batch that has one.

    The structure of the `further` places differs, for example by more heads. They distinguish quantities that are equal
    or constant at all `places`.
    """
    for batch in batches:
        best = None
        for hypothesis in batch:
            factors, others, quantities = _factors(hypothesis, places), None, [place.quantities for place in places]
            if factors is None:
                continue
            is_tried = bool(further) and hypothesis.is_general
            if is_tried:
                others = _factors(hypothesis, further)
            fails_elsewhere = is_tried and (others is None or others.shape[1] < factors.shape[1])
            if is_tried and not fails_elsewhere:
                # If there are more arrays here, such as weight blocks, the first and the last ones have the same names.
                others = np.concatenate([others[:, : factors.shape[1] - 1], others[:, -1:]], axis=1)
                factors = np.concatenate([factors, others])
                quantities += [place.quantities for place in further]
            said = hypothesis.words(Fit(factors, quantities, fails_elsewhere))
            if said is not None and (best is None or said.cost < best.cost):
                best = said
            # No explanation costs less than 1, and later hypotheses of a batch take longer to evaluate.
            if best is not None and best.cost <= 1:
                break
        if best is not None:
            return best
    return None


def _factors(hypothesis: Hypothesis, places: Sequence[Place]) -> np.ndarray | None:
    # Fit factors at every place, because sizes and parameters differ. `name_factor` finds how factors depend on them.
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
        # Linearly dependent arrays do not have unique factors.
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
    """Return the name of the simplest product of powers that equals `values`, or "" if there is none.

    Each value is compared with its own `quantities` by name, and with the numbers 2 and 3. If two or three products
    cannot be distinguished, such as a constant layer.heads of 2 and the number 2, all names are returned. If there are
    more, the numeric value is returned. `tolerance` is relative.
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
    # Try products of two powers only if no single power fits, because the simplest name is the most likely one.
    for count in (1, 2):
        matches = []
        for names, powers in product(combinations(bases, count), product(_POWERS, repeat=count)):
            pairs = list(zip(names, powers, strict=True))
            if is_worth(math.prod(bases[name] ** power for name, power in pairs)):
                above = " * ".join(_power(name, power) for name, power in pairs if power > 0) or "1"
                below = [_power(name, -power) for name, power in pairs if power < 0]
                over = f"({' * '.join(below)})" if len(below) > 1 else "".join(below)
                matches.append(f"{above} / {over}" if below else above)
        if 0 < len(matches) <= _MOST_NAMED:
            return EITHER.join(f"-{text}" if sign < 0 else text for text in matches)
        if matches:
            break
    if np.ptp(values) <= tolerance * np.abs(values[0]):
        # Show the difference of a factor that is almost one.
        return f"{values[0]:.12g}" if is_almost_one(values[0]) else f"{values[0]:.6g}"
    return ""


def is_almost_one(value: float) -> bool:
    """Check whether a factor differs from one or minus one only by rounding or by constants with few digits."""
    return bool(0 < abs(abs(value) - 1) < 1e-5)


def _power(name: str, power: float) -> str:
    whole = int(power)
    written = [f"{name}**{whole}" if whole > 1 else name] * (whole > 0) + [f"sqrt({name})"] * (power != whole)
    return " * ".join(written)
