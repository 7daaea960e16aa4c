"""What a check of a user's own statement found: each mistake with what was measured and what it most likely means."""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from ..checks import check_fields

_WIDTH = 100


@dataclass(frozen=True)
class Finding:
    """A mistake that was found.

    - `check`: what was checked, as a claim that does not hold.
    - `measured`: what was found instead, with numbers.
    - `meaning`: the mistake that most likely makes it so, and what to write instead.
    """

    check: str
    measured: str
    meaning: str

    def __post_init__(self):
        check_fields(self)

    def __str__(self):
        parts = (self.check, f"  measured: {self.measured}", f"  likely: {self.meaning}")
        return "\n".join(_wrapped(part, "    ") for part in parts)


@dataclass(frozen=True)
class Passed:
    """A check that found nothing: the claim that holds, and how closely it was seen to."""

    check: str
    measured: str

    def __post_init__(self):
        check_fields(self)

    def __str__(self):
        return f"{self.check}: {self.measured}"


Result = Finding | Passed
"""The outcome of one check."""


@dataclass(frozen=True)
class Report:
    """What all checks of one thing found. `print` it: it is written to be read.

    - `subject`: what was checked, by its name.
    - `findings`: mistakes; none if all is well.
    - `passed`: the checks that found nothing.
    - `left_out`: checks that were not made, each with the reason.
    """

    subject: str
    findings: tuple[Finding, ...]
    passed: tuple[Passed, ...] = ()
    left_out: tuple[str, ...] = ()

    def __post_init__(self):
        check_fields(self)

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self):
        count = len(self.findings)
        found = {0: "nothing wrong was found", 1: "1 mistake was found"}.get(count, f"{count} mistakes were found")
        made = f"{count + len(self.passed)} checks" if count + len(self.passed) != 1 else "1 check"
        lines = [f"{self.subject}: {found} in {made}."]
        lines += [f"\nWRONG: {finding}" for finding in self.findings]
        for title, entries in (("Holds:", self.passed), ("Not checked:", self.left_out)):
            lines += ["", title, *(_wrapped(f"- {entry}", "  ") for entry in entries)] if entries else []
        return "\n".join(lines)


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def merged(results: Iterable[Result]) -> tuple[tuple[Finding, ...], tuple[Passed, ...]]:
    """The findings among `results`, and the checks that found nothing.

    Results that say the same of one claim become one, with all that was measured. A claim with a finding does not hold,
    whatever passed elsewhere.
    """
    findings: dict[tuple[str, str], list[str]] = {}
    passed: dict[str, list[str]] = {}
    for result in results:
        if isinstance(result, Finding):
            findings.setdefault((result.check, result.meaning), []).append(result.measured)
        else:
            passed.setdefault(result.check, []).append(result.measured)
    wrong = {check for check, _ in findings}
    return (
        tuple(Finding(check, "; ".join(dict.fromkeys(said)), meaning) for (check, meaning), said in findings.items()),
        tuple(Passed(check, "; ".join(dict.fromkeys(said))) for check, said in passed.items() if check not in wrong),
    )
