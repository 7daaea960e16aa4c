"""Place a kind of layer alone and between standard layers, and reject invalid kinds before any derivation."""

from collections.abc import Hashable
from dataclasses import dataclass, fields

from sympy import Expr

from ... import bpkr
from ...bpkr.specification.layer_form import LayerForm
from ...bpkr.specification.layers import LayerSymbols
from ...checks import counted
from ..report import Finding, raised

# Prior variances. All differ, so that an exchange of two is detected.
_VARIANCES = (1.3, 0.8, 1.7, 0.6, 1.1, 0.9)
_TEMPERATURE = 0.3
# Largest number of heads. Networks with more heads take minutes, or do not fit in memory.
_MOST_HEADS = 64

_ORDER = "the product of two matrices whose sizes do not match: an order of factors, or a transpose"
# Advice by words in the message of a rejection. The first match is used.
_MEANINGS = {
    "biases are not covered": "a bias: leave it out, or give the inputs a constant feature, which is one",
    "Mix of Matrix and Scalar": "a number is added to a matrix, as for a bias: biases are not covered, leave it out",
    "attention on hidden activations": (
        "attention or a gate that is computed from the hidden activations: compute it from the bare input"
    ),
    "nonlinear": "a nonlinear function of weights or activations: the theory requires values that are linear",
    "more than once in a product": "the weights are multiplied with themselves: give every factor its own layer",
    "one block per row of the prior": (
        "the numbers of weight blocks of `forward` and `prior` differ: layer.weights(k) needs a prior of k rows"
    ),
    "more than one skip connection": "two skip connections: add their gains, or their mixings of tokens, in one term",
    "equal widths": "a skip connection to another width: it needs layer.width equal to layer.next_width",
    "that are tried": "check the layer with fewer heads: its formula holds for any number of heads",
    "whose sizes do not match": _ORDER,
    "it has shape": "the result has other rows or columns than (layer.next_width, layer.tokens): a transpose",
    "its weights act on": "a factor other than KroneckerProduct(matrix, hidden) stands after the weights",
    "contains the value of a parameter of the layer": "a number was used where its symbol belongs",
    "has no value for": "a symbol of `forward` or `prior` is not named in `parameters`",
    "which has another meaning": "the name of a parameter is taken: choose another name",
    "but no attention in its forward map": "`heads` is not 0, and `forward` does not use layer.attention",
    "has heads=0": "`forward` uses layer.attention, and `heads` is 0",
    "must be symmetric": "a covariance must be symmetric: half of it was changed, or it is a Cholesky factor",
    "is not positive definite": "a covariance has an eigenvalue that is not positive: equal blocks count as one",
    "must have shape": "a parameter has another size than its symbol: `heads` and the parameter disagree",
    "must be finite and positive": "a number that is zero or negative; signs can be absorbed into the weights",
    "is not a square matrix": "`prior` must be a matrix with one row per block, such as layer.variance * Identity(1)",
    "`prior` must not depend on sizes": (
        "`prior` contains the width: weights have variance layer.variance, and `forward` divides by sqrt(layer.width)"
    ),
    "is static and": "a field marked static contains an array or a list: make it a plain field",
    "Incompatible": _ORDER,
    "not aligned": _ORDER,
}


@dataclass(frozen=True)
class Placement:
    """A kind of layer in an architecture.

    - `architecture`: the network.
    - `place`: position of the layer, from 0.
    - `words`: description of the placement.
    """

    architecture: bpkr.Architecture
    place: int
    words: str

    @property
    def form(self) -> LayerForm:
        """Properties of the layer that the theory uses."""
        return self.architecture.forms[self.place]

    @property
    def quantities(self) -> dict[str, float]:
        """Possible ingredients of a factor, by their names in `forward`."""
        architecture, form, place = self.architecture, self.form, self.place
        heads, values = architecture.layers[place].heads, architecture.layer_numbers()
        found = {"layer.width": architecture.widths[place], "layer.next_width": architecture.widths[place + 1]}
        found |= {"layer.heads": heads} if heads > 1 else {}
        found |= {"layer.variance": architecture.prior_variances[place + 1]}
        found |= {short_name(each, form): values[each.name] for each in form.parameters if not each.is_Matrix}
        return {name: float(value) for name, value in found.items()}


def place(kind: bpkr.AbstractLayer) -> tuple[tuple[Placement, ...], Finding]:
    """Place the kind alone, before and after attention, with one or two outputs. Returns the reason of a rejection."""
    claim = "the theory covers the specification"
    try:
        for field in fields(kind):
            value = getattr(kind, field.name)
            # JAX cannot compare this value, so the layer would be accepted at first and fail at the next use.
            if field.metadata.get("static", False) and not isinstance(value, Hashable):
                raise TypeError(f"the field {field.name} is static and {type(value).__name__}: unhashable")
        if kind.heads > _MOST_HEADS:
            raise ValueError(f"heads={kind.heads:,} are more than the {_MOST_HEADS} that are tried")
        skip = bpkr.Architecture((kind,), 6, temperature=_TEMPERATURE).forms[0].has_skip
        dense, attention = bpkr.Dense(), bpkr.Attention(2)
        placements = (
            placed((kind,), 0, (6, 6) if skip else (5, 7), 1, "alone"),
            placed((kind, attention), 0, (5, 5, 7) if skip else (5, 7, 6), 2, "below attention, two outputs"),
            placed((dense, kind), 1, (5, 7, 7) if skip else (5, 7, 6), 1, "above a dense layer"),
            placed(
                (dense, attention, kind, dense), 2, (4, 5, 6, 6, 7) if skip else (4, 5, 6, 7, 6), 1, "between others"
            ),
        )
    except Exception as refusal:  # The user's code may raise any error.
        said = raised(refusal)
        return (), Finding(
            claim, said, next((what for words, what in _MEANINGS.items() if words in said), "what the error says")
        )
    widths = (", ".join(f"{width:g}" for width in each.architecture.widths) for each in placements)
    tried = "; ".join(f"{each.words} (widths {sizes})" for each, sizes in zip(placements, widths, strict=True))
    return placements, Finding(claim, f"{tried}; {counted(kind.heads, 'head')}" if kind.heads else tried)


def placed(layers: tuple, at: int, widths: tuple, outputs: int, words: str) -> Placement:
    """Make a placement of these layers in an architecture, with the kind at position `at`."""
    variances = _VARIANCES[: len(layers) + 2]
    architecture = bpkr.Architecture(layers, widths, variances, temperature=_TEMPERATURE, outputs=outputs)
    return Placement(architecture, at, words)


def check_scaling(form: LayerForm) -> Finding:
    """Check that the kernel has a large-width limit, for which the width must occur only as 1/sqrt(layer.width)."""
    claim, symbols = "the layer's sum over units is divided by sqrt(layer.width)", form.symbols
    widths = {symbols.width, symbols.next_width} & (form.block_tokens.free_symbols | form.gain.free_symbols)
    said = f"a path is multiplied by {form.block_tokens}"
    if not widths:
        return Finding(claim, said)
    return Finding(
        claim,
        f"{said}, which depends on {', '.join(sorted(map(str, widths)))}",
        f"1/sqrt({symbols.width}), which is layer.width, is missing, occurs twice, or contains another width",
    )


def check_parameters(kind: bpkr.AbstractLayer, form: LayerForm) -> Finding:
    """Check that the kind's parameters are the layer's own symbols, and that all are used."""
    claim, symbols = "every parameter has a separate symbol in every layer, and is used", form.symbols
    elsewhere = kind.parameters(LayerSymbols(symbols.index + 1, symbols.width, symbols.next_width))
    named = kind.parameters(symbols)
    unused, shared, every = (
        ", ".join(sorted(symbol.name for symbol in found))
        for found in (set(named) - form.parameters, set(named) & set(elsewhere), named)
    )
    if unused:
        return Finding(
            claim,
            f"`parameters` gives a value for {unused}, which neither `forward` nor `prior` uses",
            "the parameter was forgotten in `forward` or in `prior`, or has another name there",
        )
    if shared:
        return Finding(
            claim,
            f"{shared} is one symbol for all layers of the kind",
            "a symbol was made by hand: write layer.number(name) or layer.covariance(name, size)",
        )
    return Finding(claim, every or "there are none")


def short_name(symbol: Expr, form: LayerForm) -> str:
    """Return the name of a parameter in the layer, without the layer's number."""
    return symbol.name.removesuffix(f"_{form.symbols.index}")
