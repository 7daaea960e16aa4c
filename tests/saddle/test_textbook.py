"""A textbook saddle point with a known answer: the capacity of a Hopfield network."""

import numpy as np
import pytest
from scipy.special import erf
from sympy import sqrt, symbols

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
