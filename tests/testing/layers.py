"""Kinds of layers with their references in NumPy, right and wrong ones."""

import equinox as eqx
import numpy as np
from sympy import Identity, KroneckerProduct, sqrt

from theorykit.bpkr import AbstractLayer


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
    mixed = weights[-1] @ hidden + sum(block @ hidden @ mixing for block, mixing in zip(weights, attention))  # noqa: B905
    return mixed / np.sqrt(len(weights) * len(hidden))


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


def independent(layer):
    return layer.variance * Identity(layer.heads)


def values(layer):
    """Weight blocks of all heads on the hidden activations."""
    return layer.weights(layer.heads) * KroneckerProduct(Identity(layer.heads), layer.hidden)


def with_gate(power):
    return stated(
        lambda layer: layer.number("g") ** power * layer.weights(1) * layer.hidden / sqrt(layer.width),
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
