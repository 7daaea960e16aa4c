"""Kernel-task alignment and head scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr

from ..cases import (
    ANY_OF_THE_GRAMMAR,
    CASES,
    SEEDS,
    SHALLOW_OR_DEEP,
    THREE_LAYERS,
    assert_close,
    changed,
    permuted_order_parameters,
    problems,
    random_permutation,
    random_problem,
    refused,
)

SIZE = 6


def random_kernel(seed):
    factor = np.random.default_rng(seed).normal(size=(SIZE, SIZE))
    return factor @ factor.T


def random_labels(seed):
    return np.random.default_rng(seed + 1).normal(size=SIZE)


def explicit_head_scores(architecture, matrix):
    """One pair of paths and of outputs after the other; the heads of a path are read off its label."""
    labels = [label.split(".") if "." in label else list(label) for label in architecture.path_labels()]
    passed = [[{head for head in part.split("+") if head not in "0-"} for part in label] for label in labels]
    scores, outputs = [np.zeros(heads) for heads in architecture.heads], architecture.outputs
    for a, b in np.ndindex(matrix.shape):
        for layer, layer_scores in enumerate(scores):
            for head in passed[a // outputs][layer] | passed[b // outputs][layer]:
                layer_scores[int(head) - 1] += abs(matrix[a, b])
    largest = max((np.max(layer_scores) for layer_scores in scores if len(layer_scores)), default=1.0)
    return [layer_scores / largest for layer_scores in scores]


@given(seed=SEEDS)
def test_eigenvalues_descend_and_squared_cosines_sum_to_one(seed):
    alignment = bpkr.kernel_task_alignment(random_kernel(seed), random_labels(seed))
    assert np.all(np.diff(alignment.eigenvalues) <= 0)
    assert np.all(alignment.cosines >= 0)
    assert_close(np.sum(alignment.cosines**2), 1.0, 1e-12)


@given(seed=SEEDS)
def test_cosines_belong_to_their_eigenvalues(seed):
    """sum_k lambda_k^n cos_k^2 is y^T K^n y / |y|^2, for every power n."""
    kernel, labels = random_kernel(seed), random_labels(seed)
    alignment = bpkr.kernel_task_alignment(kernel, labels)
    for power in range(4):
        moment = labels @ np.linalg.matrix_power(kernel, power) @ labels / (labels @ labels)
        assert_close(np.sum(alignment.eigenvalues**power * alignment.cosines**2), moment)


@given(seed=SEEDS, index=st.integers(0, SIZE - 1))
def test_labels_along_a_component_align_with_it_alone(seed, index):
    kernel = random_kernel(seed)
    eigenvalues, components = np.linalg.eigh(kernel)
    alignment = bpkr.kernel_task_alignment(kernel, -3 * components[:, index])
    assert_close(alignment.eigenvalues, eigenvalues[::-1])
    np.testing.assert_allclose(alignment.cosines, np.eye(SIZE)[SIZE - 1 - index], atol=1e-10)


@given(seed=SEEDS)
def test_the_scale_of_the_labels_does_not_matter(seed):
    kernel, labels = random_kernel(seed), random_labels(seed)
    one, other = (bpkr.kernel_task_alignment(kernel, scale * labels) for scale in (1.0, -7.0))
    assert_close(other.cosines, one.cosines, 1e-12)


@given(problem=problems(st.one_of(SHALLOW_OR_DEEP, ANY_OF_THE_GRAMMAR)))
def test_head_scores_are_their_explicit_sums(problem):
    scores = bpkr.head_scores(problem.architecture, problem.order_parameters)
    explicit = explicit_head_scores(problem.architecture, np.asarray(problem.order_parameters.matrices[0]))
    for ours, theirs in zip(scores, explicit, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@given(case=SHALLOW_OR_DEEP, seed=SEEDS)
def test_there_is_a_score_in_zero_to_one_for_each_head(case, seed):
    problem = random_problem(case, seed)
    scores = bpkr.head_scores(problem.architecture, problem.order_parameters)
    assert [len(layer) for layer in scores] == list(case.heads)
    assert_close(max(map(np.max, scores)), 1.0, 1e-14)
    assert min(map(np.min, scores)) > 0


@pytest.mark.parametrize("case", CASES)
def test_the_only_head_of_a_layer_scores_one(case):
    problem = random_problem(case, 0)
    scores = bpkr.head_scores(problem.architecture, problem.order_parameters)
    assert all(abs(layer[0] - 1) < 1e-14 for layer, heads in zip(scores, case.heads, strict=True) if heads == 1)


@pytest.mark.parametrize("case", CASES)
def test_heads_of_a_layer_are_equally_important_in_the_gp_limit(case):
    for layer in bpkr.head_scores(case.architecture(), bpkr.gp_limit(case.architecture())):
        assert_close(layer, np.full(len(layer), layer[0]), 1e-13)


@given(case=SHALLOW_OR_DEEP, seed=SEEDS)
def test_permuting_heads_permutes_their_scores(case, seed):
    problem = random_problem(case, seed)
    layer, permutation = random_permutation(problem.architecture, np.random.default_rng(seed))
    permuted = permuted_order_parameters(problem.architecture, problem.order_parameters, layer, permutation)
    before = bpkr.head_scores(problem.architecture, problem.order_parameters)
    after = bpkr.head_scores(problem.architecture, permuted)
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        assert_close(new, old[permutation] if i == layer else old, 1e-12)


@given(seed=SEEDS)
def test_head_scores_do_not_see_the_scale_of_the_order_parameters(seed):
    problem = random_problem(THREE_LAYERS, seed)
    matrices = tuple(5 * matrix for matrix in problem.order_parameters.matrices)
    scaled = bpkr.OrderParameters(matrices, problem.order_parameters.readout)
    before = bpkr.head_scores(problem.architecture, problem.order_parameters)
    for new, old in zip(bpkr.head_scores(problem.architecture, scaled), before, strict=True):
        assert_close(new, old, 1e-12)


def test_alignment_needs_a_kernel_that_fits_labels_with_a_direction():
    for kernel, labels, message in (
        (np.eye(3), np.ones(2), "kernel of shape (3, 3) does not fit 2 labels"),
        (np.ones((3, 2)), np.ones(3), "kernel of shape (3, 2) does not fit 3 labels"),
        (np.eye(3), np.zeros(3), "labels are all zero"),
        (changed(np.eye(3), (1, 1), np.nan), np.ones(3), "kernel has 1 entries that are not finite"),
        (changed(np.eye(3), (0, 1), 0.5), np.ones(3), "kernel is not symmetric"),
    ):
        with refused(message):
            bpkr.kernel_task_alignment(kernel, labels)
