"""Layers that are right come out clean, against references in NumPy too."""

import numpy as np
import pytest

from theorykit import testing
from theorykit.bpkr import Attention, Dense, Skip

from ..bpkr.cases import CORRELATED, CorrelatedHeads, Pooling, TiedHeads
from ..bpkr.specification.test_forward_maps import BesideItself, Differences
from ..marks import slow
from . import layers
from .layers import normal


def tied(weights, hidden, attention, parameters):
    return weights[0] @ hidden @ attention.sum(axis=0) / np.sqrt(len(attention) * len(hidden))


def pooling(weights, hidden, attention, parameters):
    return layers.dense(weights, hidden, attention, {}) + parameters["c"] * hidden.mean(axis=1, keepdims=True)


def differences(weights, hidden, attention, parameters):
    mixed = attention - attention.mean(axis=0) / 2
    return layers.attention(weights, hidden, mixed, parameters)


def correlated(rng, shape, variance, parameters):
    scale = variance if shape[0] > 2 else 1.0
    return np.einsum("ab,bij->aij", np.linalg.cholesky(scale * parameters["kappa"]), rng.normal(size=shape))


def alike(rng, shape, variance, parameters):
    """The prior of `Differences`: what is common to all blocks, and what is not."""
    common = np.sqrt(variance / 3) * rng.normal(size=(1, *shape[1:]))
    return np.sqrt(variance) * rng.normal(size=shape) + common


THREE = np.diag([1.2, 0.7, 1.5]) + 0.2
KINDS = {
    "attention": (Attention(2), layers.attention, normal),
    "one head": (Attention(1), layers.attention, normal),
    "four heads": (Attention(4), layers.attention, normal),
    "dense": (Dense(), layers.dense, normal),
    "a skip around attention": (Skip(2, 0.7), layers.skip, normal),
    "a skip around a dense layer": (
        Skip(Dense(), 1.3),
        lambda weights, hidden, mixing, parameters: (
            parameters["s"] * hidden + layers.dense(weights, hidden, mixing, parameters)
        ),
        normal,
    ),
    "correlated heads": (CorrelatedHeads(CORRELATED, 2), layers.attention, correlated),
    "tied heads": (TiedHeads(3), tied, normal),
    "pooling": (Pooling(0.8), pooling, normal),
    "beside itself": (BesideItself(THREE, 2), layers.beside_itself, correlated),
    "differences": (Differences(2), differences, alike),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_that_is_right_is_its_reference(name):
    kind, reference, draw = KINDS[name]
    report = testing.check_layer(kind, reference=reference, draw_weights=draw, checks=["reference"])
    assert report.holds, report
    assert len(report.passed) == 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense", *slow(sorted(set(KINDS) - {"dense"}))])
def test_a_layer_that_is_right_has_no_findings(name):
    kind, reference, draw = KINDS[name]
    report = testing.check_layer(kind, reference=reference, draw_weights=draw)
    assert report.holds, report
    assert len(report.passed) >= 15
    assert "nothing wrong was found" in str(report)


@pytest.mark.parametrize("seed", range(6))
def test_the_reference_holds_whatever_is_drawn(seed):
    kind, reference, draw = KINDS["beside itself"]
    assert testing.check_layer(kind, reference=reference, draw_weights=draw, checks=["reference"], seed=seed).holds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_no_draw_of_networks_is_mistaken_for_a_mistake(seed):
    assert testing.check_layer(Skip(2, 0.7), checks=["networks"], seed=seed).holds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "tied heads"])
def test_the_saddle_point_comes_closer_to_sampled_networks(name):
    report = testing.check_layer(KINDS[name][0], checks=[], thorough=True)
    assert report.holds, report
    assert "comes closer to sampled networks" in report.passed[-1].check
