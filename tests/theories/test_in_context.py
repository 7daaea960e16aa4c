"""Learning in context: closed forms without ridge, the transition, and networks of finite size, trained by a solve."""

import mpmath
import numpy as np
import pytest
from sympy import Rational, Symbol, diff, lambdify, log, sqrt

from theorykit.saddle import ConvergenceWarning
from theorykit.theories import in_context
from theorykit.theories.spectral_laws import LogPotential, StieltjesTransform

AT = {"alpha": 1.0, "tau": 0.5, "kappa": 0.5, "rho": 0.1, "ridge": 0.1}


def mean_inverse(ratio, z):
    """Mean of 1 / (z + s) under the law of Marchenko and Pastur."""
    shift = z + 1 - 1 / ratio
    return 2 / (shift + np.sqrt(shift**2 + 4 * z / ratio))


def ridgeless(alpha, tau, kappa, rho):
    """Closed forms of the error on new tasks from arXiv:2405.11751, for few and for many contexts."""
    x = (1 + rho) / alpha
    mu = x * mean_inverse(kappa / tau, x)
    few = tau * (1 + x) / (1 - tau) * (1 - tau * (1 - mu) ** 2 + mu * (rho / x - 1)) - 2 * tau * (1 - mu) + 1 + rho
    m = mean_inverse(kappa, x)
    k = 1 / (1 - kappa * m**2 / (kappa + m) ** 2)
    many = (k - 1 / (tau - 1)) * (1 + x) * x**2 * m**2 + (3 - 2 * tau) / (tau - 1) * m * x**2
    many += ((1 + rho) * m / (tau - 1) + 1) * x + rho * m / (tau - 1) + rho
    return np.where(tau < 1, few, many)


@pytest.mark.slow
def test_closed_forms_without_ridge():
    rng = np.random.default_rng(0)
    alpha, kappa, rho = np.exp(rng.uniform(-1, 2, 100)), np.exp(rng.uniform(-1.5, 1.5, 100)), rng.uniform(0, 1, 100)
    tau = np.where(np.arange(100) % 2, rng.uniform(0.1, 0.9, 100), rng.uniform(1.1, 4.0, 100))
    found = in_context.errors(alpha, tau, kappa, rho, 1e-13)
    assert np.max(np.abs(found.icl - ridgeless(alpha, tau, kappa, rho))) < 1e-9


@pytest.mark.slow
def test_the_law_of_the_note_at_a_ridge():
    """1 - tau + tau lambda / epsilon = epsilon M(epsilon + x)."""
    tau = np.array([0.5, 1.0, 2.0])
    epsilon = in_context.errors(2.0, tau, 0.7, 0.1, 0.05).epsilon
    left = 1 - tau + tau * 0.05 / epsilon
    assert np.max(np.abs(left - epsilon * mean_inverse(0.7, epsilon + 1.1 / 2))) < 1e-12


@pytest.mark.slow
def test_the_transition_to_learning_in_context():
    found = in_context.errors(1e6, 1e6, np.array([0.2, 0.5, 0.9, 1.1]), 0.0, 1e-12)
    assert np.max(np.abs(found.icl - found.idg - [0.8, 0.5, 0.1, 0.0])) < 1e-5


def typed_potential(place, ratio):
    """Mean of log(z + s) as in the note, for eigenvalues in units of 1 / ratio."""
    z = -place / ratio
    m = 2 / (z + 1 - 1 / ratio + sqrt((z + 1 - 1 / ratio) ** 2 + 4 * z / ratio))
    return ratio * log(1 + m / ratio) - log(m) + z * m - 1 + log(ratio)


def typed_mean(place, ratio):
    """Derivative of the potential by the place."""
    x = Symbol("x")
    return typed_potential(x, ratio).diff(x).xreplace({x: place})


@pytest.mark.slow
def test_errors_are_derivatives_of_the_minimum_by_sources():
    """The minimum of the action with sources and its mixed differences in 50 digits, with the law of the note."""
    symbols = [in_context.EPSILON, in_context.ICL, in_context.IDG, in_context.LOSS]
    numbers = {in_context.ALPHA: 1, in_context.TAU: Rational(1, 2), in_context.KAPPA: Rational(1, 2)}
    numbers |= {in_context.RHO: Rational(1, 10), in_context.RIDGE: Rational(1, 10)}
    S = in_context.action().expression.subs(numbers)
    S = S.replace(LogPotential, typed_potential).replace(StieltjesTransform, typed_mean)
    value, slope = (lambdify(symbols, each, "mpmath") for each in (S, diff(S, in_context.EPSILON)))
    found = in_context.errors(**AT)

    def minimum(*sources):
        at = mpmath.findroot(lambda epsilon: slope(epsilon, *sources), float(found.epsilon))
        return value(at, *sources)

    with mpmath.workdps(50):
        h = mpmath.mpf(10) ** -12
        corners = [(a, b, a * b) for a in (1, -1) for b in (1, -1)]
        icl = sum(sign * minimum(a * h, 0, b * h) for a, b, sign in corners) / (4 * h**2)
        idg = sum(sign * minimum(0, a * h, b * h) for a, b, sign in corners) / (4 * h**2)
    assert abs(float(icl) - found.icl) < 1e-12 and abs(float(idg) - found.idg) < 1e-12


def trained(d, seed, alpha, tau, kappa, rho, ridge):
    """Draw every example, write all features, and return the errors on new tasks and on training tasks."""
    rng, length = np.random.default_rng(seed), round(alpha * d)

    def contexts(tasks):
        examples = rng.normal(size=(len(tasks), length, d)) / np.sqrt(d)
        labels = np.einsum("nld,nd->nl", examples, tasks) + np.sqrt(rho) * rng.normal(size=(len(tasks), length))
        return np.einsum("nl,nld->nd", labels, examples) * d / length

    pool, count = rng.normal(size=(round(kappa * d), d)), round(tau * d**2)
    tasks, queries = pool[rng.integers(len(pool), size=count)], rng.normal(size=(count, d)) / np.sqrt(d)
    features = (queries[:, :, None] * contexts(tasks)[:, None, :]).reshape(count, -1)
    labels = np.sum(queries * tasks, axis=1) + np.sqrt(rho) * rng.normal(size=count)
    gram = features @ features.T + ridge * count / d * np.eye(count)
    weights = (features.T @ np.linalg.solve(gram, labels)).reshape(d, d)
    tests = rng.normal(size=(2 * d**2, d)), pool[rng.integers(len(pool), size=2 * d**2)]
    return [rho + np.mean((contexts(each) @ weights.T - each) ** 2) for each in tests]


@pytest.mark.slow
def test_networks_of_finite_size_extrapolate_to_the_theory():
    dimensions, seeds = np.array([8, 16, 32]), (2000, 300, 40)
    means, errors = [], []
    for d, count in zip(dimensions, seeds, strict=True):
        found = np.array([trained(d, seed, **AT) for seed in range(count)])
        means.append(found.mean(0))
        errors.append(found.std(0, ddof=1) / np.sqrt(count))
    # The polynomial in 1 / d through three points, at d = infinity.
    weights = [np.prod([b / (b - a) for b in 1 / dimensions if b != a]) for a in 1 / dimensions]
    limit, error = weights @ np.array(means), np.sqrt(np.square(weights) @ np.square(errors))
    theory = in_context.errors(**AT)
    expected = np.array([theory.icl, theory.idg])
    assert np.all(np.abs(limit - expected) < 2 * error) and np.all(error < 0.04)
    # The smallest networks alone differ significantly.
    assert np.all(np.abs(means[0] - expected) > 5 * errors[0])


def test_points_without_a_solution_are_named(monkeypatch):
    monkeypatch.setattr(in_context, "_solved", lambda values: (*np.ones((3, 2)), np.array([True, False])))
    with pytest.warns(ConvergenceWarning, match=r"at 1 of 2 points, first at .*'tau': 2.0"):
        found = in_context.errors(**{**AT, "tau": [1.0, 2.0]})
    assert np.isnan(found.icl).tolist() == np.isnan(found.epsilon).tolist() == [False, True]
