"""One engine of guesses at a mistake, for layers and actions.

A hypothesis says what the reference would be if a mistake had been made: an array that is fixed, and others with
unknown factors. It explains a difference if least squares find factors for which it is the reference at every place.
The simplest that does is reported.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Place(NamedTuple):
    """Where statement and reference are compared, and the array that the reference gives there.

    - `at`: what hypotheses are evaluated at.
    - `tolerance`: how far entries may be off.
    - `quantities`: what a factor may be made of, by name.
    """

    at: Any
    reference: np.ndarray
    tolerance: float
    quantities: Mapping[str, float]


class Explanation(NamedTuple):
    """What the reference is, if it is not the statement, and the mistake that makes it so; simple ones cost 1."""

    measured: str
    meaning: str
    cost: float = 1.0


class Fit(NamedTuple):
    """Factors (places, arrays) of a hypothesis that fits, with the quantities of each place.

    `fails_elsewhere` if it does not fit at the further places.
    """

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
        # two arrays that are multiples of each other have no factors of their own
        if columns and np.linalg.matrix_rank(matrix) < len(columns):
            return None
        found = np.linalg.lstsq(matrix, rest, rcond=None)[0] if columns else np.zeros(0)
        if np.max(np.abs(matrix @ found - rest)) > place.tolerance:
            return None
        rows.append(found)
    return np.asarray(rows)
