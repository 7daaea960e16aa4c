"""Derive the deterministic map of an infinitely large 1-bit self-attention network from its generating functional.

Writes `self_attention_dynamics.md` and `.tex` next to this script or into the folder given as argument, and
`.pdf` if LaTeX is installed. Every formula is rendered from the expression that the generated code evaluates, and every
step is checked in the run that writes it.
"""

import sys
from pathlib import Path

from theorykit import store
from theorykit.dmft.derivation import document
from theorykit.dmft.derivation.derivation import derive
from theorykit.symbolic import Block, Definition, Heading, Text

INTRODUCTION = r"""
A network with one layer of self-attention generates its next token, of $N$ bits, and then reads it. As $N$ grows the
bits average out, and the next state of the network becomes a deterministic function of its past. This limit is
dynamical mean-field theory. The model is from Poc-López and Aguilera, arXiv 2406.07247. Names are listed in
`notation.md`. Equation numbers refer to this page."""


def contents() -> tuple[list[Block], list[Definition]]:
    """Return the blocks of the document, and the definitions of its symbols."""
    theory = derive()
    blocks = [
        Heading("Self-attention dynamics: from spins to a deterministic map", 1),
        Text(INTRODUCTION.strip()),
        *document.model_part(theory),
        *document.map_part(theory),
        *document.noise_part(theory),
        *document.derivation_part(theory),
    ]
    return blocks, document.definitions(theory)


def main(folder: Path) -> None:
    blocks, _ = contents()
    store.write_document(blocks, folder / "self_attention_dynamics", overwrite=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
