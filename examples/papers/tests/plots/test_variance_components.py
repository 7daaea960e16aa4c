"""Tests of variance components over trained networks and over draws of examples."""

import numpy as np
import pytest
import xarray as xr

from papers.plots.results import over_seeds, variance_components, with_error


def effects(networks: int, draws: int, deviations, rng) -> xr.DataArray:
    """Draw many problems with independent effects of network, draw and both, with these standard deviations."""
    shapes = ((networks, 1), (1, draws), (networks, draws))
    parts = [size * rng.normal(size=(4000, *shape)) for size, shape in zip(deviations, shapes, strict=True)]
    return xr.DataArray(sum(parts), dims=("problem", "training_seed", "seed"))


@pytest.mark.parametrize("deviations", [(2.0, 0.5, 1.0), (0.5, 2.0, 1.0), (1.0, 1.0, 0.2)])
def test_variance_components_are_those_that_made_the_values(deviations):
    values = effects(5, 4, deviations, np.random.default_rng(0))
    found = variance_components(values)
    # If a component is well above the rest, clipping at zero hardly matters.
    for name, deviation in zip(("training_seed", "seed", "rest"), deviations, strict=True):
        if deviation >= 1 or name == "rest":
            assert float(found[name].mean()) == pytest.approx(deviation**2, rel=0.08)
    assert float(found["mean"].mean()) == pytest.approx(float(values.mean(["training_seed", "seed"]).var()), rel=0.08)
    mean, error = over_seeds(values)
    np.testing.assert_allclose(mean, values.values.mean((1, 2)))
    np.testing.assert_allclose(error**2, found["mean"])


def test_variance_of_one_network_or_one_draw_is_that_of_the_mean_over_the_other():
    values = effects(4, 1, (1.0, 0.0, 0.3), np.random.default_rng(1))
    found = variance_components(values)
    assert np.isnan(found["seed"]).all() and np.isnan(found["rest"]).all()
    np.testing.assert_allclose(found["mean"], values.values[..., 0].var(axis=1, ddof=1) / 4)
    one = values.transpose("problem", "seed", "training_seed").values
    _, error = over_seeds(xr.DataArray(one, dims=("problem", "training_seed", "seed")))
    np.testing.assert_allclose(error**2, found["mean"])


# Older versions of xarray warn of it.
@pytest.mark.filterwarnings("ignore:Degrees of freedom")
def test_the_error_of_one_value_is_not_shown():
    assert with_error(xr.DataArray([1.0, np.nan], dims="seed")) == "1.000"
