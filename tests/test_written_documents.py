"""Documents on disk: both forms, a PDF where there is a LaTeX installation, and nothing overwritten unasked."""

import os
import re
import shutil
import subprocess

import pytest

from theorykit import bpkr, store
from theorykit.bpkr.action import document
from theorykit.dmft.derivation import document as dynamics
from theorykit.dmft.derivation.derivation import derive as derive_map
from theorykit.symbolic import Equation, Heading, Text, as_latex
from theorykit.symbolic.documents.document import Items

BLOCKS = (Heading("A 100 % test", 1), Text("Of $a_b$ and `c_d`, **bold**."), Equation("a", "b"), Items(("one", "two")))


def installation(folder, monkeypatch, script: str) -> None:
    """A `pdflatex` on the path that does what `script` says; its last argument is the source."""
    program = folder / "pdflatex"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_markdown_and_latex_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    written = store.write_document(BLOCKS, tmp_path / "test")
    assert [path.name for path in written] == ["test.md", "test.tex"]
    markdown, latex = (path.read_text() for path in written)
    assert "# A 100 % test" in markdown and "$$a = b$$" in markdown and "- two" in markdown
    assert r"A 100 \% test" in latex and r"\textbf{bold}" in latex and r"\texttt{c\_d}" in latex and "$a_b$" in latex


def test_a_pdf_is_written_where_latex_is_installed(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    installation(
        folder, monkeypatch, 'for last; do :; done; echo pdf > "${2#-output-directory=}/$(basename "$last" .tex).pdf"'
    )
    written = store.write_document(BLOCKS, tmp_path / "test")
    assert [path.suffix for path in written] == [".md", ".tex", ".pdf"]
    assert written[-1].read_text() == "pdf\n"


def test_a_failing_latex_run_says_so_and_keeps_the_source(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    installation(folder, monkeypatch, "echo '! Undefined control sequence.'; exit 1")
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
def test_every_kind_of_derivation_is_set_by_latex_within_the_page(tmp_path):
    action = bpkr.derive(bpkr.Architecture((bpkr.Skip(2), bpkr.Dense(), 2), widths=1, temperature=1.0, outputs=2))
    parts = (
        document.action_blocks,
        document.closed_forms_part,
        document.expansion_part,
        document.derivation_part,
        document.dual_part,
        document.finite_width_part,
    )
    assert_set_within_the_page(as_latex([block for part in parts for block in part(action)]), tmp_path)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a LaTeX installation")
@pytest.mark.parametrize("layers", [(2,), (2, 3), (2, 3, 2), (bpkr.Skip(2), 2)], ids=str)
def test_an_action_is_set_by_latex_in_an_article_of_others(layers, tmp_path):
    action = bpkr.derive(bpkr.Architecture(layers, widths=1, temperature=1.0, outputs=2))
    (tmp_path / "action.tex").write_text(bpkr.render_latex(action, steps=layers == (2, 3)))
    article = r"\documentclass{article}\usepackage{amsmath}\begin{document}\input{action}\end{document}"
    assert_set_within_the_page(article, tmp_path)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a LaTeX installation")
def test_the_derivation_of_the_dynamics_is_set_by_latex_within_the_page(tmp_path):
    assert_set_within_the_page(as_latex(dynamics.mean_field_blocks(derive_map())), tmp_path)


def assert_set_within_the_page(article, folder) -> None:
    source = folder / "test.tex"
    source.write_text(article)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", source.name]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-2000:]
    too_wide = map(float, re.findall(r"Overfull \\hbox \(([\d.]+)pt", finished.stdout))
    assert max(too_wide, default=0.0) < 5
    assert source.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
