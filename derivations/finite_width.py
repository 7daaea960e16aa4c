"""Derive the exact prior of the order parameters at finite width, and compare its leading order with the action.

Writes `finite_width.md` and `.tex` next to this script or into the folder given as argument.
Every formula is rendered from the expression that the generated code evaluates, and every
step is checked in the run that writes it.
"""

import sys
from pathlib import Path

from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.symbolic.documents import Block, Heading, Text, as_latex, as_markdown

INTRODUCTION = r"""
Back-propagating kernel renormalisation takes the widths to infinity at a fixed ratio to the number of examples. The
prior of the order parameters does not need this limit. Let the path weights $w^{(l+1)}$ of the partial paths from the
next layer on be given. Then the columns of $w^{(l)}$ are independent Gaussian vectors, and
$U_l = w^{(l)} w^{(l)T} / N_l$ has a Wishart distribution. The likelihood depends on the weights only through $U_1$, so
the posterior of the order parameters is known at every width. Its action is $S$ below with each entropy replaced by the
exact $-2 \log p$."""

AGREEMENT = r"""
For each layer of this network, the terms of the exact prior that grow with the width were compared with the entropy
from back-propagating kernel renormalisation. As expressions, they are equal."""


def contents() -> list[Block]:
    """Return the blocks of the document."""
    architecture = bpkr.Architecture((2, 3), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    return [
        Heading("Finite width", 1),
        Text(INTRODUCTION.strip()),
        *document.blocks(action, "action", "finite width"),
        Heading("The two routes agree"),
        Text(AGREEMENT.strip()),
    ]


def main(folder: Path) -> None:
    blocks = contents()
    (folder / "finite_width.md").write_text(as_markdown(blocks))
    (folder / "finite_width.tex").write_text(as_latex(blocks))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
