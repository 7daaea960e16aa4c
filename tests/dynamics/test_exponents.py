"""Exponents of known maps; regimes and dimensions."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import dynamics

SEEDS = st.integers(0, 2**32 - 1)
LORENZ = (0.906, 0.0, -14.572)


class Linear:
    """A linear map of a tree, with an integer, which is not perturbed, and a copy, which is not measured."""

    matrix = np.array([[0.9, 0.3, 0.0], [0.0, 0.5, 0.2], [0.0, 0.0, -0.1]])

    def __call__(self, state, gain):
        following = gain * jnp.asarray(self.matrix) @ state["x"]
        return {"x": following, "copy": 7.0 * following, "count": state["count"] + 1}

    def coordinates(self, state):
        return state["x"]


def test_exponents_of_a_linear_map_are_the_logarithms_of_its_eigenvalues():
    start = {"x": np.ones(3), "copy": np.ones(3), "count": 0}
    asked = {"steps": 400, "blocks": 2}
    found = dynamics.lyapunov_spectrum(Linear(), start, 2.0, **asked)
    np.testing.assert_allclose(found.blocks[-1], np.log([1.8, 1.0, 0.2]), atol=1e-9)
    whole = dynamics.lyapunov_spectrum(lambda *at: Linear()(*at), start, 2.0, exponents=3, **asked)
    np.testing.assert_allclose(whole.blocks[-1], found.blocks[-1], atol=1e-9)


def test_exponents_are_stated_as_far_as_rounding_resolves_them():
    # The slope 18 (1 - tanh(18)^2) has one digit.
    found = dynamics.lyapunov_spectrum(lambda x, a: jnp.tanh(a * x), 1.0, 18.0, steps=100)
    np.testing.assert_array_equal(found.exponents, -np.inf)
    graded = lambda at, small: 0.7 + jnp.stack([0.3 * at[0] + at[1], small * at[1]])  # noqa: E731
    for small in (1e-12, 1e-16, 1e-30):
        found = dynamics.lyapunov_spectrum(graded, np.ones(2), small, steps=400)
        np.testing.assert_allclose(found.blocks[-1], np.log([0.3, small]), rtol=1e-12)


def test_an_orbit_that_escapes_is_refused():
    with pytest.raises(ValueError, match="not finite within 100 steps"):
        dynamics.lyapunov_spectrum(lambda x, a: a * x**2, 2.0, 1.0, steps=100)
    with pytest.raises(ValueError, match="steps=30 must be a multiple of blocks=20"):
        dynamics.lyapunov_spectrum(lambda x, a: a * x, 2.0, 1.0, steps=30)


def explicit_dimension(exponents):
    """Volumes of ever more dimensions, until one shrinks."""
    total, ordered = 0.0, sorted(exponents, reverse=True)
    for count, exponent in enumerate(ordered):
        if total + exponent < 0:
            return count + total / abs(exponent)
        total += exponent
    return len(ordered)


def test_dimensions_of_simple_spectra():
    spectra = {0: (-0.1, -0.2), 1: (0.5, -np.inf), 2: (0.0, 0.0, -0.2), 2.25: (-0.4, 0.2, -0.1)}
    spectra[2.0621740324] = LORENZ  # J. C. Sprott, Chaos and Time-Series Analysis (2003): 2.062
    for dimension, exponents in spectra.items():
        np.testing.assert_allclose(dynamics.kaplan_yorke_dimension(np.array(exponents)), dimension, rtol=1e-10)
    for invalid in ((np.nan, -1.0), (np.inf, -1.0)):
        with pytest.raises(ValueError, match="below infinity"):
            dynamics.kaplan_yorke_dimension(invalid)


@given(seed=SEEDS)
def test_dimension_and_bound_are_those_of_the_definition(seed):
    exponents = np.random.default_rng(seed).normal(-0.3, 1, size=(6, 5, 4))
    known = np.array([[explicit_dimension(orbit) for orbit in orbits] for orbits in exponents])
    np.testing.assert_allclose(dynamics.kaplan_yorke_dimension(exponents), known, rtol=1e-12)


SPECTRA = {
    "periodic": (-2e-4, -0.1),
    "quasi-periodic": (5e-5, -0.1),
    "quasi-periodic (double)": (5e-5, -5e-5),
    "chaotic": (0.1, -0.1),
    "hyperchaotic": (0.1, 0.05),
}


def label(*arrays, **options):
    return str(dynamics.classify(*arrays, **options))


@pytest.mark.parametrize("regime", SPECTRA)
def test_the_published_rule(regime):
    first, second = SPECTRA[regime]
    assert label((first, second)) == regime
    assert label((second, -1.0, first, -np.inf)) == regime
    assert label((first, second), (1e-6, 1e-6)) == regime
    assert label((100 * first, 100 * second), threshold=1e-2) == regime


@pytest.mark.parametrize(
    ("exponents", "errors", "regime"),
    [
        ((-2e-4, -0.1), (1.5e-4, 0.0), "undecided"),
        ((5e-5, -0.1), (6e-5, 0.0), "undecided"),
        ((2e-4, -0.1), (1.5e-4, 0.0), "undecided"),
        ((0.0, -1.5e-4), (1e-6, 1e-4), "undecided"),
        ((0.1, 1.5e-4), (1e-3, 1e-4), "undecided"),
        ((-2e-4, -3e-4), (1e-5, 1.0), "periodic"),
        ((0.1, 0.0), (1e-3, 9e-5), "chaotic"),
        ((0.1, -np.inf), (1e-3, np.nan), "chaotic"),
        ((0.1, -0.1), (np.inf, 0.0), "undecided"),
    ],
)
def test_an_error_bar_across_the_deciding_threshold_leaves_it_open(exponents, errors, regime):
    assert label(exponents, errors) == regime
    assert label(exponents[::-1], errors[::-1]) == regime
