"""Skip connections: a skip connection beside a layer of attention, which the paper leaves open.

Run it to write `skip_connections.md` and `.tex` beside it, or into the folder given (and `.pdf` where there is a LaTeX
installation). Every formula there is rendered from the expression that the generated code evaluates, and every step
was checked in the run that wrote it.
"""

import sys
from pathlib import Path

from theorykit import bpkr, store
from theorykit.bpkr.action import document
from theorykit.symbolic import Block, Definition, Heading, Text

INTRODUCTION = r"""
A layer of attention beside which the activations also pass straight on, with gain $s$, under a plain one:
$x^l = s x^{l-1} + (H_l N_l)^{-1/2} \sum_h V^{lh} x^{l-1} \Omega^{lh}$, at equal widths. Every partial path may also go
straight, and $U_l$ holds $s^2 U_{l+1}$ as its leading block. Back-propagation finds this by itself: the auxiliary
overlap $Q_{l+1}$ occurs linearly once the next layer is integrated, as a Lagrange multiplier. The skip connection
carries the gain and no $1/\sqrt{H_l}$. The leading order of the exact prior, by the second route, and the entropies of
the action were found equal as expressions in the run that wrote this."""


def contents() -> tuple[list[Block], list[Definition]]:
    """The parts of the document, and what its symbols stand for."""
    architecture = bpkr.Architecture((bpkr.Skip(2), 2), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    blocks = [
        Heading("Skip connections", 1),
        Text(INTRODUCTION.strip()),
        *document.action_part(action, architecture),
        *document.expansion_part(action, action.expansion.derivation.verify()),
        *document.derivation_part(action),
        *document.finite_width_part(action),
    ]
    return blocks, document.definitions(action)


def main(folder: Path) -> None:
    blocks, _ = contents()
    store.write_document(blocks, folder / "skip_connections", overwrite=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
