"""Kernel-task alignment and head scores."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr

from ..cases import ANY_OF_THE_GRAMMAR, SEEDS, SHALLOW_OR_DEEP, assert_close, problems

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
def test_cosines_belong_to_their_eigenvalues(seed):
    """sum_k lambda_k^n cos_k^2 is y^T K^n y / |y|^2, for every power n."""
    kernel, labels = random_kernel(seed), random_labels(seed)
    alignment = bpkr.kernel_task_alignment(kernel, labels)
    assert np.all(np.diff(alignment.eigenvalues) <= 0) and np.all(alignment.cosines >= 0)
    for power in range(4):
        moment = labels @ np.linalg.matrix_power(kernel, power) @ labels / (labels @ labels)
        assert_close(np.sum(alignment.eigenvalues**power * alignment.cosines**2), moment)


@given(problem=problems(st.one_of(SHALLOW_OR_DEEP, ANY_OF_THE_GRAMMAR)))
def test_head_scores_are_their_explicit_sums(problem):
    scores = bpkr.head_scores(problem.architecture, problem.order_parameters)
    explicit = explicit_head_scores(problem.architecture, np.asarray(problem.order_parameters.matrices[0]))
    for ours, theirs in zip(scores, explicit, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
