"""Finite width, exactly: the prior of the order parameters by a second route, and what it says of the first.

Run it to write `finite_width.md` and `.tex` beside it, or into the folder given (and `.pdf` where there is a LaTeX
installation). Every formula there is rendered from the expression that the generated code evaluates, and every step
was checked in the run that wrote it.
"""

import sys
from pathlib import Path

from theorykit import bpkr, store
from theorykit.bpkr.action import document
from theorykit.symbolic import Block, Definition, Heading, Text

INTRODUCTION = r"""
Back-propagating kernel renormalisation takes the widths to infinity at a fixed ratio to the number of examples. The
prior of the order parameters needs no limit: given the path weights $w^{(l+1)}$ of the partial paths from the next
layer on, the columns of $w^{(l)}$ are independent Gaussians, and $U_l = w^{(l)} w^{(l)T} / N_l$ is Wishart. The
likelihood depends on the weights through $U_1$ alone, so the posterior of the order parameters is known at every width:
its action is the one below, $S$, with each entropy replaced by the exact $-2 \log p$."""

AGREEMENT = r"""
For each layer of this network, what grows with the width in the exact prior was compared with the entropy that
back-propagating kernel renormalisation arrives at. As expressions, they are equal."""


def contents() -> tuple[list[Block], list[Definition]]:
    """The parts of the document, and what its symbols stand for."""
    architecture = bpkr.Architecture((2, 3), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    blocks = [
        Heading("Finite width", 1),
        Text(INTRODUCTION.strip()),
        *document.action_part(action, architecture),
        *document.finite_width_part(action),
        Heading("The two routes agree"),
        Text(AGREEMENT.strip()),
    ]
    return blocks, document.definitions(action)


def main(folder: Path) -> None:
    blocks, _ = contents()
    store.write_document(blocks, folder / "finite_width", overwrite=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
