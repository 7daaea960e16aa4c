"""Derive the action of an attention layer with a skip connection, a case that the paper leaves open.

Writes `skip_connections.md` and `.tex` next to this script or into the folder given as argument.
Every formula is rendered from the expression that the generated code evaluates, and every
step is checked in the run that writes it.
"""

import sys
from pathlib import Path

from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.symbolic.documents import Block, Heading, Text, as_latex, as_markdown

INTRODUCTION = r"""
The first layer is attention with a skip connection of gain $s$, and the second is plain attention. The first layer
computes $x^l = s x^{l-1} + (H_l N_l)^{-1/2} \sum_h V^{lh} x^{l-1} \Omega^{lh}$, with equal widths on both sides.
Partial paths may take the skip connection, so the leading block of $U_l$ is $s^2 U_{l+1}$. Back-propagating kernel
renormalisation finds this block by itself: once the next layer is integrated out, the auxiliary overlap $Q_{l+1}$
occurs linearly, as a Lagrange multiplier. The skip connection carries the gain $s$ and no factor $1/\sqrt{H_l}$. The
leading order of the exact prior, derived by the second route, equals the entropies of the action. The run that wrote
this page compared both as expressions."""


def contents() -> list[Block]:
    """Return the blocks of the document."""
    architecture = bpkr.Architecture((bpkr.Skip(2), 2), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    return [
        Heading("Skip connections", 1),
        Text(INTRODUCTION.strip()),
        *document.blocks(action, "action", "derivation", "finite width"),
    ]


def main(folder: Path) -> None:
    blocks = contents()
    (folder / "skip_connections.md").write_text(as_markdown(blocks))
    (folder / "skip_connections.tex").write_text(as_latex(blocks))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
