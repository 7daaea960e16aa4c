"""Costs of leaving out heads: by a solve from scratch of the smaller network, and in cases where they are known."""

from dataclasses import replace

import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr import Skip
from theorykit.saddle import ConvergenceWarning

from ..cases import TiedHeads, assert_close, refused

EXAMPLES, FEATURES = 12, 5


def problem_of(layers, sizes=None, outputs=1):
    """Half the examples are for training; `sizes` are factors on the features of every path."""
    rng = np.random.default_rng(0)
    variances = (0.9, *[1.2] * len(layers), 1.1)
    architecture = bpkr.Architecture(layers, 7.0, variances, temperature=0.3, outputs=outputs)
    features = rng.normal(size=(2 * EXAMPLES, architecture.paths, FEATURES))
    features *= np.array(1.0 if sizes is None else sizes).reshape(-1, 1)
    labels = rng.normal(size=(2 * EXAMPLES, outputs)).squeeze()
    labels = np.sign(labels) if outputs == 1 else labels
    (one, other), (y, z) = (np.split(array, 2) for array in (features, labels))
    return bpkr.Problem(architecture, bpkr.Data(one, y, other, z))


def costs_of(problem):
    saddle = bpkr.solve(problem)
    return saddle, bpkr.head_costs(problem, saddle, progress=False)


def smaller(problem, layers, paths):
    """The network with fewer heads and the features of `paths`, not rescaled."""
    whole, data = problem.architecture, problem.data
    architecture = replace(whole, layers=layers)
    kept = bpkr.Data(data.features[:, paths], data.labels, data.test_features[:, paths], data.test_labels)
    return bpkr.Problem(architecture, kept)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "head", "fewer", "paths", "outputs"),
    [
        ((Skip(2, 0.7), 2), (1, 1), (Skip(1, 0.7), 2), [0, 1, 4, 5], 1),
        ((3,), (1, 2), (2,), [0, 2], 2),
    ],
)
def test_a_head_left_out_is_the_smaller_network_solved_from_scratch(layers, head, fewer, paths, outputs):
    problem = problem_of(layers, outputs=outputs)
    saddle, costs = costs_of(problem)
    without = smaller(problem, fewer, paths)
    solved = bpkr.solve(without)
    layer, number = head[0] - 1, head[1] - 1
    lost = float(saddle.log_evidence - solved.log_evidence)
    assert abs(lost) > 0.01
    assert_close(costs[layer][number], lost, 1e-9)


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
