"""Mistakes planted in kinds of layers: each is found by `check_layer`, and named."""

import numpy as np
import pytest
from sympy import sqrt, tanh

from tests.marks import slow
from theorykit import testing
from theorykit.bpkr import Attention, Dense, Skip

from ..bpkr.cases import CorrelatedHeads
from ..bpkr.specification.test_forward_maps import BesideItself
from . import layers
from .layers import assert_found, independent, stated, values, with_gate

REFERENCE = "the stated forward map equals the reference"


def heads_with(factor, heads=3):
    """Attention, stated with another factor."""
    return stated(
        lambda layer: factor(layer) * values(layer) * layer.attention / sqrt(layer.heads * layer.width),
        independent,
        heads,
    )


# a factor of the statement, and words of what was measured and what it means
FACTORS = {
    "a sign": (lambda layer: -1, "the statement gives -1 times the reference", "a sign"),
    "a factor": (lambda layer: 2 * sqrt(7), "5.2915", "a factor of 5.2915"),
    "no 1/sqrt(N)": (lambda layer: sqrt(layer.width), "sqrt(layer.width) = 2.236 times", "normalisation by units"),
    "1/N for 1/sqrt(N)": (lambda layer: 1 / sqrt(layer.width), "1 / sqrt(layer.width)", "normalisation by units"),
    "the units after the layer": (
        lambda layer: sqrt(layer.width / layer.next_width),
        "sqrt(layer.width) / sqrt(layer.next_width)",
        "the number of units before the layer, and the other by the number after it",
    ),
    "no 1/sqrt(H)": (lambda layer: sqrt(layer.heads), "sqrt(layer.heads)", "normalisation by heads"),
    "divided by tokens": (lambda layer: 1 / layer.tokens, "1 / layer.tokens", "normalisation by tokens"),
    "a sign and a factor": (lambda layer: -sqrt(layer.width), "-sqrt(layer.width)", "a sign, and the normalisation by"),
}
# what a reference does to attention, that is right otherwise
MIXED = {
    "attention transposed": (lambda mixing: mixing.swapaxes(1, 2), "the transpose of the attention", "keys, queries"),
    "normalised over queries": (
        lambda mixing: mixing / mixing.sum(2, keepdims=True),
        "sum over queries",
        "to one over",
    ),
    "a softmax too many": (
        lambda mixing: np.exp(mixing) / np.exp(mixing).sum(1)[:, None],
        "a softmax over keys of the attention",
        "takes the softmax again",
    ),
    "masked": (np.triu, "causal attention, not renormalised", "mask="),
    "attention twice": (lambda mixing: mixing @ mixing, "attention applied twice", "twice on one side"),
    "no attention": (lambda mixing: 0 * mixing + np.eye(mixing.shape[1]), "no mixing of tokens", "is missing on one"),
    "heads in another order": (lambda mixing: mixing[::-1], "the heads in the order (2, 1)", "heads are permuted"),
    "nothing that has a name": (lambda mixing: mixing**2, "an overlap (cosine)", "no single factor"),
}


def mixed(change):
    return lambda weights, hidden, mixing, parameters: layers.attention(weights, hidden, change(mixing), parameters)


def weighted(change):
    return lambda weights, *others: layers.attention(change(weights), *others)


def plus(term):
    return lambda weights, hidden, *others: layers.attention(weights, hidden, *others) + term(weights, hidden)


# a layer, its reference, and words of what was measured and what it means
AGAINST_REFERENCES = {
    **{name: (heads_with(factor), layers.attention, *said) for name, (factor, *said) in FACTORS.items()},
    **{name: (Attention(2), mixed(change), *said) for name, (change, *said) in MIXED.items()},
    "three heads in another order": (
        Attention(3),
        mixed(lambda mixing: mixing[[1, 0, 2]]),
        "(2, 1, 3)",
        "are permuted",
    ),
    "a power of a gate": (with_gate(2), layers.gated, "gives g = ", "one power of a parameter too many"),
    "the inverse of a gate": (with_gate(-1), layers.gated, "1 / g**2", "one power of a parameter"),
    "a function of a gate": (
        stated(
            lambda layer: tanh(layer.number("g")) * layer.weights(1) * layer.hidden / sqrt(layer.width),
            parameters=lambda layer: {layer.number("g"): 1.0},
        ),
        layers.gated,
        "it depends on sizes or parameters",
        "a factor that depends on sizes or parameters",
    ),
    "the sign of one block": (
        Attention(2),
        weighted(lambda weights: weights * np.array([1, -1])[:, None, None]),
        "weight block 2 of the statement is -1 times",
        "a sign",
    ),
    "shared weights": (Attention(2), weighted(lambda w: np.stack([w[0]] * 2)), "the first weight block", "weights(1)"),
    "transposed weights": (
        Dense(),
        lambda weights, *others: layers.dense(weights.swapaxes(1, 2), *others),
        "the transpose of every weight block",
        "(next_width, width)",
    ),
    "a missing skip connection": (Attention(2), plus(lambda w, hidden: 0.3 * hidden), "0.3 * layer.hidden", "the skip"),
    "a skip connection too many": (Skip(2, 0.7), layers.attention, "has no skip connection", "one term too many in"),
    "a gain squared": (
        Skip(2, 0.7),
        lambda weights, hidden, mixing, parameters: layers.skip(weights, hidden, mixing, {"s": parameters["s"] ** 2}),
        "skip connection `s_1*X_0` of the statement is 1 / s = ",
        "one power of a parameter",
    ),
    "a missing block on the token itself": (
        Attention(2),
        plus(lambda weights, hidden: sum(weights) @ hidden / np.sqrt(len(hidden))),
        "1 / sqrt(layer.width) * weights * hidden",
        "a term is missing in `forward`: weights that act on each token itself",
    ),
    "one token otherwise": (
        Dense(),
        lambda weights, hidden, *others: layers.dense(
            weights, hidden * np.eye(1, hidden.shape[1])[0] + hidden, *others
        ),
        "they differ by",
        "agree except at token 1",
    ),
}


@pytest.mark.parametrize("seed", [0, *slow([1])])
@pytest.mark.parametrize("name", AGAINST_REFERENCES)
def test_what_a_statement_has_wrong_is_named(name, seed):
    kind, reference, measured, meaning = AGAINST_REFERENCES[name]
    report = testing.check_layer(kind, reference=reference, checks=["reference"], seed=seed)
    assert_found(report, REFERENCE, measured, meaning)


LINEAR, COMPARED = "the reference is linear", "can be compared"
REAL = "the theory uses real numbers in double precision"
# references for a dense layer, of what the right one returns; the check that fails, and words
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
        lambda weights, hidden, *others: layers.dense(weights, hidden / (1e-300 + np.linalg.norm(hidden)), *others),
        LINEAR,
        "doubling the hidden activations does not change the result",
        "layer norm",
    ),
    "weights twice": (
        lambda weights, *others: layers.dense(weights * np.abs(weights), *others),
        LINEAR,
        "doubling the weights",
        "more than once",
    ),
    "another parameter": (
        lambda w, hidden, m, given: given["gain"] * hidden,
        COMPARED,
        "'gain'",
        "a parameter that the",
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
# of unit variance
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
        Attention(2),
        lambda white, v, _: np.sqrt(v) * np.stack([white[0], np.roll(white[0], 1, axis=0)]),
        INDEPENDENT,
    ),
    "complex": (Attention(2), lambda white, v, _: white * (1 + 1j), "the theory requires real weights"),
    "with correlations": (
        Attention(2),
        lambda white, v, _: np.sqrt(v) * by_root(white, np.array([[1, 0.5], [0.5, 1]])),
        "independent in `prior`, and drawn with correlations",
    ),
    "in another shape": (Dense(), lambda white, v, _: white[0], "expected finite weights of shape (1, 7, 5)"),
    "a standard deviation": (Dense(), lambda white, v, _: v * white, "standard deviation"),
    "divided by the width": (Dense(), lambda white, v, _: np.sqrt(v / white.shape[2]) * white, "contains the width"),
    "independently": (CORRELATED, lambda white, v, c: by_root(white, np.diag(np.diag(c))), "drawn independently"),
    "in another order": (CORRELATED, lambda white, v, c: by_root(white, c)[::-1], "in another order"),
    "by the inverse": (CORRELATED, lambda white, v, c: by_root(white, np.linalg.inv(c)), "a precision matrix"),
    "by the covariance itself": (
        CORRELATED,
        lambda white, v, c: np.einsum("ab,bij->aij", c, white),
        "not by its square root",
    ),
}
DRAWN |= {
    name: (
        kind,
        lambda rng, shape, variance, given, of=of: of(rng.normal(size=shape), variance, given.get("kappa")),
        meaning,
    )
    for name, (kind, of, meaning) in OF_WHITE.items()
}


@pytest.mark.parametrize("name", DRAWN)
def test_weights_that_are_drawn_otherwise_are_named(name):
    kind, draw, meaning = DRAWN[name]
    report = testing.check_layer(kind, draw_weights=draw, checks=["reference"])
    assert_found(report, "weights are drawn with the covariance of `prior`", "", meaning)


def of_blocks(norm, of_itself):
    """Attention with a block more, for the token itself, times a number; with another norm."""

    def reference(weights, hidden, attention, parameters):
        heads = sum(block @ hidden @ mixing for block, mixing in zip(weights, attention))  # noqa: B905
        return (heads + of_itself * weights[-1] @ hidden) / np.sqrt(norm(weights, attention) * len(hidden))

    return reference


BY_HEADS, BY_BLOCKS = (lambda weights, attention: len(attention)), (lambda weights, attention: len(weights))
# of the layer with three blocks and two heads: what is measured, and what it means, all of it
BESIDE = {
    "no term of the token itself": (
        of_blocks(BY_BLOCKS, 0.0),
        "the reference has no weight block 3, which the statement has",
        "one term too many in `forward`, or a term missing in the reference",
    ),
    "a doubled term": (
        of_blocks(BY_BLOCKS, 2.0),
        "weight block 3 of the statement is 1 / 2 = 0.5 times that of the reference",
        "a factor of 1 / 2",
    ),
    "another norm": (
        of_blocks(BY_HEADS, 1.0),
        "the statement gives sqrt(layer.heads) / sqrt(the number of blocks) = 0.8165 times the reference",
        "one side divides by the number of heads, the other by the number of weight blocks",
    ),
    "both": (
        of_blocks(BY_HEADS, 0.0),
        "weight block 1 and weight block 2 of the statement are sqrt(layer.heads) / sqrt(the number of blocks) = "
        "0.8165 times those of the reference; the reference has no weight block 3, which the statement has",
        "one side divides by the number of heads, the other by the number of weight blocks; one term too many in "
        "`forward`, or a term missing in the reference",
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_each_difference_has_one_reason(name):
    reference, measured, meaning = BESIDE[name]
    beside = BesideItself(np.diag([1.2, 0.7, 1.5]) + 0.2, 2)
    (found,) = testing.check_layer(beside, reference=reference, checks=["reference"]).findings
    assert (found.measured, found.meaning) == (measured, meaning)


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize(
    ("factor", "said", "meaning"),
    [
        (lambda heads: 2.0, "1 / 2", "a factor of 1 / 2"),
        (lambda heads: np.sqrt(2.0), "1 / sqrt(2)", "a factor of 1 / sqrt(2)"),
        (lambda heads: 1 / 3, "3", "a factor of 3"),
        (lambda heads: heads, "1 / layer.heads", "the normalisation by heads"),
        (lambda heads: np.sqrt(heads), "1 / sqrt(layer.heads)", "the normalisation by heads"),
    ],
)
def test_a_number_is_told_from_the_number_of_heads(factor, said, meaning, heads):
    def reference(weights, hidden, attention, parameters):
        return factor(len(attention)) * layers.attention(weights, hidden, attention, parameters)

    report = testing.check_layer(Attention(heads), reference=reference, checks=["reference"])
    (found,) = report.findings
    if heads == 1 and factor(1) == 1:
        assert "at 1 head, " in found.measured and "they agree" in found.measured
    assert f"the statement gives {said}" in found.measured and " or " not in found.measured
    assert meaning in found.meaning and "do not distinguish" not in found.meaning


def test_factors_that_cannot_be_told_apart_are_all_named():
    """A reference for two heads alone says nothing at three."""

    def reference(weights, hidden, attention, parameters):
        (first, second), (one, other) = weights, attention
        return 2 * (first @ hidden @ one + second @ hidden @ other) / np.sqrt(2 * len(hidden))

    (found,) = testing.check_layer(Attention(2), reference=reference, checks=["reference"]).findings
    assert "1 / layer.heads or 1 / 2 = 0.5 times" in found.measured
    assert "normalisation by heads" in found.meaning and "a factor of 1 / 2" in found.meaning
    assert found.meaning.endswith("the sizes tried do not distinguish them")


@pytest.mark.parametrize("block", [0, 1, 2])
def test_a_missing_term_of_one_block_is_named(block):
    reference = plus(lambda weights, hidden: weights[block] @ hidden / np.sqrt(len(hidden)))
    (found,) = testing.check_layer(Attention(3), reference=reference, checks=["reference"]).findings
    called = ("of the first block", "of block 2", "of the last block")[block]
    assert f"1 / sqrt(layer.width) * weights * hidden, {called}" in found.measured
    assert found.meaning == "a term is missing in `forward`: weights that act on each token itself"


def times(factor):
    """Attention times a factor that depends on weights and hidden activations."""
    return lambda weights, hidden, *others: factor(weights, hidden) * layers.attention(weights, hidden, *others)


ELSEWHERE = {
    "at three heads": (lambda weights, hidden: 1 + (len(weights) > 2), "at 3 heads, ", "a factor of 1 / 2"),
    "at five heads": (lambda weights, hidden: 1 + (len(weights) > 3), "at 5 heads, ", "a factor of 1 / 2"),
    "at large widths": (lambda weights, hidden: 1 + (len(hidden) > 20), "widths 41 to 37", "a factor of 1 / 2"),
    "at many tokens": (lambda weights, hidden: 1 + 2 * (hidden.shape[1] > 20), "29 tokens", "a factor of 1 / 3"),
    "a number for the heads": (lambda weights, hidden: np.sqrt(len(weights) / 2), "at 3 heads, ", "by heads"),
    "a number for the width": (
        lambda weights, hidden: np.sqrt(max(len(hidden), 12) / 12),
        "widths 41 to 37",
        "One of the two holds only for few heads or small inputs",
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_wrong_only_elsewhere_is_found_and_where(name):
    factor, where, meaning = ELSEWHERE[name]
    report = testing.check_layer(Attention(2), reference=times(factor), checks=["reference"])
    assert_found(report, REFERENCE, where, meaning)
    assert "they agree" in report.findings[0].measured


def test_a_reference_for_its_own_heads_alone_is_no_mistake():
    def reference(weights, hidden, attention, parameters):
        return (weights[0] @ hidden @ attention[0] + weights[1] @ hidden @ attention[1]) / np.sqrt(2 * len(hidden))

    report = testing.check_layer(Attention(2), reference=reference, checks=["reference"])
    assert report.holds and "at 5 heads the reference ignores some" in " ".join(str(report).split())


@pytest.mark.parametrize("difference", [1e-6, 1e-7, 1e-8, 2e-9])
@pytest.mark.parametrize("heads", [0, 2])
def test_the_smallest_differences_are_findings(difference, heads):
    kind, right = (Attention(heads), layers.attention) if heads else (Dense(), layers.dense)
    report = testing.check_layer(
        kind, reference=lambda *arguments: right(*arguments) * (1 + difference), checks=["reference"]
    )
    assert_found(report, "the stated forward map", "0.99999", "single precision on one side, or a constant of few dig")


def test_the_report_says_what_was_tried():
    report = testing.check_layer(Attention(2), reference=layers.attention, checks=["reference"])
    said = " ".join(str(report).split())
    assert "at 2, 3 and 5 heads, widths 5 to 7, 11 to 5 and 41 to 37, 7, 11 and 29 tokens" in said
    for place in ("alone (widths 5, 7)", "below attention", "above a dense layer", "between others (widths 4, 5, 6,"):
        assert place in said


SUSPICIOUS = {
    "no 1/sqrt(N)": (
        stated(lambda layer: layer.weights(1) * layer.hidden),
        "divided by sqrt(layer.width)",
        "is missing",
    ),
    "a parameter that is not used": (
        stated(
            lambda layer: layer.weights(1) * layer.hidden / sqrt(layer.width),
            parameters=lambda layer: {layer.number("g"): 1.0},
        ),
        "every parameter has a separate symbol",
        "was forgotten in `forward`",
    ),
    "a map that the theory does not cover": (
        stated(lambda layer: (layer.weights(1) * layer.hidden / sqrt(layer.width)).applyfunc(tanh)),
        "the theory covers the specification",
        "a nonlinear function",
    ),
    "a prior that is not definite": (
        CorrelatedHeads(np.ones((2, 2)), 2),
        "the theory covers the specification",
        "eigenvalue that is not positive",
    ),
}


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_mistakes_are_found_without_a_reference(name):
    kind, check, meaning = SUSPICIOUS[name]
    assert_found(testing.check_layer(kind, checks=[]), check, "", meaning)
