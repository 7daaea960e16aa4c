"""Tabulate where the papers' equations are derived, and which lines of code encode them."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
_STEP = re.compile(r"^\*\*\d+\. (.+?)\*\*.*?, Eqs?\. \(([\d, -]+)\)", re.MULTILINE)
_CODE = re.compile(r"^(.*)#\s*Eqs?\. (\(\d.*)")


class Equations(SphinxDirective):
    """Tabulate equations of a package from derivations: ```{equations} bpkr attention_paths finite_width```."""

    required_arguments, optional_arguments = 1, 9

    def run(self) -> list[nodes.Node]:
        """Make a table of equation numbers, steps and lines of code."""
        package, *pages = self.arguments
        steps, lines = defaultdict(list), defaultdict(list)
        for page in pages:
            for caption, numbers in _STEP.findall((ROOT / "derivations" / f"{page}.md").read_text()):
                for number in numbers_of(numbers):
                    steps[number].append(f"[{caption}](/derivations/{page}.md)")
        for place, code, numbers in marked_lines(package):
            for number in numbers:
                lines[number].append(f"`` {code} `` {place}".replace("|", r"\|"))
        rows = ["| equation | derivation | code |", "|---|---|---|"]
        for number in sorted(steps | lines):
            rows.append(f"| ({number}) | {'<br>'.join(steps[number])} | {'<br>'.join(lines[number])} |")
        return self.parse_text_to_nodes("\n".join(rows))


def marked_lines(package: str) -> Iterator[tuple[str, str, list[int]]]:
    """Yield place, code and equation numbers of the lines with a comment `# Eq. (n)`, on the line or before it."""
    for path in sorted((ROOT / "theorykit" / package).rglob("*.py")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            if comment := _CODE.search(line):
                code = comment[1].strip() or lines[number].strip()
                yield f"{path.relative_to(ROOT)}, line {number}", code, numbers_of(comment[2])


def numbers_of(text: str) -> list[int]:
    """Parse equation numbers such as "5, 7-9"."""
    ranges = (re.findall(r"\d+", part) for part in text.split(","))
    return [number for ends in ranges if ends for number in range(int(ends[0]), int(ends[-1]) + 1)]


def setup(app: Sphinx) -> dict:
    """Register the directive with Sphinx."""
    app.add_directive("equations", Equations)
    return {"parallel_read_safe": True}
