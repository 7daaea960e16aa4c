"""A written list of equations, as LaTeX or Markdown. What the equations say is the caller's."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Equation:
    """One displayed equation, both sides in LaTeX, under the heading of its section."""

    section: str
    left: str
    right: str


def align_environment(equations: Iterable[Equation]) -> str:
    """All equations, without their headings, as one LaTeX `align*` environment."""
    rows = " \\\\\n  ".join(f"{equation.left} &= {equation.right}" for equation in equations)
    return f"\\begin{{align*}}\n  {rows}\n\\end{{align*}}\n"


def markdown_sections(equations: Iterable[Equation]) -> str:
    """Consecutive equations of a section under its heading, each displayed on its own."""
    lines = []
    for section, members in groupby(equations, key=lambda equation: equation.section):
        lines += [f"## {section}", ""]
        lines += [line for equation in members for line in (f"$${equation.left} = {equation.right}$$", "")]
    return "\n".join(lines)
