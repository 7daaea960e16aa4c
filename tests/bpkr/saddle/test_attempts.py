"""Solves that fail are gone on with by other ways, within the steps that were allowed in all."""

import optimistix as optx
import pytest

from benchmarks.robustness import problem
from theorykit import bpkr
from theorykit.saddle import ConvergenceWarning

# a narrow curved valley: labels of about 30 that few features explain, at a temperature of 1e-5
VALLEY = problem(1718)


def solved(**options):
    return bpkr.solve(VALLEY.architecture, bpkr.Data(VALLEY.features, VALLEY.labels), **options)


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
    with pytest.warns(ConvergenceWarning, match="all that max_steps allows"):
        saddle = solved(max_steps=max_steps)
    assert saddle.stats["steps"] == max_steps
    assert saddle.result == optx.RESULTS.nonlinear_max_steps_reached
