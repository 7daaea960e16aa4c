"""Derive the action for several outputs: a matrix as readout order parameter, and paths with an output index.

Writes `multiple_outputs.md` and `.tex` next to this script or into the folder given as argument.
Every formula is rendered from the expression that the generated code evaluates, and every
step is checked in the run that writes it.
"""

import sys
from pathlib import Path

from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.symbolic.documents import Block, Heading, Text, as_latex, as_markdown

INTRODUCTION = r"""
With $C$ outputs, $f_c(x) = a_c \cdot x^L_{t^*} / \sqrt{N_a}$, the overlap of the readout weights is a $C \times C$
matrix. The kernel is a matrix between pairs of an example and an output. The design matrix $\Phi$ has one row per pair,
with $\Phi_{(\mu c)(\pi c')} = \phi^\pi_\mu \delta_{cc'}$, so that
$K_{(\mu c)(\nu c')} = \sum_{\pi\pi'} U_1^{(\pi c)(\pi' c')} \phi^\pi_\mu \cdot \phi^{\pi'}_\nu$."""


def contents() -> list[Block]:
    """Return the blocks of the document."""
    architecture = bpkr.Architecture((2, 2), widths=1, temperature=1.0, outputs=3)
    action = bpkr.derive(architecture)
    return [
        Heading("Several outputs", 1),
        Text(INTRODUCTION.strip()),
        *document.blocks(action, "action", "derivation"),
    ]


def main(folder: Path) -> None:
    blocks = contents()
    (folder / "multiple_outputs.md").write_text(as_markdown(blocks))
    (folder / "multiple_outputs.tex").write_text(as_latex(blocks))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
