"""Write the index of the papers' equations in the code and in the derivations."""

import html
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from formulas import as_mathml

from derivations import ROOT, Step, notation_rows, numbers_of

_PAPERS = {
    "bpkr": (
        "Attention paths",
        "Numbers are from Tiberi et al., *Dissecting the Interplay of Attention Paths in a Statistical Mechanics "
        "Theory of Transformers*, [arXiv 2405.15926](https://arxiv.org/abs/2405.15926).",
    ),
    "dmft": (
        "Self-attention dynamics",
        "The theory is from Poc-López and Aguilera, *Dynamical Mean-Field Theory of Self-Attention Neural "
        "Networks*, [arXiv 2406.07247](https://arxiv.org/abs/2406.07247); numbers are from [our "
        "derivation](self_attention_dynamics.md).",
    ),
}
_PAGES = {"bpkr": ("attention_paths", "finite_width"), "dmft": ("self_attention_dynamics",)}
_OPENING = """# Index of equations

Find an equation of the papers in the derivations and in the code. The table lists the derivation steps that reach it
and the lines of code that encode it, with the comment `# Eq. (n)`. Symbols are from the [notation](notation.md).
"""


def write_equations(target: Path, steps: Iterable[Step]) -> None:
    """Write the index of equations from the derivation steps that reach one."""
    parts = [_OPENING]
    for room, (title, source) in _PAPERS.items():
        of_paper = [step for step in steps if step.page in _PAGES[room]]
        rows = "\n".join(_rows(code_lines(room), of_paper, _symbols(room)))
        head = "".join(f"<th>{name}</th>" for name in ("equation", "symbols", "derivation", "code"))
        table = f'<div class="wide"><table class="equations"><thead><tr>{head}</tr></thead>\n{rows}\n</table></div>'
        parts.append(f"## {title}\n\n{source}\n\n```{{raw}} html\n{table}\n```\n")
    (target / "equations.md").write_text("\n".join(parts))


def code_lines(room: str) -> dict[int, list[tuple[str, str]]]:
    """Map equation numbers to the places and texts of the lines of code that encode them."""
    found = defaultdict(list)
    for path in sorted((ROOT / "theorykit" / room).rglob("*.py")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            if comment := re.search(r"^(.*)#\s*Eqs?\. (\(\d.*)", line):
                # A comment on a separate line refers to the next line.
                code = comment[1].strip() or lines[number].strip()
                place = f"{path.relative_to(ROOT)}, line {number}"
                for equation in numbers_of(re.sub(r"[^\d,-]", "", comment[2])):
                    found[equation].append((place, code))
    return found


def _symbols(room: str) -> dict[int, list[tuple[str, str]]]:
    """Map equation numbers to the LaTeX and anchors of their symbols in the notation."""
    found = defaultdict(list)
    rows = set(notation_rows(1 if room == "bpkr" else 2).values())
    for number, line in enumerate((ROOT / "derivations" / "notation.md").read_text().splitlines()):
        if f"row-{number}" in rows:
            cells = line.split("|")
            for equation in map(int, re.findall(r"\((\d+)\)", cells[-2])):
                symbol = re.search(r"\$([^$]+)\$", cells[1])
                found[equation].append((symbol[1], f"row-{number}"))
    return found


def _rows(lines: dict, steps: list[Step], symbols: dict) -> Iterable[str]:
    listed = set(lines) | {number for step in steps for number in step.equations}
    for number in sorted(listed):
        of_notation = ", ".join(
            f'<a href="notation.html#{anchor}">{as_mathml(latex, "inline")}</a>' for latex, anchor in symbols[number]
        )
        of_steps = "<br/>".join(
            f'<a href="{step.page}.html#{step.anchor}">{html.escape(step.caption)}</a> '
            f'<span class="place">{step.page.replace("_", " ")}</span>'
            for step in steps
            if number in step.equations
        )
        of_code = "<br/>".join(
            f'<code>{html.escape(code)}</code> <span class="place">{place}</span>' for place, code in lines[number]
        )
        cells = "".join(f"<td>{cell}</td>" for cell in (f"({number})", of_notation, of_steps, of_code))
        yield f'<tr id="equation-{number}">{cells}</tr>'
