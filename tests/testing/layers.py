"""Kinds of layers with their references in NumPy, and the names of mistakes."""

import equinox as eqx
import numpy as np
from sympy import Identity, sqrt

from theorykit.bpkr import AbstractLayer

# What a report says of a mistake of each kind; of a dropped term, in a layer that is nothing without it.
OF_SIZES, OF_POWERS = "normalisation by|depends on sizes", "power|inverse|root|another function|more than one"
NAMES = {
    **dict.fromkeys(["wrong sign", "minus a symbol"], "a sign"),
    **dict.fromkeys(["factor 2", "factor 1/2", "half a symbol"], "a factor"),
    **dict.fromkeys(["sqrt(N) too many", "sqrt(N) too few", "symbol / sqrt(N)"], OF_SIZES),
    **dict.fromkeys(["a part of the next order", "N + 1 for N"], OF_SIZES),
    **dict.fromkeys(["squared", "inverted"], OF_POWERS),
    "dropped": "a term is missing|the numbers of weight blocks",
    "transposed": "a transpose",
    "exchanged": "interchanged|another symbol|a transpose",
    "another order": "stands after the weights",
}


def attention(weights, hidden, attention, parameters):
    """The forward map of `Attention`."""
    mixed = sum(block @ hidden @ mixing for block, mixing in zip(weights, attention, strict=True))
    return mixed / np.sqrt(len(attention) * len(hidden))


def dense(weights, hidden, attention, parameters):
    """The forward map of `Dense`."""
    (block,) = weights
    return block @ hidden / np.sqrt(len(hidden))


def skip(weights, hidden, mixing, parameters):
    """The forward map of a `Skip` around `Attention`."""
    return parameters["s"] * hidden + attention(weights, hidden, mixing, parameters)


def gated(weights, hidden, mixing, parameters):
    """A dense layer with a gate."""
    return parameters["g"] * dense(weights, hidden, mixing, parameters)


def beside_itself(weights, hidden, attention, parameters):
    """A block for each head, and one for the token itself."""
    of_heads = sum(block @ hidden @ mixing for block, mixing in zip(weights, attention, strict=False))
    return (of_heads + weights[-1] @ hidden) / np.sqrt(len(weights) * len(hidden))


def normal(rng, shape, variance, parameters):
    """Independent weights of the prior variance."""
    return np.sqrt(variance) * rng.normal(size=shape)


def stated(forward, prior=lambda layer: layer.variance * Identity(1), heads=0, parameters=lambda layer: {}):
    """A kind of layer of these statements."""
    count = heads

    class Mine(AbstractLayer):
        heads: int = eqx.field(static=True, default=count)

        def forward(self, layer):
            return forward(layer)

        def prior(self, layer):
            return prior(layer)

        def parameters(self, layer):
            return parameters(layer)

    return Mine()


GATED = stated(
    lambda layer: layer.number("g") * layer.weights(1) * layer.hidden / sqrt(layer.width),
    parameters=lambda layer: {layer.number("g"): 1.0},
)


def assert_found(report, check, measured, meaning):
    """One finding of a check that has the claim `check`, with these words."""
    findings = [finding for finding in report.findings if check in finding.check]
    assert len(findings) == 1, report
    assert measured in findings[0].measured and meaning in findings[0].meaning, report
    assert not report.holds
    written = " ".join(str(report).split())
    for part in (findings[0].measured, findings[0].meaning):
        assert " ".join(part.split()) in written, (part, written)
