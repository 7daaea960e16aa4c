"""Regimes from exponents and from visited levels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit.dynamics import regimes

SEEDS = st.integers(0, 2**32 - 1)
LORENZ = (0.906, 0.0, -14.572)


def explicit_dimension(exponents):
    """Volumes of ever more dimensions, until one shrinks."""
    total, ordered = 0.0, sorted(exponents, reverse=True)
    for count, exponent in enumerate(ordered):
        if total + exponent < 0:
            return count + total / abs(exponent)
        total += exponent
    return len(ordered)


@pytest.mark.parametrize(
    ("exponents", "dimension"),
    [
        ((-0.1, -0.2), 0),
        ((0.0, -0.2), 1),
        ((0.0, 0.0, -0.2), 2),
        ((0.5, -np.inf), 1),
        ((-np.inf, -np.inf), 0),
        ((0.2, -0.1, -0.4), 2.25),
        (LORENZ, 2.0621740324),  # J. C. Sprott, Chaos and Time-Series Analysis (2003): 2.062
        ((-0.4, 0.2, -0.1), 2.25),
    ],
)
def test_dimensions_of_simple_spectra(exponents, dimension):
    np.testing.assert_allclose(regimes.kaplan_yorke_dimension(np.array(exponents)), dimension, rtol=1e-10)


@given(seed=SEEDS)
def test_dimension_and_bound_are_those_of_the_definition(seed):
    exponents = np.random.default_rng(seed).normal(-0.3, 1, size=(6, 5, 4))
    known = np.array([[explicit_dimension(orbit) for orbit in orbits] for orbits in exponents])
    np.testing.assert_allclose(regimes.kaplan_yorke_lower_bound(exponents), known, rtol=1e-12)
    contracting = exponents.sum(axis=-1) < 0
    np.testing.assert_allclose(regimes.kaplan_yorke_dimension(exponents[contracting]), known[contracting], rtol=1e-12)


@given(seed=SEEDS, leading=st.integers(1, 5))
def test_leading_exponents_bound_the_dimension_from_below(seed, leading):
    exponents = np.sort(np.random.default_rng(seed).normal(-0.5, 1, size=(20, 6)), axis=-1)[..., ::-1]
    bound = regimes.kaplan_yorke_lower_bound(exponents[..., :leading])
    full = regimes.kaplan_yorke_lower_bound(exponents)
    enough = exponents[..., :leading].sum(axis=-1) < 0
    assert np.all(bound <= full)
    np.testing.assert_array_equal(bound[enough], full[enough])


def test_too_few_exponents_for_the_dimension_are_refused():
    with pytest.raises(ValueError, match=r"exponents \[0.906, 0.0\] at index \(1,\).*more exponents"):
        regimes.kaplan_yorke_dimension(np.array([(0.1, -2.0), LORENZ[:2]]))


# ---- regimes by exponents

SPECTRA = {
    "periodic": (-2e-4, -0.1),
    "quasi-periodic": (5e-5, -0.1),
    "quasi-periodic (double)": (5e-5, -5e-5),
    "chaotic": (0.1, -0.1),
    "hyperchaotic": (0.1, 0.05),
}


def label(exponents, errors=None, **options):
    errors = None if errors is None else np.array(errors)
    return str(regimes.classify(np.array(exponents), errors, **options))


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
        # the second exponent does not matter here
        ((-2e-4, -3e-4), (1e-5, 1.0), "periodic"),
        # neither does, in a chaotic orbit, whether it is zero or negative
        ((0.1, -1e-4), (1e-3, 1e-4), "chaotic"),
        ((0.1, 0.0), (1e-3, 9e-5), "chaotic"),
        ((0.1, -np.inf), (1e-3, np.nan), "chaotic"),
        ((0.1, -0.1), (np.inf, 0.0), "undecided"),
    ],
)
def test_an_error_bar_across_the_deciding_threshold_leaves_it_open(exponents, errors, regime):
    assert label(exponents, errors) == regime
    assert label(exponents[::-1], errors[::-1]) == regime


@given(seed=SEEDS)
def test_a_label_holds_for_every_spectrum_within_the_error_bars(seed):
    generator = np.random.default_rng(seed)
    exponents = -np.sort(-generator.normal(0, 2e-4, size=(50, 2)), axis=-1)
    errors = generator.exponential(5e-5, size=(50, 2))
    labels = regimes.classify(exponents, errors)
    assert labels.shape == (50,)
    # one exponent may not overtake the other, or their bars change owners
    offsets = np.clip(generator.uniform(-1, 1, size=(200, 50, 2)) * errors, -errors, errors)
    within = regimes.classify(exponents + offsets)
    ordered = (exponents + offsets)[..., 0] >= (exponents + offsets)[..., 1]
    settled = ordered & (labels != "undecided")
    np.testing.assert_array_equal(within[settled], np.broadcast_to(labels, within.shape)[settled])
    assert set(labels) <= set(regimes.REGIMES)


# ---- regimes by levels


@pytest.mark.parametrize(("periodic", "quasi"), [(79, 2499), (80, 625)])
def test_the_published_rules_of_levels(periodic, quasi):
    counts = np.array([1, periodic, periodic + 1, quasi, quasi + 1, 5001])
    expected = ["periodic", "periodic", "quasi-periodic", "quasi-periodic", "chaotic", "chaotic"]
    np.testing.assert_array_equal(regimes.classify_by_levels(counts, periodic, quasi), expected)


def test_regimes_differ_where_they_are_decided_and_of_another_sort():
    by_exponents = ["quasi-periodic (double)", "hyperchaotic", "undecided", "periodic", "chaotic"]
    by_levels = ["quasi-periodic", "chaotic", "chaotic", "chaotic", "quasi-periodic"]
    assert regimes.differ(np.array(by_exponents), np.array(by_levels)).tolist() == [False, False, False, True, True]
