"""Reports of checks of your layers and actions."""

from dataclasses import dataclass
from textwrap import fill


@dataclass(frozen=True, repr=False)
class Finding:
    """The result of one check.

    - `check`: the claim that was checked.
    - `measured`: the observation.
    - `meaning`: the mistake. Empty if the claim holds.
    """

    check: str
    measured: str
    meaning: str = ""

    def __repr__(self) -> str:
        start = "WRONG: " if self.meaning else ""
        parts = (start + self.check, self.measured, self.meaning)
        lines = (fill(part, 98, subsequent_indent="  ") for part in parts if part)
        return "\n- ".join(lines)


@dataclass(frozen=True, repr=False)
class Report:
    """The results of all checks of one object. Print it to read it."""

    subject: str
    checks: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The mistakes."""
        return tuple(each for each in self.checks if each.meaning)

    @property
    def holds(self) -> bool:
        """True if no mistake was found."""
        return not self.findings

    def __repr__(self) -> str:
        count = f"{len(self.findings)} of {len(self.checks)}"
        lines = [f"{self.subject}: {count} checks failed", *map(repr, self.checks)]
        return "\n".join(lines)
