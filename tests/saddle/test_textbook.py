"""Textbook saddle points with known answers: the phases of Potts states, the capacity of a Hopfield network."""

import numpy as np
import pytest
from scipy.special import erf
from sympy import Add, exp, log, sqrt, symbols

from theorykit.saddle import Action, Between, Positive, Real, follow, near, search
from theorykit.symbolic import gaussian_average

from ..bpkr.cases import assert_close
from .textbook import alpha, m, z

r, C = symbols("r C", positive=True)

HOPFIELD = Action(
    m**2 / 2 + alpha * r * C / 2 - alpha / (2 * (1 - C)) - gaussian_average(abs(m + sqrt(alpha * r) * z), z),
    {m: Real(), r: Positive(), C: Between(0, 1)},
    [alpha],
)
"""The replica-symmetric energy at temperature zero; C is the susceptibility."""


@pytest.mark.parametrize("conjugate", (True, False))
def test_a_search_lists_all_phases_of_three_potts_states_where_they_coexist(conjugate):
    """At beta = 4 log 2 the uniform phase and three with p = (2/3, 1/6, 1/6) have S = -log 3 - beta / 6."""
    fields, states = symbols("x1:4", real=True), symbols("p1:3", positive=True)
    p, domains = (*states, 1 - Add(*states)), dict.fromkeys(states, Positive())
    entropic = Add(*(each * log(each) - alpha * each**2 / 2 for each in p))
    if conjugate:
        domains = dict.fromkeys(fields, Real())
        entropic = alpha * Add(*(each**2 for each in fields)) / 2 - log(Add(*(exp(alpha * each) for each in fields)))
    found = search(Action(entropic, domains, [alpha]), {alpha: 4 * np.log(2)})
    assert_close(np.array([each.action for each in found]), np.full(4, -np.log(3) - 2 * np.log(2) / 3), 1e-12)
    assert_close(
        sorted(float(next(iter(each.order_parameters.values()))) for each in found), [1 / 6, 1 / 6, 1 / 3, 2 / 3], 1e-8
    )


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
