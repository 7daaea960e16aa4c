"""Elimination of order parameters keeps stationary points, values and derivatives, and lowers the index as it says."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from sympy import Identity, Symbol, Trace, exp, symbols

from theorykit import saddle
from theorykit.derivation import Derivation
from theorykit.saddle import Action, Between, Positive, PositiveDefinite, Real, Symmetric
from theorykit.symbolic import assume_positive_definite, inverse, log_cosh, log_det, positive_definite, symmetric

from .textbook import RIDGE, V, V_hat, m, m_hat, q_hat

START = {"m": 0.5, "m_hat": 0.5, "q": 1.0, "q_hat": 1.0, "V": 1.0, "V_hat": 1.0}
AT = {"alpha": 1.5, "lambda_": 0.1, "sigma2": 0.25}
n = Symbol("n", integer=True, positive=True)
alpha, beta, r, z = symbols("alpha beta r z", positive=True)
K_hat, K, C = symmetric("K_hat", n), positive_definite("K", n), positive_definite("C", n)
ENERGY = alpha * log_det(Identity(n) + K)
MATRICES = Action(
    -Trace(K_hat * K) / 2 + log_det(assume_positive_definite(inverse(C) + K_hat)) / 2 + log_det(C) / 2 + ENERGY / 2,
    {K_hat: Symmetric(), K: PositiveDefinite()},
    [C, alpha],
)
DATA = {C: np.array([[2.0, 0.5], [0.5, 1.0]]), alpha: 3.0}


def index_of_block(action, solution, names):
    """Number of negative eigenvalues of the second derivatives in these order parameters, all of them numbers."""
    known = {**solution.order_parameters, **solution.parameters}

    def of(values):
        return action(**{**known, **dict(zip(names, values, strict=True))})

    block = jax.hessian(of)(np.array([float(known[name]) for name in names]))
    return int(np.sum(np.linalg.eigvalsh(block) < 0))


@pytest.mark.slow
@pytest.mark.parametrize("eliminated", [(q_hat, V_hat, m_hat), (m, m_hat)], ids=lambda s: " ".join(map(str, s)))
def test_ridge_regression_keeps_its_solution(eliminated):
    whole = saddle.stationary(RIDGE, AT, index=3, initial=START)
    reduced = RIDGE.eliminate(*eliminated)
    assert set(reduced.order_parameters) == set(RIDGE.order_parameters) - set(eliminated)
    assert reduced.derivation.verify().holds
    index = 3 - index_of_block(RIDGE, whole, [symbol.name for symbol in eliminated])
    start = {symbol: START[symbol.name] for symbol in reduced.order_parameters}
    found = saddle.stationary(reduced, AT, index=index, initial=start)
    assert whole.converged and found.converged
    assert abs(whole.action - found.action) < 1e-12
    for symbol in reduced.order_parameters:
        assert abs(whole[symbol] - found[symbol]) < 1e-9

    def response(action, at, start, index):
        return jax.grad(lambda x: saddle.stationary(action, {**AT, "lambda_": x}, index=index, initial=start)[V])(at)

    assert abs(response(RIDGE, 0.1, START, 3) - response(reduced, 0.1, start, index)) < 1e-9


def test_the_multiplier_q_hat_fixes_V_hat():
    (step,) = RIDGE.eliminate(q_hat, V_hat).derivation.steps
    ridge = Symbol("lambda_", positive=True)
    assert step.definitions == ((V_hat, 1 / V - ridge),)
    assert RIDGE.eliminate("V_hat", "q_hat") == RIDGE.eliminate(q_hat, V_hat)


@pytest.mark.slow
def test_a_matrix_of_conjugates():
    """K_hat = K^{-1} - C^{-1}. S is concave in K_hat, so that the index falls by its number of entries."""
    reduced = MATRICES.eliminate(K_hat)
    ((symbol, value),) = reduced.derivation.steps[0].definitions
    assert symbol == K_hat and value == inverse(K) - inverse(C)
    verified = reduced.derivation.verify()
    assert verified.holds and len(verified.proved) == 1
    whole = saddle.stationary(MATRICES, DATA, index=3, initial={K_hat: np.zeros((2, 2)), K: np.eye(2)})
    found = saddle.minimise(reduced, DATA, initial={K: np.eye(2)})
    assert whole.converged and found.converged
    assert abs(whole.action - found.action) < 1e-12 and np.max(np.abs(whole[K] - found[K])) < 1e-9


def test_a_matrix_multiplier():
    """With the constraint 2 K = C, the multiplier and K are both eliminated."""
    action = Action(
        Trace(K_hat * (2 * K - C)) + ENERGY + symbols("x", real=True) ** 2,
        {K_hat: Symmetric(), K: PositiveDefinite(), symbols("x", real=True): Real()},
        [C, alpha],
    )
    reduced = action.eliminate(K_hat)
    assert list(reduced.order_parameters) == [symbols("x", real=True)] and reduced.derivation.verify().holds
    expected = 3 * np.log(np.linalg.det(np.eye(2) + DATA[C] / 2)) + 4
    assert abs(float(reduced({"x": 2.0, **DATA})) - expected) < 1e-13


def test_the_solution_inside_the_domain_is_chosen():
    """x^2 + b x = c with c > 0 has one positive and one negative solution. The action is x^3/3 + b x^2/2 - c x."""
    x, y, b, c = *symbols("x y b", real=True), Symbol("c", positive=True)
    parts = x**3 / 3 + b * x**2 / 2 - c * x + y**2
    for domain, sign in ((Positive(), 1), (Between(-100, 0), -1)):
        reduced = Action(parts, {x: domain, y: Real()}, [b, c]).eliminate(x)
        value = reduced.derivation.steps[0].definitions[0][1].subs({b: 3, c: 2})
        assert abs(float(value) - (-3 + sign * 17**0.5) / 2) < 1e-12
    with pytest.raises(ValueError, match=r"x cannot be eliminated: .* has 2 solutions"):
        Action(parts, {x: Real(), y: Real()}, [b, c]).eliminate(x)


X, Y, A = symbols("x y a", real=True)
REFUSED = {
    "no solution": (Action(exp(X) + Y**2 + X, {X: Real(), Y: Real()}), [X], "x cannot be eliminated"),
    "none in the domain": (Action(X**2 + X + Y**2, {X: Between(0, 1), Y: Real()}), [X], "has no solution for x"),
    "several": (Action(X**4 - X**2 * A**2 + Y**2, {X: Real(), Y: Real()}, [A]), [X], "3 solutions"),
    "transcendental": (Action(log_cosh(A * X) + X**3 + Y**2, {X: Real(), Y: Real()}, [A]), [X], "x cannot be"),
    "a multiplier of constants": (
        Action(X * A + Y**2, {X: Real(), Y: Real()}, [A]),
        [X],
        "dS/dx contains no order parameter",
    ),
    "a multiplier of several": (Action(X * (Y**2 - A) + Y, {X: Real(), Y: Real()}, [A]), [X], "2 solutions"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case):
    action, symbols_of_it, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        action.eliminate(*symbols_of_it)


def test_wrong_eliminations_are_found():
    steps = [*RIDGE.eliminate(q_hat, V_hat, m_hat).derivation.steps, *MATRICES.eliminate(K_hat).derivation.steps]
    sizes = ({n: 2}, {n: 3})
    assert Derivation(tuple(steps), sizes).verify().holds
    for step in steps:
        value = step.definitions[0][1]
        field = "solution" if hasattr(step.claim, "solution") else "value"
        assert not Derivation((replace(step, after=step.after + symbols("a")),), sizes).verify().holds
        wrong = replace(step, claim=replace(step.claim, **{field: -value}))
        assert not Derivation((wrong,), sizes).verify().holds
