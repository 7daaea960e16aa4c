"""Costs of leaving out heads: by a solve from scratch of the smaller network, and in cases where they are known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr import Skip
from theorykit.saddle import ConvergenceWarning

from ..cases import TiedHeads, assert_close, refused

EXAMPLES, FEATURES = 12, 5


def problem_of(layers, sizes=None, outputs=1):
    """Random data; `sizes` are factors on the features of every path."""
    rng = np.random.default_rng(0)
    variances = (0.9, *[1.2] * len(layers), 1.1)
    architecture = bpkr.Architecture(layers, 7.0, variances, temperature=0.3, outputs=outputs)
    features = rng.normal(size=(EXAMPLES, architecture.paths, FEATURES))
    features *= np.array(1.0 if sizes is None else sizes).reshape(-1, 1)
    labels = rng.normal(size=(EXAMPLES, outputs)).squeeze()
    labels = np.sign(labels) if outputs == 1 else labels
    return bpkr.Problem(architecture, bpkr.Data(features, labels))


def costs_of(problem):
    saddle = bpkr.solve(problem)
    return saddle, bpkr.head_costs(problem, saddle, progress=False)


def smaller(problem, layers, paths):
    """The network with fewer heads and the features of `paths`, not rescaled."""
    architecture = replace(problem.architecture, layers=layers)
    return bpkr.Problem(architecture, bpkr.Data(problem.data.features[:, paths], problem.data.labels))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "head", "fewer", "paths", "outputs"),
    [((Skip(2, 0.7), 2), (1, 1), (Skip(1, 0.7), 2), [0, 1, 4, 5], 1), ((3,), (1, 2), (2,), [0, 2], 2)],
)
def test_a_head_left_out_is_the_smaller_network_solved_from_scratch(layers, head, fewer, paths, outputs):
    problem = problem_of(layers, outputs=outputs)
    saddle, costs = costs_of(problem)
    without = bpkr.solve(smaller(problem, fewer, paths))
    lost = float(saddle.log_evidence - without.log_evidence)
    assert abs(lost) > 0.01
    assert_close(costs[head[0] - 1][head[1] - 1], lost, 1e-9)


def test_a_head_without_features_costs_nothing_and_equal_heads_cost_the_same():
    """Its order parameters keep the prior, so that the evidence is that of the network without it."""
    problem = problem_of((3,), sizes=[1.0, 0.0, 1.0])
    twins = problem.data.features.at[:, 2].set(problem.data.features[:, 0])
    problem = bpkr.Problem(problem.architecture, bpkr.Data(twins, problem.data.labels))
    saddle, costs = costs_of(problem)
    first = costs[0]
    assert abs(first[1]) < 1e-9 * abs(saddle.log_evidence)
    assert abs(first[0] - first[2]) < 1e-9 * abs(saddle.log_evidence)


@pytest.mark.slow
def test_a_failed_solve_is_no_number():
    problem = problem_of((2,))
    with pytest.warns(ConvergenceWarning, match="2 of 2 solves failed: layer 1, head 1: "):
        costs = bpkr.head_costs(problem, bpkr.solve(problem), progress=False, tolerance=1e-300)
    assert np.all(np.isnan(costs[0]))


@pytest.mark.slow
def test_what_has_no_heads_to_leave_out_is_refused():
    problem = problem_of((bpkr.Dense(),))
    with refused("the architecture has no heads"):
        costs_of(problem)
    with refused("heads of layer 1 share a weight block"):
        costs_of(problem_of((TiedHeads(2),)))


@given(data=st.data())
def test_removable_heads_are_in_order_of_their_score_and_leave_one_in_every_layer(data):
    counts = data.draw(st.lists(st.integers(0, 4), max_size=3))
    few = st.sampled_from([0.1, 0.2, 0.3])
    scores = [np.array(data.draw(st.lists(few, min_size=count, max_size=count))) for count in counts]
    layers = [[(s, (layer, i)) for i, s in enumerate(of, 1)] for layer, of in enumerate(scores, 1)]
    expected = sorted(pair for pairs in layers for pair in pairs if pair != max(pairs))
    assert bpkr.removable_heads(scores) == [head for _, head in expected]
