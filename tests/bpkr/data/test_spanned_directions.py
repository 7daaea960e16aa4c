"""Features in the directions that the data have: fewer, and the same kernels."""

import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr.data.transformations import in_spanned_directions
from theorykit.bpkr.evaluation.energies import has_dual_form, tabulates_path_kernels

from ..cases import assert_close


def of_rank(rank, *shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(*shape[:2], rank)) @ rng.normal(size=(rank, shape[2]))


def products(features):
    flat = features.reshape(-1, features.shape[2])
    return flat @ flat.T


@pytest.mark.parametrize(
    ("shape", "rank", "kept"),
    [((30, 4, 48), 20, 21), ((30, 4, 48), 48, 48), ((5, 2, 64), 10, 10), ((5, 2, 64), 3, 4), ((30, 4, 10), 1, 1)],
)
def test_products_of_features_stay_and_few_features_are_left(shape, rank, kept):
    features = of_rank(rank, *shape)
    found = in_spanned_directions(features)
    assert found.shape == (*shape[:2], kept)
    assert_close(products(found), products(features), 1e-13)


def test_a_direction_that_matters_beside_the_temperature_is_kept():
    features = of_rank(8, 20, 2, 40)
    weak = np.random.default_rng(1).normal(size=(20, 2))
    features += 1e-7 * weak[:, :, None] * np.random.default_rng(2).normal(size=40)
    found, rest = in_spanned_directions(features), in_spanned_directions(of_rank(8, 20, 2, 40))
    # ninth of them all, and rounded up to the same number of features
    assert found.shape[2] == 10 and rest.shape[2] == 8
    assert_close(products(found), products(features), 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("examples", "rank", "width", "is_dual"),
    [(300, 7, 40, True), pytest.param(350, 56, 112, False, marks=pytest.mark.slow)],
)
def test_the_saddle_point_is_that_of_all_features(examples, rank, width, is_dual):
    architecture = bpkr.Architecture((4, 2), 30, temperature=0.1)
    features = of_rank(rank, examples, 8, width) / width
    spanned = jnp.asarray(in_spanned_directions(features))
    assert spanned.shape[2] < width and has_dual_form(spanned) == is_dual
    assert not tabulates_path_kernels(architecture.paths, 350)
    labels = np.sign(np.random.default_rng(3).normal(size=examples))
    found = bpkr.solve(architecture, bpkr.Data(features, labels))
    assert found.converged
    # the gradient at the same order parameters, of the features as they are
    assert bpkr.gradient_norm(bpkr.Problem(architecture, bpkr.Data(features, labels)), found) < 2e-9
    assert_close(
        found.energy, bpkr.evaluate(bpkr.Problem(architecture, bpkr.Data(features, labels)), found).energy, 1e-10
    )
