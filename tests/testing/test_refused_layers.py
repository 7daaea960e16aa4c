"""Mistakes that are seen without a reference: refused ones are findings too, and what cannot be meant is found."""

import equinox as eqx
import numpy as np
import pytest
from sympy import I, Identity, KroneckerProduct, MatrixSymbol, OneMatrix, Symbol, oo, sqrt, tanh

from theorykit import testing
from theorykit.bpkr import AbstractLayer, Attention, Skip

from ..bpkr.cases import CorrelatedHeads
from .layers import assert_found, independent, stated, values

SPECIFICATION = "the theory covers the specification"
SCALING, PARAMETERS = "divided by sqrt(layer.width)", "every parameter has a separate symbol"


def one(layer):
    return layer.weights(1) * layer.hidden / sqrt(layer.width)


class AsymmetricPrior(CorrelatedHeads):
    """Its covariance is not symmetric."""


class ArrayAsStatic(AbstractLayer):
    """A list in a field that is static."""

    scale: list = eqx.field(static=True)
    heads = 0

    def forward(self, layer):
        return one(layer)

    def prior(self, layer):
        return layer.variance * Identity(1)


REFUSED = {
    "a prior that is not symmetric": (AsymmetricPrior(np.array([[1.0, 0.5], [0.1, 1.0]]), 2), "must be symmetric"),
    "a prior that is not positive definite": (CorrelatedHeads(np.ones((2, 2)), 2), "eigenvalue that is not positive"),
    "a covariance of other heads": (CorrelatedHeads(np.eye(3), 2), "another size than its symbol"),
    "a parameter that is not named": (
        stated(lambda layer: layer.number("g") * one(layer)),
        "not named in `parameters`",
    ),
    "attention without heads": (
        stated(lambda layer: values(layer) * layer.attention / sqrt(layer.width), independent),
        "`heads` is 0",
    ),
    "heads without attention": (stated(one, heads=2), "does not use layer.attention"),
    "activations twice": (
        stated(lambda layer: one(layer) * layer.hidden.T * layer.hidden),
        "computed from the hidden activations",
    ),
    "an activation function": (stated(lambda layer: one(layer).applyfunc(tanh)), "a nonlinear function"),
    "a stated bias": (stated(lambda layer: one(layer) + OneMatrix(layer.next_width, layer.tokens)), "a bias"),
    "another number of blocks": (
        stated(lambda layer: values(layer) * layer.attention, lambda layer: layer.variance * Identity(1), 2),
        "numbers of weight blocks",
    ),
    "the result transposed": (stated(lambda layer: one(layer).T), "other rows or columns"),
    "sizes that do not match": (
        stated(lambda layer: one(layer) + layer.weights(1) * OneMatrix(2, 2) * OneMatrix(3, 3) * layer.hidden),
        "the product of two matrices whose sizes do not match",
    ),
    "weights of its own": (
        stated(lambda layer: MatrixSymbol("W", layer.next_width, layer.width) * layer.hidden),
        "numbers of weight blocks",
    ),
    "a matrix in between": (
        stated(lambda layer: layer.weights(1) * OneMatrix(layer.width, layer.width) * layer.hidden),
        "stands after the weights",
    ),
    "two skip connections": (
        stated(lambda layer: one(layer) + layer.hidden + layer.hidden * OneMatrix(layer.tokens, layer.tokens)),
        "two skip connections",
    ),
    "the width in the prior": (
        stated(one, lambda layer: layer.variance * Identity(1) / layer.width),
        "`prior` contains the width",
    ),
    "a negative gain": (Skip(2, -0.5), "zero or negative"),
    "a prior that is a number": (stated(one, lambda layer: layer.variance), "`prior` must be a matrix"),
    "an array as static": (ArrayAsStatic([1.0, 1.0]), "a field marked static"),
    "the name of something else": (
        stated(lambda layer: layer.number("N") * one(layer), parameters=lambda layer: {layer.number("N"): 1.0}),
        "the name of a parameter is taken",
    ),
    "several blocks on one": (
        stated(
            lambda layer: layer.weights(layer.heads) * layer.hidden * layer.attention / sqrt(layer.width),
            independent,
            2,
        ),
        "several weight blocks act on one block of activations",
    ),
    "attention of all heads after one block": (
        stated(lambda layer: layer.weights(1) * layer.hidden * layer.attention / sqrt(layer.width), heads=2),
        "the product of two matrices whose sizes do not match",
    ),
    "a spread of other blocks": (
        stated(
            lambda layer: (
                layer.weights(layer.heads) * KroneckerProduct(Identity(layer.heads + 1), layer.hidden) * layer.attention
            ),
            independent,
            2,
        ),
        "the product of two matrices whose sizes do not match",
    ),
    "a number as a bias": (stated(lambda layer: one(layer) + 1), "biases are not covered, leave it out"),
    "a complex number": (stated(lambda layer: one(layer) * (1 + I)), "what the error says"),
    "an infinite number": (stated(lambda layer: one(layer) * oo), "what the error says"),
    "a complex prior": (stated(one, lambda layer: layer.variance * I * Identity(1)), "what the error says"),
    "more heads than are tried": (Attention(1000), "check the layer with fewer heads"),
    "code that fails": (stated(lambda layer: layer.weight(1)), "what the error says"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_a_finding_and_no_error(name):
    kind, meaning = REFUSED[name]
    report = testing.check_layer(kind)
    assert_found(report, SPECIFICATION, "Error: ", meaning)
    assert len(report.findings) == 1 and "refused" in report.left_out[0]


SUSPICIOUS = {
    "no 1/sqrt(N)": (stated(lambda layer: layer.weights(1) * layer.hidden), SCALING, "is missing"),
    "a parameter that is not used": (
        stated(one, parameters=lambda layer: {layer.number("g"): 1.0}),
        PARAMETERS,
        "was forgotten in `forward`",
    ),
    "one symbol for all layers": (
        stated(
            lambda layer: Symbol("g", positive=True) * one(layer),
            parameters=lambda layer: {Symbol("g", positive=True): 2.0},
        ),
        PARAMETERS,
        "a symbol was made by hand",
    ),
}


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_what_the_theory_admits_but_cannot_be_meant_is_found_without_a_reference(name):
    kind, check, meaning = SUSPICIOUS[name]
    report = testing.check_layer(kind, checks=[])
    assert_found(report, check, "", meaning)
    assert len(report.findings) == 1
