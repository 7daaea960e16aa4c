"""Six replica actions against closed forms and roots by Brent's method, at eight points of the benchmark's grids."""

import jax
import numpy as np
import pytest

from benchmarks.replicas import ABSOLUTE, PROBLEMS, RELATIVE
from theorykit.saddle import minimise, stationary

from ..marks import slow

POINTS = 8
CLOSED = ("Curie-Weiss", "spherical 3-spin", "ridge regression")


@pytest.mark.parametrize("name", [*CLOSED, *slow(PROBLEMS.keys() - set(CLOSED))])
def test_replica_actions_are_solved_and_right_over_a_grid(name):
    problem = PROBLEMS[name]()
    every = len(next(iter(problem.grid.values()))) // POINTS
    grid = {key: values[every // 2 :: every] for key, values in problem.grid.items()}

    @jax.jit
    @jax.vmap
    def solved(values):
        call = {"initial": problem.start}
        if problem.index:
            found = stationary(problem.action, values, index=problem.index, **call)
        else:
            found = minimise(problem.action, values, **call)
        return found[problem.order_parameter], found.converged

    values, converged = map(np.asarray, solved(grid))
    points = [dict(zip(grid, point, strict=True)) for point in zip(*grid.values(), strict=True)]
    np.testing.assert_allclose(values, [problem.truth(**at) for at in points], rtol=RELATIVE, atol=ABSOLUTE)
    assert np.all(converged)


def test_a_perceptron_with_a_margin_is_solved():
    """Its slopes contain sqrt(1 - q), which SymPy does not know to be real."""
    problem = PROBLEMS["perceptron"]()
    at = {"alpha": 0.8, "kappa": 0.5}
    found = minimise(problem.action, at, initial=problem.start)
    assert found.converged
    assert abs(found["q"] - problem.truth(**at)) < 1e-9
