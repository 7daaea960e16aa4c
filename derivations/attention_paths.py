"""The action of a network with two attention layers, derived as the paper does.

Run it to write `attention_paths.md` and `.tex` beside it, or into the folder given (and `.pdf` where there is a LaTeX
installation). Every formula there is rendered from the expression that the generated code evaluates, and every step
was checked in the run that wrote it.
"""

import sys
from pathlib import Path

from theorykit import bpkr, store
from theorykit.bpkr.action import document
from theorykit.symbolic import Block, Definition, Heading, Text

INTRODUCTION = r"""
The network reads a sequence $x$ of tokens, with fixed attention $\Omega^{lh}$ in layer $l$ and head $h$:
$x^0 = V^0 x / \sqrt{N_0}$, $x^l_t = (H_l N_l)^{-1/2} \sum_{h, s} V^{lh} x^{l-1}_s \Omega^{lh}_{st}$, and
$f(x) = a \cdot x^L_{t^*} / \sqrt{N_a}$. Its weights $V^0, V^{lh}, a$ have Gaussian priors and are trained on $P$
labels $y$ at temperature $T$. What is left of them at finite width are order parameters $U_l$ between partial attention
paths, whose posterior goes as $e^{-S/2}$. Names are listed in `notation.md`; equation numbers are those of Tiberi et
al., arXiv 2405.15926."""


def contents() -> tuple[list[Block], list[Definition]]:
    """The parts of the document, and what its symbols stand for."""
    architecture = bpkr.Architecture((2, 3), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    blocks = [
        Heading("Attention paths: the action of two layers", 1),
        Text(INTRODUCTION.strip()),
        *document.action_part(action, architecture),
        *document.closed_forms_part(action),
        *document.expansion_part(action, action.expansion.derivation.verify()),
        *document.derivation_part(action),
        *document.dual_part(action),
    ]
    return blocks, document.definitions(action)


def main(folder: Path) -> None:
    blocks, _ = contents()
    store.write_document(blocks, folder / "attention_paths", overwrite=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
