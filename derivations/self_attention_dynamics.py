"""The deterministic map that a 1-bit self-attention network follows at infinite size, from its generating functional.

Run it to write `self_attention_dynamics.md` and `.tex` beside it, or into the folder given (and `.pdf` where there is a
LaTeX installation). Every formula there is rendered from the expression that the generated code evaluates, and every
step was checked in the run that wrote it.
"""

import sys
from pathlib import Path

from theorykit import store
from theorykit.dmft.derivation import document
from theorykit.dmft.derivation.derivation import derive
from theorykit.symbolic import Block, Definition, Heading, Text

INTRODUCTION = r"""
A network of one layer of self-attention writes its own next token, of $N$ bits, which it then reads. As $N$ grows the
bits average out, and what the network does next is a function of what it did before: dynamical mean-field theory. The
model is that of Poc-López and Aguilera, arXiv 2406.07247. Names are listed in `notation.md`; equation numbers are those
given here."""


def contents() -> tuple[list[Block], list[Definition]]:
    """The parts of the document, and what its symbols stand for."""
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
