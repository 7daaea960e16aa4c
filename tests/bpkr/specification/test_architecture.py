"""What follows from an architecture alone: path order, the infinite width, and being a pytree."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from sympy import Rational

from theorykit import bpkr
from theorykit.bpkr import Skip

from .. import cases
from ..cases import assert_close, explicit_covariance, explicit_gain, refused


@pytest.mark.parametrize(
    "case, branches, first",
    [
        (cases.TWO_LAYERS, (3, 2), ("11", "12", "21", "22")),
        (cases.DENSE_BETWEEN, (2, 1, 2), ("1-1", "1-2", "2-1", "2-2")),
        (cases.SKIP_FIRST, (3, 3), ("01", "02", "03", "11")),
        (cases.SKIP_LAST, (2, 2), ("10", "1-", "20", "2-")),
        (cases.DEEP_LINEAR, (1, 1), ("--",)),
        (cases.OWN_KINDS, (2, 2, 1), ("1.0.1+2+3", "1.-.1+2+3", "2.0.1+2+3", "2.-.1+2+3")),
    ],
)
def test_paths_take_the_straight_branch_first_and_then_every_block(case, branches, first):
    architecture = case.architecture()
    assert architecture.branches == branches
    assert architecture.path_labels()[:4] == first
    assert architecture.path_branches() == tuple(itertools.product(*(range(1, b + 1) for b in branches)))
    assert len(set(architecture.path_labels())) == architecture.paths == math.prod(branches)


def test_heads_are_static_and_numbers_and_parameters_are_leaves():
    architecture = cases.SKIP_FIRST.architecture(temperature=0.3)
    assert jax.tree.leaves(architecture) == [0.7, *cases.SKIP_FIRST.widths, *cases.SKIP_FIRST.variances, 0.3]
    exact = cases.SKIP_FIRST.architecture(temperature=Rational(3, 10))
    assert jax.tree.leaves(exact) == jax.tree.leaves(architecture)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, architecture)
    assert doubled.heads == cases.SKIP_FIRST.heads and doubled.temperature == 0.6

    def first(gain):
        layers = (Skip(2, gain), 3)
        return bpkr.gp_limit(bpkr.Architecture(layers, 30.0, temperature=0.1)).matrices[0][0, 0]

    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(first)))(jnp.array([0.5, 2.0])), [1.0, 4.0])


@pytest.mark.parametrize("case", (*cases.CASES, *cases.GRAMMAR))
def test_gp_limit_is_the_mean_over_the_prior_layer_by_layer(case):
    architecture = case.architecture()
    limit = bpkr.gp_limit(architecture)
    outer = case.variances[-1] * np.eye(case.outputs)
    assert_close(limit.readout, outer if case.outputs > 1 else outer[0, 0], 1e-14)
    layers = zip(architecture.layers, case.variances[1:-1], limit.matrices, strict=True)
    for layer, variance, matrix in reversed(list(layers)):
        of_blocks = np.kron(explicit_covariance(layer, variance), outer)
        gain = explicit_gain(layer)
        outer = scipy.linalg.block_diag(gain**2 * outer, of_blocks) if gain else of_blocks
        assert_close(matrix, outer, 1e-14)


def test_an_architecture_that_does_not_fit_in_memory_is_refused():
    many = bpkr.Architecture((1000,) * 3, 10, temperature=0.1)
    for call in (many.path_labels, many.path_branches, lambda: bpkr.gp_limit(many)):
        with refused("layers of (1000, 1000, 1000) branches make 1,000,000,000 paths"):
            call()


def test_infinite_widths_have_ratios():
    ratios = bpkr.Architecture((2, 2), math.inf, temperature=0.1, richness=0.0, width_ratios=(2.0, 1.0, 4.0))
    assert ratios.is_infinite and ratios.relative_widths == (1.0, 0.5, 2.0)
    finite = bpkr.Architecture((2, 2), (8.0, 4.0, 16.0), temperature=0.1, richness=1.0)
    assert finite.at_infinite_width().relative_widths == ratios.relative_widths
