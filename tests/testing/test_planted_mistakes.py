"""Mistakes planted in kinds of layers: each is found by `check_layer`, and named."""

import numpy as np
import pytest
from sympy import sqrt, tanh

from theorykit import testing
from theorykit.bpkr import Attention, Dense, Skip

from ..bpkr.cases import CorrelatedHeads
from ..bpkr.specification.test_forward_maps import BesideItself
from . import layers
from .layers import assert_found, independent, normal, stated, values, with_gate

REFERENCE, PRIOR = "the stated forward map is the reference", "weights are drawn with the covariance of `prior`"
LINEAR = "the reference is linear"


def heads_with(factor, heads=3):
    """Attention, stated with another factor."""
    return stated(
        lambda layer: factor(layer) * values(layer) * layer.attention / sqrt(layer.heads * layer.width),
        independent,
        heads,
    )


def of_attention(change):
    """A reference that is right but for what it does to weights, activations or attention."""
    return lambda weights, hidden, mixing, parameters: layers.attention(*change(weights, hidden, mixing), parameters)


# a layer, its reference, and of a finding: the check, and words of what was measured and what it means
AGAINST_REFERENCES = {
    "a sign": (heads_with(lambda layer: -1), layers.attention, "the statement gives -1 times the reference", "a sign"),
    "a factor": (heads_with(lambda layer: 2 * sqrt(7)), layers.attention, "5.2915", "a factor of 5.2915"),
    "no 1/sqrt(N)": (
        heads_with(lambda layer: sqrt(layer.width)),
        layers.attention,
        "sqrt(layer.width) = 2.236 times",
        "normalisation by units",
    ),
    "1/N for 1/sqrt(N)": (
        heads_with(lambda layer: 1 / sqrt(layer.width)),
        layers.attention,
        "1 / sqrt(layer.width)",
        "normalisation by units",
    ),
    "the units after the layer": (
        heads_with(lambda layer: sqrt(layer.width / layer.next_width)),
        layers.attention,
        "sqrt(layer.width) / sqrt(layer.next_width)",
        "the units before the layer, and the other by those after",
    ),
    "no 1/sqrt(H)": (
        heads_with(lambda layer: sqrt(layer.heads)),
        layers.attention,
        "sqrt(layer.heads)",
        "normalisation by heads",
    ),
    "divided by tokens": (
        heads_with(lambda layer: 1 / layer.tokens),
        layers.attention,
        "1 / layer.tokens",
        "normalisation by tokens",
    ),
    "a sign and a factor": (
        heads_with(lambda layer: -sqrt(layer.width)),
        layers.attention,
        "-sqrt(layer.width)",
        "a sign, and the normalisation by units",
    ),
    "a power of a gate": (with_gate(2), layers.gated, "gives g = ", "a power of a parameter too many"),
    "the inverse of a gate": (with_gate(-1), layers.gated, "1 / g**2", "a power of a parameter"),
    "a function of a gate": (
        stated(
            lambda layer: tanh(layer.number("g")) * layer.weights(1) * layer.hidden / sqrt(layer.width),
            parameters=lambda layer: {layer.number("g"): 1.0},
        ),
        layers.gated,
        "it depends on sizes or parameters",
        "a factor that depends on sizes or parameters",
    ),
    "attention transposed": (
        Attention(2),
        of_attention(lambda weights, hidden, mixing: (weights, hidden, mixing.swapaxes(1, 2))),
        "the transpose of the attention",
        "keys, queries",
    ),
    "normalised over queries": (
        Attention(2),
        of_attention(lambda weights, hidden, mixing: (weights, hidden, mixing / mixing.sum(axis=2, keepdims=True))),
        "divided by its sum over queries",
        "sums to one over keys already",
    ),
    "a softmax too many": (
        Attention(2),
        of_attention(
            lambda weights, hidden, mixing: (weights, hidden, np.exp(mixing) / np.exp(mixing).sum(1)[:, None])
        ),
        "a softmax over keys of the attention",
        "takes the softmax again",
    ),
    "masked": (
        Attention(2),
        of_attention(lambda weights, hidden, mixing: (weights, hidden, np.triu(mixing))),
        "causal attention, not normalised anew",
        "mask=",
    ),
    "attention twice": (
        Attention(2),
        of_attention(lambda weights, hidden, mixing: (weights, hidden, mixing @ mixing)),
        "attention applied twice",
        "twice on one side",
    ),
    "no attention": (
        Attention(2),
        of_attention(lambda weights, hidden, mixing: (weights, hidden, 0 * mixing + np.eye(mixing.shape[1]))),
        "no mixing of tokens",
        "attention is missing",
    ),
    "heads in another order": (
        Attention(3),
        of_attention(lambda weights, hidden, mixing: (weights, hidden, mixing[[1, 0, 2]])),
        "the heads in the order (2, 1, 3)",
        "heads are permuted",
    ),
    "the sign of one block": (
        Attention(2),
        of_attention(lambda weights, hidden, mixing: (weights * np.array([1, -1])[:, None, None], hidden, mixing)),
        "weight block 2 of the statement is -1 times",
        "a sign",
    ),
    "shared weights": (
        Attention(2),
        of_attention(lambda weights, hidden, mixing: (np.stack([weights[0]] * 2), hidden, mixing)),
        "the first weight block for all",
        "layer.weights(1)",
    ),
    "transposed weights": (
        Dense(),
        lambda weights, *others: layers.dense(weights.swapaxes(1, 2), *others),
        "the transpose of every weight block",
        "(next_width, width)",
    ),
    "a missing skip connection": (
        Attention(2),
        lambda weights, hidden, *others: 0.3 * hidden + layers.attention(weights, hidden, *others),
        "another term, 0.3 * layer.hidden",
        "a term is missing in `forward`: the skip connection",
    ),
    "a skip connection too many": (
        Skip(2, 0.7),
        layers.attention,
        "the reference has no skip connection",
        "a term too many in `forward`",
    ),
    "a gain squared": (
        Skip(2, 0.7),
        lambda weights, hidden, mixing, parameters: layers.skip(weights, hidden, mixing, {"s": parameters["s"] ** 2}),
        "skip connection `s_1*X_0` of the statement is 1 / s = ",
        "a power of a parameter",
    ),
    "a missing block on the token itself": (
        Attention(2),
        lambda weights, hidden, *others: (
            layers.attention(weights, hidden, *others) + sum(weights) @ hidden / np.sqrt(len(hidden))
        ),
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
    "nothing that has a name": (
        Attention(2),
        of_attention(lambda weights, hidden, mixing: (weights, hidden, mixing**2)),
        "an overlap (cosine)",
        "no single factor",
    ),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", AGAINST_REFERENCES)
def test_what_a_statement_has_wrong_is_named(name, seed):
    kind, reference, measured, meaning = AGAINST_REFERENCES[name]
    report = testing.check_layer(kind, reference=reference, checks=["reference"], seed=seed)
    assert_found(report, REFERENCE, measured, meaning)


def plus(term):
    return lambda weights, hidden, mixing, parameters: layers.dense(weights, hidden, mixing, parameters) + term(hidden)


NOT_LINEAR = {
    "a bias": (plus(lambda hidden: 1.0), "not zero", "bias"),
    "ReLU": (lambda *arguments: np.maximum(layers.dense(*arguments), 0), "not minus as much", "ReLU"),
    "tanh": (lambda *arguments: np.tanh(layers.dense(*arguments)), "times as much", "a nonlinear function"),
    "layer norm": (
        lambda weights, hidden, *others: layers.dense(weights, hidden / (1e-300 + np.linalg.norm(hidden)), *others),
        "twice the hidden activations give the same",
        "layer norm",
    ),
    "weights twice": (
        lambda weights, hidden, *others: layers.dense(weights * np.abs(weights), hidden, *others),
        "twice the weights",
        "more than once",
    ),
}


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_a_reference_that_is_not_linear_is_named(name):
    reference, measured, meaning = NOT_LINEAR[name]
    report = testing.check_layer(Dense(), reference=reference, checks=["reference"])
    assert_found(report, LINEAR, measured, meaning)


UNUSABLE = {
    "transposed": (lambda *arguments: layers.dense(*arguments).T, "returns an array of shape", "returns the transpose"),
    "another parameter": (
        lambda weights, hidden, mixing, parameters: parameters["gain"] * hidden,
        "KeyError: 'gain'",
        "a parameter that the statement has not",
    ),
    "other heads": (
        lambda weights, *others: layers.attention(weights, *others),
        "raises",
        "numbers of blocks or heads",
    ),
    "complex numbers": (
        lambda *arguments: layers.dense(*arguments) * (1 + 0.5j),
        "it returns complex numbers, with imaginary parts up to",
        "the theory is of real numbers in double precision",
    ),
    "complex numbers that are real": (
        lambda *arguments: layers.dense(*arguments) + 0j,
        "it returns complex numbers, with imaginary parts up to 0",
        "the theory is of real numbers in double precision",
    ),
    "single precision": (
        lambda *arguments: layers.dense(*arguments).astype(np.float32),
        "it returns numbers in float32, whose rounding hides mistakes",
        "the theory is of real numbers in double precision",
    ),
    "not a number": (
        lambda *arguments: layers.dense(*arguments) * np.nan,
        "not finite",
        "the reference is called with",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_reference_that_cannot_be_compared_is_a_finding(name):
    reference, measured, meaning = UNUSABLE[name]
    report = testing.check_layer(Dense(), reference=reference, checks=["reference"])
    assert_found(report, "can be compared", measured, meaning)


CORRELATED = np.array([[1.4, 0.3], [0.3, 0.6]])


def correlated(rng, shape, variance, parameters):
    return np.einsum("ab,bij->aij", np.linalg.cholesky(parameters["kappa"]), rng.normal(size=shape))


def turned(block):
    return np.stack([block, np.roll(block, 1, axis=0)])


DRAWN = {
    "a standard deviation": (
        Dense(),
        lambda rng, shape, variance, _: variance * rng.normal(size=shape),
        "standard deviation",
    ),
    "divided by the width": (
        Dense(),
        lambda rng, shape, variance, _: np.sqrt(variance / shape[2]) * rng.normal(size=shape),
        "with the width in their variance",
    ),
    "independently": (
        CorrelatedHeads(CORRELATED, 2),
        lambda rng, shape, variance, parameters: (
            np.sqrt(np.diag(parameters["kappa"]))[:, None, None] * rng.normal(size=shape)
        ),
        "drawn independently",
    ),
    "with correlations": (
        Attention(2),
        lambda rng, shape, variance, _: correlated(
            rng, shape, 1.0, {"kappa": variance * np.array([[1, 0.5], [0.5, 1]])}
        ),
        "independent in `prior`, and drawn with correlations",
    ),
    "in another order": (
        CorrelatedHeads(CORRELATED, 2),
        lambda *arguments: correlated(*arguments)[::-1],
        "in another order",
    ),
    "by the inverse": (
        CorrelatedHeads(CORRELATED, 2),
        lambda rng, shape, variance, parameters: correlated(
            rng, shape, variance, {"kappa": np.linalg.inv(parameters["kappa"])}
        ),
        "a precision matrix",
    ),
    "by the covariance itself": (
        CorrelatedHeads(CORRELATED, 2),
        lambda rng, shape, variance, parameters: np.einsum("ab,bij->aij", parameters["kappa"], rng.normal(size=shape)),
        "not its root",
    ),
    "uniformly": (
        Dense(),
        lambda rng, shape, variance, _: np.sqrt(3 * variance) * rng.uniform(-1, 1, size=shape),
        "weights are Gaussian",
    ),
    "about another mean": (Dense(), lambda *arguments: 0.3 + normal(*arguments), "mean zero"),
    "alike in a row": (
        Dense(),
        lambda rng, shape, variance, _: np.sqrt(variance) * rng.normal(size=(*shape[:2], 1)) * np.ones(shape),
        "entries of weight blocks are independent",
    ),
    "uniformly in a block": (
        Attention(2),
        lambda rng, shape, variance, _: (
            np.sqrt(variance) * np.stack([rng.normal(size=shape[1:]), np.sqrt(3) * rng.uniform(-1, 1, size=shape[1:])])
        ),
        "weights are Gaussian",
    ),
    "alike in a row of a block": (
        Attention(2),
        lambda rng, shape, variance, _: (
            np.sqrt(variance)
            * np.stack([rng.normal(size=shape[1:]), rng.normal(size=(shape[1], 1)) * np.ones(shape[1:])])
        ),
        "entries of weight blocks are independent",
    ),
    "the same, turned": (
        Attention(2),
        lambda rng, shape, variance, _: turned(np.sqrt(variance) * rng.normal(size=shape[1:])),
        "entries of weight blocks are independent",
    ),
    "complex": (
        Attention(2),
        lambda rng, shape, variance, _: np.sqrt(variance) * (rng.normal(size=shape) + 1j * rng.normal(size=shape)),
        "the theory is of real weights",
    ),
    "in another shape": (Dense(), lambda rng, shape, *_: rng.normal(size=shape[1:]), "of shape (1, 7, 5) are wanted"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_weights_that_are_drawn_otherwise_are_named(name):
    kind, draw, meaning = DRAWN[name]
    report = testing.check_layer(kind, draw_weights=draw, checks=["reference"])
    assert_found(report, PRIOR, "", meaning)


@pytest.fixture
def beside():
    """A layer with a block for each head and one for the token itself, whose covariance has a row for each."""
    return BesideItself(np.diag([1.2, 0.7, 1.5]) + 0.2, 2)


def of_blocks(norm, of_itself):
    """The layer's reference, with another norm and its last block times a number."""

    def reference(weights, hidden, attention, parameters):
        mixed = sum(block @ hidden @ mixing for block, mixing in zip(weights, attention))  # noqa: B905
        return (mixed + of_itself * weights[-1] @ hidden) / np.sqrt(norm(weights, attention) * len(hidden))

    return reference


BY_HEADS, BY_BLOCKS = (lambda weights, attention: len(attention)), (lambda weights, attention: len(weights))
# of the layer with three blocks and two heads: what is measured, and what it means, all of it
BESIDE = {
    "no term of the token itself": (
        of_blocks(BY_BLOCKS, 0.0),
        "the reference has no weight block 3, which the statement has",
        "a term too many in `forward`, or one that is missing in the reference",
    ),
    "a doubled term": (
        of_blocks(BY_BLOCKS, 2.0),
        "weight block 3 of the statement is 1 / 2 = 0.5 times that of the reference",
        "a factor of 1 / 2",
    ),
    "another norm": (
        of_blocks(BY_HEADS, 1.0),
        "the statement gives sqrt(layer.heads) / sqrt(the number of blocks) = 0.8165 times the reference",
        "one side divides by the number of heads, and the other by that of weight blocks",
    ),
    "both": (
        of_blocks(BY_HEADS, 0.0),
        "weight block 1 and weight block 2 of the statement are sqrt(layer.heads) / sqrt(the number of blocks) = "
        "0.8165 times those of the reference; the reference has no weight block 3, which the statement has",
        "one side divides by the number of heads, and the other by that of weight blocks; a term too many in "
        "`forward`, or one that is missing in the reference",
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_each_difference_has_one_reason(beside, name):
    reference, measured, meaning = BESIDE[name]
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
    assert meaning in found.meaning and "do not tell" not in found.meaning


def test_factors_that_cannot_be_told_apart_are_all_named():
    """A reference for two heads alone says nothing at three."""

    def reference(weights, hidden, attention, parameters):
        (first, second), (one, other) = weights, attention
        return 2 * (first @ hidden @ one + second @ hidden @ other) / np.sqrt(2 * len(hidden))

    (found,) = testing.check_layer(Attention(2), reference=reference, checks=["reference"]).findings
    assert "1 / layer.heads or 1 / 2 = 0.5 times" in found.measured
    assert "normalisation by heads" in found.meaning and "a factor of 1 / 2" in found.meaning
    assert found.meaning.endswith("the sizes that were tried do not tell")


@pytest.mark.parametrize("block", [0, 1, 2])
def test_a_missing_term_of_one_block_is_named(block):
    def reference(weights, hidden, *others):
        return layers.attention(weights, hidden, *others) + weights[block] @ hidden / np.sqrt(len(hidden))

    (found,) = testing.check_layer(Attention(3), reference=reference, checks=["reference"]).findings
    called = ("of the first block", "of block 2", "of the last block")[block]
    assert f"1 / sqrt(layer.width) * weights * hidden, {called}" in found.measured
    assert found.meaning == "a term is missing in `forward`: weights that act on each token itself"


def only(condition, factor=2.0):
    """Attention that is multiplied by a factor where a condition of weights and hidden activations holds."""

    def reference(weights, hidden, attention, parameters):
        right = layers.attention(weights, hidden, attention, parameters)
        return factor * right if condition(weights, hidden) else right

    return reference


ELSEWHERE = {
    "at three heads": (only(lambda weights, hidden: len(weights) > 2), "at 3 heads, ", "a factor of 1 / 2"),
    "at five heads": (only(lambda weights, hidden: len(weights) > 3), "at 5 heads, ", "a factor of 1 / 2"),
    "at large widths": (only(lambda weights, hidden: len(hidden) > 20), "widths 41 to 37", "a factor of 1 / 2"),
    "at many tokens": (only(lambda weights, hidden: hidden.shape[1] > 20, 3.0), "29 tokens", "a factor of 1 / 3"),
    "a number for the heads": (
        lambda weights, hidden, attention, parameters: (
            layers.attention(weights, hidden, attention, parameters) * np.sqrt(len(attention) / 2)
        ),
        "at 3 heads, ",
        "the normalisation by heads",
    ),
    "a number for the width": (
        lambda weights, hidden, attention, parameters: (
            layers.attention(weights, hidden, attention, parameters) * np.sqrt(max(len(hidden), 12) / 12)
        ),
        "widths 41 to 37",
        "One of the two is for a few heads or small inputs alone",
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_wrong_only_elsewhere_is_found_and_where(name):
    reference, where, meaning = ELSEWHERE[name]
    report = testing.check_layer(Attention(2), reference=reference, checks=["reference"])
    assert_found(report, "the stated forward map is the reference", where, meaning)
    assert "they agree" in report.findings[0].measured


def test_a_reference_for_its_own_heads_alone_is_no_mistake():
    def reference(weights, hidden, attention, parameters):
        return (weights[0] @ hidden @ attention[0] + weights[1] @ hidden @ attention[1]) / np.sqrt(2 * len(hidden))

    report = testing.check_layer(Attention(2), reference=reference, checks=["reference"])
    assert report.holds and "at 5 heads the reference leaves some out" in " ".join(str(report).split())


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
