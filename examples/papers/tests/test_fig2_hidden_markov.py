"""The script of Figure 2 at a reduced size: its table, its files, and its numbers against the published program."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest

import papers
from theorykit import bpkr

FOLDER = Path(papers.__file__).parent
PUBLISHED = np.load(FOLDER.parents[1] / "tests" / "data" / "bpkr" / "hidden_markov.npz")
WIDE = 10**7


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Run the script as a reader does. Return its variables and the folder of the results."""
    folder = tmp_path_factory.mktemp("figure-2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "Agg")
        patch.syspath_prepend(FOLDER)
        arguments = ("--output", folder, "--datasets", 1, "--widths", 10, WIDE)
        patch.setattr("sys.argv", ["fig2_hidden_markov.py", *map(str, arguments)])
        yield runpy.run_path(str(FOLDER / "fig2_hidden_markov.py")), folder


def test_narrow_networks_use_the_good_paths_and_wide_ones_reach_the_limit(script):
    _, folder = script
    assert (folder / "figure-2.png").stat().st_size > 50_000
    assert sorted(path.name for path in folder.iterdir()) == ["figure-2.png", "hidden-markov.nc"]
    result = xr.load_datatree(folder / "hidden-markov.nc", engine="h5netcdf")
    for network in ("default", "noisy", "noisy_uniform"):
        solved = result[network].to_dataset()
        assert bool((solved["converged"] == 1).all())
        narrow, wide, limit = (solved.sel(width=width) for width in (10, WIDE, math.inf))
        np.testing.assert_allclose(wide["U_1"], limit["U_1"], atol=1e-4)
        np.testing.assert_allclose(wide["test_accuracy"], limit["test_accuracy"], atol=0.0011)
        assert float((narrow["test_accuracy"] - limit["test_accuracy"]).min()) > 0.05
        assert bool((narrow["U_1"].sel(path_1="11", other_path_1="21") < 0).all())


def test_the_published_data_give_the_published_numbers(script):
    variables, _ = script
    features, test_features = (PUBLISHED[name].transpose(0, 2, 1) for name in ("phi", "phi_test200"))
    labels, truth = PUBLISHED["y"], PUBLISHED["y_test200"]
    architecture = bpkr.Architecture((2, 2), 1, temperature=0.01)
    data = bpkr.Data(features, labels, test_features, truth)
    variables["solve"].__globals__["sample"] = lambda network, seed: (architecture, data)
    solved = variables["solve"]("published", 0)
    np.testing.assert_allclose(solved["U_1"].sel(width=10), PUBLISHED["N10_U1"], rtol=1e-6, atol=1e-6)
    accuracy = solved["test_accuracy"].sel(width=[10, math.inf]).values
    assert accuracy[0] == pytest.approx(np.mean(np.sign(PUBLISHED["N10_mean200"]) == truth))
    # A Gaussian process whose kernel is the sum over paths of the products of their features.
    limits = [accuracy[1], *solved["subset_accuracy"].values]
    for found, paths in zip(limits, ([0, 1, 2, 3], [0], [0, 2]), strict=True):
        flat, flat_test = (each[:, paths].reshape(len(each), -1) for each in (features, test_features))
        mean = flat_test @ flat.T @ np.linalg.solve(flat @ flat.T + 0.01 * np.eye(len(flat)), labels)
        assert found == pytest.approx(np.mean(np.sign(mean) == truth))
