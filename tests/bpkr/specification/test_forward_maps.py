"""Forward maps of one's own: what the theory covers is derived and verified, the rest refused with a reason."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.typing import ArrayLike
from sympy import Identity, KroneckerProduct, MatrixSymbol, OneMatrix, sqrt

from theorykit import bpkr
from theorykit.bpkr.specification.layers import AbstractLayer, Skip
from theorykit.symbolic.atoms import below

from ..cases import Case, assert_close, random_key_queries
from ..problems import random_inputs


class BesideItself(AbstractLayer):
    """A weight block on the token itself, beside those of the heads; all of them correlated a priori."""

    covariance: ArrayLike
    heads: int = eqx.field(static=True)

    def forward(self, layer):
        blocks = layer.heads + 1
        mixing = below(layer.attention, Identity(layer.tokens))
        values = layer.weights(blocks) * KroneckerProduct(Identity(blocks), layer.hidden)
        return values * mixing / sqrt(blocks * layer.width)

    def prior(self, layer):
        return layer.variance * layer.covariance("kappa", layer.heads + 1)

    def parameters(self, layer):
        return {layer.covariance("kappa", layer.heads + 1): self.covariance}


class Differences(AbstractLayer):
    """Fewer weight blocks than heads: block a acts on the difference of head a and all heads."""

    heads: int = eqx.field(static=True)

    def forward(self, layer):
        mixing = Identity(layer.heads) - OneMatrix(layer.heads, layer.heads) / (2 * layer.heads)
        values = layer.weights(layer.heads) * KroneckerProduct(mixing, layer.hidden)
        return values * layer.attention / sqrt(layer.heads * layer.width)

    def prior(self, layer):
        return layer.variance * (Identity(layer.heads) + OneMatrix(layer.heads, layer.heads) / 3)


CORRELATED = np.array([[1.3, -0.4], [-0.4, 0.7]])
SEVERAL_BLOCKS = {
    "beside itself": Case((BesideItself(CORRELATED, 1),), (12.0, 9.0), (0.9, 1.2, 0.8)),
    "a skip around it": Case((Skip(BesideItself(CORRELATED, 1), 0.6),), (9.0, 9.0), (0.9, 1.2, 0.8)),
    "differences": Case((Differences(2),), (12.0, 9.0), (0.9, 1.2, 0.8)),
}
every_kind = pytest.mark.parametrize("case", SEVERAL_BLOCKS.values(), ids=SEVERAL_BLOCKS)


@pytest.mark.slow
@every_kind
def test_several_weight_blocks_are_derived_verified_and_the_same_by_both_routes(case):
    action = bpkr.derive(case.architecture())
    for derivation in action.derivations.values():
        verification = derivation.verify()
        assert verification.holds, str(verification)
    assert not any(action.route_differences)


@pytest.mark.quick("a skip around it")
@every_kind
def test_the_network_of_several_weight_blocks_is_its_sum_over_paths(case):
    architecture, rng = case.architecture(), np.random.default_rng(1)
    heads, inputs = bpkr.Heads(key_query=random_key_queries(case.heads, rng)), random_inputs(rng)
    network = bpkr.sample_network(architecture, heads, input_features=inputs.shape[2], key=jax.random.key(2))
    features = bpkr.path_features(inputs, heads(jnp.asarray(inputs)), architecture)
    assert_close(network.path_outputs(features).sum(axis=1), network(jnp.asarray(inputs)), 1e-10)


def kind(forward, prior=lambda layer: layer.variance * Identity(1), heads=1):
    """A kind of layer with the given forward map, instantiated."""
    count = heads

    class Kind(AbstractLayer):
        heads: int = eqx.field(static=True, default=count)

        def forward(self, layer):
            return forward(layer)

        def prior(self, layer):
            return prior(layer)

    return Kind()


def dense(layer):
    return layer.weights(1) * layer.hidden / sqrt(layer.width)


REFUSED = {
    "weights twice": (
        lambda layer: layer.weights(1) * layer.weights(1).T * layer.weights(1) * layer.hidden,
        "more than once",
    ),
    "no weights": (lambda layer: layer.number("s") * layer.hidden, "does not contain the weights|skip connection"),
    "other weights": (
        lambda layer: MatrixSymbol("V", layer.next_width, layer.width) * layer.hidden,
        "starts with .*, not with",
    ),
    "weights on the right": (
        lambda layer: layer.hidden * MatrixSymbol("K", layer.tokens, layer.width) * layer.hidden + dense(layer),
        "not linear",
    ),
    "a scalar": (lambda layer: layer.number("s"), "shape"),
    "another shape": (lambda layer: layer.weights(1) * layer.hidden * OneMatrix(layer.tokens, 1), "shape"),
    "two skip connections": (
        lambda layer: (
            dense(layer) + layer.number("s") * layer.hidden + layer.hidden * OneMatrix(layer.tokens, layer.tokens)
        ),
        "more than one skip connection",
    ),
    "weights that act on tokens in between": (
        lambda layer: layer.weights(1) * OneMatrix(layer.width, layer.width) * layer.hidden,
        "its weights act on",
    ),
}


@pytest.mark.parametrize(("forward", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_forward_map_that_is_not_covered_is_refused_with_the_reason(forward, reason):
    with pytest.raises(ValueError, match=reason) as refusal:
        bpkr.Architecture((kind(forward, heads=0),), 8, temperature=1.0)
    assert "Kind" in str(refusal.value)
