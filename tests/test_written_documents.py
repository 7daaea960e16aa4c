"""Documents on disk: Markdown, LaTeX, a PDF if LaTeX is installed; nothing is overwritten unless asked."""

import os
import shutil
import subprocess

import pytest

from derivations import self_attention_dynamics
from theorykit import bpkr, store
from theorykit.bpkr.action import document
from theorykit.symbolic import Equation, Heading, Text, as_latex
from theorykit.symbolic.documents.document import Items

BLOCKS = (Heading("A 100 % test", 1), Text("Of $a_b$ and `c_d`, **bold**."), Equation("a", "b"), Items(("one", "two")))


def test_markdown_and_latex_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    written = store.write_document(BLOCKS, tmp_path / "test")
    assert [path.name for path in written] == ["test.md", "test.tex"]
    markdown, latex = (path.read_text() for path in written)
    assert "# A 100 % test" in markdown and "$$a = b$$" in markdown and "- two" in markdown
    assert r"A 100 \% test" in latex and r"\textbf{bold}" in latex and r"\texttt{c\_d}" in latex and "$a_b$" in latex


def test_a_failing_latex_run_says_so_and_keeps_the_source(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "pdflatex").write_text("#!/bin/sh\necho '! Undefined control sequence.'; exit 1\n")
    (folder / "pdflatex").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ValueError, match="Undefined control sequence"):
        store.write_document(BLOCKS, tmp_path / "test")
    assert (tmp_path / "test.tex").exists()


@pytest.mark.parametrize("suffix", [".md", ".tex", ".pdf"])
def test_nothing_is_overwritten_unasked(suffix, tmp_path):
    existing = (tmp_path / "test").with_suffix(suffix)
    existing.write_text("mine")
    with pytest.raises(FileExistsError):
        store.write_document(BLOCKS, tmp_path / "test")
    assert [path.name for path in tmp_path.iterdir()] == [existing.name]
    assert existing.read_text() == "mine"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a LaTeX installation")
@pytest.mark.parametrize("theory", ["attention paths", "dynamics"])
def test_latex_sets_the_derivations(theory, tmp_path):
    if theory == "dynamics":
        article = as_latex(self_attention_dynamics.contents()[0])
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
