"""The action of a network with two attention layers: written out, differentiated, and checked.

Run it to write `attention_paths.md` beside it, or into the folder given. Every equation there is rendered from the
expression that the generated code evaluates, and every line under "Checked" was computed in the run that wrote it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sympy import Expr

import theorykit
from theorykit import bpkr
from theorykit.codegen import interpret
from theorykit.symbolic import gradient, latex

SIZES = {"H_1": 2, "H_2": 3, "P": 7, "N_0": 4}
PREAMBLE = """\
<!-- Written by derivations/attention_paths.py. Do not edit. -->

The network reads a sequence $x$ of tokens, with fixed attention $\\Omega^{lh}$ in layer $l$ and head $h$:

$$x^0 = \\frac{V^0 x}{\\sqrt{N_0}}, \\qquad
x^l_t = \\frac{1}{\\sqrt{H_l N_l}} \\sum_{h, s} V^{lh} x^{l-1}_s \\Omega^{lh}_{st}, \\qquad
f(x) = \\frac{a \\cdot x^L_{t^*}}{\\sqrt{N_a}}.$$

Its weights $V^0, V^{lh}, a$ have Gaussian priors and are trained on $P$ labels $y$ at temperature $T$. What is left of
them at finite width are order parameters $U_l$ between partial attention paths, whose posterior goes as $e^{-S/2}$.
Names are listed in [notation.md](notation.md).
"""


def main(folder: Path) -> None:
    theorykit.enable_float64()
    action = bpkr.derive(bpkr.Architecture(heads=(SIZES["H_1"], SIZES["H_2"]), widths=1, temperature=1.0))
    checks = [f"- {statement}" for statement in checked(action)]
    document = "\n".join([action.markdown(), "## Checked", "", *checks, ""])
    title, body = document.split("\n", 1)
    (folder / "attention_paths.md").write_text(f"{title}\n\n{PREAMBLE}{body}")


def checked(action: bpkr.Action) -> Iterator[str]:
    """What holds of the action, each statement after the computation that would have failed."""
    symbols, values = action.symbols, random_values(action)
    numbers = {argument.name: values[argument.name] for argument in symbols.arguments}
    expect(action.compiled(**numbers)["total"], interpret(action.total, values), 1e-12)
    yield "The generated function and a literal evaluation of its expression agree at a random point, to 1e-12."

    for symbol, slope in action.saddle_point_equations.items():
        expect(interpret(slope, values), central_differences(action.total, symbol, values), 1e-6)
        yield f"The gradient with respect to ${latex(symbol)}$ agrees with central differences of $S$, to 1e-6."

    at_root = {**values, symbols.readout.name: interpret(action.readout_solution, values)}
    expect(interpret(action.saddle_point_equations[symbols.readout], at_root), 0.0, 1e-12)
    yield f"The closed form of ${latex(symbols.readout)}$ solves its saddle-point equation, to 1e-12."

    at_limit = {**values, **limit_values(action, values)}
    for symbol in symbols.order_parameters:
        slope = interpret(gradient(action.entropy, symbol), at_limit)
        expect(slope, np.zeros_like(slope), 1e-12)
    yield "The entropy is stationary at the Gaussian-process limit, to 1e-12, for unequal widths and variances."


def random_values(action: bpkr.Action) -> dict[str, np.ndarray | float]:
    """Sizes, and random numbers and matrices of those sizes, for every symbol of the action."""
    draw = np.random.default_rng(0)
    values: dict[str, np.ndarray | float] = dict(SIZES)
    for symbol in action.symbols.arguments:
        if not symbol.is_Matrix:
            values[symbol.name] = draw.uniform(0.5, 2.0)
            continue
        rows, columns = (int(interpret(side, SIZES)) for side in symbol.shape)
        matrix = draw.normal(size=(rows, columns))
        values[symbol.name] = matrix @ matrix.T / columns + np.eye(rows) if symbol == symbol.T else matrix
    return values


def limit_values(action: bpkr.Action, values: dict) -> dict[str, np.ndarray | float]:
    """The Gaussian-process limit with the widths' and variances' values in `values`."""
    variances = [values[symbol.name] for symbol in action.symbols.variances]
    architecture = bpkr.Architecture(action.heads, 1, (1.0, *variances), temperature=1.0)
    limit = bpkr.gp_limit(architecture)
    parts = zip(action.symbols.order_parameters, (*limit.matrices, limit.readout), strict=True)
    return {symbol.name: np.asarray(value) for symbol, value in parts}


def central_differences(expression: Expr, symbol: Expr, values: dict, step: float = 1e-5) -> np.ndarray:
    """The gradient of a scalar by differences; within symmetric matrices where the symbol is one."""
    at = np.asarray(values[symbol.name], dtype=float)
    result = np.empty_like(at)
    for index in np.ndindex(at.shape):
        direction = np.zeros_like(at)
        direction[index] += 0.5
        direction[index[::-1]] += 0.5
        above, below = (interpret(expression, {**values, symbol.name: at + s * step * direction}) for s in (1, -1))
        result[index] = (above - below) / (2 * step)
    return result


def expect(found: np.ndarray | float, expected: np.ndarray | float, tolerance: float) -> None:
    """Raise unless both agree to `tolerance`, relative to the larger of one and the largest entry expected."""
    error = np.max(np.abs(found - expected)) / max(1.0, np.max(np.abs(expected)))
    if not error <= tolerance:
        raise AssertionError(f"a statement of this derivation does not hold: error {error:.3g} exceeds {tolerance:.3g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
