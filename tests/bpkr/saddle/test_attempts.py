"""Solves that fail are gone on with by other ways, within the steps that were allowed in all."""

import equinox as eqx
import numpy as np
import optimistix as optx
import pytest

from benchmarks.robustness import problem
from theorykit import bpkr

# a narrow curved valley: labels of about 30 that few features explain, at a temperature of 1e-5
VALLEY = problem(1718)


def solved(**options):
    return bpkr.solve(VALLEY.architecture, bpkr.Data(VALLEY.features, VALLEY.labels), **options)


def temperatures(temperature, square):
    """The temperatures of continuation for labels whose squares add up to `square`."""
    architecture = eqx.tree_at(lambda architecture: architecture.temperature, VALLEY.architecture, temperature)
    features = np.asarray(VALLEY.features)[:10]
    return bpkr.Problem(architecture, bpkr.Data(features, np.full(10, np.sqrt(square / 10)))).temperatures()


@pytest.mark.slow
def test_a_minimum_in_a_valley_is_found_by_continuation_in_the_temperature():
    saddle = solved()
    assert saddle.converged, saddle.diagnosis
    assert saddle.stats["attempts"] == 2 and 150 < saddle.stats["steps"] <= 500
    again = solved(initial=saddle)
    assert again.stats["attempts"] == 1
    assert float(again.action) == pytest.approx(float(saddle.action), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("max_steps", [20, 160])
def test_all_attempts_together_take_no_more_steps_than_allowed(max_steps):
    with pytest.warns(bpkr.ConvergenceWarning, match="all that max_steps allows"):
        saddle = solved(max_steps=max_steps)
    assert saddle.stats["steps"] == max_steps
    assert saddle.result == optx.RESULTS.nonlinear_max_steps_reached


@pytest.mark.parametrize("temperature", [0.0, 1e9])
def test_there_is_no_continuation_from_below_or_to_none(temperature):
    assert temperatures(temperature, 1e4) == []


def test_temperatures_fall_by_equal_factors_to_above_that_of_the_architecture():
    found = np.array([*temperatures(1e-4, 3e6), 1e-4])
    assert found[0] == pytest.approx(1e5)
    np.testing.assert_allclose(found[1:] / found[:-1], 0.1)
