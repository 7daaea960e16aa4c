"""Layers, their own numbers and several outputs: what cannot be meant is refused with a message that names it."""

import re

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Identity, sqrt

from theorykit import bpkr
from theorykit.bpkr import AbstractLayer, Attention, Skip

from ..cases import TWO_LAYERS, TWO_OUTPUTS, CorrelatedHeads, assert_close, refused

NAN, INF = float("nan"), float("inf")


def test_widths_must_be_equal_across_a_straight_branch():
    with refused("layer 2 has a skip connection, which needs equal widths before and after it; got widths[1]=8.0 and"):
        bpkr.Architecture((2, Skip(2)), (8.0, 8.0, 9.0), temperature=0.1)
    assert bpkr.Architecture((2, Skip(2)), (7.0, 9, 9.0), temperature=0.1).widths == (7.0, 9, 9.0)

    @eqx.filter_jit
    def last_width(width):
        return bpkr.Architecture((Skip(2),), (8.0, width), temperature=0.1).widths[-1]

    assert last_width(jnp.array(8.0)) == 8.0
    with pytest.raises(RuntimeError, match="layer 1 has a skip connection"):
        last_width(jnp.array(9.0)).block_until_ready()


@pytest.mark.parametrize(
    "gain, cause",
    [
        (0.0, "got 0.0; leave out a skip connection of strength 0"),
        (-0.5, "got -0.5; leave out a skip connection of strength 0, or its sign"),
        (NAN, "got nan"),
        (INF, "got inf"),
        (True, "must be a number, got True"),
        (np.ones(2), "must be a number, got an array"),
    ],
)
def test_a_gain_must_be_positive_and_finite(gain, cause):
    cause = cause if "must be" in cause else f"must be finite and positive, {cause}"
    with pytest.raises((TypeError, ValueError), match=re.escape(f"parameter s_2 of layer 2 (Skip) {cause}")):
        bpkr.Architecture((2, Skip(2, gain)), 8.0, temperature=0.1)


@pytest.mark.parametrize(
    "covariance, message",
    [
        (np.eye(3), "parameter kappa_1 of layer 1 (CorrelatedHeads) must have shape (2, 2), got (3, 3)"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), "parameter kappa_1 of layer 1 (CorrelatedHeads) must be symmetric"),
        (np.ones((2, 2)), "parameter kappa_1 of layer 1 (CorrelatedHeads) is not positive definite"),
        (np.diag([1.0, -1.0]), "parameter kappa_1 of layer 1 (CorrelatedHeads) is not positive definite"),
        (np.diag([1.0, NAN]), "parameter kappa_1 of layer 1 (CorrelatedHeads) is not finite in 1 entry"),
    ],
)
def test_a_covariance_of_a_layer_must_be_positive_definite(covariance, message):
    with refused(message):
        bpkr.Architecture((CorrelatedHeads(covariance, 2),), 8.0, temperature=0.1)


def test_traced_parameters_of_layers_are_refused_when_they_are_known():
    @eqx.filter_jit
    def straight(gain):
        return bpkr.gp_limit(bpkr.Architecture((Skip(1, gain),), 8.0, temperature=0.1)).matrices[0]

    @eqx.filter_jit
    def correlated(covariance):
        layers = (CorrelatedHeads(covariance, 2),)
        return bpkr.gp_limit(bpkr.Architecture(layers, 8.0, temperature=0.1)).matrices[0]

    for function, good, bad, message in (
        (straight, jnp.array(0.5), jnp.array(-0.5), "parameter s_1 of layer 1 (Skip) must be finite and positive"),
        (correlated, jnp.eye(2), jnp.ones((2, 2)), "parameter kappa_1 of layer 1 (CorrelatedHeads) is not positive"),
    ):
        function(good).block_until_ready()
        with pytest.raises(RuntimeError, match=re.escape(message)):
            function(bad).block_until_ready()


class Custom(AbstractLayer):
    """A dense layer to go wrong in one way or another."""

    number: float = 1.0
    name: str = eqx.field(default="c", static=True)
    given: bool = eqx.field(default=True, static=True)
    heads: int = eqx.field(default=0, static=True)

    def forward(self, layer):
        return layer.number(self.name) * layer.weights(1) * layer.hidden / sqrt(layer.width)

    def prior(self, layer):
        return layer.variance * Identity(1)

    def parameters(self, layer):
        return {layer.number(self.name): self.number} if self.given else {}


class WithNumberInside(Custom):
    def forward(self, layer):
        return self.number * layer.weights(1) * layer.hidden / sqrt(layer.width)


class WithAttention(Custom):
    def forward(self, layer):
        return Attention(1).forward(layer)

    def prior(self, layer):
        return layer.variance * Identity(layer.heads)


class WithWidthInPrior(Custom):
    def prior(self, layer):
        return layer.variance * Identity(1) / layer.width


@pytest.mark.parametrize(
    "layer, message",
    [
        (WithWidthInPrior(), "of layer 1 (WithWidthInPrior) depends on N_1: `prior` must not depend on sizes"),
        (Custom(-1.0), "parameter c_1 of layer 1 (Custom) must be finite and positive, got -1.0"),
        (Custom(given=False), "layer 1 (Custom) has no value for c_1"),
        (Custom(name="N"), "layer 1 (Custom) has a parameter called N_1, which has another meaning"),
        (Custom(heads=2), "layer 1 (Custom) has heads=2, but no attention in its forward map"),
        (WithAttention(), "layer 1 (WithAttention) has heads=0, but attention in its forward map"),
        (WithNumberInside(), "`forward` or `prior` contains the value of a parameter of the layer; use the symbol"),
    ],
)
def test_mistakes_in_a_kind_of_layer_are_named(layer, message):
    with refused(message):
        bpkr.Architecture((layer,), 8.0, temperature=0.1)


def test_a_straight_branch_fixes_the_leading_block_of_its_order_parameter():
    architecture = bpkr.Architecture((Skip(1, 0.5), 2), 8.0, temperature=0.1)
    limit = bpkr.gp_limit(architecture)

    def scores(factor):
        point = bpkr.OrderParameters((limit.matrices[0], factor * limit.matrices[1]), limit.readout)
        return bpkr.head_scores(architecture, point)[0]

    with refused(
        "layer 1 has a skip connection, so the leading 2 x 2 block of U_1 must be the square of its gain times U_2"
    ):
        scores(1.001)
    assert_close(scores(1 + 1e-10), scores(1.0))
    assert_close(eqx.filter_jit(scores)(jnp.array(1.0)), scores(1.0))
    with pytest.raises(RuntimeError, match="layer 1 has a skip connection"):
        eqx.filter_jit(scores)(jnp.array(1.1)).block_until_ready()


def test_the_readout_of_several_outputs_is_a_matrix():
    architecture = TWO_OUTPUTS.architecture()
    limit = bpkr.gp_limit(architecture)
    for readout, message in (
        (np.ones(()), "readout order parameter u must have shape (2, 2), got ()"),
        (2 - np.eye(2), "readout order parameter u is not positive semidefinite"),
        (np.eye(3), "readout order parameter u must have shape (2, 2), got (3, 3)"),
    ):
        with refused(message):
            bpkr.head_scores(architecture, bpkr.OrderParameters(limit.matrices, readout))
    with refused("readout order parameter u must have shape ()"):
        one = TWO_LAYERS.architecture()
        bpkr.head_scores(one, bpkr.OrderParameters(bpkr.gp_limit(one).matrices, np.eye(2)))
