"""The derivations in `derivations/` are what their scripts write and hold, and a LaTeX installation sets them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from derivations import self_attention_dynamics
from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.symbolic.documents import as_latex

from .marks import slow
from .scripts import run_script

ROOT = Path(__file__).parent.parent
DERIVATIONS = sorted((ROOT / "derivations").glob("*.py"))
LONGEST = [script for script in DERIVATIONS if script.stem in ("deep_linear", "skip_connections")]
OTHERS = [script for script in DERIVATIONS if script not in LONGEST]


@pytest.mark.quick("finite_width")
@pytest.mark.parametrize("script", [*OTHERS, *slow(LONGEST)], ids=lambda path: path.stem)
def test_a_derivation_holds_and_is_what_is_committed(script, tmp_path):
    run_script(script, str(tmp_path))
    written = (tmp_path / script.with_suffix(".md").name).read_text()
    if script.stem in ("attention_paths", "self_attention_dynamics"):
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


@pytest.mark.parametrize("package", ["bpkr", "theories", "dmft"])
def test_the_notation_names_what_is_in_the_code(package):
    sources = [path for part in (package, "symbolic") for path in (ROOT / "theorykit" / part).rglob("*.py")]
    words = set(re.findall(r"\w+", " ".join(f"{path.name} {path.read_text()}" for path in sources)))
    text = (ROOT / "derivations/notation.md").read_text().partition(f"(`theorykit.{package}`)")[2].split("\n## ")[0]
    column = " ".join(row.split(" | ")[1] for row in text.splitlines() if row.startswith("| "))
    # In the code, a name that ends in l has a number there.
    names = re.findall(r"\b\w{2,}\b", " ".join(re.findall("`([^`]+)`", column)))
    assert {name for name in names if not name.endswith("_l")} <= words


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a LaTeX installation")
@pytest.mark.parametrize("theory", ["attention paths", "dynamics"])
def test_latex_sets_the_derivations(theory, tmp_path):
    if theory == "dynamics":
        article = as_latex(self_attention_dynamics.contents())
    else:
        action = bpkr.derive(bpkr.Architecture((bpkr.Skip(2), bpkr.Dense(), 2), widths=1, temperature=1.0, outputs=2))
        (tmp_path / "action.tex").write_text(
            as_latex(document.blocks(action, *document.USUAL, "derivation"), fragment=True)
        )
        article = r"\documentclass{article}\usepackage{amsmath}\begin{document}\input{action}\end{document}"
    (tmp_path / "test.tex").write_text(article)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "test.tex"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-2000:]
