"""Actions of the user's own: stationary points that are known, certified; derivatives; what is refused, and why."""

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from hypothesis import given
from sympy import Heaviside, Integer, MatrixSymbol, Piecewise, Rational, Trace, cosh, exp, log, symbols

from theorykit.codegen import interpret
from theorykit.saddle import (
    Action,
    Between,
    ConvergenceWarning,
    Positive,
    PositiveDefinite,
    Real,
    Symmetric,
    minimise,
    search,
    stationary,
)
from theorykit.symbolic import GaussianAverage, gaussian_average, log_det, positive_definite, symmetric

from ..bpkr.cases import SEEDS, assert_close
from .textbook import CURIE_WEISS, GLASS, RAYLEIGH, WISHART, K, U, beta, h, lam, m, q, random_matrix, x

z = symbols("z", real=True)


def test_without_a_start_the_lowest_minimum_is_found():
    solution = minimise(CURIE_WEISS, {beta: 1.5, h: -0.01})
    assert solution.converged
    assert solution[m] < -0.8
    found = search(CURIE_WEISS, {beta: 1.5, h: -0.01})
    assert [float(each[m]) > 0 for each in found] == [False, True]
    assert sum(each.stats["reached"] for each in found) == 32


@pytest.mark.slow
@given(seed=SEEDS)
def test_the_minimum_over_positive_definite_matrices_is_the_inverse(seed):
    matrix = random_matrix(seed)
    solution = minimise(WISHART, {K: matrix}, initial={U: np.eye(3)})
    assert solution.converged
    assert_close(solution[U] @ matrix, np.eye(3), 1e-11)
    # tr(K U) - log det U in U = e^X: tr(X^2) / 2
    assert_close(solution.hessian_eigenvalues, np.ones(6), 1e-9)


@pytest.mark.quick("2")
@pytest.mark.parametrize("index", [1, 2, 3])
def test_min_max_points_of_a_stated_signature_are_found_from_a_hundred_starts(index):
    matrix = random_matrix(index)
    found = search(RAYLEIGH, {K: matrix}, index=index, starts=100, seed=1)
    # both signs of the eigenvector
    assert len(found) == 2
    assert sum(solution.stats["reached"] for solution in found) == 100
    for solution in found:
        assert solution.index == index
        eigenvalue = np.linalg.eigvalsh(matrix)[index - 1]
        assert_close(solution[lam], -eigenvalue / 2, 1e-10)
        assert_close(matrix @ solution[x], eigenvalue * solution[x], 1e-9)


def test_a_solve_of_the_wrong_index_says_why_it_fails():
    start = {x: np.ones((3, 1)), lam: 0.1}
    with pytest.warns(ConvergenceWarning, match="falls without bound.* mostly along lam"):
        assert not minimise(RAYLEIGH, {K: random_matrix(0)}, initial=start).converged
    with pytest.raises(RuntimeError, match="falls without bound"):
        minimise(RAYLEIGH, {K: random_matrix(0)}, initial=start, throw=True)
    with pytest.warns(ConvergenceWarning, match="no stationary point of index 1 is near: .* at m = "):
        stationary(Action(m + exp(m), {m: Real()}), index=1, initial={m: 0.0}, max_steps=200)


def test_a_start_on_a_saddle_is_told_from_a_minimum():
    with pytest.warns(ConvergenceWarning, match="not a minimum at .* 1 of 1 eigenvalues"):
        minimise(CURIE_WEISS, {beta: 1.5, h: 0.0}, initial={m: 0.0})
    assert stationary(CURIE_WEISS, {beta: 1.5, h: 0.0}, index=1, initial={m: 0.2}).converged


@pytest.mark.quick("expression2-falls without bound")
@pytest.mark.parametrize(
    ("expression", "message"),
    [(m + beta, "falls without bound"), (exp(-m) + beta, "degenerate"), (m**3 / 3 + m + beta, "falls without bound")],
)
def test_where_there_is_no_minimum_the_reason_is_told(expression, message):
    with pytest.warns(ConvergenceWarning, match=message):
        solution = minimise(Action(expression, {m: Real()}, [beta]), {beta: 1.0}, initial={m: 1.0})
    assert not solution.converged


def test_a_symmetric_order_parameter_may_have_any_sign():
    q, J = symmetric("q", 3), symmetric("J", 3)
    matrix = random_matrix(3) - 2 * np.eye(3)
    solution = minimise(Action(Trace(q * q) / 2 - Trace(J * q), {q: Symmetric()}, [J]), {J: matrix})
    assert_close(solution[q], matrix, 1e-11)
    assert_close(solution.hessian_eigenvalues, np.ones(6), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("action", "index", "symbol"), [(CURIE_WEISS, 0, m), (GLASS, 1, q)])
def test_derivatives_of_solutions_are_those_of_differences_to_second_order(action, index, symbol):
    def solution(inverse_temperature):
        values = {beta: inverse_temperature, h: 0.01}
        return stationary(action, values, index=index, initial={symbol: 0.8})[symbol]

    first, second = jax.grad(solution), jax.grad(jax.grad(solution))
    step = 1e-4
    assert_close(first(1.5), (solution(1.5 + step) - solution(1.5 - step)) / (2 * step), 1e-7)
    assert_close(second(1.5), (first(1.5 + step) - first(1.5 - step)) / (2 * step), 1e-6)


@pytest.mark.slow
def test_derivatives_of_min_max_points_follow_perturbation_theory():
    matrix, direction = jnp.asarray(random_matrix(4)), np.diag([1.0, -1.0, 0.5])
    start = stationary(RAYLEIGH, {K: matrix}, index=2, initial={x: np.ones((3, 1)), lam: -1.0})

    def multiplier(by):
        values = {K: matrix + by * direction}
        return stationary(RAYLEIGH, values, index=2, initial=start.order_parameters)[lam]

    vector = np.asarray(start[x])
    assert_close(jax.grad(multiplier)(0.0), -(vector.T @ direction @ vector)[0, 0] / 2, 1e-9)


def test_a_domain_that_is_left_during_a_solve_is_told_with_the_term():
    action = Action(m - log(m - 1) - 3 * log(2 - m), {m: Between(0, Integer(3))})
    with pytest.raises(ValueError, match=r"the term -log\(m - 1\) of the action is not finite"):
        minimise(action, initial={m: 0.5})
    assert minimise(action, initial={m: Rational(3, 2)}).converged


@pytest.mark.slow
def test_sizes_are_those_of_the_data_of_a_parameter_or_of_the_start():
    n = symbols("n", integer=True, positive=True)
    big, data = positive_definite("V", n), MatrixSymbol("D", n, 2)
    of_data = Action(Trace(big) - log_det(big) + Trace(data.T * big * data), {big: PositiveDefinite()}, [data])
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 2))
    solution = minimise(of_data, {data: values})
    assert_close(solution[big] @ (np.eye(4) + values @ values.T), np.eye(4), 1e-11)
    alone = Trace(big) - log_det(big)
    with pytest.raises(ValueError, match="no value determines the size n of V"):
        minimise(Action(alone, {big: PositiveDefinite()}))
    for found in (
        minimise(Action(alone, {big: PositiveDefinite()}), initial={big: 2 * np.eye(3)}),
        minimise(Action(alone, {big: PositiveDefinite()}, [n]), {n: 3}),
    ):
        assert_close(found[big], np.eye(3), 1e-11)


def test_gradients_are_measured_per_scale():
    n, s = symbols("N", positive=True), symbols("s", positive=True)
    action = Action(n * (s - log(s)), {s: Positive()}, [n], scale=n)
    solution = minimise(action, {n: 1e6}, initial={s: 3.0})
    assert solution.converged
    assert_close(solution[s], 1.0, 1e-12)
    assert_close(solution.hessian_eigenvalues, [1.0], 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [3.0, 40.0])
def test_the_error_of_s_covers_that_of_its_averages(strength):
    average = gaussian_average(log(2 * cosh(beta * z + m)), z)
    # At the symmetric point the slope of an inaccurate average is exact.
    found = minimise(Action(m**2 / 2 + average, {m: Real()}, [beta]), {beta: strength}, initial={m: 0.3})
    exact = interpret(average, {"m": 0.0, "beta": strength})
    assert found.converged and abs(found[m]) < 1e-12
    assert abs(found.action - exact) <= found.action_error + 1e-14 * exact
    assert found.action_error < 1e-9 * exact


@pytest.mark.parametrize("step", [Piecewise((1, z < h), (0, True)), Heaviside(h - z)], ids=str)
def test_slopes_of_averages_with_a_jump_are_exact(step):
    """E[z; z < h] is minus the normal density at h. Integration by parts leaves out the jump."""
    action = Action(m**2 / 2 + m * GaussianAverage(z * step, z), {m: Real()}, [h])
    found = minimise(action, {h: 0.7}, initial={m: 0.4})
    assert_close(found[m], np.exp(-0.245) / np.sqrt(2 * np.pi), 1e-12)


@pytest.mark.slow
def test_an_average_that_is_infinite_is_told():
    tail = Action(m**2 * gaussian_average(exp(beta * z**2) / (1 + z**2), z) + (m - 1) ** 2, {m: Real()}, [beta])
    assert minimise(tail, {beta: 0.1}, initial={m: 1.0}).converged
    with pytest.raises(ValueError, match="not finite at initial"):
        minimise(tail, {beta: 0.6}, initial={m: 1.0})


def test_an_action_is_evaluated_as_its_expression_is():
    at = {"m": 0.3, "beta": 1.7, "h": -0.2}
    assert_close(CURIE_WEISS(**at), interpret(CURIE_WEISS.expression, at), 1e-15)
    grid = CURIE_WEISS(m=np.array([[0.3], [0.5]]), beta=1.7, h=[-0.2, 0.1, 0.4])
    assert grid.shape == (2, 3) and grid.dtype == np.float64
    assert_close(grid[1, 2], CURIE_WEISS(m=0.5, beta=1.7, h=0.4), 1e-15)
    slope = jax.grad(lambda m: CURIE_WEISS(m=m, beta=1.7, h=-0.2))(0.3)
    assert_close(slope, interpret(CURIE_WEISS.equations[m], at), 1e-15)
    by_symbol = {m: 0.3, "beta": 1.7, h: -0.2}
    assert CURIE_WEISS(by_symbol) == CURIE_WEISS({m: 0.3}, beta=1.7, h=-0.2) == CURIE_WEISS(m=0.3, beta=1.7, h=-0.2)
    matrix = random_matrix(1)
    assert_close(WISHART(U=matrix, K=np.eye(3)), np.trace(matrix) - np.linalg.slogdet(matrix)[1], 1e-13)
    solution = minimise(CURIE_WEISS, {beta: 1.5, h: 0.1}, initial={m: 1.0})
    assert_close(CURIE_WEISS(**solution.order_parameters, **solution.parameters), solution.action, 1e-15)


def test_an_action_is_evaluated_inside_its_domain_and_on_its_edges():
    action = Action((m - 1) ** 2, {m: Between(0, 2)})
    assert action(m=[0.0, 1.0, 2.0]).tolist() == [1.0, 0.0, 1.0]


@pytest.mark.slow
def test_actions_and_solutions_show_themselves():
    text = CURIE_WEISS.render_markdown()
    assert all(part in text for part in ("m \\in \\mathbb{R}", "\\cosh", "Parameters: $\\beta$, $h$."))
    assert "\\frac{\\partial S}{\\partial U}" in WISHART.render_latex() and "U \\succ 0" in WISHART.render_markdown()
    assert "Saddle-point equations" in repr(CURIE_WEISS) and "S = m**2/2 - log(" in repr(CURIE_WEISS)
    solution = minimise(CURIE_WEISS, {beta: 1.5, h: 0.1}, initial={m: 1.0})
    lines = repr(solution).splitlines()
    assert lines[0] == "Minimum" and f"{float(solution[m]):.9g}" in lines[1]
    assert solution.diagnosis in " ".join(repr(solution).split())
    batch = jax.vmap(lambda field: minimise(CURIE_WEISS, {beta: 1.5, h: field}, initial={m: 1.0}))(jnp.ones(2))
    assert "2 solves" in repr(batch)
    with pytest.warns(ConvergenceWarning, match="not a stationary point of index 1"):
        assert search(CURIE_WEISS, {beta: 0.5, h: 0.1}, index=1) == []


@pytest.mark.parametrize(
    "solver",
    [
        optx.BFGS(rtol=1e-8, atol=1e-8),
        optx.NonlinearCG(rtol=1e-8, atol=1e-8),
        optx.GradientDescent(rtol=1e-8, atol=1e-8, learning_rate=0.3),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_any_minimiser_of_optimistix_ends_with_a_certificate(solver):
    found = minimise(CURIE_WEISS, {beta: 1.5, h: 0.1}, initial={m: 1.0}, solver=solver)
    assert found.converged, found.diagnosis
    assert_close(found[m], np.tanh(1.5 * (found[m] + 0.1)), 1e-12)
