"""What a person reads is true: the README's session, the derivations, and the notation."""

import doctest
import re
from pathlib import Path

import pytest

from .scripts import run_script

ROOT = Path(__file__).parent.parent
DERIVATIONS = sorted((ROOT / "derivations").glob("*.py"))


def test_the_readme_session_holds():
    failures, attempted = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert attempted > 10
    assert failures == 0


@pytest.mark.parametrize("script", DERIVATIONS, ids=lambda path: path.stem)
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
