"""Deep linear networks: no attention, order parameters that are numbers, and the known self-consistency of one.

Run it to write `deep_linear.md` and `.tex` beside it, or into the folder given (and `.pdf` where there is a LaTeX
installation). Every formula there is rendered from the expression that the generated code evaluates, and every step
was checked in the run that wrote it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sympy import Expr, simplify, solve, symbols

import theorykit
from theorykit import bpkr, store
from theorykit.bpkr.action import document
from theorykit.derivation import rules
from theorykit.symbolic import Block, Definition, Equation, Heading, Text, gradient, latex

INTRODUCTION = r"""
Without attention there is one path, and every $U_l$ is a number $u_l$. What Li and Sompolinsky found for deep linear
networks (Phys. Rev. X 11, 031059, 2021) must come out: one number, the solution of a scalar self-consistency,
renormalises the kernel of the infinitely wide network."""
CONSISTENCY = r"""
Let all widths be $N$, all variances $\sigma^2$. The equations of $u_2$ and $u$, solved by SymPy, make the ratios
$r = u_1 / (\sigma^2 u_2) = u_2 / (\sigma^2 u) = u / \sigma^2$ equal, so that $u_1 = (\sigma^2 r)^3$, and in general
$(\sigma^2 r)^{L+1}$. What the entropy then says of $u_1$ is"""
KNOWN = r"""
With $K = u_1 K_0$ and $E = P \log u_1 + y^T K_0^{-1} y / u_1$ at zero temperature, up to a constant, the saddle point
is at $1 - r = \alpha (1 - r_0 / u_1)$, with $\alpha = P / N$ and $r_0 = y^T K_0^{-1} y / P$: the self-consistency of Li
and Sompolinsky for $u_0 = \sigma^2 r$. The saddle point that the solver finds for random data at $T = 10^{-8}$
satisfies it to 1e-6, and its order parameters are the powers of $u_0$, at three widths below and above the number of
examples."""


def contents() -> tuple[list[Block], list[Definition]]:
    """The parts of the document, and what its symbols stand for."""
    theorykit.enable_float64()
    architecture = bpkr.Architecture((bpkr.Dense(), bpkr.Dense()), widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    check_solutions()
    blocks = [
        Heading("Deep linear networks", 1),
        Text(INTRODUCTION.strip()),
        *document.action_part(action, architecture),
        Heading("The scalar self-consistency"),
        *self_consistency(action),
        *document.expansion_part(action, action.expansion.derivation.verify()),
        *document.derivation_part(action),
    ]
    return blocks, document.definitions(action)


def main(folder: Path) -> None:
    blocks, _ = contents()
    store.write_document(blocks, folder / "deep_linear", overwrite=True)


def self_consistency(action: bpkr.Action) -> Iterator[Block]:
    """The saddle-point equations in numbers, and what is left of them when all widths and variances are equal."""
    first, second, last = (*symbols("u_1 u_2", positive=True), action.symbols.readout)
    entropy = action.entropy
    for matrix, number in zip(action.symbols.matrices, (first, second), strict=True):
        entropy = rules.write_as_number(entropy, matrix, number).after
    yield Text("The order parameters are 1 x 1 matrices. As numbers, the entropy is")
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
    """The solver's saddle points satisfy the self-consistency, for random data and variances."""
    rng = np.random.default_rng(0)
    features, labels, variance = rng.normal(size=(12, 1, 40)) / np.sqrt(40), rng.normal(size=12), 1.3
    overlap = features[:, 0] @ features[:, 0].T
    for width in (5.0, 12.0, 100.0):
        layers = (bpkr.Dense(), bpkr.Dense())
        architecture = bpkr.Architecture(layers, width, (1.0, variance, variance, variance), temperature=1e-8)
        point = bpkr.solve(architecture, bpkr.Data(features, labels)).order_parameters
        numbers = [float(matrix[0, 0]) for matrix in point.matrices] + [float(point.readout)]
        renormalised = numbers[-1]  # u_0 of the paper on deep linear networks
        near(numbers, [renormalised**3, renormalised**2, renormalised])
        misfit = labels @ np.linalg.solve(overlap, labels) / len(labels)
        near(1 - renormalised / variance, len(labels) / width * (1 - misfit / numbers[0]))


def near(found, expected) -> None:
    """Raise unless both agree to 1e-6, relative to the largest number or to one."""
    error = np.max(np.abs(np.subtract(found, expected))) / max(1.0, np.max(np.abs(expected)))
    if not error < 1e-6:
        raise AssertionError(f"a statement of this derivation does not hold: {found} is not {expected}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
