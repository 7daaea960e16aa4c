"""Documents of an action: parts, rendered from its expressions, from which displays, articles and pages are made."""

from collections.abc import Iterator, Mapping
from typing import Any

from sympy import Expr, MatrixSymbol, Symbol

from ...checks import counted
from ...derivation import Derivation, derivation_blocks, verification_blocks
from ...symbolic import Block, Definition, Equation, Heading, Text, latex
from ...symbolic.algebra import fold_asinh
from ...symbolic.documents.document import Folded, Items, Table, code
from ...symbolic.documents.rendering import fold
from ..specification.activations import IDENTITY
from ..specification.architecture import Architecture

Action = Any
"""`bpkr.Action`, which cannot be imported here because it imports this module."""


USUAL = ("title", "action", "closed forms", "expansion")


def blocks(action: Action, *parts: str, architecture: Architecture | None = None) -> Iterator[Block]:
    """Yield parts of the document of an action, in the given order.

    Args:
        action: the action.
        parts: names of parts: "title"; "action", with saddle-point equations and predictor; "closed forms" of single
            order parameters; "expansion" about infinite width; "derivation", every step with its check; "finite width",
            the exact prior by the second route.
        architecture: also write its sizes.

    Raises:
        ValueError: `action` was derived for different layers than `architecture` has.
    """
    if architecture is not None and architecture.forms != action.forms:
        raise ValueError("action was derived for different layers; use bpkr.derive(architecture)")
    for part in parts:
        if part == "title":
            yield Heading(_title(action), 1)
        elif part == "action":
            yield Text(f"Layers, from the input side: {kinds_of_layers(action)}.")
            sizes = list(_sizes(action))
            if architecture is not None:
                if architecture.embedding != IDENTITY:
                    yield Text(f"The embedded tokens pass through {code(architecture.embedding.name)}.")
                values = architecture.size_values()
                for number, shape in enumerate(action.order_parameter_shapes.values()):
                    at = {side: values[side.name] for each in shape for side in each.free_symbols}
                    sizes[number] += f", here {' x '.join(str(side.subs(at)) for side in shape)}"
            yield Items(tuple(sizes))
            for assumption in action.ansatz:
                yield Text(f"The action rests on {assumption}.")
            for heading, formulas in equations(action).items():
                yield Heading(heading)
                yield from formulas
        elif part == "closed forms" and action.closed_forms:
            yield Heading("Closed forms")
            yield Text(
                "Each order parameter below solves its saddle-point equation, given the neighbouring order parameters:"
            )
            for symbol in sorted(action.closed_forms, key=lambda symbol: symbol != action.symbols.readout):
                yield Equation(latex(symbol), latex(fold_asinh(action.closed_forms[symbol])))
        # With a richness, the expansion about the Gaussian process is no limit of large widths.
        elif part == "expansion" and not action.form.has_richness:
            expansion, u1 = action.expansion, action.symbols.overlaps[0]
            yield Heading("Expansion about infinite width")
            yield Text(
                "Start from $G_1 = \\partial E / \\partial U_1$ at the limit $M_l$ of infinite width. Forces $G_l$ "
                "propagate to the readout, and displacements $\\delta_l$ propagate back. Then "
                "$U_l = M_l + \\delta_l + O(1/N^2)$."
            )
            for layer, symbol in enumerate(action.symbols.overlaps, 1):
                yield Equation(f"M_{{{layer}}}", latex(expansion.limit[symbol]))
            for symbol, value in expansion.recursion:
                yield Equation(latex(symbol), latex(value))
            if not action.nested:
                yield Text("The result for the order parameter that determines the kernel:")
                yield Equation(latex(u1), rf"{latex(expansion.order_parameters[u1])} + O(1/N^2)")
            if "derivation" in parts:
                yield from verification_blocks(expansion.derivation.verify())
        elif part == "derivation":
            yield Heading("Derivation, step by step")
            yield Text(
                "Actions $S$ stand for integrands $e^{-S/2}$. Each formula was computed from the previous one by the "
                "named rule, and then checked numerically at random points without the rule."
            )
            yield from _checked_steps(action.derivation)
        elif part == "finite width":
            prior = action.finite_width
            if any(action.route_differences):
                raise AssertionError(f"the two routes differ by {action.route_differences}; please report these layers")
            yield Heading("Finite width, by a second route")
            yield Text(
                "These densities are exact, up to constants, if the width is at least the number of partial paths. "
                "Their leading order is the entropy of the action."
            )
            for layer, (exact, correction) in enumerate(zip(prior.exact, prior.corrections, strict=True), 1):
                given = rf" \mid U_{{{layer + 1}}}" if layer < len(prior.exact) else ""
                density = rf"-2\log p(U_{{{layer}}}{given})"
                yield Equation(density, latex(exact))
                yield Equation(rf"{density} - S_{{{layer}}}", latex(correction))
            yield from _checked_steps(prior.derivation)


def _checked_steps(derivation: Derivation) -> Iterator[Block]:
    verification = derivation.verify()
    yield from verification_blocks(verification)
    yield from derivation_blocks(derivation, verification=verification)


def view(action: Action) -> Iterator[Block]:
    """Yield the display of an action in a terminal or notebook; terminals leave out folded parts."""
    found, steps = equations(action), action.derivation.steps
    total = found["Action"][0]
    yield Heading(_title(action), 1)
    rows = [("layers, from the input side", kinds_of_layers(action)), ("order parameters", "; ".join(_sizes(action)))]
    rows += [("action", f"${total.left} = {total.right}$")]
    rows += [("rests on", assumption) for assumption in action.ansatz]
    yield Table(tuple(rows))
    parts = [
        ("Action", "entropies", found["Action"][1:], True),
        ("Saddle point", "saddle_point_equations", found["Saddle point"], True),
        ("Predictor", "predictor", found["Predictor"], False),
        ("Closed forms", "closed_forms", list(blocks(action, "closed forms"))[1:], False),
    ]
    for heading, attribute, part, is_open in parts:
        if part:
            yield Folded(f"**{heading}**: `action.{attribute}`", tuple(part), is_open=is_open)
    of_steps = tuple(derivation_blocks(action.derivation))
    yield Folded(f"**Derivation** in {counted(len(steps), 'step')}: `action.derivation`", of_steps)


def kinds_of_layers(action: Action) -> str:
    """Name the kind of each layer."""
    kinds = (
        f"{'dense' if form.block_heads is None else 'attention'}{' with skip connection' if form.gain != 0 else ''}"
        for form in action.forms
    )
    return ", ".join(kinds) or "none"


def _title(action: Action) -> str:
    layers, form = len(action.forms), action.form
    width = " of infinite width" if form.is_infinite else ""
    units = ", in the mean-field parameterisation" if form.has_richness else ""
    return f"Action of a network{width} of {counted(layers, 'layer') if layers else 'no layers'}{units}"


def _sizes(action: Action) -> Iterator[str]:
    for symbol, shape in action.order_parameter_shapes.items():
        yield f"${latex(symbol)}$ is ${_sides(shape)}$"


def equations(action: Action) -> Mapping[str, list[Equation]]:
    """Return the formulas of an action, by part."""
    kernel, readout = MatrixSymbol("K", *action.kernel.shape), action.symbols.readout

    def equation(name: str, value: Expr, source: str = "") -> Equation:
        return Equation(name, latex(fold(value, {kernel: action.kernel})), source=source)

    *layers, of_readout = action.entropies
    entropies = {"S_{a}": of_readout, **{f"S_{{{layer}}}": entropy for layer, entropy in enumerate(layers, 1)}}
    slopes = [
        equation(rf"0 = \frac{{\partial S}}{{\partial {latex(symbol)}}}", slope)
        for symbol, slope in action.named_slopes.items()
    ]
    if readout in action.closed_forms:
        slopes.append(equation(latex(readout), fold_asinh(action.readout_solution)))
    return {
        "Action": [
            Equation("S", " + ".join([*entropies, "E"]), source="32"),
            *(equation(name, entropy) for name, entropy in entropies.items()),
            equation("E", action.energy, "12"),
            *(Equation(latex(block), latex(value)) for block, value in action.nested.items()),
            Equation("K", latex(action.kernel), source="10"),
        ],
        "Saddle point": slopes,
        "Predictor": [
            equation(r"\langle f \rangle", action.predictor.mean, "9, 29"),
            equation(r"\operatorname{var} f", action.predictor.variance, "30"),
        ],
    }


def definitions(action: Action) -> list[Definition]:
    """Return the meaning of all symbols in documents of an action; symbols of derivations come last."""
    symbols, form, layers = action.symbols, action.form, [f"layer {i}" for i, _ in enumerate(action.forms, 1)]
    meaning = "the posterior of the order parameters is proportional to $e^{-S/2}$"
    if form.is_infinite:
        meaning = "of infinitely wide layers, whose widths are in the given ratios"
    found = {"S": f"the action: {meaning}", "E": "the energy, of the labels given the kernel"}
    found["S_{a}"] = "the entropy of the readout's order parameter"
    for number, layer in enumerate(layers, 1):
        found[f"S_{{{number}}}"] = f"the entropy of the order parameter of {layer}, given the next"

    def define(symbol: Expr, meaning: str) -> None:
        found[latex(symbol)] = f"{meaning}, {_shape(symbol)}" if symbol.is_Matrix else meaning

    parts = zip([*layers, "the readout"], symbols.overlaps, symbols.widths, symbols.variances, strict=True)
    for layer, overlap, width, variance in parts:
        for symbol in dict.fromkeys((symbols.written[overlap], overlap)):
            define(symbol, f"order parameter of {layer}: overlaps of path weights")
        define(width, f"hidden units before {layer}")
        define(variance, f"prior variance of the weights of {layer}")
    for heads in symbols.heads:
        define(heads, f"attention heads of layer {heads.name.removeprefix('H_')}")
    for parameter in symbols.parameters:
        define(parameter, "a parameter of a layer")
    define(symbols.features, "path features of the training examples")
    define(symbols.labels, "labels of the training examples")
    define(symbols.test_features, "path features of the test examples")
    define(MatrixSymbol("K", *action.kernel.shape), "kernel of the training examples")
    for each in action.forms:
        define(each.hidden, f"activations before layer {each.symbols.index}")
        define(each.symbols.attention, f"attention of layer {each.symbols.index}")
        define(each.weights, f"weights of layer {each.symbols.index}")
    define(symbols.temperature, "temperature: the variance of the labels' noise")
    if form.has_richness:
        define(symbols.richness, "richness of the mean-field parameterisation")
    define(symbols.input_features, "features of the input")
    define(symbols.examples, "training examples")
    if isinstance(symbols.outputs, Symbol):
        define(symbols.outputs, "outputs of the network")
    steps = [step for derivation in action.derivations.values() for step in derivation.steps]
    for step in steps:
        for symbol, value in step.definitions:
            found.setdefault(latex(symbol), f"stands for ${latex(value)}$")
    for step in steps:
        for expression in step.claim.expressions(step.before, step.after):
            for symbol in sorted(expression.atoms(Symbol, MatrixSymbol), key=lambda symbol: symbol.name):
                found.setdefault(latex(symbol), f"{_shape(symbol)} in the derivation")
    return [Definition(name, meaning) for name, meaning in found.items()]


def _shape(symbol: Expr) -> str:
    return f"${_sides(symbol.shape)}$" if symbol.is_Matrix else "a number"


def _sides(shape: tuple[Expr, Expr]) -> str:
    return r" \times ".join(rf"\left({latex(side)}\right)" if side.is_Add else latex(side) for side in shape)
