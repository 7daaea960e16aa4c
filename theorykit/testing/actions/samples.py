"""Values of an action and of a reference at random points, and single factors that would make them equal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sympy import Expr, Symbol

from ..factors import name_factor
from ..report import Finding
from .points import ActionPoint, value_of

Reference = Callable[..., Any]
"""The action once more: a function of order parameters and parameters by name, in plain NumPy, to a number."""

# differences of the action that count as equal, of their size: averages run by quadrature
_EQUAL = 1e-7
CLAIM = "the action is the reference, up to a constant"


@dataclass(frozen=True)
class Samples:
    """Values at groups of points, the parameters the same within a group; centred, so that constants drop out.

    `terms` (points, terms), `total` and `reference` (points,), `group` (points,) and the points themselves.
    """

    points: Sequence[ActionPoint]
    group: np.ndarray
    terms: np.ndarray
    reference: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """The action (points,)."""
        return self.terms.sum(axis=1)

    @property
    def misfit(self) -> np.ndarray:
        """Reference minus action (points,)."""
        return self.reference - self.total

    @property
    def scale(self) -> float:
        """The size of the values that are compared."""
        return max(float(np.max(np.abs(self.reference))), float(np.max(np.abs(self.terms))), 1e-300)

    def centred(self, values: np.ndarray) -> np.ndarray:
        """Values, less their mean over each group."""
        values = np.array(values, dtype=float)
        for number in np.unique(self.group):
            values[self.group == number] -= values[self.group == number].mean(axis=0)
        return values

    def vanishes(self, misfit: np.ndarray) -> bool:
        """Whether a misfit is zero but for rounding."""
        return bool(np.all(np.isfinite(misfit)) and np.max(np.abs(misfit)) <= _EQUAL * self.scale)

    def coefficients(self, values: np.ndarray, without: int | None = None) -> np.ndarray | None:
        """One number a group that, times `values`, is the misfit; of the action `without` a term, if given."""
        misfit = self.misfit if without is None else self.misfit + self.terms[:, without]
        found = []
        for number in np.unique(self.group):
            here = self.group == number
            if not np.max(np.abs(values[here])) > _EQUAL * self.scale:
                return None
            found.append(float(values[here] @ misfit[here] / (values[here] @ values[here])))
        factors = np.array(found)
        return factors if self.vanishes(misfit - factors[self.group] * values) else None

    def becomes(self, expression: Expr) -> bool:
        """Whether the expression, for that of the action, is the reference."""
        try:
            values = np.array([value_of(expression, point.values) for point in self.points])
        except NotImplementedError:
            return False
        return bool(np.all(np.isfinite(values))) and self.vanishes(self.reference - self.centred(values))

    def written(self, factors: np.ndarray) -> str:
        """Factors, one a group, by the parameters that they are made of, or as a number."""
        if np.max(np.abs(factors)) < 1e-9:
            return "0"
        first = [self.points[int(np.argmax(self.group == number))] for number in np.unique(self.group)]
        numbers = {s.name for s in first[0].action.parameters if isinstance(s, Symbol)}
        quantities = [{name: abs(value) for name, value in point.values.items() if name in numbers} for point in first]
        return name_factor(factors, quantities, 1e-6) or f"{factors[0]:.6g}"


def draw_samples(groups: Sequence[Sequence[ActionPoint]], reference: Reference) -> Samples | Finding:
    """The action and the reference at points; where the reference fails, that."""
    points = [point for group in groups for point in group]
    number = np.array([at for at, group in enumerate(groups) for _ in group])
    found = []
    for point in points:
        names = {symbol.name for symbol in point.action.symbols}
        try:
            returned = reference(**{name: value for name, value in point.values.items() if name in names})
            if np.iscomplexobj(returned):
                return Finding(
                    CLAIM,
                    f"the reference is complex, {np.asarray(returned).item():.4g} at {point.place}",
                    "an action is a real number: a logarithm or a root of a negative number makes it complex",
                )
            value = float(returned)
        except Exception as error:
            line = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            return Finding(
                CLAIM, f"the reference fails: {line}", "it takes every symbol by its name, and returns a number"
            )
        found.append(value)
    if not np.all(np.isfinite(found)):
        bad = points[int(np.argmin(np.isfinite(found)))]
        return Finding(
            CLAIM, f"the reference is not finite at {bad.place}", "a domain is wider than the reference's own"
        )
    raw = Samples(points, number, np.array([point.terms() for point in points]), np.array(found))
    return Samples(points, number, raw.centred(raw.terms), raw.centred(raw.reference))
