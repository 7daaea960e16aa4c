"""The derivations in `derivations/` are what their scripts write, and every step in them holds."""

import re
from pathlib import Path

import pytest

from .marks import slow
from .scripts import run_script

DERIVATIONS = sorted((Path(__file__).parent.parent / "derivations").glob("*.py"))
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
