"""Documents of an action: its expressions, rendered, with the steps of its derivation."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from sympy import Expr, MatrixSymbol, Symbol

from ...checks import counted
from ...derivation import Derivation, Verification, derivation_blocks, verification_blocks
from ...symbolic import Block, Definition, Equation, Heading, Text, latex
from ...symbolic.algebra import fold_asinh
from ...symbolic.documents.document import Folded, Items, Table, code
from ...symbolic.documents.rendering import fold
from ..specification.activations import IDENTITY
from ..specification.architecture import Architecture
from ..specification.layers import AbstractLayer

Action = Any
"""`bpkr.Action`, which cannot be imported here because it imports this module."""


def whole_document(
    action: Action, architecture: Architecture | None = None, steps: bool = False, finite_width: bool = False
) -> Iterator[Block]:
    """Yield the action and its consequences, optionally with every step and with the second route at finite width."""
    yield from action_blocks(action, architecture)
    yield from closed_forms_part(action)
    # With a richness, the expansion about the Gaussian process is in the richness too, and no limit of large widths.
    if not action.form.has_richness:
        yield from expansion_part(action, action.expansion.derivation.verify() if steps else None)
    if steps:
        yield from derivation_part(action)
    if finite_width:
        yield from finite_width_part(action)


def view(action: Action) -> Iterator[Block]:
    """Yield the display of an action in a terminal or notebook; terminals leave out folded parts."""
    sizes, found = "; ".join(_sizes(action)), equations(action)
    (total, *terms), steps = found["Action"], action.derivation.steps
    yield Heading(_title(action), 1)
    rows = [("layers, from the input side", kinds_of_layers(action)), ("order parameters", sizes)]
    rows += [("action", f"${total.left} = {total.right}$")]
    rows += [("rests on", assumption) for assumption in action.ansatz]
    yield Table(tuple(rows))
    yield Folded("**Terms of the action**: `action.entropies`, `action.energy`", tuple(terms), is_open=True)
    yield Folded("**Saddle point**: `action.saddle_point_equations`", tuple(found["Saddle point"]), is_open=True)
    yield Folded("**Predictor**: `action.predictor`", tuple(found["Predictor"]))
    if action.closed_forms:
        yield Folded("**Closed forms**: `action.closed_forms`", tuple(closed_forms_part(action))[1:])
    yield Folded(
        f"**Derivation** in {counted(len(steps), 'step')}: `action.derivation`",
        tuple(derivation_blocks(action.derivation)),
    )
    yield Text("Next: `bpkr.solve(architecture, data)`; `action.derivation.verify()` checks every step.")


def kinds_of_layers(action: Action) -> str:
    """Name the kind of each layer."""
    kinds = (
        f"{'dense' if form.block_heads is None else 'attention'}{' with skip connection' if form.gain != 0 else ''}"
        for form in action.forms
    )
    return ", ".join(kinds) or "none"


def action_blocks(action: Action, architecture: Architecture | None = None) -> Iterator[Block]:
    """Yield `action_part` under a separate title."""
    yield Heading(_title(action), 1)
    yield from action_part(action, architecture)


def _title(action: Action) -> str:
    layers, form = len(action.forms), action.form
    width = " of infinite width" if form.is_infinite else ""
    units = ", in the mean-field parameterisation" if form.has_richness else ""
    return f"Action of a network{width} of {counted(layers, 'layer') if layers else 'no layers'}{units}"


def _sizes(action: Action) -> Iterator[str]:
    for symbol, shape in action.order_parameter_shapes.items():
        yield f"${latex(symbol)}$ is ${_sides(shape)}$"


def action_part(action: Action, architecture: Architecture | None = None) -> Iterator[Block]:
    """Yield the action, its saddle-point equations and its predictor, and an architecture's layers and sizes."""
    if architecture is not None:
        described = ", ".join(code(_describe(layer)) for layer in architecture.layers)
        yield Text(f"Layers, from the input side: {described or 'none'}.")
        if architecture.embedding != IDENTITY:
            yield Text(f"The embedded tokens pass through {code(architecture.embedding.name)}.")
    sizes = list(_sizes(action))
    for number, shape in enumerate(action.order_parameter_shapes.values()):
        if architecture is not None:
            at = {side: architecture.size_values()[side.name] for each in shape for side in each.free_symbols}
            sizes[number] += f", here {' x '.join(str(side.subs(at)) for side in shape)}"
    yield Items(tuple(sizes))
    for assumption in action.ansatz:
        yield Text(f"The action rests on {assumption}.")
    for heading, part in equations(action).items():
        yield Heading(heading)
        yield from part


def derivation_part(action: Action) -> Iterator[Block]:
    """Yield every step of back-propagating kernel renormalisation, and the checks of the steps."""
    yield Heading("Derivation, step by step")
    yield Text(
        "Actions $S$ stand for integrands $e^{-S/2}$. Each formula was computed from the previous one by the named "
        "rule, and then checked numerically at random points without the rule."
    )
    yield from _checked_steps(action.derivation)


def _checked_steps(derivation: Derivation) -> Iterator[Block]:
    verification = derivation.verify()
    yield from verification_blocks(verification)
    yield from derivation_blocks(derivation, verification=verification)


def finite_width_part(action: Action) -> Iterator[Block]:
    """Yield the exact prior at finite width, its leading order, and the remaining terms."""
    prior = action.finite_width
    if any(action.route_differences):
        raise AssertionError(f"the two routes differ by {action.route_differences}; please report this architecture")
    yield Heading("Finite width, by a second route")
    yield Text(
        "These densities are exact, up to constants, if the width is at least the number of partial paths. Their "
        "leading order is the entropy of the action."
    )
    for layer, (exact, correction) in enumerate(zip(prior.exact, prior.corrections, strict=True), 1):
        conditional = rf"U_{{{layer}}} \mid U_{{{layer + 1}}}" if layer < len(prior.exact) else rf"U_{{{layer}}}"
        yield Equation(rf"-2\log p({conditional})", latex(exact))
        yield Equation(rf"-2\log p({conditional}) - S_{{{layer}}}", latex(correction))
    yield from _checked_steps(prior.derivation)


def expansion_part(action: Action, verification: Verification | None = None) -> Iterator[Block]:
    """Yield the order parameters to first order in 1/N, and a `verification` of the steps if given."""
    expansion = action.expansion
    yield Heading("Expansion about infinite width")
    yield Text(
        "Start from $G_1 = \\partial E / \\partial U_1$ at the limit $M_l$ of infinite width. Forces $G_l$ propagate "
        "to the readout, and displacements $\\delta_l$ propagate back. Then $U_l = M_l + \\delta_l + O(1/N^2)$."
    )
    for layer, limit in enumerate(expansion.limit[symbol] for symbol in action.symbols.overlaps):
        yield Equation(f"M_{{{layer + 1}}}", latex(limit))
    for symbol, value in expansion.recursion:
        yield Equation(latex(symbol), latex(value))
    if not action.nested:
        yield Text("The result for the order parameter that determines the kernel:")
        u1 = action.symbols.overlaps[0]
        yield Equation(latex(u1), rf"{latex(expansion.order_parameters[u1])} + O(1/N^2)")
    if verification is not None:
        yield from verification_blocks(verification)


def closed_forms_part(action: Action) -> Iterator[Block]:
    """Yield the closed-form solutions for single order parameters, if there are any."""
    if not action.closed_forms:
        return
    yield Heading("Closed forms")
    yield Text("Each order parameter below solves its saddle-point equation, given the neighbouring order parameters:")
    for symbol in sorted(action.closed_forms, key=lambda symbol: symbol != action.symbols.readout):
        yield Equation(latex(symbol), latex(fold_asinh(action.closed_forms[symbol])))


def _describe(layer: AbstractLayer) -> str:
    parts = []
    for entry in fields(layer):
        value = getattr(layer, entry.name)
        if isinstance(value, AbstractLayer):
            parts.append(_describe(value))
        elif entry.metadata.get("static") and value != IDENTITY:
            parts.append(f"{entry.name}={value}")
    return f"{type(layer).__name__}({', '.join(parts)})"


def equations(action: Action) -> Mapping[str, list[Equation]]:
    """Return the formulas of an action, by part."""
    kernel = MatrixSymbol("K", *action.kernel.shape)

    def equation(name: str, value: Expr, source: str = "") -> Equation:
        return Equation(name, latex(fold(value, {kernel: action.kernel})), source=source)

    *layers, readout = action.entropies
    layers = {f"S_{{{layer}}}": entropy for layer, entropy in enumerate(layers, 1)}
    terms = {"S_{a}": readout, **layers, "E": action.energy}
    nested = [Equation(latex(block), latex(value)) for block, value in action.nested.items()]
    slopes = [
        equation(rf"0 = \frac{{\partial S}}{{\partial {latex(symbol)}}}", slope)
        for symbol, slope in action.named_slopes.items()
    ]
    if action.symbols.readout in action.closed_forms:
        slopes.append(equation(latex(action.symbols.readout), fold_asinh(action.readout_solution)))
    return {
        "Action": [
            Equation("S", " + ".join(terms), source="32"),
            *(equation(name, term, "12" if name == "E" else "") for name, term in terms.items()),
            *nested,
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
    symbols, found = action.symbols, {}
    numbers = range(1, len(symbols.overlaps))
    if action.form.is_infinite:
        found["S"] = "the action of infinitely wide layers, whose widths are in the given ratios"
    else:
        found["S"] = "the action: the posterior of the order parameters is proportional to $e^{-S/2}$"
    found["E"] = "the energy, of the labels given the kernel"
    found["S_{a}"] = "the entropy of the readout's order parameter"
    found |= {f"S_{{{n}}}": f"the entropy of the order parameter of layer {n}, given the next" for n in numbers}
    layers = (*(f"layer {number}" for number in numbers), "the readout")
    for layer, (matrix, symbol), width, variance in zip(
        layers, symbols.written.items(), symbols.widths, symbols.variances, strict=True
    ):
        for each in dict.fromkeys((symbol, matrix)):
            found[latex(each)] = f"order parameter of {layer}: overlaps of path weights, {_shape(each)}"
        found[latex(width)] = f"hidden units before {layer}"
        whose = "the readout's weights" if layer == "the readout" else f"the weights of {layer}"
        found[latex(variance)] = f"prior variance of {whose}"
    for heads in symbols.heads:
        found[latex(heads)] = f"attention heads of layer {heads.name.removeprefix('H_')}"
    for parameter in symbols.parameters:
        found[latex(parameter)] = "a parameter of a layer"
    matrices = {
        symbols.features: "path features of the training examples",
        symbols.labels: "labels of the training examples",
        symbols.test_features: "path features of the test examples",
        MatrixSymbol("K", *action.kernel.shape): "kernel of the training examples",
    }
    for given in (form.symbols for form in action.forms):
        matrices[given.hidden] = f"activations before layer {given.index}"
        matrices[given.attention] = f"attention of layer {given.index}"
    matrices |= {form.weights: f"weights of layer {form.symbols.index}" for form in action.forms}
    for matrix, meaning in matrices.items():
        found[latex(matrix)] = f"{meaning}, {_shape(matrix)}"
    found[latex(symbols.temperature)] = "temperature: the variance of the labels' noise"
    if symbols.richness is not None:
        found[latex(symbols.richness)] = "richness of the mean-field parameterisation"
    found[latex(symbols.input_features)] = "features of the input"
    found[latex(symbols.examples)] = "training examples"
    if isinstance(symbols.outputs, Symbol):
        found[latex(symbols.outputs)] = "outputs of the network"
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
    if not symbol.is_Matrix:
        return "a number"
    return f"${_sides(symbol.shape)}$"


def _sides(shape: tuple[Expr, Expr]) -> str:
    return r" \times ".join(rf"\left({latex(side)}\right)" if side.is_Add else latex(side) for side in shape)
