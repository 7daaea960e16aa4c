"""What follows from an architecture alone: sizes, path order, one number for all layers, and being a pytree."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import bpkr

from .cases import CASES, ONE_LAYER, THREE_LAYERS


@pytest.mark.parametrize("case", CASES)
def test_sizes_count_the_partial_paths_from_each_layer_on(case):
    architecture = case.architecture()
    heads = case.heads
    counted = [len(list(itertools.product(*map(range, heads[layer:])))) for layer in range(len(heads))]
    assert list(architecture.order_parameter_sizes) == counted
    assert architecture.paths == counted[0]
    assert architecture.depth == len(heads)


@pytest.mark.parametrize("case", CASES)
def test_paths_are_ordered_with_the_first_layer_slowest(case):
    paths = case.architecture().path_heads()
    strides = [math.prod(case.heads[layer + 1 :]) for layer in range(len(case.heads))]
    indices = [sum((head - 1) * stride for head, stride in zip(path, strides, strict=True)) for path in paths]
    assert indices == list(range(math.prod(case.heads)))


def test_path_labels_name_the_head_of_each_layer():
    assert bpkr.Architecture((2, 2), 10, temperature=0.1).path_labels() == ("11", "12", "21", "22")


def test_path_labels_stay_distinct_with_ten_heads_or_more():
    labels = bpkr.Architecture((12, 11), 10, temperature=0.1).path_labels()
    assert len(set(labels)) == 132
    assert labels[-1] == "12.11"


def test_one_number_stands_for_all_layers():
    one = bpkr.Architecture((2, 3), 10.0, 0.5, temperature=0.1)
    assert one.widths == (10.0,) * 3
    assert one.prior_variances == (0.5,) * 4


def test_prior_variances_are_one_unless_given():
    assert bpkr.Architecture((2, 3), 10, temperature=0.1).prior_variances == (1.0,) * 4


@pytest.mark.parametrize("container", [list, tuple, np.array, jnp.array])
def test_widths_may_be_any_sequence(container):
    widths = bpkr.Architecture((2,), container([3.0, 4.0]), temperature=0.1).widths
    assert [float(width) for width in widths] == [3.0, 4.0]


def test_zero_temperature_is_admitted():
    assert bpkr.Architecture((2,), 10, temperature=0.0).temperature == 0


def test_heads_are_static_and_numbers_are_leaves():
    architecture = ONE_LAYER.architecture(temperature=0.3)
    assert jax.tree.leaves(architecture) == [*ONE_LAYER.widths, *ONE_LAYER.variances, 0.3]
    doubled = jax.tree.map(lambda leaf: 2 * leaf, architecture)
    assert doubled.heads == ONE_LAYER.heads
    assert doubled.temperature == 0.6


def test_an_architecture_is_frozen():
    with pytest.raises(AttributeError):
        ONE_LAYER.architecture().temperature = 1.0


def test_an_architecture_can_be_built_under_jit_and_vmap():
    def last_variance(variance):
        return bpkr.gp_limit(bpkr.Architecture((2,), 10.0, variance, temperature=0.1)).readout

    variances = jnp.array([0.5, 2.0])
    np.testing.assert_array_equal(jax.jit(jax.vmap(last_variance))(variances), variances)


@pytest.mark.parametrize("case", CASES)
def test_gp_limit_is_the_product_of_the_variances_from_the_readout_down(case):
    limit = bpkr.gp_limit(case.architecture())
    assert float(limit.readout) == case.variances[-1]
    for layer, matrix in enumerate(limit.matrices):
        size = math.prod(case.heads[layer:])
        np.testing.assert_allclose(matrix, math.prod(case.variances[layer + 1 :]) * np.eye(size), rtol=1e-14)


def test_input_variance_and_temperature_are_not_in_the_gp_limit():
    variances = (5.0, *THREE_LAYERS.variances[1:])
    other = bpkr.Architecture(THREE_LAYERS.heads, 3.0, variances, temperature=7.0)
    limits = [bpkr.gp_limit(architecture) for architecture in (THREE_LAYERS.architecture(), other)]
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), *limits))
