"""Documents of an action, for displays, articles and pages."""

from collections.abc import Iterator, Mapping
from typing import Any

from sympy import Expr, MatrixSymbol

from ...checks import counted
from ...derivation import Derivation
from ...derivation.step import derivation_blocks, verification_blocks
from ...symbolic import Diagonal
from ...symbolic.algebra import fold_asinh
from ...symbolic.documents import Block, Equation, Folded, Heading, Items, Text
from ...symbolic.documents.rendering import latex

Action = Any
"""`bpkr.Action`, which imports this module."""
USUAL = ("title", "action")


def blocks(action: Action, *parts: str) -> Iterator[Block]:
    """Yield parts of a document: "title", "action", "derivation", "finite width"."""
    writers = {"title": _title, "action": _formulas, "derivation": _derivation, "finite width": _finite_width}
    for part in parts:
        yield from writers[part](action)


def _title(action: Action) -> Iterator[Block]:
    form = action.symbols.form
    layers = counted(len(action.forms), "layer")
    width = " of infinite width" if form.is_infinite else ""
    units = ", in the mean-field parameterisation" if form.has_richness else ""
    yield Heading(f"Action of a network{width} of {layers if action.forms else 'no layers'}{units}", 1)


def _summary(action: Action) -> Iterator[Block]:
    kinds = []
    for form in action.forms:
        kind = "dense" if form.block_heads is None else "attention"
        kinds.append(f"{kind} with skip connection" if form.has_skip else kind)
    yield Text(f"Layers, from the input side: {', '.join(kinds) or 'none'}.")
    written = action.symbols.written.items()
    yield Items(tuple(f"${latex(symbol)}$ is ${_sides(matrix.shape)}$" for matrix, symbol in written))
    for assumption in action.ansatz:
        yield Text(f"The action rests on {assumption}.")


def _formulas(action: Action) -> Iterator[Block]:
    yield from _summary(action)
    for heading, formulas in equations(action).items():
        yield Heading(heading)
        yield from formulas


def _derivation(action: Action) -> Iterator[Block]:
    yield Heading("Derivation, step by step")
    yield Text("Actions $S$ stand for integrands $e^{-S/2}$. Each step was checked without the rule that it names.")
    yield from _checked_steps(action.derivation)


def _finite_width(action: Action) -> Iterator[Block]:
    prior = action.finite_width
    if any(action.route_differences):
        raise AssertionError(f"the two routes differ by {action.route_differences}")
    yield Heading("Finite width, by a second route")
    yield Text(
        "Up to constants, if widths are at least the numbers of partial paths. The leading order is the entropy."
    )
    for layer, (exact, correction) in enumerate(zip(prior.exact, prior.corrections, strict=True), 1):
        given = rf" \mid U_{{{layer + 1}}}" if layer < len(prior.exact) else ""
        density = rf"-2\log p(U_{{{layer}}}{given})"
        yield Equation(density, latex(exact))
        yield Equation(rf"{density} - S_{{{layer}}}", latex(correction))
    yield from _checked_steps(prior.derivation)


def _checked_steps(derivation: Derivation) -> Iterator[Block]:
    yield from verification_blocks(derivation.verify())
    yield from derivation_blocks(derivation)


def view(action: Action) -> Iterator[Block]:
    """Yield the display of an action; terminals leave out formulas."""
    yield from _title(action)
    yield from _summary(action)
    names = {"Action": "entropies`, `energy`, `kernel", "Saddle point": "saddle_point_equations"}
    for heading, formulas in equations(action).items():
        name = names.get(heading, heading.lower().replace(" ", "_"))
        yield Folded(f"**{heading}**: `{name}`", tuple(formulas), is_open=heading == "Action")


def equations(action: Action) -> Mapping[str, list[Equation]]:
    kernel = MatrixSymbol("K", *action.kernel.shape)

    def equation(name: str, value: Expr, source: str = "") -> Equation:
        return Equation(name, latex(value.xreplace({action.kernel: kernel})), source=source)

    *layers, of_readout = action.entropies
    entropies = {"S_{a}": of_readout}
    entropies |= {f"S_{{{i}}}": entropy for i, entropy in enumerate(layers, 1)}
    slopes = action.named_slopes.items()
    solved = action.closed_forms.items()
    parts = {
        "Action": [
            Equation("S", " + ".join([*entropies, "E"]), source="32"),
            *(equation(name, entropy) for name, entropy in entropies.items()),
            equation("E", action.energy, "12"),
            *(Equation(latex(block), latex(value)) for block, value in action.nested.items()),
            Equation("K", latex(action.kernel), source="10"),
        ],
        "Saddle point": [equation(rf"0 = \frac{{\partial S}}{{\partial {latex(u)}}}", slope) for u, slope in slopes],
        "Closed forms": [equation(latex(u), fold_asinh(solution)) for u, solution in reversed(solved)],
        "Predictor": [
            equation(r"\langle f \rangle", action.predictor.mean, "9, 29"),
            equation(r"\operatorname{var} f", Diagonal(action.predictor.covariance), "30"),
        ],
    }
    return {heading: formulas for heading, formulas in parts.items() if formulas}


def _sides(shape: tuple[Expr, Expr]) -> str:
    sides = (rf"\left({latex(side)}\right)" if side.is_Add else latex(side) for side in shape)
    return r" \times ".join(sides)
