"""Derive the action of four layers, attention and dense, with the same steps as for two layers.

Writes `new_depth.md` and `.tex` next to this script or into the folder given as argument.
Every formula is rendered from the expression that the generated code evaluates, and every
step is checked in the run that writes it.
"""

import sys
from pathlib import Path

from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.symbolic.documents import Block, Heading, Text, as_latex, as_markdown

INTRODUCTION = r"""
The network has three attention layers and a dense layer before the last of them. The same steps are stated for every
layer, from the last to the first, so nothing below is specific to the number of layers. The dense layer has one block
of weights, so its order parameter has the same size as the one after it."""


def contents() -> list[Block]:
    """Return the blocks of the document."""
    architecture = bpkr.Architecture((2, 2, bpkr.Dense(), 3), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    return [
        Heading("A new depth", 1),
        Text(INTRODUCTION.strip()),
        *document.blocks(action, "action", "derivation"),
    ]


def main(folder: Path) -> None:
    blocks = contents()
    (folder / "new_depth.md").write_text(as_markdown(blocks))
    (folder / "new_depth.tex").write_text(as_latex(blocks))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
