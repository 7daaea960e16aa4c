"""Findings of checks of user-defined layers and actions, and comparisons that several checks share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..checks import check_fields, counted
from ..progress import Progress
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Items, Text, verbatim

# Largest relative error of derivatives by finite differences.
_DIFFERENCES = 1e-6


@dataclass(frozen=True, repr=False)
class Finding(DisplayMixin):
    """The result of one check.

    - `check`: the claim that was checked.
    - `measured`: the observation, with numbers.
    - `meaning`: the most likely mistake, and its correction. Empty if the claim holds.
    """

    check: str
    measured: str
    meaning: str = ""

    def __post_init__(self):
        check_fields(self)

    @property
    def holds(self) -> bool:
        """True if the claim holds."""
        return not self.meaning

    def _view(self) -> Iterator[Block]:
        if self.holds:
            yield Text(verbatim(f"{self.check}: {self.measured}"))
        else:
            yield Text(verbatim(f"WRONG: {self.check}"))
            yield Items((verbatim(f"measured: {self.measured}"), verbatim(f"likely: {self.meaning}")))


@dataclass(frozen=True, repr=False)
class Report(DisplayMixin):
    """The results of all checks of one object. Print the report to read it.

    - `subject`: name of the checked object.
    - `findings`: mistakes. Empty if there are none.
    - `passed`: checks whose claims hold.
    - `left_out`: checks that were not made, with their reasons.
    """

    subject: str
    findings: tuple[Finding, ...]
    passed: tuple[Finding, ...] = ()
    left_out: tuple[str, ...] = ()

    def __post_init__(self):
        check_fields(self)

    @property
    def holds(self) -> bool:
        """True if no mistake was found."""
        return not self.findings

    def __str__(self):
        return repr(self.summary())

    def _view(self) -> Iterator[Block]:
        count = len(self.findings)
        found = {0: "nothing wrong was found", 1: "1 mistake was found"}.get(count, f"{count} mistakes were found")
        made = f"{count + len(self.passed)} checks" if count + len(self.passed) != 1 else "1 check"
        yield Text(f"{verbatim(self.subject)}: {found} in {made}.")
        for finding in self.findings:
            yield from finding._view()
        for title, entries in (("Holds:", self.passed), ("Not checked:", self.left_out)):
            if entries:
                yield Text(title)
                yield Items(tuple(map(verbatim, entries)))


def report_of(
    subject: str, results: Iterable[Finding], left_out: Sequence[str], *, cost: str = "", progress: bool = True
) -> Report:
    """Make a report of `results`, and merge results with the same claim and the same meaning.

    `cost` says how long the checks take. It is reported with their `progress`.

    A claim that fails in any result is not listed as passed. `results` may be a generator that appends to `left_out` as
    it runs, so `left_out` is read last.
    """
    said: dict[tuple[str, str], list[str]] = {}
    work = f"checks of {subject[:1].lower()}{subject[1:]}"
    with Progress(work, unit="check", shown=progress, cost=cost) as report:
        for result in results:
            said.setdefault((result.check, result.meaning), []).append(result.measured)
            report.update()
    joined = [Finding(check, "; ".join(dict.fromkeys(texts)), meaning) for (check, meaning), texts in said.items()]
    findings = tuple(each for each in joined if not each.holds)
    wrong = {each.check for each in findings}
    passed = tuple(each for each in joined if each.holds and each.check not in wrong)
    return Report(subject, findings, passed, tuple(left_out))


def slope_at_zero(function: Callable[[float], float], step: float) -> float:
    """Differentiate a function at zero by central differences, to fourth order in the step."""
    # Richardson extrapolation cancels the errors of second order in the step between the two differences.
    near = (function(step) - function(-step)) / (2 * step)
    far = (function(2 * step) - function(-2 * step)) / (4 * step)
    return float((4 * near - far) / 3)


def check_slopes_agree(claim: str, slopes: Sequence[tuple[float, float]], meaning: str) -> Finding:
    """Compare pairs of slopes, computed and by finite differences. Errors of slopes above one are relative."""
    errors = [(abs(found - expected) / max(abs(expected), 1.0), found, expected) for found, expected in slopes]
    error, found, expected = max(errors)
    if error < _DIFFERENCES:
        return Finding(claim, f"to {error:.1g} in {counted(len(errors), 'direction')}")
    return Finding(claim, f"a slope of {found:.6g}, but finite differences of the action give {expected:.6g}", meaning)


def raised(error: Exception) -> str:
    """Write an error of the user's code in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
