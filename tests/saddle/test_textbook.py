"""Textbook saddle points with known answers: the capacity of a Hopfield network, ridge regression by replicas."""

import numpy as np
import pytest
from scipy.special import erf
from sympy import sqrt, symbols

from theorykit.saddle import Action, Between, Positive, Real, follow, near, search, stationary
from theorykit.symbolic import gaussian_average

from ..bpkr.cases import assert_close
from .textbook import RIDGE, V, V_hat, alpha, m, m_hat, noise, q, q_hat, ridge, z

r, C = symbols("r C", positive=True)

HOPFIELD = Action(
    m**2 / 2 + alpha * r * C / 2 - alpha / (2 * (1 - C)) - gaussian_average(abs(m + sqrt(alpha * r) * z), z),
    {m: Real(), r: Positive(), C: Between(0, 1)},
    [alpha],
)
"""The replica-symmetric energy at temperature zero; C is the susceptibility."""


@pytest.mark.slow
def test_a_hopfield_network_forgets_where_the_branch_of_memories_turns_back():
    (start, *_) = [each for each in search(HOPFIELD, {alpha: 0.12}, index=1) if each[m] > 0.5]
    branch = follow(HOPFIELD, {alpha: 0.12}, start, alpha, (0.11, 0.2), largest_step=0.05)
    fold = branch.isel(point=branch["event"] == "fold").squeeze("point")
    # Amit, Gutfreund and Sompolinsky: 0.138, where the overlap is 0.967
    assert abs(fold["alpha"] - 0.1379) < 5e-5
    assert abs(fold["m"] - 0.967) < 5e-4
    # the branch is known in closed form: alpha (m) with m = erf(y), where y^2 = m^2 / (2 alpha r)
    y = float(fold["m"] / np.sqrt(2 * fold["alpha"] * fold["r"]))
    slope = (capacity(y + 1e-4) - capacity(y - 1e-4)) / 2e-4
    assert_close(fold["alpha"], capacity(y), 1e-10)
    assert abs(slope) < 1e-6
    # two solutions coexist on either side of the fold
    assert len(near(branch, 0.13)) == 2


def capacity(y):
    """alpha as a function of y, from m = erf(y), r (1 - C)^2 = 1 and C sqrt(pi alpha r / 2) = exp(-y^2)."""
    root = erf(y) / (np.sqrt(2) * y) - np.sqrt(2 / np.pi) * np.exp(-(y**2))
    return root**2


@pytest.mark.quick(1)
@pytest.mark.parametrize(("load", "strength"), [(0.5, 0.1), (1.0, 0.01), (2.0, 0.3)])
def test_the_error_of_ridge_regression_is_that_of_random_matrix_theory(load, strength):
    values = {alpha: load, ridge: strength, noise: 0.25}
    solution = stationary(RIDGE, values, index=3)
    assert solution.converged
    # the resolvent of the Marchenko-Pastur law, g = < 1 / (x + lambda) >, and its derivative
    g = resolvent(load, strength)
    step = 1e-5 * strength
    of_square = -(resolvent(load, strength + step) - resolvent(load, strength - step)) / (2 * step)
    # student minus teacher: -lambda (X^T X + lambda)^{-1} teacher + (X^T X + lambda)^{-1} X^T noise
    expected = strength**2 * of_square + 0.25 * (g - strength * of_square)
    assert_close(1 - 2 * solution[m] + solution[q], expected, 1e-7)
    assert_close(solution[V], g, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [8.576958985908945e-07, 2.5118864315095823e-06])
def test_ridge_regression_is_solved_at_small_ridge_where_iterations_raise_the_misfit_first(strength):
    load = 0.790909090909091
    start = {m: 0.5, m_hat: 0.5, q: 1.0, q_hat: 1.0, V: 1.0, V_hat: 1.0}
    solution = stationary(RIDGE, {alpha: load, ridge: strength, noise: 0.25}, index=3, initial=start)
    assert solution.converged
    assert_close(solution[V] / resolvent(load, strength), 1.0, 1e-9)


def resolvent(load, strength):
    """The positive root of g (lambda + load / (1 + g)) = 1."""
    a, b, c = strength, strength + load - 1, -1.0
    return (-b + np.sqrt(b**2 - 4 * a * c)) / (2 * a)
