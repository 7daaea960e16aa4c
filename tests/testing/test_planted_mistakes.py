"""Mistakes planted in kinds of layers: each is found by `check_layer`, and named."""

import re
from functools import cache

import numpy as np
import pytest
from sympy import sqrt, symbols, tanh

from theorykit import testing
from theorykit.bpkr import Attention, Dense, Skip
from theorykit.bpkr.specification.layers import LayerSymbols
from theorykit.derivation import Step, claims

from ..bpkr.cases import CorrelatedHeads
from ..bpkr.specification.test_forward_maps import BesideItself
from ..derivation.mistakes import planted
from ..marks import slow
from . import layers
from .layers import GATED, NAMES, assert_found, stated

LAYERS = {
    "attention": (Attention(2), layers.attention),
    "a gate": (GATED, layers.gated),
    "a skip around attention": (Skip(2, 0.7), layers.skip),
}


@pytest.mark.quick("a skip around attention")
@pytest.mark.parametrize("name", LAYERS)
def test_mistakes_of_every_kind_in_a_forward_map_are_found_and_named(name):
    right, reference = LAYERS[name]

    @cache
    def of_kinds(layer):
        forward = right.forward(layer)
        return dict(planted(Step("the forward map", forward, forward, claims.Equal())))

    kinds = of_kinds(LayerSymbols(1, *symbols("N_1 N_2", positive=True)))
    assert len(kinds) >= 11
    for kind in kinds:
        wrong = stated(lambda layer, kind=kind: of_kinds(layer)[kind].after, right.prior, right.heads, right.parameters)
        report = testing.check_layer(wrong, reference=reference)
        assert any(re.search(NAMES[kind], finding.meaning) for finding in report.findings), (kind, report)


REFERENCE = "the forward map equals the reference"


def mixed(change):
    """Attention, right but for the attention itself."""
    return lambda weights, hidden, mixing, parameters: layers.attention(weights, hidden, change(mixing), parameters)


def weighted(change, right=layers.attention):
    return lambda weights, *others: right(change(weights), *others)


def plus(term):
    return lambda weights, hidden, *others: layers.attention(weights, hidden, *others) + term(weights, hidden)


def of_itself(blocks):
    """The weights of these blocks act on each token itself."""
    return lambda weights, hidden: np.sum(weights[blocks], axis=0) @ hidden / np.sqrt(len(hidden))


def times(factor):
    """Attention times a factor that depends on weights and hidden activations."""
    return lambda weights, hidden, *others: factor(weights, hidden) * layers.attention(weights, hidden, *others)


def of_blocks(share, by_heads=False):
    """Attention with a block more, for the token itself, times a number; divided by the root of blocks or heads."""

    def reference(weights, hidden, attention, parameters):
        heads = sum(block @ hidden @ mixing for block, mixing in zip(weights, attention, strict=False))
        return (heads + share * weights[-1] @ hidden) / np.sqrt(len(attention if by_heads else weights) * len(hidden))

    return reference


def for_two_heads(factor):
    """Attention for two heads alone, whatever their number."""

    def reference(weights, hidden, attention, parameters):
        both = weights[0] @ hidden @ attention[0] + weights[1] @ hidden @ attention[1]
        return factor * both / np.sqrt(2 * len(hidden))

    return reference


MIXED = {
    "attention transposed": (lambda mixing: mixing.swapaxes(1, 2), "the transpose of attention"),
    "normalised over queries": (lambda mixing: mixing / mixing.sum(2)[:, :, None], "normalised over queries"),
    "a softmax too many": (lambda mixing: np.exp(mixing) / np.exp(mixing).sum(1)[:, None], "softmax over keys"),
    "masked": (np.triu, "causal attention, not normalised"),
    "attention twice": (lambda mixing: mixing @ mixing, "attention applied twice"),
    "no attention": (lambda mixing: 0 * mixing + np.eye(mixing.shape[1]), "no mixing of tokens"),
    "heads in another order": (lambda mixing: mixing[::-1], "heads in the order (1, 0)"),
    "nothing that has a name": (lambda mixing: mixing**2, "no factor, transpose"),
}
# differences that occur only for more heads or larger inputs
ELSEWHERE = {
    "at three heads": (lambda weights, hidden: 1 + (len(weights) > 2), "has 2 times"),
    "at five heads": (lambda weights, hidden: 1 + (len(weights) > 3), "has 2 times"),
    "at large widths": (lambda weights, hidden: 1 + (len(hidden) > 20), "has 2 times"),
    "at many tokens": (lambda weights, hidden: 1 + 2 * (hidden.shape[1] > 20), "has 3 times"),
    "a number for the heads": (lambda weights, hidden: np.sqrt(len(weights) / 2), "sqrt(layer.heads)/sqrt(2) times"),
    "a number for the width": (lambda weights, hidden: np.sqrt(max(len(hidden), 12) / 12), "has 1.84842 times"),
}
BESIDE = BesideItself(np.diag([1.2, 0.7, 1.5]) + 0.2, 2)
OTHER_NORM = "sqrt(blocks)/sqrt(layer.heads) times"
# a layer, a wrong reference, and what the reference has
AGAINST_REFERENCES = {
    **{name: (Attention(2), mixed(change), said) for name, (change, said) in MIXED.items()},
    **{name: (Attention(2), times(factor), said) for name, (factor, said) in ELSEWHERE.items()},
    "three heads in another order": (Attention(3), mixed(lambda mixing: mixing[[1, 0, 2]]), "order (1, 0, 2)"),
    "a sign and a factor": (
        stated(lambda layer: -sqrt(layer.width) * Attention(2).forward(layer), Attention(2).prior, 2),
        *(layers.attention, "has -1/sqrt(layer.width) times"),
    ),
    "the units after the layer": (
        stated(lambda layer: sqrt(layer.width / layer.next_width) * Dense().forward(layer)),
        *(layers.dense, "sqrt(layer.next_width)/sqrt(layer.width) times"),
    ),
    "a function of a gate": (
        stated(
            lambda layer: tanh(layer.number("g")) * layer.weights(1) * layer.hidden / sqrt(layer.width),
            parameters=lambda layer: {layer.number("g"): 1.0},
        ),
        *(layers.gated, "has a factor times (tanh(g_1)"),
    ),
    "the sign of one block": (
        Attention(2),
        weighted(lambda weights: weights * np.array([1, -1])[:, None, None]),
        "-1 times weight block -1",
    ),
    "shared weights": (Attention(2), weighted(lambda w: np.stack([w[0]] * 2)), "the first block for all weights"),
    "transposed weights": (
        *(Dense(), weighted(lambda weights: weights.swapaxes(1, 2), layers.dense)),
        "the transpose of weights",
    ),
    "a missing skip connection": (Attention(2), plus(lambda w, hidden: 0.3 * hidden), "0.3 times layer.hidden in add"),
    "a skip connection too many": (Skip(2, 0.7), layers.attention, "has no s_1*X_0"),
    "a missing block on the token itself": (
        *(Attention(2), plus(of_itself([0, 1]))),
        "1/sqrt(layer.width) times weights * hidden in addition",
    ),
    "a missing term of the first block": (Attention(3), plus(of_itself([0])), "weight block 0 * hidden"),
    "a missing term of a block": (Attention(3), plus(of_itself([1])), "weight block 1 * hidden"),
    "a missing term of the last block": (Attention(3), plus(of_itself([2])), "weight block 2 * hidden"),
    "one token otherwise": (
        Dense(),
        lambda w, hidden, *others: layers.dense(w, hidden * (1 + np.eye(1, hidden.shape[1])[0]), *others),
        "no factor, transpose",
    ),
    "no term of the token itself": (BESIDE, of_blocks(0.0), "0 times weight block -1"),
    "a doubled term": (BESIDE, of_blocks(2.0), "2 times weight block -1"),
    "another norm": (BESIDE, of_blocks(1.0, by_heads=True), OTHER_NORM),
    "another norm, and no term": (BESIDE, of_blocks(0.0, by_heads=True), f"-1, counted from 0; {OTHER_NORM}"),
    "a factor that two heads cannot tell from their number": (
        *(Attention(2), for_two_heads(2)),
        "layer.heads or 2 times",
    ),
    "a number": (Attention(3), times(lambda weights, hidden: 1 / 3), "has 1/3 times"),
    "the number of heads": (Attention(3), times(lambda weights, hidden: len(weights)), "has layer.heads times"),
    "the number of heads, at one head": (
        *(Attention(1), times(lambda weights, hidden: np.sqrt(len(weights)))),
        "has sqrt(layer.heads) times",
    ),
}


@pytest.mark.parametrize("seed", [0, *slow([1])])
@pytest.mark.parametrize("name", AGAINST_REFERENCES)
def test_a_difference_from_a_reference_is_named(name, seed):
    kind, reference, said = AGAINST_REFERENCES[name]
    report = testing.check_layer(kind, reference=reference, seed=seed)
    agrees = "but agree for" if name in ELSEWHERE or "at one head" in name else "they differ by"
    assert_found(report, said, agrees, REFERENCE)


@pytest.mark.parametrize("difference", [1e-6, 2e-9])
@pytest.mark.parametrize("name", LAYERS)
def test_the_smallest_differences_are_findings(name, difference):
    kind, right = LAYERS[name]
    off = lambda *arguments: right(*arguments) * (1 + difference)  # noqa: E731
    assert_found(testing.check_layer(kind, reference=off), "1.00000", check=REFERENCE)


LINEAR, COMPARED = "the reference is linear", "can be compared"
# what a reference for a dense layer does to the right result; the check that fails, and words
OF_RESULTS = {
    "a bias": (lambda right: right + 1.0, LINEAR, "bias"),
    "ReLU": (lambda right: np.maximum(right, 0), LINEAR, "ReLU"),
    "tanh": (np.tanh, LINEAR, "a norm, an activation function"),
    "transposed": (np.transpose, COMPARED, "float64 of shape (11, 5), not finite float64 of shape (5, 11)"),
    "complex numbers": (lambda right: right * (1 + 0.5j), COMPARED, "it returns complex128"),
    "complex numbers that are real": (lambda right: right + 0j, COMPARED, "it returns complex128"),
    "single precision": (np.float32, COMPARED, "it returns float32"),
    "not a number": (lambda right: right * np.nan, COMPARED, "not finite"),
}
OF_DENSE = {
    **{
        name: (lambda *arguments, change=change: change(layers.dense(*arguments)), *said)
        for name, (change, *said) in OF_RESULTS.items()
    },
    "layer norm": (
        lambda w, hidden, *others: layers.dense(w, hidden / (1e-300 + np.linalg.norm(hidden)), *others),
        *(LINEAR, "a norm"),
    ),
    "weights twice": (weighted(lambda weights: weights * np.abs(weights), layers.dense), *(LINEAR, "more than once")),
    "another parameter": (lambda w, hidden, m, given: given["gain"] * hidden, COMPARED, "KeyError('gain')"),
    "other heads": (layers.attention, COMPARED, "TypeError"),
}


@pytest.mark.parametrize("name", OF_DENSE)
def test_a_reference_that_is_not_linear_or_cannot_be_compared_is_named(name):
    reference, check, meaning = OF_DENSE[name]
    assert_found(testing.check_layer(Dense(), reference=reference), meaning, check=check)


CORRELATED = CorrelatedHeads(np.array([[1.4, 0.3], [0.3, 0.6]]), 2)
# a layer, a wrong prior, and what it has
PRIORS = {
    "a standard deviation": (Dense(), lambda v, of: v**2 * np.eye(1), "variance times sigma2_1"),
    "a factor": (Dense(), lambda v, of: v / 5 * np.eye(1), "0.2 times sigma2_1"),
    "correlations": (Attention(2), lambda v, of: v * np.array([[1, 0.5], [0.5, 1]]), "all ones in addition"),
    "no correlations": (CORRELATED, lambda v, of: np.diag(np.diag(of["kappa"])), "the diagonal of kappa"),
    "another order": (CORRELATED, lambda v, of: of["kappa"][::-1, ::-1], "kappa, reversed,"),
    "a precision": (CORRELATED, lambda v, of: np.linalg.inv(of["kappa"]), "kappa.I in place of kappa"),
    "the square": (CORRELATED, lambda v, of: of["kappa"] @ of["kappa"], "kappa**2 in place of kappa"),
    "the root": (CORRELATED, lambda v, of: np.linalg.cholesky(of["kappa"]), "cholesky(kappa) in place of kappa"),
    "an error": (Dense(), lambda v, of: of["kappa"], "KeyError"),
    "another shape": (Attention(2), lambda v, of: v, "of shape (2, 2)"),
    "not a number": (Dense(), lambda v, of: np.nan * np.eye(1), "not finite"),
}


@pytest.mark.parametrize("name", PRIORS)
def test_another_prior_is_named(name):
    kind, prior, meaning = PRIORS[name]
    assert_found(testing.check_layer(kind, prior=prior), meaning, check="the prior equals yours")


COVERED = "the theory covers it"
SUSPICIOUS = {
    "no 1/sqrt(N)": (
        stated(lambda layer: layer.weights(1) * layer.hidden),
        *("divided by sqrt(layer.width)", "is missing"),
    ),
    "a parameter that is not used": (
        stated(Dense().forward, parameters=lambda layer: {layer.number("g"): 1.0}),
        *("parameters are used", "do not use {g_1}"),
    ),
    "a map that the theory does not cover": (
        stated(lambda layer: Dense().forward(layer).applyfunc(tanh)),
        *(COVERED, "nonlinear"),
    ),
    "a prior that is not definite": (CorrelatedHeads(np.ones((2, 2)), 2), COVERED, "is not positive definite"),
}


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_mistakes_are_found_without_a_reference(name):
    kind, check, meaning = SUSPICIOUS[name]
    assert_found(testing.check_layer(kind), meaning, check=check)
