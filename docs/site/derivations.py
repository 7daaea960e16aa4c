"""Write the pages of derivations. When the site is built, the scripts in `derivations` derive and check every step."""

import re
import runpy
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "derivations"
# Derivations in reading order.
ORDER = (
    *("attention_paths", "new_depth", "finite_width", "skip_connections", "multiple_outputs", "deep_linear"),
    "self_attention_dynamics",
)
_INDEX = """# Derivations

Follow every formula step by step. These pages are generated when the site is built, from the expressions that the
package uses in computations. Click a step to see its rule, the equations of the paper that it derives, and how it was
checked at random points by a method that is independent of the rule. A table explains the symbols.

```{toctree}
:maxdepth: 1

"""


@dataclass(frozen=True)
class Step:
    """A step of a derivation, with its page, anchor and caption, and the numbers of the equations that it derives."""

    page: str
    anchor: str
    caption: str
    equations: frozenset[int]


def write_derivations(target: Path) -> list[Step]:
    """Write a page for every derivation, the notation with an anchor at every row, and an index of these pages."""
    (target / "notation.md").write_text(with_anchors((SCRIPTS / "notation.md").read_text()))
    if set(ORDER) != {path.stem for path in SCRIPTS.glob("*.py")}:
        raise SystemExit("derivations.ORDER does not match the scripts in derivations")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        pages = dict(zip(ORDER, workers.map(derived, ORDER), strict=True))
    steps = []
    for name, page in pages.items():
        main = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>")).find(".//main")
        _link_to_notation(main, 2 if name == "self_attention_dynamics" else 1)
        (target / f"{name}.md").write_text(_as_markdown(main))
        steps += [step for fold in main.iter("details") if (step := _step(name, fold)).equations]
    (target / "index.md").write_text(_INDEX + "\n".join(["notation", "equations", *ORDER]) + "\n```\n")
    return steps


def derived(name: str) -> str:
    """Run a derivation and return it as HTML."""
    from theorykit.symbolic import as_html

    return as_html(*runpy.run_path(str(SCRIPTS / f"{name}.py"))["contents"]())


def _as_markdown(main: ElementTree.Element) -> str:
    """Convert headings to Markdown and keep everything else as HTML."""
    parts = []
    for element in main:
        if re.fullmatch("h[1-6]", element.tag):
            parts += [_raw(f'<span id="{element.get("id")}"></span>'), f"{'#' * int(element.tag[1])} {_text(element)}"]
        else:
            markup = ElementTree.tostring(element, encoding="unicode").strip()
            parts.append(_raw(markup.replace("<code>notation.md</code>", '<a href="notation.html">the notation</a>')))
    # The site expects the title first, before its anchor.
    parts[:2] = parts[1::-1]
    return "\n\n".join(parts) + "\n"


def _raw(markup: str) -> str:
    return f"```{{raw}} html\n{markup}\n```"


def _text(heading: ElementTree.Element) -> str:
    """Return a heading as Markdown with formulas in LaTeX."""
    inner = (f"${each.get('data-latex')}$" if each.get("data-latex") else "".join(each.itertext()) for each in heading)
    return (heading.text or "") + "".join(text + (each.tail or "") for each, text in zip(heading, inner, strict=True))


def _step(page: str, fold: ElementTree.Element) -> Step:
    summary = fold.find("summary")
    remark = summary.find("span[@class='remark']")
    caption = "".join(summary.itertext()).removesuffix("".join(remark.itertext()) if remark is not None else "")
    found = re.search(r", Eqs?\. \(([\d, -]+)\)", caption)
    name = summary.find("strong")
    return Step(page, fold.get("id"), "".join(name.itertext()), numbers_of(found[1]) if found else frozenset())


def numbers_of(text: str) -> frozenset[int]:
    """Parse equation numbers such as "5, 7-9"."""
    ranges = (re.findall(r"\d+", part) for part in text.split(","))
    return frozenset(number for ends in ranges if ends for number in range(int(ends[0]), int(ends[-1]) + 1))


def notation_rows(theory: int) -> dict[str, str]:
    """Map symbols of a theory, in LaTeX with general indices, to the anchors of their rows in the notation."""
    anchors, section = {}, 0
    for number, line in enumerate((SCRIPTS / "notation.md").read_text().splitlines()):
        section += line.startswith("## Theory")
        for formula in re.findall(r"\$([^$]+)\$", line.split("|")[1]) if _is_row(line) and section == theory else ():
            for symbol in re.split(r",|=|\\in", formula):
                anchors.setdefault(_general(symbol, theory), f"row-{number}")
    return anchors


def _is_row(line: str) -> bool:
    return line.startswith("| ") and "$" in line.split("|")[1]


def with_anchors(notation: str) -> str:
    """Add an anchor at the beginning of every row of the notation."""
    lines = notation.splitlines()
    for number, line in enumerate(lines):
        if _is_row(line):
            lines[number] = f'| <span id="row-{number}"></span>{line[2:]}'
    return "\n".join(lines) + "\n"


def _general(latex: str, theory: int) -> str:
    """Replace the number of a layer by l, or of a time by t, and remove braces and spaces."""
    return re.sub(r"_\d", "_l" if theory == 1 else "_t", re.sub(r"[{}\s]", "", latex))


def _link_to_notation(main: ElementTree.Element, theory: int) -> None:
    """Link symbols in the table of a page to their rows in the notation, if there are any."""
    rows = notation_rows(theory)
    for row in main.iter("tr"):
        symbol = row.find("th[@data-latex]")
        anchor = None if symbol is None else rows.get(_general(symbol.get("data-latex"), theory))
        if anchor:
            link = ElementTree.SubElement(row[1], "a", {"href": f"notation.html#{anchor}", "class": "notation"})
            link.text = "notation"
