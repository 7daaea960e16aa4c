"""Kinds of layers with their references in NumPy, and the names of mistakes."""

import equinox as eqx
import numpy as np
from sympy import Identity, sqrt

from theorykit.bpkr import AbstractLayer

# What a report says of a mistake of each kind; of a dropped term, in a layer that is nothing without it.
OF_SIZES = r"sqrt\(layer\.|layer\.width|another width"
NAMES = {
    **dict.fromkeys(["wrong sign", "minus a symbol"], r"-1 times|-\w+ in place of"),
    **dict.fromkeys(["factor 2", "factor 1/2", "half a symbol"], r"(2|1/2) times|2\*\w+ in place of"),
    **dict.fromkeys(["sqrt(N) too many", "sqrt(N) too few", "symbol / sqrt(N)"], OF_SIZES),
    **dict.fromkeys(["a part of the next order", "N + 1 for N"], OF_SIZES),
    **dict.fromkeys(["squared", "inverted"], r"in place of|\w\*\*2 times|1/\w times|in addition|no factor"),
    "dropped": "in addition|does not contain the weights",
    "transposed": r"\.T in place of",
    "exchanged": r"exchanged|in place of",
    "another order": "its weights act on",
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


def normal(variance, parameters):
    """The prior of independent weights of two blocks."""
    return variance * np.eye(2)


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


def assert_found(report, meaning, measured="", check=""):
    """One finding of a check has the claim `check`, and says this."""
    findings = [finding for finding in report.findings if check in finding.check]
    assert len(findings) == 1, report
    assert meaning in findings[0].meaning and measured in findings[0].measured, report
    assert not report.holds
