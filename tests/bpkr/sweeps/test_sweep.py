"""Sweeps: what single solves give, by neighbours; nothing solved is lost or solved twice, nothing of others is used."""

import math

import joblib
import numpy as np
import pytest
import xarray as xr
from scipy.stats import multivariate_normal

from tests.bpkr.sweeps.problems import ARCHITECTURE, GRID, random_data, swept
from theorykit import bpkr
from theorykit.bpkr import sweeps
from theorykit.bpkr.saddle.gaussian_fluctuations import corrected_evidence
from theorykit.saddle import ConvergenceWarning

DATA = random_data(0)
# what may differ between two runs of one sweep
OF_THE_RUN = ["steps", "content", "evaluations", "curvatures", "refinement_steps", "gradient_norm"]

_solve = bpkr.solve


@pytest.fixture
def starts(monkeypatch) -> list[bool]:
    """Whether each solve had a warm start."""
    log: list[bool] = []

    def logged(*arguments, **options):
        log.append(options["initial"] is not None)
        return _solve(*arguments, **options)

    monkeypatch.setattr(bpkr, "solve", logged)
    return log


def assert_same(one: xr.Dataset, other: xr.Dataset) -> None:
    """The same solutions, whatever the way to them."""
    one, other = (dataset.drop_attrs().drop_vars(OF_THE_RUN, errors="ignore") for dataset in (one, other))
    assert set(one) == set(other)
    xr.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_only_the_first_solve_of_a_width_starts_cold(starts):
    assert swept(DATA)["converged"].all()
    assert starts == [False, True, False, True]


def test_values_of_the_axes_are_plain_numbers():
    grid = {"width": [np.float64(20), (300, 300.0), math.inf], "temperature": np.array([1.0])}
    found = swept(DATA, **grid)
    assert found["width"].values.tolist() == ["20", "300-300", "inf"]
    for width, message in (([20, 20.0], "none twice"), ([], "at least one"), ([(20, math.inf)], "must be finite")):
        with pytest.raises(ValueError, match=message):
            swept(DATA, width=width, temperature=[0.1])


@pytest.mark.slow
def test_points_that_do_not_converge_are_counted_once_and_solved_again(tmp_path, starts):
    with pytest.warns(ConvergenceWarning) as caught:
        result = swept(DATA, tmp_path, max_steps=1)
    (message,) = (str(warning.message) for warning in caught)
    assert message.startswith("4 of 4 points are not solutions") and "width=20, temperature=0.5: " in message
    assert not bool(result["converged"].any()) and np.isfinite(result["U_1"]).all()
    assert len(starts) == 4 and not list(tmp_path.rglob("width=*.npz"))
    assert bool(swept(DATA, tmp_path)["converged"].all()) and len(starts) == 8


@pytest.mark.slow
def test_a_point_whose_solve_raises_is_recorded_and_the_others_solved(tmp_path):
    data = random_data(1)
    data = bpkr.Data(np.tile(data.features, (2, 1, 1)), np.tile(data.labels, 2))
    grid = {"width": (20, 80), "temperature": (0.0, 0.5)}
    for _ in range(2):
        with pytest.warns(ConvergenceWarning, match=r"2 of 4 .* temperature=0\.0: temperature=0\.0 needs"):
            result = swept(data, tmp_path, **grid)
        np.testing.assert_array_equal(result["converged"], [[False, True]] * 2)
        np.testing.assert_array_equal(result["action"].notnull(), result["converged"])
    result.to_netcdf(tmp_path / "result.nc", engine="h5netcdf")
    xr.testing.assert_equal(xr.load_dataset(tmp_path / "result.nc", engine="h5netcdf"), result)


def test_a_sweep_is_extended(tmp_path, starts):
    swept(DATA, tmp_path)
    starts.clear()
    more = {"width": (300, 20), "temperature": (0.1, 2.0, 0.5)}
    extended = swept(DATA, tmp_path, **more)
    assert starts == [False, True, True, True]
    assert_same(extended, swept(DATA, **more))


@pytest.mark.slow
def test_seeds_do_not_depend_on_the_number_of_jobs(tmp_path, starts):
    run = {**GRID, "seeds": (3, 4), "progress": False}
    alone = sweeps.sweep(ARCHITECTURE, random_data, **run, folder=tmp_path / "alone")
    assert alone["U_1"].dims[:3] == ("seed", "width", "temperature")
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == ["seed=3", "seed=4"]
    assert_same(alone.sel(seed=4, drop=True), swept(random_data(4)))
    with joblib.parallel_config("threading"):
        shared = sweeps.sweep(ARCHITECTURE, random_data, **run, n_jobs=2, folder=tmp_path / "shared")
    xr.testing.assert_identical(shared, alone)
    # Another sweep solves nothing again.
    starts.clear()
    xr.testing.assert_equal(sweeps.sweep(ARCHITECTURE, random_data, **run, folder=tmp_path / "shared"), shared)
    assert starts == []


SKIP = ((bpkr.Skip(2, 0.7),), 2, 40.0)


@pytest.mark.parametrize("case", [((2,), 1, 12.0), pytest.param(SKIP, marks=pytest.mark.slow)])
def test_the_corrected_evidence_is_that_of_the_fluctuations(case):
    layers, outputs, width = case
    draw = np.random.default_rng(0)
    architecture = bpkr.Architecture(layers, width, 1.3, temperature=0.3, outputs=outputs)
    labels = draw.normal(size=(14, outputs) if outputs > 1 else 14)
    problem = bpkr.Problem(architecture, bpkr.Data(draw.normal(size=(14, architecture.paths, 5)) / 3, labels))
    saddle = bpkr.solve(problem)
    expected = bpkr.fluctuations(problem, saddle).log_evidence
    np.testing.assert_allclose(corrected_evidence(problem.canonical, saddle.order_parameters), expected, rtol=1e-12)


def test_points_at_which_the_theory_does_not_hold_are_marked_and_never_the_best():
    found = swept(DATA, width=(1, 5, 20), temperature=(0.1, 0.5))
    np.testing.assert_array_equal(found["units_per_path"].isel(temperature=0), [0.5, 2.5, 10.0])
    assert found["log_evidence_corrected"].isnull().sel(width=1).all()
    assert found["log_evidence_corrected"].notnull().sel(width=[5, 20]).all()
    leading, corrected = (found[name].sel(width=[5, 20]) for name in ("log_evidence", "log_evidence_corrected"))
    assert leading.argmax(...) != corrected.argmax(...), "so that the ranking matters"
    assert found["log_evidence"].argmax(...)["width"] == 0, "the theory would choose where it does not hold"
    at = corrected.argmax(...)
    expected = {"widths": [5, 20][at["width"].item()], "temperature": [0.1, 0.5][at["temperature"].item()]}
    with pytest.warns(UserWarning, match="2 of 6 points have no solution .*, and are left out"):
        assert sweeps.best(found) == expected
    # A number that was selected before is chosen, too.
    selected = {"width": expected["widths"], "temperature": expected["temperature"]}
    for names in (["width"], ["temperature"], ["width", "temperature"]):
        assert sweeps.best(found.sel({name: selected[name] for name in names})) == expected
    with pytest.raises(TypeError, match="result must be a sweep, with widths"):
        sweeps.best(found.drop_vars("width"))
    with pytest.raises(ValueError, match="2 of 2 points have no solution or `units_per_path` < 1"):
        sweeps.best(found.sel(width=[1]))


def test_the_infinite_width_is_a_gaussian_process():
    result = swept(DATA, width=(math.inf,), temperature=(0.1, 1.0))
    variance = np.prod(ARCHITECTURE.prior_variances[1:])  # on the diagonal of U_1
    both = np.concatenate([DATA.features, DATA.test_features])
    kernel = variance * np.einsum("ipf,jpf->ij", both, both)
    train, test = slice(12), slice(12, None)
    for noise in (0.1, 1.0):
        limit = result.sel(width=math.inf, temperature=noise)
        gram, across = kernel[train, train] + noise * np.eye(12), kernel[test, train]
        np.testing.assert_allclose(limit["mean"], across @ np.linalg.solve(gram, DATA.labels), rtol=1e-9, atol=1e-12)
        expected = np.diag(kernel[test, test] - across @ np.linalg.solve(gram, across.T))
        np.testing.assert_allclose(limit["variance"], expected, rtol=1e-8, atol=1e-12)
        evidence = multivariate_normal(cov=gram).logpdf(DATA.labels)
        np.testing.assert_allclose(limit["log_evidence"], evidence, rtol=1e-11)
