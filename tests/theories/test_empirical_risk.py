"""Empirical risk minimisation: against closed forms, independent fixed-point equations and scikit-learn."""

import warnings

import numpy as np
import pytest
from scipy.special import erfc
from sympy import Abs, Max, Piecewise, Rational, Symbol, exp, log, symbols

from tests.expressions import assert_close
from theorykit.saddle import Action, ConvergenceWarning, Positive, stationary
from theorykit.symbolic import gaussian_average, moreau
from theorykit.testing import check_action
from theorykit.theories import empirical_risk
from theorykit.theories.empirical_risk import generalisation_error, solve, spectrum, training_loss

X, Y = symbols("x y", real=True)
SQUARE, HINGE, LOGISTIC = (X - Y) ** 2 / 2, Max(0, 1 - X * Y), log(1 + exp(-X * Y))
HUBER = Piecewise((SQUARE, Abs(X - Y) <= 1), (Abs(X - Y) - Rational(1, 2), True))


@pytest.fixture(scope="module")
def hinge():
    return empirical_risk.action(HINGE, X, Y)


@pytest.fixture(scope="module")
def ridge():
    return empirical_risk.action(SQUARE, X, Y, labels="linear")


def resolvent(alpha, ridge):
    """The variance V of ridge regression: a transform of the Marchenko-Pastur law."""
    b = ridge + alpha - 1
    return 2 / (b + np.sqrt(b**2 + 4 * ridge))


@pytest.mark.parametrize("alpha, strength, noise", [(0.5, 0.1, 0.25), (1.5, 0.01, 0.0), (3.0, 1.0, 2.0)])
def test_ridge_regression_is_the_closed_form(ridge, alpha, strength, noise):
    values = {"alpha": alpha, "lambda_": strength, "sigma2": noise}
    student = solve(ridge, values)
    V = resolvent(alpha, strength)
    assert student.converged
    assert_close(student["V"], V, 1e-10)
    assert_close(student["m"], 1 - strength * V, 1e-10)
    # The error is the bias plus the variance that the noise of alpha examples causes.
    slope = (resolvent(alpha, strength * (1 + 1e-5)) - resolvent(alpha, strength * (1 - 1e-5))) / (2e-5 * strength)
    expected = -(strength**2) * slope + noise * (V + strength * slope)
    assert_close(generalisation_error(student, labels="linear"), expected, 1e-8)
    # Residuals are those on new examples, shrunk by 1 + V.
    assert_close(training_loss(ridge, values, student), (expected + noise) / (2 * (1 + V) ** 2), 1e-8)


def test_a_spectrum_of_ones_is_the_identity_and_others_solve_their_equations():
    action = empirical_risk.action(SQUARE, X, Y, labels="linear", has_spectrum=True)
    values = {"alpha": 1.5, "lambda_": 0.1, "sigma2": 0.25}
    assert_close(solve(action, {**values, **spectrum(np.ones(3))})["V"], resolvent(1.5, 0.1), 1e-10)
    eigenvalues, teacher = np.array([0.1, 0.4, 1.0, 2.5]), np.array([1.0, 2.0, 0.0, 0.5])
    given = spectrum(eigenvalues, teacher)
    student = solve(action, {**values, **given})
    # Deterministic equivalent: kappa (1 - mean(w / (w + kappa)) / alpha) = ridge / alpha.
    low, high = 0.0, 10.0
    for _ in range(200):
        kappa = (low + high) / 2
        is_high = kappa * (1 - np.mean(eigenvalues / (eigenvalues + kappa)) / 1.5) > 0.1 / 1.5
        low, high = (low, kappa) if is_high else (kappa, high)
    share = np.mean((eigenvalues / (eigenvalues + kappa)) ** 2) / 1.5
    bias = kappa**2 * np.mean(eigenvalues * teacher / (eigenvalues + kappa) ** 2)
    error = generalisation_error(student, labels="linear", rho=given["rho"])
    assert_close(error, (bias + 0.25 * share) / (1 - share), 1e-9)


def test_hinge_regression_solves_the_fixed_point_equations(hinge):
    values = {"alpha": 1.5, "lambda_": 0.1, "sigma2": 0.3}
    student = solve(hinge, values)
    m, s, V = (float(student[name]) for name in ("m", "s", "V"))
    z = (np.arange(400_000) + 0.5) / 400_000 * 24 - 12
    weight = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * 24 / 400_000
    q = m**2 + s
    force = np.clip((1 - np.sqrt(q) * z) / V, 0, 1)
    spread = s + 0.3 * q
    odds = erfc(-m * z / np.sqrt(2 * spread))
    density = np.exp(-(m**2) * z**2 / (2 * spread)) * np.sqrt(2 * q / (np.pi * spread))
    inside = (np.sqrt(q) * z > 1 - V) & (np.sqrt(q) * z < 1)
    m_hat, q_hat, V_hat = (
        1.5 * np.sum(weight * each) for each in (density * force, odds * force**2, odds * inside / V)
    )
    # The sum has an error of one interval at each end of the slope.
    assert_close([V, m, s], [1 / (0.1 + V_hat), m_hat * V, q_hat * V**2], 3e-4)
    loss = np.maximum(0, 1 - np.sqrt(q) * z - V * force)
    assert_close(training_loss(hinge, values, student), np.sum(weight * odds * loss), 1e-6)
    assert_close(generalisation_error(student), np.arctan2(np.sqrt(s), m) / np.pi, 1e-14)


def hinge_in_numpy(sign=1, factor=1):
    """The action of the hinge loss by a sum over many nodes, with an optional mistake."""
    z = (np.arange(100_000) + 0.5) / 100_000 * 24 - 12
    weight = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * 24 / 100_000

    def reference(m, s, V, alpha, lambda_, sigma2):
        q = m**2 + s
        field = np.sqrt(q) * z
        force = np.clip((1 - field) / V, 0, 1)
        envelope = V * force**2 / 2 + np.maximum(0, 1 - field - V * force)
        odds = erfc(-sign * m * z / np.sqrt(2 * (s + sigma2 * q)))
        return lambda_ * q / 2 - s / (2 * V) + factor * alpha * np.sum(weight * odds * envelope)

    return reference


def test_the_action_is_that_of_numpy_and_planted_mistakes_are_found(hinge):
    values = {"alpha": 1.5, "lambda_": 0.1, "sigma2": 0.3}
    assert check_action(hinge, values, reference=hinge_in_numpy()).holds
    for mistake in ({"sign": -1}, {"factor": 2}):
        assert not check_action(hinge, values, reference=hinge_in_numpy(**mistake)).holds
    assert hinge.derivation.verify().holds


def test_the_capacity_of_the_perceptron_is_two():
    """Random labels, margin zero, weights on the sphere: the forces that the examples need diverge at alpha = 2."""
    V, alpha = symbols("V alpha", positive=True)
    z = Symbol("z", real=True)
    action = Action(alpha * gaussian_average(moreau(Max(0, -X), X, z, V), z) - 1 / (2 * V), {V: Positive()}, [alpha])
    loads = np.array([2 + 1e-4, 2 + 1e-5, 2 + 1e-6])
    widths = [stationary(action, {alpha: load}, index=1, initial={V: 4.0}) for load in loads]
    assert all(each.converged for each in widths) and np.all(np.diff([float(each[V]) for each in widths]) > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert not stationary(action, {alpha: 2 - 1e-6}, index=1, initial={V: 4.0}).converged


@pytest.mark.slow
def test_separable_examples_without_ridge_have_no_student(hinge):
    values = {"alpha": 1.0, "lambda_": 0.0, "sigma2": 0.0}
    with pytest.warns(ConvergenceWarning):
        student = solve(hinge, values)
    assert not student.converged and student.diagnosis
    with pytest.raises(RuntimeError):
        solve(hinge, values, throw=True)


@pytest.mark.parametrize(
    "eigenvalues, match",
    [
        ([1.0, -0.1], "eigenvalues must be non-negative"),
        ([1.0, np.nan], "eigenvalues must be non-negative and finite"),
        ([], "eigenvalues must be a list of numbers"),
        ([0.0, 0.0], "some of them positive"),
        (np.eye(2), "eigenvalues must be a list of numbers"),
    ],
)
def test_spectra_that_are_no_covariance_are_refused(eigenvalues, match):
    with pytest.raises(ValueError, match=match):
        spectrum(eigenvalues)


def test_other_mistakes_are_refused():
    with pytest.raises(ValueError, match="teacher must have one number per eigenvalue, 2, got 1"):
        spectrum([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="not convex"):
        empirical_risk.action(-((X - Y) ** 2), X, Y, labels="linear")
    with pytest.raises(ValueError, match="must depend on x - y alone"):
        empirical_risk.action((X * Y - 1) ** 2, X, Y, labels="linear")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ridge", "Huber", "logistic", "hinge", "random"])
def test_four_points_agree_with_scikit_learn(name):
    linear_model, svm = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("sklearn.svm")
    d, repeats, rng = 1000, 6, np.random.default_rng(1)
    losses = {"ridge": SQUARE, "Huber": HUBER, "logistic": LOGISTIC, "hinge": HINGE, "random": LOGISTIC}
    labels = {"ridge": "linear", "Huber": "linear", "random": "random"}.get(name, "sign")
    action = empirical_risk.action(losses[name], X, Y, labels=labels)

    def student(features, y, ridge):
        if name == "ridge":
            return np.linalg.solve(features.T @ features + ridge * np.eye(d), features.T @ y)
        if name == "Huber":
            # scikit-learn scales the loss by sigma, which is fixed to one by iterating the weights.
            weights = np.zeros(d)
            for _ in range(60):
                scale = 1 / np.maximum(1, np.abs(y - features @ weights))
                weights = np.linalg.solve((features.T * scale) @ features + ridge * np.eye(d), (features.T * scale) @ y)
            return weights
        if name == "hinge":
            machine = svm.LinearSVC(C=1 / ridge, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=100_000)
            return machine.fit(features, y).coef_[0]
        machine = linear_model.LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-10, max_iter=1000)
        return machine.fit(features, y).coef_[0]

    for alpha, ridge in ((0.7, 0.1), (1.5, 0.5), (2.5, 0.1), (4.0, 1.0)):
        values = {"alpha": alpha, "lambda_": ridge, **({} if labels == "random" else {"sigma2": 0.25})}
        theory = solve(action, values)
        found = []
        for _ in range(repeats):
            features, teacher = rng.normal(size=(round(alpha * d), d)) / np.sqrt(d), rng.normal(size=d)
            teacher *= np.sqrt(d) / np.linalg.norm(teacher)
            y = features @ teacher + 0.5 * rng.normal(size=len(features))
            y = {"linear": y, "sign": np.sign(y), "random": rng.choice([-1.0, 1.0], size=len(y))}[labels]
            weights = student(features, y, ridge)
            if labels == "linear":
                found.append(np.mean((weights - teacher) ** 2))
            elif labels == "sign":
                found.append(np.arccos(weights @ teacher / np.linalg.norm(weights) / np.sqrt(d)) / np.pi)
            else:
                found.append(np.mean(np.log1p(np.exp(-y * (features @ weights)))))
        is_random = labels == "random"
        expected = training_loss(action, values, theory) if is_random else generalisation_error(theory, labels=labels)
        error = np.std(found, ddof=1) / np.sqrt(repeats)
        # Twenty points: the largest of twenty t-distributed deviations of five degrees of freedom.
        assert abs(np.mean(found) - float(expected)) < 4 * error + 2e-3 * float(expected), (name, alpha, ridge)
