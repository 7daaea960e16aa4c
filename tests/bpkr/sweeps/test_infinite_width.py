"""The infinitely wide network in sweeps: a Gaussian process, to which finite widths tend."""

import math

import numpy as np
import pytest
import xarray as xr
from scipy.stats import multivariate_normal

import theorykit
from tests.bpkr.sweeps.problems import ARCHITECTURE, random_data, swept
from theorykit import bpkr
from theorykit.bpkr import sweeps
from theorykit.plots import sweep as drawing

DATA = random_data(0)
TEMPERATURES = (0.1, 1.0)


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return swept(DATA, width=(math.inf, 1e5, 1e3), temperature=TEMPERATURES)


def kernel_of_prior(features, other):
    """Of one layer of two heads: the product of the variances after the first, on the diagonal of U_1."""
    return math.prod(ARCHITECTURE.prior_variances[1:]) * np.einsum("ipf,jpf->ij", features, other)


def test_the_limit_is_a_gaussian_process(result):
    for temperature in TEMPERATURES:
        limit = result.sel(width=math.inf, temperature=temperature)
        gram = kernel_of_prior(DATA.features, DATA.features) + temperature * np.eye(len(DATA.labels))
        across = kernel_of_prior(DATA.test_features, DATA.features)
        own = np.diag(kernel_of_prior(DATA.test_features, DATA.test_features))
        np.testing.assert_allclose(limit["mean"], across @ np.linalg.solve(gram, DATA.labels), rtol=1e-9, atol=1e-12)
        variance = own - np.einsum("ij,ji->i", across, np.linalg.solve(gram, across.T))
        np.testing.assert_allclose(limit["variance"], variance, rtol=1e-8, atol=1e-12)
        evidence = multivariate_normal(cov=gram).logpdf(DATA.labels)
        np.testing.assert_allclose(limit["log_evidence"], evidence, rtol=1e-11)


def test_finite_widths_tend_to_the_limit_as_one_over_the_width(result):
    limit = result.sel(width=math.inf)
    for name in ("U_1", "mean", "log_evidence"):
        far, near = (float(np.abs(result[name].sel(width=width) - limit[name]).max()) for width in (1e3, 1e5))
        assert 50 < far / near < 200, name


def test_the_limit_is_no_start_and_needs_none_and_is_kept(result, tmp_path):
    assert result["converged"].all() and (result["message"] == "").all()
    assert (result["start"].sel(width=math.inf) == "Gaussian-process limit").all()
    first, again = (swept(DATA, tmp_path, width=(1e5, math.inf), temperature=TEMPERATURES) for _ in range(2))
    xr.testing.assert_identical(first, again)
    np.testing.assert_array_equal(first["U_1"].sel(width=math.inf), result["U_1"].sel(width=math.inf))
    alone = swept(DATA, width=(1e5, 1e3), temperature=TEMPERATURES)
    xr.testing.assert_allclose(alone["U_1"], result["U_1"].sel(width=[1e5, 1e3]), rtol=1e-8, atol=1e-10)


def test_the_limit_is_a_line_across_the_figure(result):
    figure = drawing.figure(result.assign(best_temperature=sweeps.best_temperatures(result)))
    for axes, name in zip(figure.axes, ("test_accuracy", "U_1"), strict=True):
        drawn = [line.get_ydata() for line in axes.lines if line.get_linestyle() == "--" and len(line.get_ydata())]
        assert drawn, name
        limits = result[name].sel(width=math.inf).values
        assert all(np.isclose(limits, y[0]).any() and np.ptp(y) == 0 for y in drawn)
        assert np.all(np.isfinite(axes.get_xlim()))
    assert math.inf in theorykit.summary(result).index.get_level_values("width")


def test_several_outputs_have_their_limit():
    two = bpkr.Architecture((2,), 1, temperature=1.0, outputs=2)
    labels, test_labels = (np.stack([y, -y], axis=1) for y in (DATA.labels, DATA.test_labels))
    data = bpkr.Data(DATA.features, labels, DATA.test_features, test_labels)
    both = sweeps.sweep(two, data, width=(math.inf,), temperature=(1.0,), progress=False).squeeze()
    one = bpkr.Architecture((2,), 1, temperature=1.0)
    single = sweeps.sweep(one, DATA, width=(math.inf,), temperature=(1.0,), progress=False).squeeze()
    np.testing.assert_allclose(both["mean"].values, np.stack([single["mean"], -single["mean"]], axis=1), atol=1e-12)
    np.testing.assert_allclose(both["log_evidence"], 2 * single["log_evidence"], rtol=1e-12)
