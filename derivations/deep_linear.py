"""Derive the action of deep linear networks, and the known scalar self-consistency of its order parameters.

Writes `deep_linear.md` and `.tex` next to this script or into the folder given as argument.
Every formula is rendered from the expression that the generated code evaluates, and every
step is checked in the run that writes it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sympy import Expr, simplify, solve, symbols

import theorykit
from theorykit import bpkr
from theorykit.bpkr.action import document
from theorykit.symbolic import gradient
from theorykit.symbolic.algebra import as_number
from theorykit.symbolic.documents import Block, Equation, Heading, Text, as_latex, as_markdown
from theorykit.symbolic.documents.rendering import latex

INTRODUCTION = r"""
Without attention there is a single path, and every $U_l$ is a number $u_l$. The theory must then reproduce the result
of Li and Sompolinsky for deep linear networks (Phys. Rev. X 11, 031059, 2021). They found that a single number, the
solution of a scalar self-consistency equation, renormalises the kernel of the infinitely wide network."""
CONSISTENCY = r"""
Let all widths be $N$ and all variances $\sigma^2$. SymPy solves the saddle-point equations of $u_2$ and $u$. The
ratios $r = u_1 / (\sigma^2 u_2) = u_2 / (\sigma^2 u) = u / \sigma^2$ are then equal. Hence $u_1 = (\sigma^2 r)^3$, and
$u_1 = (\sigma^2 r)^{L+1}$ for $L$ layers. The derivative of the entropy with respect to $u_1$, times $u_1$, is"""
KNOWN = r"""
With $K = u_1 K_0$ at zero temperature, $E = P \log u_1 + y^T K_0^{-1} y / u_1$ up to a constant. The saddle point
then satisfies $1 - r = \alpha (1 - r_0 / u_1)$, with $\alpha = P / N$ and $r_0 = y^T K_0^{-1} y / P$. This is the
self-consistency of Li and Sompolinsky for $u_0 = \sigma^2 r$. The solver was run on random data at $T = 10^{-8}$, at
widths below, equal to and above the number of examples. Its saddle points satisfy the equation to 1e-6, and their order
parameters are the powers of $u_0$."""


def contents() -> list[Block]:
    """Return the blocks of the document."""
    theorykit.enable_float64()
    architecture = bpkr.Architecture((bpkr.Dense(), bpkr.Dense()), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    check_solutions()
    return [
        Heading("Deep linear networks", 1),
        Text(INTRODUCTION.strip()),
        *document.blocks(action, "action"),
        Heading("The scalar self-consistency"),
        *self_consistency(action),
        *document.blocks(action, "derivation"),
    ]


def main(folder: Path) -> None:
    blocks = contents()
    (folder / "deep_linear.md").write_text(as_markdown(blocks))
    (folder / "deep_linear.tex").write_text(as_latex(blocks))


def self_consistency(action: bpkr.Action) -> Iterator[Block]:
    """Yield the saddle-point equations in numbers, and their form for equal widths and variances."""
    first, second, last = (*symbols("u_1 u_2", positive=True), action.symbols.readout)
    entropy = action.entropy
    for matrix, number in zip(action.symbols.matrices, (first, second), strict=True):
        entropy = as_number(entropy, matrix, number)
    yield Text("The order parameters are 1 x 1 matrices. With numbers in their place, the entropy is")
    yield Equation("S - E", latex(entropy))
    width, variance, ratio = symbols("N sigma2 r", positive=True)
    equal = dict.fromkeys(action.symbols.widths, width) | dict.fromkeys(action.symbols.variances, variance)
    slopes = {number: gradient(entropy, number).subs(equal) for number in (first, second, last)}
    (found,) = solve([slopes[second], slopes[last]], [second, last], dict=True)
    at_ratio = {first: (variance * ratio) ** 3}
    hold(found[second].subs(at_ratio) - (variance * ratio) ** 2)
    hold(found[last].subs(at_ratio) - variance * ratio)
    left = simplify((first * slopes[first].subs(found)).subs(at_ratio))
    hold(left - width * (ratio - 1))
    yield Text(CONSISTENCY.strip())
    yield Equation(r"u_1 \frac{\partial (S - E)}{\partial u_1}", latex(left))
    yield Text(KNOWN.strip())


def hold(difference: Expr) -> None:
    """Raise unless an expression is zero."""
    if simplify(difference) != 0:
        raise AssertionError(f"a statement of this derivation does not hold: {difference} is not zero")


def check_solutions() -> None:
    """Check that the solver's saddle points satisfy the self-consistency, for random data."""
    rng = np.random.default_rng(0)
    features, labels, variance = rng.normal(size=(12, 1, 40)) / np.sqrt(40), rng.normal(size=12), 1.3
    overlap = features[:, 0] @ features[:, 0].T
    for width in (5.0, 12.0, 100.0):
        layers = (bpkr.Dense(), bpkr.Dense())
        architecture = bpkr.Architecture(layers, width, (1.0, variance, variance, variance), temperature=1e-8)
        point = bpkr.solve(architecture, bpkr.Data(features, labels)).order_parameters
        numbers = [float(matrix[0, 0]) for matrix in point.matrices] + [float(point.readout)]
        renormalised = numbers[-1]  # u_0 of Li and Sompolinsky
        near(numbers, [renormalised**3, renormalised**2, renormalised])
        misfit = labels @ np.linalg.solve(overlap, labels) / len(labels)
        near(1 - renormalised / variance, len(labels) / width * (1 - misfit / numbers[0]))


def near(found, expected) -> None:
    """Raise unless both agree to 1e-6 of the largest expected number, or of one if that is larger."""
    error = np.max(np.abs(np.subtract(found, expected))) / max(1.0, np.max(np.abs(expected)))
    if not error < 1e-6:
        raise AssertionError(f"a statement of this derivation does not hold: {found} is not {expected}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
