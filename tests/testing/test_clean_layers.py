"""Layers that are right come out clean, against references in NumPy."""

import numpy as np
import pytest

from theorykit import testing
from theorykit.bpkr import Attention, Dense, Skip

from ..bpkr.cases import CORRELATED, CorrelatedHeads, Pooling, TiedHeads
from ..bpkr.specification.test_forward_maps import BesideItself, Differences
from . import layers


def tied(weights, hidden, attention, parameters):
    return weights[0] @ hidden @ attention.sum(axis=0) / np.sqrt(len(attention) * len(hidden))


def pooling(weights, hidden, attention, parameters):
    return layers.dense(weights, hidden, attention, {}) + parameters["c"] * hidden.mean(axis=1, keepdims=True)


def differences(weights, hidden, attention, parameters):
    mixed = attention - attention.mean(axis=0) / 2
    return layers.attention(weights, hidden, mixed, parameters)


def dense_skip(weights, hidden, mixing, parameters):
    return parameters["s"] * hidden + layers.dense(weights, hidden, mixing, parameters)


def independent(blocks):
    return lambda variance, parameters: variance * np.eye(blocks)


THREE = np.diag([1.2, 0.7, 1.5]) + 0.2
KINDS = {
    "attention": (Attention(2), layers.attention, independent(2)),
    "four heads": (Attention(4), layers.attention, independent(4)),
    "dense": (Dense(), layers.dense, independent(1)),
    "a skip around attention": (Skip(2, 0.7), layers.skip, independent(2)),
    "a skip around a dense layer": (Skip(Dense(), 1.3), dense_skip, independent(1)),
    "correlated heads": (CorrelatedHeads(CORRELATED, 2), layers.attention, lambda variance, given: given["kappa"]),
    "tied heads": (TiedHeads(3), tied, independent(1)),
    "pooling": (Pooling(0.8), pooling, independent(1)),
    "beside itself": (BesideItself(THREE, 2), layers.beside_itself, lambda variance, given: variance * given["kappa"]),
    "differences": (Differences(2), differences, lambda variance, given: variance * (np.eye(2) + 1 / 3)),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_that_is_right_has_no_findings(name):
    kind, reference, prior = KINDS[name]
    for seed in range(3):
        report = testing.check_layer(kind, reference=reference, prior=prior, seed=seed)
        assert report.holds, report
        assert len(report.checks) == 5
