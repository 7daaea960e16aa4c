"""Several outputs: the readout order parameter becomes a matrix, and every path gains an output index.

Run it to write `multiple_outputs.md` and `.tex` beside it, or into the folder given (and `.pdf` where there is a LaTeX
installation). Every formula there is rendered from the expression that the generated code evaluates, and every step
was checked in the run that wrote it.
"""

import sys
from pathlib import Path

from theorykit import bpkr, store
from theorykit.bpkr.action import document
from theorykit.symbolic import Block, Definition, Heading, Text

INTRODUCTION = r"""
With $C$ outputs, $f_c(x) = a_c \cdot x^L_{t^*} / \sqrt{N_a}$, the overlap of the readout weights is a $C \times C$
matrix and the kernel one between pairs of an example and an output. The design $\Phi$ has one row a pair, with
$\Phi_{(\mu c)(\pi c')} = \phi^\pi_\mu \delta_{cc'}$, so that
$K_{(\mu c)(\nu c')} = \sum_{\pi\pi'} U_1^{(\pi c)(\pi' c')} \phi^\pi_\mu \cdot \phi^{\pi'}_\nu$."""


def contents() -> tuple[list[Block], list[Definition]]:
    """The parts of the document, and what its symbols stand for."""
    architecture = bpkr.Architecture((2, 2), widths=1, temperature=1.0, outputs=3)
    action = bpkr.derive(architecture)
    blocks = [
        Heading("Several outputs", 1),
        Text(INTRODUCTION.strip()),
        *document.action_part(action, architecture),
        *document.closed_forms_part(action),
        *document.expansion_part(action, action.expansion.derivation.verify()),
        *document.derivation_part(action),
    ]
    return blocks, document.definitions(action)


def main(folder: Path) -> None:
    blocks, _ = contents()
    store.write_document(blocks, folder / "multiple_outputs", overwrite=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
