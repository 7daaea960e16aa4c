"""Labels of a solution: they name every axis, are kept by the disk, and lead back to the order parameters."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import xarray as xr

from tests.bpkr.cases import ALL_SKIPS, ONE_HEAD, OWN_KINDS, THREE_LAYERS, Case, random_problem
from tests.bpkr.sweeps.problems import ARCHITECTURE, random_data
from theorykit import bpkr
from theorykit.bpkr import Dense, Skip, sweeps

UNEVEN = Case((Skip(2, 0.7), Dense(), 3), (25.0, 25.0, 20.0, 30.0), (0.8, 1.2, 0.9, 1.3, 0.7), outputs=2)


@pytest.fixture(scope="module")
def saddle() -> bpkr.Saddle:
    data = random_data(0)
    return bpkr.solve(ARCHITECTURE, bpkr.Data(data.features, data.labels))


def labelled_problem(saddle, case):
    """Label a saddle point's numbers with any order parameters."""
    problem = random_problem(case, 0)
    other = replace(saddle, order_parameters=problem.order_parameters)
    return problem.architecture, other, sweeps.label(problem.architecture, other)


@pytest.mark.parametrize("case", [ONE_HEAD, THREE_LAYERS, ALL_SKIPS, OWN_KINDS, UNEVEN])
def test_labels_lead_back_to_the_order_parameters_by_way_of_the_disk(saddle, case, tmp_path):
    architecture, other, dataset = labelled_problem(saddle, case)
    dataset.to_netcdf(tmp_path / "point.nc", engine="h5netcdf")
    again = sweeps.order_parameters_of(architecture, xr.load_dataset(tmp_path / "point.nc", engine="h5netcdf"))
    for one, expected in zip(jax.tree.leaves(again), jax.tree.leaves(other.order_parameters), strict=True):
        np.testing.assert_array_equal(one, expected)


def test_paths_and_outputs_are_named_and_everything_the_solve_found_is_there(saddle):
    architecture, saddle, dataset = labelled_problem(saddle, UNEVEN)
    assert list(dataset["path_3"].values) == ["1:1", "1:2", "2:1", "2:2", "3:1", "3:2"]
    assert list(dataset["path_2"].values) == ["-1:1", "-1:2", "-2:1", "-2:2", "-3:1", "-3:2"]
    assert list(dataset["path_1"].values[:4]) == ["0-1:1", "0-1:2", "0-2:1", "0-2:2"]
    corner = dataset["U_1"].sel(path_1="1-1:2", other_path_1="2-3:1").item()
    assert corner == saddle.order_parameters.matrices[0][7, 16]
    assert dataset["u"].dims == ("output", "other_output")
    for name in ("action", "entropy", "energy", "log_evidence", "gradient_norm", "min_hessian_eigenvalue"):
        assert dataset[name].item() == float(getattr(saddle, name))
    assert dataset["converged"].item() is True
    assert {name: dataset[name].item() for name in saddle.stats} == {n: v.item() for n, v in saddle.stats.items()}
    scores = bpkr.head_scores(architecture, saddle.order_parameters)
    np.testing.assert_array_equal(dataset["head_score_3"], scores[2])
    assert "head_score_2" not in dataset, "layer 2 has no heads"


def test_numbers_of_any_axes_are_labelled_with_order_parameters():
    point = bpkr.gp_limit(ARCHITECTURE)
    found = sweeps.label(ARCHITECTURE, point, note="limit", mean=np.arange(3.0), counts=(("a", "b"), np.eye(2)))
    assert found["mean"].dims == ("test_example",) and found["counts"].dims == ("a", "b")
    assert found["note"].item() == "limit" and "action" not in found
    np.testing.assert_array_equal(found["U_1"], point.first)
    other = bpkr.Architecture((3,), 5, temperature=1.0)
    for architecture, given in ((ARCHITECTURE, found.expand_dims(width=[1, 2])), (other, found)):
        with pytest.raises(ValueError, match="U_1 must have the axes"):
            sweeps.order_parameters_of(architecture, given)
