"""Tables of results: their numbers are those of the datasets, and what is no result is refused."""

import re
import warnings

import numpy as np
import pytest
import xarray as xr

import theorykit
from tests.bpkr.sweeps.problems import ARCHITECTURE, random_data, swept
from theorykit import bpkr
from theorykit.bpkr import sweeps
from theorykit.bpkr.sampling.chains import Draws
from theorykit.bpkr.sampling.results import label_draws
from theorykit.summaries import best_place, with_errors
from theorykit.symbolic.documents.display import DisplayMixin, View
from theorykit.symbolic.documents.document import Text


@pytest.fixture(scope="module")
def several() -> xr.Dataset:
    grid = {"widths": (20, np.inf), "temperatures": (0.1, 1.0)}
    return sweeps.sweep_seeds(ARCHITECTURE, random_data, (0, 1, 2), **grid, progress=False)


def test_a_sweep_over_seeds_has_means_with_their_errors_and_names_the_best(several):
    title, head, narrow, wide, *rest = repr(theorykit.summary(several)).splitlines()
    assert title == "test accuracy, mean of 3 seeds, with standard errors over seeds"
    assert head.split() == ["width", "T=0.1", "T=1"]
    values = several["test_accuracy"].sel(width=20, temperature=0.1)
    assert float(narrow.split()[1]) == pytest.approx(values.mean().item(), abs=0.01) and wide.startswith("inf ")
    assert float(narrow.split()[3]) == pytest.approx(values.std("seed", ddof=1).item() / 3**0.5, rel=0.06)
    evidence = several["log_evidence"].mean("seed")
    place = best_place(several, "log_evidence")
    assert evidence.sel(place) == evidence.max()
    assert rest[-1] == f"Highest evidence: width {place['width']:g}, T = {place['temperature']:g}."
    losses = several["test_log_loss"].mean("seed")
    assert losses.sel(best_place(several, "test_log_loss")) == losses.min()


def test_test_examples_that_seeds_share_add_their_error(several):
    extra = xr.full_like(several["test_accuracy"].isel(seed=0, drop=True), 0.3)
    both = with_errors(several.assign(test_accuracy_error_of_test_examples=extra), "test_accuracy")
    alone = with_errors(several, "test_accuracy")
    np.testing.assert_allclose(both["test_accuracy_error"] ** 2, alone["test_accuracy_error"] ** 2 + 0.09)


def test_points_of_a_sweep_are_summarised_as_solutions_and_failures_say_why():
    grid = swept(random_data(0), widths=(20, np.inf), temperatures=(0.1,)).isel(temperature=0)
    narrow, wide = (repr(theorykit.summary(grid.sel(width=width))) for width in (20, np.inf))
    point = grid.sel(width=20)
    assert f"{point['action'].item():.12g}" in narrow and "converged after" in narrow
    assert f"test accuracy  {point['test_accuracy'].item():.4f} +- {point['test_accuracy_error'].item():.4f}" in narrow
    assert wide.startswith(f"infinitely wide: a Gaussian process, log evidence {grid['log_evidence'][1].item():.12g}")
    failed = xr.Dataset({"converged": False, "result": "failed", "message": "no kernel"})
    assert repr(theorykit.summary(failed)) == "failed: no kernel"


def test_draws_have_means_errors_effective_sizes_and_agreement():
    rng, architecture = np.random.default_rng(0), bpkr.Architecture((4,), 8, temperature=0.1)
    matrices = rng.normal(size=(2, 400, 4, 4))
    record = {"U_1": matrices + np.swapaxes(matrices, 2, 3), "u": rng.normal(size=(2, 400))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = label_draws(architecture, Draws(record, {}, 0.5, 1.0), {"sampler": "a sampler"})
    text = repr(theorykit.summary(tree))
    assert "2 chains of 400, in 1.0 s" in text and f"diagnosis  {tree.attrs['diagnosis']}" in text
    row = next(line for line in text.splitlines() if line.startswith("U_1[1, 2]"))
    numbers = re.split(r"\s{2,}", row)
    at = tree["summary"]["U_1"].sel(path_1="1", other_path_1="2")
    assert numbers[-1] == f"{at.sel(statistic='r_hat').item():.3f}"
    assert numbers[-3] == f"{at.sel(statistic='ess_bulk').item():.0f}"
    assert "U_1[2, 1]" not in text and "11 more" not in text
    many = {**record, "mean": rng.normal(size=(2, 400, 30))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = label_draws(architecture, Draws(many, {}, 0.5, 1.0), {"sampler": "a sampler"})
    assert repr(theorykit.summary(tree)).endswith("29 more rows are in result['summary'].")


def test_objects_give_their_own_summary_and_others_are_refused(several):
    class Shown(DisplayMixin):
        def _view(self):
            yield Text("one line")

    assert isinstance(theorykit.summary(Shown()), View) and repr(theorykit.summary(Shown())) == "one line"
    assert repr(theorykit.summary(xr.DataTree(several))) == repr(theorykit.summary(several))
    with pytest.raises(TypeError, match="result must be a labelled dataset, draws, or an object with a summary"):
        theorykit.summary(3)
    with pytest.raises(ValueError, match="result is not a dataset of a solution"):
        theorykit.summary(xr.Dataset())
