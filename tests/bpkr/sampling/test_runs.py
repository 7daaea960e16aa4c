"""Runs: labelled and diagnosed, refused with the reason."""

import warnings

import jax
import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr import sampling
from theorykit.bpkr.sampling import Schedule
from theorykit.bpkr.sampling.sample import label_draws

from .problems import problem, quietly

SECONDS = {"warmup_seconds": 0.5, "seconds": 1.0}
SHORT = {"schedule": Schedule(chains=2, warmup=60, draws=120)}


def test_draws_are_labelled():
    architecture, rng = problem("dense, two outputs")[0], np.random.default_rng(0)
    shapes = {"U_1": (4, 4), "u": (2, 2), "mean": (3, 2), "variance": (3, 2)}
    draws = {name: rng.normal(size=(4, 500, *shape)) for name, shape in shapes.items()}
    tree = label_draws(architecture, {**draws, **SECONDS})
    posterior = tree["posterior"]
    assert posterior["U_1"].dims == ("chain", "draw", "path_1", "other_path_1")
    assert posterior["path_1"].values.tolist() == ["1-:1", "1-:2", "2-:1", "2-:2"]
    assert posterior["u"].dims == ("chain", "draw", "output", "other_output")
    assert posterior["mean"].dims == posterior["variance"].dims == ("chain", "draw", "test_example", "output")
    assert tree["summary"]["U_1"].sel(statistic="r_hat").shape == (4, 4)


@pytest.mark.parametrize(
    ("draws", "temperature", "complaint"), [(10, 1e-3, "R-hat"), (3, 0.3, "3 draws per chain, but diagnostics")]
)
def test_chains_that_do_not_mix_or_are_too_short_say_so(draws, temperature, complaint):
    architecture, features, labels, _ = problem(temperature=temperature)
    schedule = Schedule(chains=4, warmup=0, draws=draws)
    options = {"sampler": "gibbs", "key": jax.random.key(0), "schedule": schedule, "progress": False}
    with pytest.warns(sampling.MixingWarning, match=complaint) as warned:
        tree = sampling.sample(architecture, bpkr.Data(features, labels), **options)
    assert warned[0].filename == __file__
    assert tree.attrs["mixed"] == 0 and complaint in tree.attrs["diagnosis"]
    assert np.isnan(tree["summary"]["U_1"].sel(statistic="mcse_mean")).all() == (draws == 3)


def test_a_checkpoint_in_the_warm_up_loses_no_draw(tmp_path, monkeypatch):
    architecture, features, labels, _ = problem()
    options = {"sampler": "gibbs", "key": jax.random.key(0), "schedule": Schedule(1, 2, 4), "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampling.MixingWarning)
        whole = sampling.sample(architecture, bpkr.Data(features, labels), **options)
        monkeypatch.setattr("theorykit.bpkr.sampling.chains._CHECKPOINT", -1.0)
        kept = sampling.sample(architecture, bpkr.Data(features, labels), **options, folder=tmp_path)
    np.testing.assert_array_equal(kept["posterior"]["U_1"], whole["posterior"]["U_1"])


def drawn(change):
    """Well-mixed draws of a network with one path, changed."""
    rng = np.random.default_rng(0)
    draws = {"U_1": rng.normal(size=(4, 500, 1, 1)), "u": rng.normal(size=(4, 500))}
    draws |= {"diverging": np.zeros((4, 500), dtype=bool), "energy": rng.normal(size=(4, 500))}
    return {**draws, **change(draws), **SECONDS}


def slowly(values):
    """A random walk, which explores slowly."""
    return np.cumsum(values, axis=1)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda draws: {"diverging": draws["energy"] > np.sort(draws["energy"].ravel())[-4]}, "3 of 2000 transitions"),
        (lambda draws: {"energy": slowly(draws["energy"])}, "BFMI is"),
        (lambda draws: {"u": slowly(draws["u"])}, "split R-hat of u is"),
        (lambda draws: {"u": slowly(draws["u"])}, "ess_bulk of u is"),
        (lambda draws: {name: 0 * draws[name] for name in ("U_1", "u")}, "all draws are equal"),
        (lambda draws: {name: values[:1] for name, values in draws.items()}, "a single chain"),
    ],
)
def test_what_speaks_against_draws_is_told(change, complaint):
    architecture = bpkr.Architecture((1,), 3, temperature=0.1)
    assert label_draws(architecture, drawn(lambda draws: {})).attrs["diagnosis"] == "mixed"
    tree = label_draws(architecture, drawn(change))
    assert complaint in tree.attrs["diagnosis"]
    assert tree.attrs["mixed"] == 0


@pytest.mark.parametrize(
    ("samplers", "name", "changes", "named"),
    [
        (("gibbs", "nuts"), "attention", {"temperature": 0.0}, "temperature=0"),
        (("gibbs", "nuts"), "attention", {"width": 2.5}, "whole numbers"),
        (("exact",), "singular", {"temperature": 0.0}, "fewer units than partial paths"),
    ],
)
def test_what_cannot_be_sampled_is_refused(samplers, name, changes, named):
    for sampler in samplers:
        with pytest.raises(ValueError, match=named):
            quietly(sampler, *problem(name, **changes)[:3], **SHORT)


def compared(name, **options):
    architecture, features, labels, test_features = problem(name)
    data = bpkr.Data(features, labels, test_features, np.ones(len(test_features)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampling.MixingWarning)
        return sampling.compare(architecture, data, key=jax.random.key(0), progress=False, **options)


@pytest.mark.slow
def test_the_comparison_measures_in_standard_errors():
    options = {name: {"schedule": Schedule(chains=2, warmup=200, draws=500)} for name in ("exact", "gibbs")}
    result = compared("attention", options=options)
    assert result["approach"].values.tolist() == ["saddle", "one_over_n", "exact", "gibbs", "infinite_width"]
    assert float(np.abs(result["U_1_deviation"].sel(approach="exact")).max()) == 0
    ours, exact = result.sel(approach="gibbs"), result.sel(approach="exact")
    expected = (ours["mean"] - exact["mean"]) / np.hypot(ours["mean_error"], exact["mean_error"])
    np.testing.assert_allclose(ours["mean_deviation"], expected)
    assert float(np.abs(ours["U_1_deviation"]).max()) < 4.5
    assert 0 <= float(ours["accuracy"]) <= 1 and result["seconds"].min() > 0
    saddle = bpkr.solve(problem()[0], bpkr.Data(*problem()[1:3]))
    np.testing.assert_allclose(result["U_1"].sel(approach="saddle"), saddle.order_parameters.matrices[0])
