"""A problem: its test examples, pickling and derivatives."""

import pickle

import jax
import numpy as np
import pytest

from theorykit import bpkr

from ..cases import assert_close, refused

ARCHITECTURE = bpkr.Architecture((2,), 10.0, temperature=0.1)
RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.normal(size=(20, 2, 5)), RNG.choice([-1.0, 1.0], size=20)
DATA = bpkr.Data(FEATURES, LABELS, FEATURES[:3], LABELS[:3])
PROBLEM = bpkr.Problem(ARCHITECTURE, DATA)


@pytest.mark.slow
def test_test_examples_are_those_of_the_data_unless_others_are_given():
    saddle = bpkr.solve(PROBLEM)
    assert_close(bpkr.predict(PROBLEM, saddle).mean, bpkr.predict(PROBLEM, saddle, FEATURES[:3]).mean, 1e-12)
    assert bpkr.fluctuations(PROBLEM, saddle).prediction.mean.shape == (3,)
    with refused("test_features must be given, because data has no test features"):
        bpkr.predict(bpkr.Problem(ARCHITECTURE, bpkr.Data(FEATURES, LABELS)), saddle)


def test_a_problem_can_be_pickled_and_differentiated_through():
    assert bpkr.solve(pickle.loads(pickle.dumps(PROBLEM))).action == bpkr.solve(PROBLEM).action

    def action(temperature):
        return bpkr.solve(bpkr.Problem(bpkr.Architecture((2,), 10.0, temperature=temperature), DATA)).action

    action = jax.jit(action)
    slope = (action(0.1 + 1e-5) - action(0.1 - 1e-5)) / 2e-5
    assert_close(jax.jit(jax.grad(action))(0.1), slope, 1e-6)
