"""The paper's hidden Markov chains at full size: three samplers agree, and theory departs as it should."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr import sampling
from theorykit.bpkr.sampling import Schedule

DATA = Path(__file__).parents[2] / "data" / "bpkr" / "hidden_markov.npz"
OPTIONS = {
    10: {
        "exact": {"schedule": Schedule(chains=2, warmup=500, draws=2000)},
        "gibbs": {"schedule": Schedule(chains=4, warmup=1000, draws=6000)},
        "nuts": {"schedule": Schedule(chains=1, warmup=300, draws=500)},
    },
    100: {"exact": {"schedule": Schedule(chains=4, warmup=500, draws=1000)}},
}


@functools.cache
def compared(width):
    with np.load(DATA) as stored:
        data = {name: stored[name] for name in ("phi", "y", "phi_test200", "y_test200")}
    return sampling.compare(
        bpkr.Architecture((2, 2), width, temperature=0.01),
        bpkr.Data(data["phi"].transpose(0, 2, 1), data["y"], data["phi_test200"].transpose(0, 2, 1), data["y_test200"]),
        key=jax.random.key(0),
        approaches=("saddle", "one_over_n", *OPTIONS[width]),
        options=OPTIONS[width],
        progress=False,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::theorykit.bpkr.sampling.MixingWarning")  # Gibbs mixes slowly at T = 0.01
@pytest.mark.parametrize("sampler", ["gibbs", "nuts"])
def test_samplers_of_the_weights_agree_with_the_exact_posterior_at_width_ten(sampler):
    result = compared(10).sel(approach=sampler)
    assert float(compared(10)["mixed"].sel(approach="exact")) == 1
    for name in ("U_1", "U_2", "u"):
        assert float(np.abs(result[f"{name}_deviation"]).max()) < 4, name
    deviations = result["mean_deviation"]
    # of 200 examples, and with errors of chains that mix slowly, whose own errors are a tenth
    assert float(np.abs(deviations).max()) < 4.5
    assert float(np.sqrt((deviations**2).mean())) < 1.5
    assert float(np.abs(result["U_1_error"]).max()) < 0.05 * 14.8, "errors too large to tell"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::theorykit.bpkr.sampling.MixingWarning")
def test_theory_at_width_ten():
    """The saddle point is ten per cent off, its fluctuations make up for nearly all of it."""
    result = compared(10)
    exact, saddle, corrected = (result["U_1"].sel(approach=name).values for name in ("exact", "saddle", "one_over_n"))
    np.testing.assert_allclose(np.diagonal(exact), [14.82, 0.53, 7.19, 0.346], rtol=0.05)
    np.testing.assert_allclose(np.diagonal(saddle), [13.365, 0.546, 6.745, 0.343], rtol=2e-3)
    assert abs(saddle[0, 0] - exact[0, 0]) > 1.0
    assert np.max(np.abs(corrected - exact)) < 0.25 * np.max(np.abs(saddle - exact))


@pytest.mark.slow
def test_theory_at_width_one_hundred():
    result = compared(100)
    exact, saddle = (result["U_1"].sel(approach=name).values for name in ("exact", "saddle"))
    assert np.max(np.abs(saddle - exact)) < 0.03 * np.max(np.abs(exact))
    corrected = result.sel(approach="one_over_n")
    assert float(np.abs(corrected["U_1_deviation"]).max()) < 4.5
    assert float(np.sqrt((corrected["mean_deviation"] ** 2).mean())) < 1.5
