"""Derive the action of a network with two attention layers, as the paper does.

Writes `attention_paths.md` and `.tex` next to this script or into the folder given as argument.
Every formula is rendered from the expression that the generated code evaluates, and every
step is checked in the run that writes it.
"""

import sys
from pathlib import Path

from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.symbolic.documents import Block, Heading, Text, as_latex, as_markdown

INTRODUCTION = r"""
The network reads a sequence $x$ of tokens, with fixed attention $\Omega^{lh}$ in layer $l$ and head $h$. Its
activations are $x^0 = V^0 x / \sqrt{N_0}$ and
$x^l_t = (H_l N_l)^{-1/2} \sum_{h, s} V^{lh} x^{l-1}_s \Omega^{lh}_{st}$, and its output is
$f(x) = a \cdot x^L_{t^*} / \sqrt{N_a}$. The weights $V^0, V^{lh}, a$ have Gaussian priors and are trained on $P$
labels $y$ at temperature $T$. Integrating out the weights at finite width leaves order parameters $U_l$ between partial
attention paths. Their posterior is proportional to $e^{-S/2}$. Names are listed in `notation.md`. Equation numbers
refer to Tiberi et al., arXiv 2405.15926."""


def contents() -> list[Block]:
    """Return the blocks of the document."""
    architecture = bpkr.Architecture((2, 3), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    return [
        Heading("Attention paths: the action of two layers", 1),
        Text(INTRODUCTION.strip()),
        *document.blocks(action, "action", "derivation"),
    ]


def main(folder: Path) -> None:
    blocks = contents()
    (folder / "attention_paths.md").write_text(as_markdown(blocks))
    (folder / "attention_paths.tex").write_text(as_latex(blocks))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
