"""What follows from an architecture alone: sizes, path order, one number for all layers, and being a pytree."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from sympy import Identity, KroneckerProduct, OneMatrix, sqrt

from theorykit import bpkr
from theorykit.bpkr import Dense, Skip

from .. import cases
from ..cases import TiedHeads, assert_close, explicit_branches, explicit_covariance, explicit_gain, refused


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


@pytest.mark.parametrize("case", (*cases.CASES, *cases.GRAMMAR))
def test_sizes_count_branches_and_outputs(case):
    architecture = case.architecture()
    attention = [None if heads == 0 else np.zeros((heads, 1, 1)) for heads in case.heads]
    branches = [len(explicit_branches(*layer, 1)) for layer in zip(architecture.layers, attention, strict=True)]
    sizes = [case.outputs * math.prod(branches[layer:]) for layer in range(len(branches))]
    assert list(architecture.branches) == branches and architecture.depth == len(case.heads)
    assert list(architecture.overlap_sizes[:-1]) == sizes


def test_blocks_through_the_same_heads_are_told_apart():
    class TwoBlocks(TiedHeads):
        def forward(self, layer):
            everywhere = KroneckerProduct(OneMatrix(2, layer.heads), layer.hidden)
            return layer.weights(2) * everywhere * layer.attention / sqrt(layer.heads * layer.width)

        def prior(self, layer):
            return layer.variance * Identity(2)

    assert bpkr.Architecture((TwoBlocks(2),), 10, temperature=0.1).path_labels() == ("1+2a", "1+2b")
    assert bpkr.Architecture((12, 11), 10, temperature=0).path_labels()[::131] == ("1.1", "12.11")


def test_branches_know_their_heads():
    architecture = bpkr.Architecture((Skip(3), Dense(), TiedHeads(2)), 10, temperature=0.1)
    np.testing.assert_array_equal(architecture.branch_heads(1), np.eye(4, 3, k=-1, dtype=bool))
    assert architecture.branch_heads(2).shape == (1, 0)
    np.testing.assert_array_equal(architecture.branch_heads(3), [[True, True]])


@pytest.mark.parametrize("case", (*cases.CASES, *cases.GRAMMAR))
def test_forms_depend_on_the_kinds_of_layers_alone(case):
    architecture = case.architecture()
    doubled = jax.tree.map(lambda leaf: 2 * leaf, architecture)
    assert doubled.forms is architecture.forms


def test_every_symbol_of_the_layers_has_its_value():
    architecture = cases.OWN_KINDS.architecture()
    numbers = architecture.layer_numbers()
    assert dict(architecture.head_counts()) == {"H_1": 2, "H_3": 3}
    np.testing.assert_array_equal(architecture.layer_numbers()["kappa_1"], cases.CORRELATED)
    assert numbers["c_2"] == 0.8 and numbers["N_2"] == 25.0 and numbers["sigma2_3"] == 1.3


def test_one_number_stands_for_all_layers_and_variances_are_one_unless_given():
    one = bpkr.Architecture((2, 3), 10.0, 0.5, temperature=0.1)
    assert one.widths == (10.0,) * 3 and one.prior_variances == (0.5,) * 4
    assert bpkr.Architecture((2, 3), 10, temperature=0.1).prior_variances == (1.0,) * 4


def test_heads_are_static_and_numbers_and_parameters_are_leaves():
    architecture = cases.SKIP_FIRST.architecture(temperature=0.3)
    assert jax.tree.leaves(architecture) == [0.7, *cases.SKIP_FIRST.widths, *cases.SKIP_FIRST.variances, 0.3]
    doubled = jax.tree.map(lambda leaf: 2 * leaf, architecture)
    assert doubled.heads == cases.SKIP_FIRST.heads and doubled.temperature == 0.6

    def first(gain):
        layers = (Skip(2, gain), 3)
        return bpkr.gp_limit(bpkr.Architecture(layers, 30.0, temperature=0.1)).matrices[0][0, 0]

    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(first)))(jnp.array([0.5, 2.0])), [1.0, 4.0])


def test_both_sides_of_a_straight_branch_have_one_width_symbol():
    def names(*layers):
        return [str(symbol) for symbol in bpkr.Architecture(layers, 10, temperature=0.1).form.widths]

    assert names(2, 3) == ["N_1", "N_2", "N_a"]
    assert names(Skip(2)) == ["N_1", "N_1"]
    assert names(2, Skip(2), Skip(2), Dense(), 1) == ["N_1", "N_2", "N_2", "N_2", "N_5", "N_a"]


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


@pytest.mark.parametrize(
    "numbers, message",
    [
        ({"widths": (math.inf, 3.0, 3.0), "richness": 1.0}, "widths[0] must be finite"),
        ({"widths": (math.inf, math.inf), "richness": 1.0}, "widths must have 3 numbers"),
        ({"widths": 3.0, "width_ratios": 2.0, "richness": 1.0}, "width_ratios needs widths=math.inf"),
        ({"widths": math.inf, "width_ratios": (1.0, 0.0, 1.0), "richness": 1.0}, "width_ratios[1] must be finite"),
        ({"widths": 3.0, "richness": 0.0}, "richness must be finite and > 0"),
        ({"widths": 3.0, "richness": 1.0, "embedding": "erf"}, "richness must be None for nonlinear"),
    ],
)
def test_widths_are_finite_or_infinite_with_ratios_and_a_richness(numbers, message):
    with refused(message):
        bpkr.Architecture((2, 2), temperature=0.1, **numbers)
    ratios = bpkr.Architecture((2, 2), math.inf, temperature=0.1, richness=0.0, width_ratios=(2.0, 1.0, 4.0))
    assert ratios.is_infinite and ratios.relative_widths == (1.0, 0.5, 2.0)
    finite = bpkr.Architecture((2, 2), (8.0, 4.0, 16.0), temperature=0.1, richness=1.0)
    assert finite.at_infinite_width().relative_widths == ratios.relative_widths
