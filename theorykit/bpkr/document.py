"""The written form of an action: LaTeX and Markdown, rendered from the expressions that run."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sympy import Expr, MatrixSymbol

from ..symbolic import fold, latex

if TYPE_CHECKING:
    from .action import Action


def latex_document(action: "Action") -> str:
    """The action, its terms and its saddle-point equations, as one LaTeX `align*` environment."""
    rows = [f"{left} &= {right}" for _, left, right in _equations(action)]
    return "\\begin{align*}\n  " + " \\\\\n  ".join(rows) + "\n\\end{align*}\n"


def markdown_document(action: "Action") -> str:
    """The same as Markdown, with headings and the sizes of this architecture."""
    lines = [f"# Action of a network with heads {action.heads}", "", *_sizes(action)]
    section = None
    for heading, left, right in _equations(action):
        if heading != section:
            lines += ["", f"## {heading}"]
            section = heading
        lines += ["", f"$${left} = {right}$$"]
    return "\n".join(lines) + "\n"


def _sizes(action: "Action") -> Iterator[str]:
    yield f"{len(action.heads)} attention layers, {math.prod(action.heads)} attention paths."
    yield ""
    yield "| order parameter | shape | here |"
    yield "|---|---|---|"
    values = dict(zip(action.symbols.heads, action.heads, strict=True))
    for symbol, shape in action.order_parameter_shapes.items():
        sizes = r" \times ".join(latex(side) for side in shape)
        here = " x ".join(str(side.subs(values)) for side in shape)
        yield f"| ${latex(symbol)}$ | ${sizes}$ | {here} |"


def _equations(action: "Action") -> Iterator[tuple[str, str, str]]:
    """(heading, left side, right side) of every displayed equation."""
    names = _names(action)
    kernel = MatrixSymbol("K", *action.kernel.shape)

    def display(expression: Expr) -> str:
        return latex(fold(expression, {kernel: action.kernel}), names)

    labels = [*range(1, len(action.layer_entropies) + 1)]
    terms = " + ".join(["S_{a}", *(f"S_{{{layer}}}" for layer in labels), "E"])
    yield "Action", "S", terms
    yield "Action", "S_{a}", display(action.readout_entropy)
    for layer, entropy in zip(labels, action.layer_entropies, strict=True):
        yield "Action", f"S_{{{layer}}}", display(entropy)
    yield "Action", "E", display(action.energy)
    yield "Action", "K", latex(action.kernel, names)
    for symbol, equation in action.saddle_point_equations.items():
        yield "Saddle point", rf"0 = \frac{{\partial S}}{{\partial {latex(symbol)}}}", display(equation)
    yield "Saddle point", latex(action.symbols.readout), display(action.readout_solution)
    yield "Predictor", r"\langle f \rangle", display(action.predictor.mean)
    yield "Predictor", r"\operatorname{var} f", display(action.predictor.variance)


def _names(action: "Action") -> dict[Expr, str]:
    symbols = action.symbols
    suffixes = [symbol.name.removeprefix("sigma2_") for symbol in symbols.variances]
    variances = {
        symbol: rf"\sigma_{{{suffix}}}^{{2}}" for symbol, suffix in zip(symbols.variances, suffixes, strict=True)
    }
    return {**variances, symbols.test_features: r"\Phi_{*}"}
