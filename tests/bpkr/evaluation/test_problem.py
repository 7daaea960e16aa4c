"""A problem: one check of the data, whose every form gives the same numbers, and which travels."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import bpkr

from ..cases import assert_close, refused

ARCHITECTURE = bpkr.Architecture((2,), 10.0, temperature=0.1)
RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.normal(size=(20, 2, 5)), RNG.choice([-1.0, 1.0], size=20)
DATA = bpkr.Data(FEATURES, LABELS, FEATURES[:3], LABELS[:3])
PROBLEM = bpkr.Problem(ARCHITECTURE, DATA)


def test_an_architecture_with_data_is_the_same_as_their_problem():
    assert bpkr.solve(ARCHITECTURE, DATA).action == bpkr.solve(PROBLEM).action


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


def test_a_kernel_needs_no_labels_and_a_problem_no_data_twice():
    kernel = bpkr.kernel(bpkr.Problem(ARCHITECTURE, bpkr.Data(FEATURES)), bpkr.gp_limit(ARCHITECTURE))
    assert_close(kernel, bpkr.kernel(PROBLEM, bpkr.gp_limit(ARCHITECTURE)), 1e-12)


def test_evaluate_works_under_jit_and_vmap():
    point, temperatures = bpkr.gp_limit(ARCHITECTURE), (0.05, 0.4)

    def action(temperature):
        problem = bpkr.Problem(bpkr.Architecture((2,), 10.0, temperature=temperature), DATA)
        return bpkr.evaluate(problem, point).total

    together = jax.jit(jax.vmap(action))(jnp.array(temperatures))
    assert_close(together, [action(each) for each in temperatures], 1e-12)
