"""Record of a derivation: steps with their claims, and the evidence that the claims hold."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Context
from functools import partial
from types import MappingProxyType

import numpy as np
from sympy import Expr

from .._compat import threads_for
from ..checks import checked_instance, checked_whole_number, counted
from ..symbolic.documents import Block, DisplayMixin, Folded, Heading, Items, Table, Text
from ..symbolic.documents.rendering import latex
from .claims import Claim, Equal, EqualUpToConstant, Show, random_values
from .field import FUNCTION, PRIME, NotRational, Point, SingularPoint

# Number of points to try. At some, a denominator may vanish.
_ATTEMPTS = 3
# Number of draws of random values to try. At some, a logarithm may be undefined or a matrix not positive definite.
_DRAWS = 20


@dataclass(frozen=True, repr=False)
class Step(DisplayMixin):
    """One step of a derivation, from `before` to `after`.

    - `rule`: name of the step.
    - `claim`: the relation between `before` and `after`.
    - `equations`: number of the equation in the paper.
    - `assumptions`: limits that were taken and the conditions for them, in words.
    - `definitions`: symbols that the step introduces, with their values.
    - `section`: the part of the derivation to which the step belongs.

    Example:
        >>> from sympy import symbols
        >>> from theorykit.derivation import Derivation, Step, claims
        >>> x, y = symbols("x y")
        >>> step = Step("expanded", (x + y) ** 2, x**2 + 2 * x * y + y**2, claims.Equal())
        >>> Derivation((step,), sizes=({},)).verify().holds
        True
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
        for name, kind in (("before", Expr), ("after", Expr), ("claim", Claim)):
            checked_instance(name, getattr(self, name), kind)

    def _view(self):
        yield replace(_step_block(self), is_open=True)

    def error(self, sizes: Mapping[Expr, int], rng: np.random.Generator) -> float:
        """Return the error of the claim at random values of its symbols, in units of its tolerance.

        Args:
            sizes: a whole number for every symbolic size.
            rng: random number generator.
        """
        for _ in range(_DRAWS):
            values = random_values(self.claim.expressions(self.before, self.after), sizes, rng)
            with np.errstate(invalid="ignore", divide="ignore"):
                error = float(self.claim.error(self.before, self.after, values, rng)) / self.claim.tolerance
            if not np.isnan(error):
                break
        return error


@dataclass
class Recorder:
    """A derivation in progress: its `steps` so far, and fields of `Step` for the next ones."""

    steps: list[Step] = field(default_factory=list)
    section: str = ""
    equations: str = ""
    assumptions: tuple[str, ...] = ()

    def say(self, rule: str, before: Expr, after: Expr, claim: Claim, **record) -> Expr:
        """Append a step with these fields, and return `after`. Equal sides of a claim of equality are no step."""
        if not (isinstance(claim, (Equal, EqualUpToConstant)) and before == after):
            kept = {"section": self.section, "equations": self.equations, "assumptions": self.assumptions}
            self.steps.append(Step(rule, before, after, claim, **(kept | record)))
        return after


@dataclass(frozen=True)
class Evidence:
    """Result of the check of a step.

    - `error`: largest error over the trials, in units of the claim's tolerance.
    - `reason`: why the error is infinite: the claim could not be evaluated, or is false despite a small error.
    - `chance`: bound on the probability that a false claim would have passed in exact arithmetic at random points.
    - `numeric`: why the check was only numeric. Then `chance` is None.
    """

    step: Step
    error: float
    reason: str = ""
    chance: float | None = None
    numeric: str = ""

    @property
    def holds(self) -> bool:
        return bool(self.error <= 1)

    @property
    def proved(self) -> bool:
        """True if the claim holds in exact arithmetic at the sizes of the trials, up to `chance`."""
        return self.holds and self.chance is not None

    def __str__(self):
        verdict = "holds" if self.holds else "FAILS"
        line = f"{verdict}  {self.step.section:17.17}  {self.step.rule:44.44}  error/tolerance {self.error:8.1e}"
        if self.proved:
            return f"{line}  proved, chance of error {written(self.chance)}"
        told = self.reason or (self.numeric and f"on numbers only: {self.numeric}")
        return f"{line}  ({told})" if told else line


@dataclass(frozen=True, repr=False)
class Verification:
    """Evidence for every step of a derivation."""

    evidence: tuple[Evidence, ...]

    @property
    def holds(self) -> bool:
        return all(item.holds for item in self.evidence)

    @property
    def failures(self) -> tuple[Evidence, ...]:
        return tuple(item for item in self.evidence if not item.holds)

    @property
    def proved(self) -> tuple[Evidence, ...]:
        return tuple(item for item in self.evidence if item.proved)

    @property
    def chance(self) -> float:
        """Largest bound on the probability that a false step would have been proved."""
        return max((item.chance for item in self.proved), default=0.0)

    def __repr__(self):
        failed, proved = len(self.failures), len(self.proved)
        verdict = f"{counted(len(self.evidence), 'step')}, {failed or 'none'} failed"
        if proved and not failed:
            verdict += f", {proved} of them proved at the sizes tried, {_chance(self.chance)}"
        return verdict

    def __str__(self):
        lines = [f"{number:3d}  {item}" for number, item in enumerate(self.evidence, 1)]
        return "\n".join([*lines, repr(self)])


@dataclass(frozen=True, repr=False)
class Derivation(DisplayMixin):
    """Steps of a derivation.

    - `steps`: all steps, in order.
    - `sizes`: for each trial of `verify`, a whole number for every symbolic size.
    """

    steps: tuple[Step, ...]
    sizes: tuple[Mapping[Expr, int], ...]

    def verify(self, seed: int = 0) -> Verification:
        """Check every claim at random numbers for all sizes. Identities are also checked exactly.

        Args:
            seed: seed of the random numbers.

        Returns:
            The evidence for every step. `holds` is true if no check failed, and `failures`
            lists the steps that failed.
        """
        points = random_points(self.sizes, checked_whole_number("seed", seed, least=0))
        return Verification(tuple(_evidence(step, self.sizes, seed, points) for step in self.steps))

    def _view(self):
        yield Heading(f"Derivation of {counted(len(self.steps), 'step')}", 1)
        rows = ((section or "steps", str(len(steps))) for section, steps in self.sections())
        yield Table(tuple(rows), ("section", "steps"))
        yield Folded("Every step: `derivation.steps`", tuple(derivation_blocks(self)))

    def sections(self) -> Iterator[tuple[str, Sequence[Step]]]:
        """Yield the steps by section, in order."""
        names = list(dict.fromkeys(step.section for step in self.steps))
        return ((name, [step for step in self.steps if step.section == name]) for name in names)


@threads_for(0)  # The matrices of a check have few rows.
def _evidence(step: Step, all_sizes, seed: int, points: Sequence[Sequence[Point]]) -> Evidence:
    largest = 0.0
    for trial, sizes in enumerate(all_sizes):
        try:
            error = step.error(sizes, np.random.default_rng([seed, trial]))
        except ValueError as mistake:  # a determinant or factor does not exist, or shapes do not fit
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
        return Evidence(step, float("inf"), f"false in exact arithmetic; error on numbers {largest:.1e} tolerances")
    return Evidence(step, largest, chance=chance)


def random_points(sizes: Sequence[Mapping[Expr, int]], seed: int) -> list[list[Point]]:
    """Return random points for each set of sizes, which all steps of a derivation share."""
    return [[Point(each, f"{seed}, {trial}, {i}") for i in range(_ATTEMPTS)] for trial, each in enumerate(sizes)]


def chance_of_mistake(step: Step, points: Sequence[Sequence[Point]]) -> float | None:
    """Bound the probability that a false claim holds at these points. Return None if the claim does not hold."""
    degree = 0
    for attempts in points:
        for point in attempts:
            try:
                found = [left - right for left, right in step.claim.sides(step.before, step.after, point)]
                break
            except SingularPoint:
                continue
        else:
            raise NotRational("a denominator or a determinant that is zero")
        has_function = any(FUNCTION in residual.marks for residual in found)
        if not all(residual.is_zero for residual in found):
            if has_function:
                raise NotRational("a property of the functions in it")
            return None
        # Bound the probability, times the prime, that different arguments of a function coincide.
        count = len(point.results) if has_function else 0
        collisions = count * (count - 1) // 2 * max(point.degrees, default=0)
        degree = max(degree, max([1, *(residual.above for residual in found)]) + collisions)
    # A false claim is false for at least one set of sizes. It may hold by chance at one of the points there.
    return _ATTEMPTS * degree / PRIME


def written(chance: float) -> str:
    """Write an upper bound on a probability with one digit, rounded up."""
    text = Context(prec=1, rounding=ROUND_CEILING).create_decimal(chance)
    return f"{text:.0e}".replace("e-0", "e-")


def _chance(chance: float) -> str:
    return f"with an error probability of at most {written(chance)}"


def derivation_blocks(
    derivation: Derivation,
    names: Mapping[Expr, str] = MappingProxyType({}),
) -> Iterator[Block]:
    """Yield the numbered steps of a derivation by section.

    Args:
        derivation: the derivation.
        names: LaTeX names of symbols.
    """
    show, numbers = partial(latex, symbol_names=names), itertools.count(1)
    for section, steps in derivation.sections():
        if section:
            yield Heading(section, 3)
        for step in steps:
            yield _step_block(step, next(numbers), show)


def _step_block(step: Step, number: int | None = None, show: Show = latex) -> Folded:
    word = "Eqs." if {",", "-"} & set(step.equations) else "Eq."
    equations = f", {word} ({step.equations})" if step.equations else ""
    assumptions = f" Assumes: {'; '.join(step.assumptions)}." if step.assumptions else ""
    count, label = ("", "") if number is None else (f"{number}. ", f"step-{number}")
    caption = f"**{count}{step.rule[0].upper()}{step.rule[1:]}**{equations}.{assumptions}"
    formula = replace(step.claim.statement(show(step.before), show(step.after), show), label=label)
    # Omit symbols that are printed as their values.
    shown = [(show(symbol), show(value)) for symbol, value in step.definitions]
    defined = ", ".join(f"${symbol} = {value}$" for symbol, value in shown if symbol != value)
    parts = (formula, Text(f"with {defined}.")) if defined else (formula,)
    return Folded(caption, parts)


def verification_blocks(verification: Verification) -> Iterator[Block]:
    """Summarise the checks in one line per kind of claim, with the number of claims that passed exactly."""
    kinds = Counter(_how_checked(item.step.claim) for item in verification.evidence)
    proved = Counter(_how_checked(item.step.claim) for item in verification.proved)
    verdict = "all hold" if verification.holds else f"**{len(verification.failures)} FAIL**"
    yield Text(
        f"{len(verification.evidence)} steps were checked on random numbers, and {verdict}. {len(verification.proved)} "
        "of them are identities and are proved at the sizes tried, by exact arithmetic at random points of a prime "
        f"field, {_chance(verification.chance)}. By kind:"
    )
    yield Items(tuple(f"{count} by {how}; {proved[how]} proved" for how, count in kinds.items()))


def _how_checked(claim: Claim) -> str:
    return claim.checked_by.format(np.format_float_scientific(claim.tolerance, trim="-", exp_digits=1))
