"""Whether claims hold in exact arithmetic, at random points of a prime field: proved, refuted, or not decided so."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context

from sympy import Expr

from .claims import Claim
from .claims.claim import residuals
from .exact.point import ExactPoint, random_point
from .exact.residues import PRIME, NotRational, SingularPoint
from .exact.rules import ANY_FUNCTIONS

# points that are drawn, one after another, where a denominator is zero
_ATTEMPTS = 3


@dataclass(frozen=True)
class Points:
    """Random points at each of several sets of sizes; those of one seed are the same for all steps of a derivation."""

    sizes: Sequence[Mapping[Expr, int]]
    seed: int
    drawn: dict[tuple[int, int], ExactPoint] = field(default_factory=dict)

    def at(self, trial: int) -> Iterator[ExactPoint]:
        """Points at one of the sets of sizes."""
        for attempt in range(_ATTEMPTS):
            key = trial, attempt
            if key not in self.drawn:
                self.drawn[key] = random_point(self.sizes[trial], f"{self.seed}, {trial}, {attempt}")
            yield self.drawn[key]


def chance_of_mistake(claim: Claim, before: Expr, after: Expr, points: Points) -> float | None:
    """A bound of the probability with which a false claim would hold at these points; None where it does not hold.

    Raises `NotRational` where the claim cannot be checked exactly, and says why.
    """
    degree = 0
    for trial in range(len(points.sizes)):
        at_trial = _degree(claim, before, after, points.at(trial))
        if at_trial is None:
            return None
        degree = max(degree, at_trial)
    # a false claim is false at one of the sets of sizes, where it would have to hold at one of the points tried
    return _ATTEMPTS * degree / PRIME


def written(chance: float) -> str:
    """A bound of a probability as text, of one digit and rounded up."""
    text = Context(prec=1, rounding=ROUND_CEILING).create_decimal(chance)
    return f"{text:.0e}".replace("e-0", "e-")


def _degree(claim: Claim, before: Expr, after: Expr, points: Iterator[ExactPoint]) -> int | None:
    """A bound of the degrees of what is zero at the first point where it is defined; None where it is not zero."""
    for point in points:
        try:
            found = list(residuals(claim, before, after, point))
        except SingularPoint:
            continue
        of_any = point.has_results and any(side.has(*ANY_FUNCTIONS) for side in claim.expressions(before, after))
        if all(residual.is_zero for residual in found):
            degree = max([1, *(residual.above for residual in found)])
            return degree + point.degree_of_collisions if of_any else degree
        if of_any:
            raise NotRational("a property of the functions in it")
        return None
    raise NotRational("a denominator or a determinant that is zero")
