"""Documents as Markdown and LaTeX, which a LaTeX installation sets."""

import os
import shutil
import subprocess

import pytest

from derivations import self_attention_dynamics
from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.runs import write
from theorykit.symbolic import Equation, Heading, Text, as_latex, as_markdown
from theorykit.symbolic.documents.document import Items

BLOCKS = (Heading("A 100 % test", 1), Text("Of $a_b$ and `c_d`, **bold**."), Equation("a", "b"), Items(("one", "two")))


def test_markdown_and_latex_are_written():
    markdown, latex = as_markdown(BLOCKS), as_latex(BLOCKS)
    assert "# A 100 % test" in markdown and "$$a = b$$" in markdown and "- two" in markdown
    assert r"A 100 \% test" in latex and r"\textbf{bold}" in latex and r"\texttt{c\_d}" in latex and "$a_b$" in latex


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


def test_a_file_is_replaced_only_on_demand_and_never_in_part(tmp_path):
    path = tmp_path / "a" / "mine.txt"
    write("mine", path)
    with pytest.raises(FileExistsError, match=r"mine\.txt exists"):
        write("other", path)
    write(b"other", path, overwrite=True)
    assert path.read_text() == "other" and os.listdir(path.parent) == ["mine.txt"]
