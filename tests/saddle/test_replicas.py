"""Six replica actions against closed forms and roots by Brent's method, at eight points of the benchmark's grids."""

import mpmath
import numpy as np
import pytest
from sympy import erfc, log, sqrt, symbols

from benchmarks.replicas import ABSOLUTE, PROBLEMS, RELATIVE, certified
from theorykit.saddle import Action, Between, ConvergenceWarning, Real, minimise, search
from theorykit.symbolic import gaussian_average

from ..marks import slow

# Eight of the 16 x 16 points, with eight values on either axis.
POINTS = slice(16, None, 34)
CLOSED = ("Curie-Weiss", "spherical 3-spin")


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("name", [*CLOSED, *slow(name for name in PROBLEMS if name not in CLOSED)])
def test_replica_actions_are_solved_over_a_grid(name):
    problem = PROBLEMS[name]()
    grid = {key: values[POINTS] for key, values in problem.grid.items()}
    values, converged = certified(problem._replace(grid=grid))()
    points = [dict(zip(grid, point, strict=True)) for point in zip(*grid.values(), strict=True)]
    np.testing.assert_allclose(values, [problem.truth(**at) for at in points], rtol=RELATIVE, atol=ABSOLUTE)
    assert np.all(converged)


def test_an_action_with_steep_averages_is_evaluated_accurately():
    q = 0.999

    def density(z):
        return mpmath.npdf(z) * mpmath.log(mpmath.ncdf(-mpmath.sqrt(q / (1 - q)) * z))

    exact = mpmath.quad(density, [-12, -1, 0, 1, 12]) + mpmath.log(1 - q) / 2 + q / (2 * (1 - q))
    action = PROBLEMS["perceptron"]().action
    np.testing.assert_allclose(action(q=q, alpha=1.0, kappa=0.0), float(exact), rtol=1e-12)


def test_effects_of_rounding_on_the_perceptron_are_computed():
    """Its slopes contain sqrt(1 - q), which SymPy does not know to be real. All sums are multiples of 1 - q."""
    q, u = 0.3, 0.7
    action = PROBLEMS["perceptron"]().action.with_nodes(20)
    on_action, on_slope = np.asarray(action.rounding_effects(q=q, alpha=0.8, kappa=0.5))
    # The terms log(u) / 2 and q / (2 u) have the derivatives 1 / (2 u) and -q / (2 u^2) in u = 1 - q.
    expected = [1 / (2 * u), -q / (2 * u), -q / (2 * u**2), q**2 / (2 * u**2)]
    np.testing.assert_allclose(sorted(on_action[on_action != 0]), sorted(expected), rtol=1e-12)
    # The gradient contains averages with powers of u as factors. A sum c - c q has parts in the ratio -q.
    assert np.all(np.isfinite(on_slope)) and np.any(on_slope != 0)
    of_q, of_constant = sorted((on_slope.reshape(-1, 2)).T.tolist(), key=lambda row: np.sum(np.abs(row)))
    np.testing.assert_allclose(np.abs(of_q), q * np.abs(of_constant), rtol=1e-12)


@pytest.mark.parametrize("field", [*slow([0.0]), 0.7])
def test_an_action_without_sums_within_its_terms_is_solved(field):
    """Such an action has no effects of rounding."""
    m, h = symbols("m h", real=True)
    action = Action(m**2 / 2 + field * h * m, {m: Real()}, [h] if field else [])
    found = minimise(action, {"h": 2.0} if field else {})
    assert found.converged
    assert abs(found["m"] + 2.0 * field) < 1e-12


def test_a_perceptron_is_solved_close_to_its_capacity():
    """There 1 - q is small, so its square must not be expanded, and erfc underflows."""
    q, alpha, z = symbols("q alpha z", positive=True)
    energy = gaussian_average(log(erfc(sqrt(q / (1 - q) / 2) * z) / 2), z)
    action = Action((q / (1 - q) + log(1 - q)) / 2 + alpha * energy, {q: Between(0, 1)}, [alpha])
    (found,) = search(action, {alpha: 1.99})
    assert abs(found[q] - PROBLEMS["perceptron"]().truth(alpha=1.99, kappa=0.0)) <= found.error < 1e-9
    assert found.stats["reached"] >= 8
    # At capacity, where no point is known, rounding changes S and its gradient in turn.
    with pytest.warns(ConvergenceWarning, match="quadrature"):
        assert minimise(action, {alpha: 2.0}).stats["evaluations"] < 100
