"""A new depth: four layers, of attention and of a dense block, each step as for two.

Run it to write `new_depth.md` and `.tex` beside it, or into the folder given (and `.pdf` where there is a LaTeX
installation). Every formula there is rendered from the expression that the generated code evaluates, and every step
was checked in the run that wrote it.
"""

import sys
from pathlib import Path

from theorykit import bpkr, store
from theorykit.bpkr.action import document
from theorykit.symbolic import Block, Definition, Heading, Text

INTRODUCTION = r"""
Three layers of attention with a dense layer among them. Every layer repeats the same rules on what the layer after it
left; nothing below is particular to the number of layers. The dense layer has one block of weights, so its order
parameter is no larger than the one after it."""


def contents() -> tuple[list[Block], list[Definition]]:
    """The parts of the document, and what its symbols stand for."""
    architecture = bpkr.Architecture((2, 2, bpkr.Dense(), 3), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    blocks = [
        Heading("A new depth", 1),
        Text(INTRODUCTION.strip()),
        *document.action_part(action, architecture),
        *document.closed_forms_part(action),
        *document.expansion_part(action, action.expansion.derivation.verify()),
        *document.derivation_part(action),
    ]
    return blocks, document.definitions(action)


def main(folder: Path) -> None:
    blocks, _ = contents()
    store.write_document(blocks, folder / "new_depth", overwrite=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
