"""Mistakes planted in kinds of layers: each is found by `check_layer`, and named."""

import re
from functools import cache

import numpy as np
import pytest
from sympy import sqrt, symbols, tanh

from tests.marks import slow
from theorykit import testing
from theorykit.bpkr import Attention, Dense, Skip
from theorykit.bpkr.specification.layers import LayerSymbols
from theorykit.derivation import Step, claims

from ..bpkr.cases import CorrelatedHeads
from ..bpkr.specification.test_forward_maps import BesideItself
from ..derivation.mistakes import planted
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
        report = testing.check_layer(wrong, reference=reference, checks=["reference"])
        assert any(re.search(NAMES[kind], finding.meaning) for finding in report.findings), (kind, report)


REFERENCE = "the stated forward map equals the reference"


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
    "attention transposed": (lambda mixing: mixing.swapaxes(1, 2), "the transpose of the attention", "keys, queries"),
    "normalised over queries": (lambda mixing: mixing / mixing.sum(2)[:, :, None], "sum over queries", "to one over"),
    "a softmax too many": (
        lambda mixing: np.exp(mixing) / np.exp(mixing).sum(1)[:, None],
        *("a softmax over keys of the attention", "takes the softmax again"),
    ),
    "masked": (np.triu, "causal attention, not renormalised", "mask="),
    "attention twice": (lambda mixing: mixing @ mixing, "attention applied twice", "twice on one side"),
    "no attention": (lambda mixing: 0 * mixing + np.eye(mixing.shape[1]), "no mixing of tokens", "is missing on one"),
    "heads in another order": (lambda mixing: mixing[::-1], "the heads in the order (2, 1)", "heads are permuted"),
    "nothing that has a name": (lambda mixing: mixing**2, "an overlap (cosine)", "no single factor"),
}
# differences that occur only for more heads or larger inputs; where, and what they mean
ELSEWHERE = {
    "at three heads": (lambda weights, hidden: 1 + (len(weights) > 2), "at 3 heads, ", "a factor of 1 / 2"),
    "at five heads": (lambda weights, hidden: 1 + (len(weights) > 3), "at 5 heads, ", "a factor of 1 / 2"),
    "at large widths": (lambda weights, hidden: 1 + (len(hidden) > 20), "widths 41 to 37", "a factor of 1 / 2"),
    "at many tokens": (lambda weights, hidden: 1 + 2 * (hidden.shape[1] > 20), "29 tokens", "a factor of 1 / 3"),
    "a number for the heads": (lambda weights, hidden: np.sqrt(len(weights) / 2), "at 3 heads, ", "by heads"),
    "a number for the width": (
        lambda weights, hidden: np.sqrt(max(len(hidden), 12) / 12),
        *("widths 41 to 37", "One of the two holds only for few heads or small inputs"),
    ),
}
BESIDE = BesideItself(np.diag([1.2, 0.7, 1.5]) + 0.2, 2)
OTHER_NORM = "sqrt(layer.heads) / sqrt(the number of blocks) = 0.8165 times"
BY_BLOCKS = "one side divides by the number of heads, the other by the number of weight blocks"
NO_BLOCK = "the reference has no weight block 3, which the statement has"
EACH_TOKEN = "a term is missing in `forward`: weights that act on each token itself"
# a layer, a wrong reference, and words of what was measured and what it means
AGAINST_REFERENCES = {
    **{name: (Attention(2), mixed(change), *said) for name, (change, *said) in MIXED.items()},
    **{name: (Attention(2), times(factor), *said) for name, (factor, *said) in ELSEWHERE.items()},
    "three heads in another order": (Attention(3), mixed(lambda mixing: mixing[[1, 0, 2]]), "(2, 1, 3)", "permuted"),
    "a sign and a factor": (
        stated(lambda layer: -sqrt(layer.width) * Attention(2).forward(layer), Attention(2).prior, 2),
        *(layers.attention, "-sqrt(layer.width)", "a sign, and the normalisation by"),
    ),
    "the units after the layer": (
        stated(lambda layer: sqrt(layer.width / layer.next_width) * Dense().forward(layer)),
        *(layers.dense, "sqrt(layer.width) / sqrt(layer.next_width)"),
        "the number of units before the layer, and the other by the number after it",
    ),
    "a function of a gate": (
        stated(
            lambda layer: tanh(layer.number("g")) * layer.weights(1) * layer.hidden / sqrt(layer.width),
            parameters=lambda layer: {layer.number("g"): 1.0},
        ),
        *(layers.gated, "it depends on sizes or parameters", "a factor that depends on sizes or parameters"),
    ),
    "the sign of one block": (
        Attention(2),
        weighted(lambda weights: weights * np.array([1, -1])[:, None, None]),
        *("weight block 2 of the statement is -1 times", "a sign"),
    ),
    "shared weights": (Attention(2), weighted(lambda w: np.stack([w[0]] * 2)), "the first weight block", "weights(1)"),
    "transposed weights": (
        Dense(),
        weighted(lambda weights: weights.swapaxes(1, 2), layers.dense),
        *("the transpose of every weight block", "(next_width, width)"),
    ),
    "a missing skip connection": (Attention(2), plus(lambda w, hidden: 0.3 * hidden), "0.3 * layer.hidden", "the skip"),
    "a skip connection too many": (Skip(2, 0.7), layers.attention, "has no skip connection", "one term too many in"),
    "a missing block on the token itself": (
        *(Attention(2), plus(of_itself([0, 1]))),
        *("1 / sqrt(layer.width) * weights * hidden", EACH_TOKEN),
    ),
    "a missing term of the first block": (Attention(3), plus(of_itself([0])), "hidden, of the first block", EACH_TOKEN),
    "a missing term of a block": (Attention(3), plus(of_itself([1])), "hidden, of block 2", EACH_TOKEN),
    "a missing term of the last block": (Attention(3), plus(of_itself([2])), "hidden, of the last block", EACH_TOKEN),
    "one token otherwise": (
        Dense(),
        lambda w, hidden, *others: layers.dense(w, hidden * (1 + np.eye(1, hidden.shape[1])[0]), *others),
        *("they differ by", "agree except at token 1"),
    ),
    "no term of the token itself": (BESIDE, of_blocks(0.0), NO_BLOCK, "one term too many in `forward`, or"),
    "a doubled term": (
        *(BESIDE, of_blocks(2.0)),
        *("weight block 3 of the statement is 1 / 2 = 0.5 times that of the reference", "a factor of 1 / 2"),
    ),
    "another norm": (BESIDE, of_blocks(1.0, by_heads=True), f"the statement gives {OTHER_NORM}", BY_BLOCKS),
    "another norm, and no term": (
        *(BESIDE, of_blocks(0.0, by_heads=True)),
        *(f"{OTHER_NORM} those of the reference; {NO_BLOCK}", f"{BY_BLOCKS}; one term too many in `forward`"),
    ),
    "a factor that two heads cannot tell from their number": (
        *(Attention(2), for_two_heads(2)),
        *("1 / layer.heads or 1 / 2 = 0.5 times", "the sizes tried do not distinguish them"),
    ),
    "a number": (Attention(3), times(lambda weights, hidden: 1 / 3), "the statement gives 3 times", "a factor of 3"),
    "the number of heads": (
        *(Attention(3), times(lambda weights, hidden: len(weights))),
        *("the statement gives 1 / layer.heads", "the normalisation by heads"),
    ),
    "the number of heads, at one head": (
        *(Attention(1), times(lambda weights, hidden: np.sqrt(len(weights)))),
        *("at 2 heads, ", "the normalisation by heads"),
    ),
}


@pytest.mark.parametrize("seed", [0, *slow([1])])
@pytest.mark.parametrize("name", AGAINST_REFERENCES)
def test_a_difference_from_a_reference_is_named(name, seed):
    kind, reference, measured, meaning = AGAINST_REFERENCES[name]
    report = testing.check_layer(kind, reference=reference, checks=["reference"], seed=seed)
    assert_found(report, REFERENCE, measured, meaning)
    assert ("they agree" in report.findings[0].measured) == (name in ELSEWHERE or "at one head" in name)


@pytest.mark.parametrize("difference", [1e-6, 2e-9])
@pytest.mark.parametrize("name", LAYERS)
def test_the_smallest_differences_are_findings(name, difference):
    kind, right = LAYERS[name]
    off = lambda *arguments: right(*arguments) * (1 + difference)  # noqa: E731
    report = testing.check_layer(kind, reference=off, checks=["reference"])
    assert_found(report, REFERENCE, "0.99999", "single precision on one side, or a constant of few dig")


def test_the_report_says_what_was_tried():
    report = testing.check_layer(Attention(2), reference=layers.attention, checks=["reference"])
    said = " ".join(str(report).split())
    assert "at 2, 3 and 5 heads, widths 5 to 7, 11 to 5 and 41 to 37, 7, 11 and 29 tokens" in said
    for place in ("alone (widths 5, 7)", "below attention", "above a dense layer", "between others (widths 4, 5, 6,"):
        assert place in said
    report = testing.check_layer(Attention(2), reference=for_two_heads(1), checks=["reference"])
    assert report.holds and "at 5 heads the reference ignores some" in " ".join(str(report).split())


LINEAR, COMPARED = "the reference is linear", "can be compared"
REAL = "the theory uses real numbers in double precision"
# what a reference for a dense layer does to the right result; the check that fails, and words
OF_RESULTS = {
    "a bias": (lambda right: right + 1.0, LINEAR, "not zero", "bias"),
    "ReLU": (lambda right: np.maximum(right, 0), LINEAR, "does not reverse its sign", "ReLU"),
    "tanh": (np.tanh, LINEAR, "multiplies the norm of the result by", "a nonlinear function"),
    "transposed": (np.transpose, COMPARED, "returns an array of shape", "returns the transpose"),
    "complex numbers": (lambda right: right * (1 + 0.5j), COMPARED, "complex numbers, with imaginary parts", REAL),
    "complex numbers that are real": (lambda right: right + 0j, COMPARED, "with imaginary parts up to 0", REAL),
    "single precision": (np.float32, COMPARED, "it returns numbers in float32, whose rounding hides mistakes", REAL),
    "not a number": (lambda right: right * np.nan, COMPARED, "not finite", "the reference is called with"),
}
OF_DENSE = {
    **{
        name: (lambda *arguments, change=change: change(layers.dense(*arguments)), *said)
        for name, (change, *said) in OF_RESULTS.items()
    },
    "layer norm": (
        lambda w, hidden, *others: layers.dense(w, hidden / (1e-300 + np.linalg.norm(hidden)), *others),
        *(LINEAR, "doubling the hidden activations does not change the result", "layer norm"),
    ),
    "weights twice": (
        weighted(lambda weights: weights * np.abs(weights), layers.dense),
        *(LINEAR, "doubling the weights", "more than once"),
    ),
    "another parameter": (
        lambda w, hidden, m, given: given["gain"] * hidden,
        *(COMPARED, "'gain'", "a parameter that the"),
    ),
    "other heads": (layers.attention, COMPARED, "raises", "number of blocks or heads"),
}


@pytest.mark.parametrize("name", OF_DENSE)
def test_a_reference_that_is_not_linear_or_cannot_be_compared_is_named(name):
    reference, check, measured, meaning = OF_DENSE[name]
    assert_found(testing.check_layer(Dense(), reference=reference, checks=["reference"]), check, measured, meaning)


CORRELATED = CorrelatedHeads(np.array([[1.4, 0.3], [0.3, 0.6]]), 2)


def by_root(white, covariance):
    return np.einsum("ab,bij->aij", np.linalg.cholesky(covariance), white)


def uniform(rng, shape):
    return np.sqrt(3) * rng.uniform(-1, 1, size=shape)


def alike(rng, shape):
    """The same number in a row."""
    return rng.normal(size=(*shape[:-1], 1)) * np.ones(shape)


def second(draw):
    """A first block that is right, and a second that is drawn otherwise."""
    return lambda rng, shape: np.stack([rng.normal(size=shape[1:]), draw(rng, shape[1:])])


GAUSSIAN, INDEPENDENT = "weights are Gaussian", "entries of weight blocks are independent"
# draws of unit variance
DRAWN = {
    "uniformly": (Dense(), uniform, GAUSSIAN),
    "uniformly in a block": (Attention(2), second(uniform), GAUSSIAN),
    "alike in a row": (Dense(), alike, INDEPENDENT),
    "alike in a row of a block": (Attention(2), second(alike), INDEPENDENT),
}
DRAWN = {
    name: (kind, lambda rng, shape, variance, _, draw=draw: np.sqrt(variance) * draw(rng, shape), meaning)
    for name, (kind, draw, meaning) in DRAWN.items()
}
# made of independent standard normal numbers, the variance and the covariance
OF_WHITE = {
    "about another mean": (Dense(), lambda white, v, _: np.sqrt(v) * (0.3 + white), "mean zero"),
    "the same, turned": (
        *(Attention(2), lambda white, v, _: np.sqrt(v) * np.stack([white[0], np.roll(white[0], 1, axis=0)])),
        INDEPENDENT,
    ),
    "complex": (Attention(2), lambda white, v, _: white * (1 + 1j), "the theory requires real weights"),
    "with correlations": (
        *(Attention(2), lambda white, v, _: np.sqrt(v) * by_root(white, np.array([[1, 0.5], [0.5, 1]]))),
        "independent in `prior`, and drawn with correlations",
    ),
    "in another shape": (Dense(), lambda white, v, _: white[0], "expected finite weights of shape (1, 7, 5)"),
    "a standard deviation": (Dense(), lambda white, v, _: v * white, "standard deviation"),
    "divided by the width": (Dense(), lambda white, v, _: np.sqrt(v / white.shape[2]) * white, "contains the width"),
    "independently": (CORRELATED, lambda white, v, c: by_root(white, np.diag(np.diag(c))), "drawn independently"),
    "in another order": (CORRELATED, lambda white, v, c: by_root(white, c)[::-1], "in another order"),
    "by the inverse": (CORRELATED, lambda white, v, c: by_root(white, np.linalg.inv(c)), "a precision matrix"),
    "by the covariance": (CORRELATED, lambda white, v, c: np.einsum("ab,bij->aij", c, white), "not by its square root"),
}
DRAWN |= {
    name: (kind, lambda rng, shape, v, given, of=of: of(rng.normal(size=shape), v, given.get("kappa")), meaning)
    for name, (kind, of, meaning) in OF_WHITE.items()
}


@pytest.mark.parametrize("name", DRAWN)
def test_weights_that_are_drawn_otherwise_are_named(name):
    kind, draw, meaning = DRAWN[name]
    report = testing.check_layer(kind, draw_weights=draw, checks=["reference"])
    assert_found(report, "weights are drawn with the covariance of `prior`", "", meaning)


COVERED = "the theory covers the specification"
SUSPICIOUS = {
    "no 1/sqrt(N)": (
        stated(lambda layer: layer.weights(1) * layer.hidden),
        *("divided by sqrt(layer.width)", "is missing"),
    ),
    "a parameter that is not used": (
        stated(Dense().forward, parameters=lambda layer: {layer.number("g"): 1.0}),
        *("every parameter has a separate symbol", "was forgotten in `forward`"),
    ),
    "a map that the theory does not cover": (
        stated(lambda layer: Dense().forward(layer).applyfunc(tanh)),
        *(COVERED, "a nonlinear function"),
    ),
    "a prior that is not definite": (CorrelatedHeads(np.ones((2, 2)), 2), COVERED, "eigenvalue that is not positive"),
}


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_mistakes_are_found_without_a_reference(name):
    kind, check, meaning = SUSPICIOUS[name]
    assert_found(testing.check_layer(kind, checks=[]), check, "", meaning)
