"""The record of a derivation: steps, each with what it claims, and the evidence that the claims hold.

A step is made by a rule, which computes `after` from `before`; its claim can be checked without knowing the rule.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context

import numpy as np
from sympy import Expr

from ..checks import check_fields, checked_arguments, checked_function, checked_instance, checked_whole_number
from .claims import Claim, residuals
from .exact import ANY_FUNCTIONS, PRIME, ExactPoint, NotRational, SingularPoint, random_point
from .sampling import random_values

# points that are drawn, one after another, where a denominator is zero
_ATTEMPTS = 3


@dataclass(frozen=True)
class Step:
    """One application of a rule: `before` becomes `after`.

    - `rule`: its name. `claim`: how `after` follows from `before`.
    - `equations`: numbers of the source's equations that say the same.
    - `assumptions`: limits taken and what they need to hold, in words.
    - `definitions`: symbols that the step introduces, with what they stand for.
    - `section`: the part of the derivation it belongs to.
    """

    rule: str
    before: Expr
    after: Expr
    claim: Claim
    equations: str = ""
    assumptions: tuple[str, ...] = ()
    definitions: tuple[tuple[Expr, Expr], ...] = ()
    section: str = ""

    def __post_init__(self):
        check_fields(self)

    @checked_arguments
    def error(self, sizes: Mapping[Expr, int], rng: np.random.Generator) -> float:
        """How far the claim is from holding at random numbers, in units of what may be tolerated."""
        values = random_values(self.claim.expressions(self.before, self.after), sizes, rng)
        return float(self.claim.error(self.before, self.after, values, rng)) / self.claim.tolerance


@dataclass
class Recorder:
    """A derivation under way: the steps so far, and what is recorded with the next ones."""

    steps: list[Step] = field(default_factory=list)
    section: str = ""
    equations: str = ""
    assumptions: tuple[str, ...] = ()

    def __post_init__(self):
        check_fields(self)

    def apply(self, rule: Callable[..., Step], *arguments, **record) -> Expr:
        """Apply a rule, keep its step, and return what it arrives at."""
        if isinstance(checked_function("rule", rule), type):
            raise TypeError(f"rule must be a function that makes a step, got {rule.__name__}")
        kept = {"section": self.section, "equations": self.equations, "assumptions": self.assumptions}
        step = checked_instance("what the rule makes", rule(*arguments, **(kept | record)), Step)
        self.steps.append(step)
        return step.after


@dataclass(frozen=True)
class Evidence:
    """The largest error of one step's claim over the trials up to the first that failed, in units of its tolerance.

    - `reason`: why the claim could not be evaluated, or is false though its error is small; the error is infinite then.
    - `chance`: a bound of the probability with which a false claim would have passed, where it was proved by exact
      arithmetic at random points; None where it was checked to its tolerance only. `numeric`: why it was.
    """

    step: Step
    error: float
    reason: str = ""
    chance: float | None = None
    numeric: str = ""

    @property
    def holds(self) -> bool:
        """Whether the error is within the claim's tolerance."""
        return bool(self.error <= 1)

    @property
    def proved(self) -> bool:
        """Whether the claim holds exactly, at the sizes of the trials, but for `chance`."""
        return self.holds and self.chance is not None

    def __str__(self):
        verdict = "holds" if self.holds else "FAILS"
        line = f"{verdict}  {self.step.section:16.16}  {self.step.rule:44.44}  error/tolerance {self.error:8.1e}"
        if self.proved:
            return f"{line}  proved but for {written(self.chance)}"
        told = self.reason or (self.numeric and f"on numbers only: {self.numeric}")
        return f"{line}  ({told})" if told else line


@dataclass(frozen=True)
class Verification:
    """Evidence for every step of a derivation."""

    evidence: tuple[Evidence, ...]

    @property
    def holds(self) -> bool:
        """Whether every step holds."""
        return all(item.holds for item in self.evidence)

    @property
    def failures(self) -> tuple[Evidence, ...]:
        """The evidence of the steps that do not hold."""
        return tuple(item for item in self.evidence if not item.holds)

    @property
    def proved(self) -> tuple[Evidence, ...]:
        """The evidence of the steps that were proved, at the sizes of the trials."""
        return tuple(item for item in self.evidence if item.proved)

    @property
    def chance(self) -> float:
        """A bound of the probability with which these would all have passed, were any of them false: the largest."""
        return max((item.chance for item in self.proved), default=0.0)

    def __str__(self):
        lines = [f"{number:3d}  {item}" for number, item in enumerate(self.evidence, 1)]
        failed, proved = len(self.failures), len(self.proved)
        verdict = f"{len(lines)} steps, {failed} failed" if failed else f"{len(lines)} steps hold"
        if proved and not failed:
            verdict += f", {proved} of them proved at the sizes tried but for a chance of {written(self.chance)}"
        return "\n".join([*lines, verdict])


@dataclass(frozen=True)
class Derivation:
    """Steps in order, and the sizes at which each may be tried with numbers."""

    steps: tuple[Step, ...]
    sizes: tuple[Mapping[Expr, int], ...]

    def __post_init__(self):
        check_fields(self)

    def verify(self, seed: int = 0) -> Verification:
        """Check every step's claim at random numbers of every set of sizes; exactly too, where it is an identity."""
        return Verification(tuple(self.evidence(seed)))

    def evidence(self, seed: int = 0) -> Iterator[Evidence]:
        """What `verify` finds, step by step: each is checked when it is asked for."""
        seed = checked_whole_number("seed", seed, least=0)
        points = Points(self.sizes, seed)
        return (self._evidence(step, seed, points) for step in self.steps)

    def _evidence(self, step: Step, seed: int, points: "Points") -> Evidence:
        largest = 0.0
        for trial, sizes in enumerate(self.sizes):
            try:
                error = step.error(sizes, np.random.default_rng([seed, trial]))
            except ValueError as mistake:  # a determinant or a factor that does not exist, shapes that do not fit
                return Evidence(step, float("inf"), str(mistake))
            if np.isnan(error):
                return Evidence(step, float("inf"), "not a number")
            largest = max(largest, error)
            if largest > 1:
                return Evidence(step, largest)
        try:
            chance = chance_of_mistake(step, points)
        except NotRational as found:
            return Evidence(step, largest, numeric=str(found))
        if chance is None:
            told = f"false in exact arithmetic, though its error on numbers is {largest:.1e} of what is tolerated"
            return Evidence(step, float("inf"), told)
        return Evidence(step, largest, chance=chance)

    def sections(self) -> Iterator[tuple[str, Sequence[Step]]]:
        """The steps by section, in order."""
        names = list(dict.fromkeys(step.section for step in self.steps))
        return ((name, [step for step in self.steps if step.section == name]) for name in names)


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


def chance_of_mistake(step: Step, points: Points) -> float | None:
    """A bound of the probability with which a false claim would hold at these points; None where it does not hold.

    Raises `NotRational` where the claim cannot be checked exactly, and says why.
    """
    degree = 0
    for trial in range(len(points.sizes)):
        for point in points.at(trial):
            try:
                found = list(residuals(step.claim, step.before, step.after, point))
                break
            except SingularPoint:
                continue
        else:
            raise NotRational("a denominator or a determinant that is zero")
        sides = step.claim.expressions(step.before, step.after)
        of_any = point.draws.results and any(side.has(*ANY_FUNCTIONS) for side in sides)
        if not all(residual.is_zero for residual in found):
            if of_any:
                raise NotRational("a property of the functions in it")
            return None
        collisions = point.degree_of_collisions if of_any else 0
        degree = max(degree, max([1, *(residual.above for residual in found)]) + collisions)
    # a false claim is false at one of the sets of sizes, where it would have to hold at one of the points tried
    return _ATTEMPTS * degree / PRIME


def written(chance: float) -> str:
    """A bound of a probability as text, of one digit and rounded up."""
    text = Context(prec=1, rounding=ROUND_CEILING).create_decimal(chance)
    return f"{text:.0e}".replace("e-0", "e-")
