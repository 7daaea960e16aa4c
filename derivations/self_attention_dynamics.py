"""Derive the deterministic map of an infinitely large 1-bit self-attention network from its generating functional.

Writes `self_attention_dynamics.md` and `.tex` next to this script or into the folder given as argument.
Every formula is rendered from the expression that the generated code evaluates, and every
step is checked in the run that writes it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from theorykit import dmft
from theorykit.derivation.step import derivation_blocks, verification_blocks
from theorykit.dmft.derivation import HORIZON, LATEX_NAMES, MeanField, TrajectorySymbols, written
from theorykit.symbolic.documents import Block, Equation, Heading, Text, as_latex, as_markdown
from theorykit.symbolic.documents.rendering import latex

INTRODUCTION = r"""
A network with one layer of self-attention generates its next token, of $N$ bits, and then reads it. As $N$ grows the
bits average out, and the next state of the network becomes a deterministic function of its past. This limit is
dynamical mean-field theory. The model is from Poc-López and Aguilera, arXiv 2406.07247. Names are listed in
`notation.md`. Equation numbers refer to this page."""
_MODEL = r"""
A token at time $t$ has $N$ semantic bits, the spins $s_t \in \{-1, 1\}^N$, and a position. Four families of weights
$W_\alpha$ ($M \times N$, entries $\pm 1$), $\alpha \in \{o, v, q, k\}$, read it. $W$ stacks the four families, and
$P_\alpha$ picks one, $W_\alpha = P_\alpha W$. The overlaps of a token are the $4M$ numbers"""
_ATTENTION = r"""
with given overlaps $r_t$ of the positional bits. For the $L$ latest tokens, newest first, $V_t$ and $K_t$
($L \times M$) hold the overlaps of the families $v$ and $k$, one token per row. The attention is"""
_ROWS = r"""
Here $e_d$ is the unit column of row $d$, and zero for $d \geq L$: that token has left the context. $\ell_t$ is minus
infinity in rows without a token, and zero otherwise. $m_0$ and $A_0$ belong to the prompt. In units of the weights,
$\gamma = \beta_{\text{att}} c_{\text{att}} / \sqrt{M}$, Eq. (3). Given the past, the spins are independent, and the
previous attention drives them:"""
_ENTRIES = r"""
Functions of columns act on each entry, and $\mathbf{1}$ is a row of ones."""
_MAP = r"""
Neurons whose output weights agree up to a sign form one class. $\Omega$ ($J \times M$) holds the output weights of the
$J$ classes, one per row. $C$ ($J \times M$) holds, for each family $\alpha$ in turn, the sums of $\pm W_\alpha^T / N$
over the neurons of each class, with the sign of their output weights. As $N \to \infty$, the overlaps of a token that
the attention $A$ generates converge to"""
_NEXT = r"""
and the attention of its query $q$ to the tokens with keys $K$ and values $V$ is"""
_RESPONSES = r"""
$D^\alpha$ is the derivative of the overlaps of family $\alpha$ with respect to the attention that generated their
token. Row $d$ of $G$ ($L \times M$) is the derivative of the attention with respect to the exponent of row $d$:"""
_BLOCKS = r"""
Let $\sigma_d$ be the weight of row $d$ in the attention and $g_d^T$ row $d$ of $G$. The derivative of the attention
with respect to $A_d$, the attention that generated token $d$, is a block of the Jacobian. It depends on $D^v$ and $D^k$
of that token. For the newest token, $d = 0$, it also depends on $D^q$, because this token provides the query:"""
_NOISE = r"""
A network of finite size deviates from the map. Given the previous attention $A$, the spins of a token are independent.
Its overlaps, stacked over all four families, have the means of the map and covariances proportional to $1/N$. Here a
class of neurons shares all weights up to a common sign. $X$ ($J \times 4M$) holds the weights of the classes, one class
per row. $\bar{X}$ holds the sums of these weights over the neurons of each class, divided by $N$. $\Omega$ holds the
output weights in $X$. Then the covariance of the overlaps is $Q / N$ with"""
_CARRIED = r"""
For large $N$ the overlaps are Gaussian, and their deviations are so small that the derivative of the map propagates
them. The state consists of attention, keys and values. Let $\mathcal{J}$ be the derivative of the next state with
respect to the previous one, and $H$ its derivative with respect to the overlaps of the new token. The covariance
$\Sigma$ of the states of networks with the same start is zero at first. Then, to leading order in $1/N$,
$\Sigma' = \mathcal{J} \Sigma \mathcal{J}^T + H Q H^T / N$. The map and $Q$ have the same, given weights: only the spins
are random."""
_GENERATING = r"""
The generating functional $Z$ is the sum of $\prod_t P(s_t)\, e^{j_t^T m_t}$ over all spins. Integrands are written
$e^{-S/2}$, so that $S = -2 N \Phi$. Overlaps are integrated over all real numbers and their conjugates $\hat m_t$ along
the imaginary axis, which gives delta functions. Powers of $N / 2 \pi i$ are left out. Three tokens after the prompt
suffice to show all effects. An overlap acts as query, key and value in the attention of its own token. In a later
attention, it acts as key and value. The last overlap acts on nothing."""
_CAUSALITY = r"""
Sources $j_t$ are of order one and do not move the saddle point. There, the conjugates vanish backwards in time. The
last overlaps drive nothing more, so $\hat m_3 = 0$. Then $F_2$, the gradient of $S$ with respect to $A_2$, is zero: for
any $A_2$, the probabilities of the spins that it drives sum to one. Hence $\hat m_2 = 0$, then $F_1 = 0$, and so on. At
this saddle point $S = 0$, as $Z = 1$ without sources requires. The previous attention determines the overlaps of every
token: this is the map."""
_CHECKED = r"""
Each step states two formulas and the relation between them. Its check uses nothing else."""


def contents() -> list[Block]:
    """Return the blocks of the document."""
    theory = dmft.derive()
    return [
        Heading("Self-attention dynamics: from spins to a deterministic map", 1),
        Text(INTRODUCTION.strip()),
        *model_part(),
        *map_part(theory),
        *noise_part(theory),
        *derivation_part(theory),
    ]


def model_part() -> Iterator[Block]:
    """Yield the definition of the network, at the last time step of the derivation."""
    path, names = TrajectorySymbols(), LATEX_NAMES
    definitions = path.attention_definitions(HORIZON - 1)
    *rows, weights, attention = [(latex(symbol, names), latex(value, names)) for symbol, value in definitions]
    probability = rf"\log P\left({latex(path.spins(HORIZON))}\right)"
    overlap = latex(path.overlap(HORIZON), names)
    yield from (Heading("Model"), Text(_MODEL.strip()))
    yield Equation(overlap, latex(path.overlap_of_spins(HORIZON), names), source="1")
    yield from (Text(_ATTENTION.strip()), Equation(attention[0], attention[1], source="2"))
    yield from (Equation(*sides) for sides in (weights, *rows))
    yield Text(_ROWS.strip())
    yield Equation(probability, latex(path.log_probability(HORIZON), names), source="4")
    yield Text(_ENTRIES.strip())


def map_part(theory: MeanField) -> Iterator[Block]:
    """Yield the resulting map and its responses."""
    overlap, attention, of_overlap, of_exponents, block = theory.equations
    yield from (Heading("Map"), Text(_MAP.strip()), overlap, Text(_NEXT.strip()), attention)
    yield from (Heading("Linear responses"), Text(_RESPONSES.strip()), of_overlap, of_exponents)
    yield from (Text(_BLOCKS.strip()), block)


def noise_part(theory: MeanField) -> Iterator[Block]:
    """Yield the deviations of a network of finite size from the map."""
    yield from (Heading("Fluctuations"), Text(_NOISE.strip()))
    yield Equation("Q", written(theory.noise), source="9")
    yield Text(_CARRIED.strip())


def derivation_part(theory: MeanField) -> Iterator[Block]:
    """Yield every step from the generating functional to the map and its responses, and the results of the checks."""
    yield Heading("Derivation, step by step")
    for paragraph in (_GENERATING, _CAUSALITY, _CHECKED):
        yield Text(paragraph.strip())
    verification = theory.derivation.verify()
    yield from verification_blocks(verification)
    yield from derivation_blocks(theory.derivation, LATEX_NAMES)


def main(folder: Path) -> None:
    blocks = contents()
    (folder / "self_attention_dynamics.md").write_text(as_markdown(blocks))
    (folder / "self_attention_dynamics.tex").write_text(as_latex(blocks))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
