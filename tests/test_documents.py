"""What a person reads is true: sessions and links of the README and its pages, the derivations, and the notation."""

import ast
import doctest
import importlib.util
import re
import runpy
from pathlib import Path

import pytest

from .marks import slow
from .scripts import run_script

ROOT = Path(__file__).parent.parent
DERIVATIONS = sorted((ROOT / "derivations").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES_OF_THE_SITE = sorted((ROOT / "docs" / "site").rglob("*.md"))
SESSIONS = [page for page in PAGES if ">>>" in page.read_text()]
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# packages and modules by the names that text calls them by: all that users import
ROOMS = ("bpkr", "checkpoints", "codegen", "dmft", "dynamics", "plots", "saddle", "store", "symbolic", "testing")
INNER = {"diagrams": "dmft", **dict.fromkeys(("nonlinear", "sampling", "sweeps", "training"), "bpkr")}
NAME = re.compile(rf"`((?:theorykit|{'|'.join((*ROOMS, *INNER))})(?:\.[A-Za-z_]\w*)+)(?!\w*[./])")
IMPORT = re.compile(r"from theorykit\.?([\w.]*) import ([\w, ]+)")


def test_pages_have_sessions():
    assert ROOT / "docs" / "quickstart.md" in SESSIONS


# pages whose sessions compile solves, derive several actions or start processes
OF_LONG_SESSIONS = (
    "CONTRIBUTING",
    "assumptions",
    "nonlinear",
    "own-layer",
    "parallel",
    "sampling",
    "self-attention-dynamics",
    "solvers",
    "sweeps",
    "theory",
    "validation",
    "your-data",
)
LONG = [page for page in SESSIONS if page.stem in OF_LONG_SESSIONS]
SHORT = [page for page in SESSIONS if page not in LONG]


@pytest.mark.quick("quickstart")
@pytest.mark.parametrize("page", [*SHORT, *slow(LONG)], ids=lambda path: path.stem)
def test_the_session_on_a_page_holds(page):
    failures, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 10
    assert failures == 0


def links(text: str) -> list[str]:
    """Where the links and images of Markdown point to within the repository; code has none, whatever it looks like."""
    return [link for link in LINK.findall(CODE.sub("", text)) if not re.match(r"https?:|mailto:|#", link)]


def test_tables_are_what_the_benchmarks_found(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    tables = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
    for page, of_page in tables["TABLES"].items():
        text = (ROOT / "docs" / page).read_text()
        assert tables["with_tables"](text, of_page) == text
        with pytest.raises(ValueError, match="no place for the table"):
            tables["with_tables"]("", of_page)


@pytest.mark.parametrize("page", PAGES + PAGES_OF_THE_SITE, ids=lambda path: path.stem)
def test_every_link_on_a_page_is_to_something_that_exists(page):
    found = [link.partition("#")[0] for link in links(page.read_text())]
    # Links that start with "/" are relative to the root of the site, which is the root of the repository.
    places = [ROOT / link[1:] if link.startswith("/") else page.parent / link for link in found]
    assert [place for place in places if not place.exists()] == []


def test_every_page_is_linked_from_the_readme():
    linked = {(ROOT / link).resolve() for link in links((ROOT / "README.md").read_text())}
    assert set(PAGES) - {ROOT / "README.md"} <= linked


def test_every_page_is_in_the_contents_of_the_site():
    contents = re.findall(r"```{toctree}(.*?)```", (ROOT / "docs" / "site" / "index.md").read_text(), re.DOTALL)
    listed = {line.strip() for part in contents for line in part.splitlines()}
    assert {f"/docs/{page.stem}" for page in PAGES if page.parent.name == "docs"} <= listed


@pytest.mark.parametrize("page", [*PAGES, *PAGES_OF_THE_SITE], ids=lambda path: path.stem)
def test_every_name_that_the_text_of_a_page_mentions_exists(page):
    assert unresolved(page.read_text()) == []


def test_every_name_that_a_docstring_mentions_exists():
    """By `from theorykit import` and the first part of the name: a docstring imports nothing."""
    nodes = (node for path in (ROOT / "theorykit").rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    text = "\n".join(ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds))
    assert "`bpkr.sweeps.sweep`" in text
    assert unresolved(text) == []


def unresolved(text: str) -> list[str]:
    """Names in code that cannot be had as they are written, after the imports that the text states."""
    imported = {
        name.strip(): f"theorykit.{package}.{name.strip()}"
        for package, names in IMPORT.findall(text)
        for name in names.split(",")
        if package
    }
    return [name for name in NAME.findall(text) if not exists(name, imported)]


def exists(name: str, imported: dict[str, str]) -> bool:
    first, _, rest = name.partition(".")
    if first in INNER and first not in imported:
        return False
    value = importlib.import_module(imported.get(first, "theorykit" if first == "theorykit" else f"theorykit.{first}"))
    for part in rest.split("."):
        if not hasattr(value, part) and not is_module(f"{getattr(value, '__name__', '')}.{part}"):
            return part in getattr(value, "__annotations__", {})
        value = getattr(value, part) if hasattr(value, part) else importlib.import_module(f"{value.__name__}.{part}")
    return True


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_names_that_cannot_be_had_are_seen():
    assert unresolved("`sampling.compare`") == ["sampling.compare"]
    assert unresolved("`from theorykit.bpkr import sampling` `sampling.compare` `bpkr.sampling.compare`") == []
    assert unresolved("`bpkr.solve(x)` `bpkr.nothing` `dmft.diagrams.orbit_diagram`") == ["bpkr.nothing"]


def test_links_are_seen():
    text = "[a](b.md) ![c](../d.png) [e](https://f.g) [h](#i) `[j](k)`\n\n```\n[l](m)\n```\n[n](o.md#p)"
    assert links(text) == ["b.md", "../d.png", "o.md#p"]


LONGEST = [script for script in DERIVATIONS if script.stem in ("deep_linear", "skip_connections")]
OTHERS = [script for script in DERIVATIONS if script not in LONGEST]


@pytest.mark.quick("finite_width")
@pytest.mark.parametrize("script", [*OTHERS, *slow(LONGEST)], ids=lambda path: path.stem)
def test_the_committed_derivation_is_what_its_script_writes(script, tmp_path):
    run_script(script, str(tmp_path))
    written = (tmp_path / script.with_suffix(".md").name).read_text()
    assert written == script.with_suffix(".md").read_text()
    assert "FAIL" not in written and "all hold" in written
    assert_balanced((tmp_path / script.with_suffix(".tex").name).read_text())


def assert_balanced(source: str) -> None:
    """Every brace, environment and delimiter of a LaTeX source is closed where it should be."""
    opened = []
    for token in re.findall(r"\\\\|\\[{}]|\\(?:begin|end)\{[^}]*\}|\\left\b|\\right\b|[{}]", source):
        if token in ("{", r"\left") or token.startswith(r"\begin"):
            opened.append(token)
        elif token in ("}", r"\right") or token.startswith(r"\end"):
            expected = {"}": "{", r"\right": r"\left"}.get(token, token.replace(r"\end", r"\begin"))
            assert opened.pop() == expected
    assert not opened


def test_every_equation_number_in_the_notation_is_encoded_somewhere():
    """By a comment at the line that encodes it, or by the step that arrives at it."""
    source = "\n".join(path.read_text() for path in (ROOT / "theorykit").rglob("*.py"))
    commented = {int(number) for line in re.findall(r"#.*Eqs?\. (.*)", source) for number in re.findall(r"\d+", line)}
    steps = "\n".join(line for line in source.splitlines() if "equations" in line)
    ranges = [part for found in re.findall(r'"([\d, -]*\d)"', steps) for part in found.split(",")]
    recorded = {number for part in ranges for number in numbers_of(part)}
    rows = [line for line in (ROOT / "derivations" / "notation.md").read_text().splitlines() if line.startswith("| ")]
    listed = {int(number) for row in rows for number in re.findall(r"\((\d+)\)", row.split("|")[-2])}
    assert {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 29, 30, 32} <= commented
    assert listed <= commented | recorded


def numbers_of(part: str) -> range:
    first, _, last = part.strip().partition("-")
    return range(int(first), int(last or first) + 1)
