"""What is certified, and what is not: kinks, vanishing curvatures, rounding, edges of domains, units."""

import jax
import mpmath
import numpy as np
import pytest
from sympy import Abs, Heaviside, Identity, MatrixSymbol, Max, exp, log, sign, symbols

from theorykit.saddle import Action, Between, ConvergenceWarning, Positive, Real, minimise, search, stationary
from theorykit.symbolic import inverse, log_cosh, log_det, trace

from ..bpkr.cases import assert_close
from .textbook import GLASS, beta, h, m, q

x = symbols("x", real=True)
s, alpha = symbols("s alpha", positive=True)
a, b, c, d, e, f = symbols("a:f", real=True)
CORNER = Action(a * s**2 + b * q**2 + c * s * q + s**3, {s: Positive(), q: Between(0, 1)}, [a, b, c])
"""Stationary at zero, on the edge of both domains."""
VALLEY = Action(s**2 + c * s * m + m**2 + s**3, {s: Positive(), m: Real()}, [c])
"""Rises from the edge s = 0 at fixed m, and falls along the valley m = -c s / 2 if |c| > 2."""
TERMS = {a: m**3, b: m**4, c: m**5, d: m**6, e: x * m, f: x * m**2}
SOFT = Action(x**2 + sum(factor * term for factor, term in TERMS.items()), {m: Real(), x: Real()}, list(TERMS))


def failed(action, values=None, **options):
    """The solution of a minimisation that must not be certified."""
    options = {"initial": {symbol: 0.0 for symbol in action.order_parameters}} | options
    with pytest.warns(ConvergenceWarning):
        solution = minimise(action, values or {}, **options)
    assert not solution.converged
    return solution


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "expression",
    [
        m**2 / 2 - Max(m, -m),
        m**2 / 2 - Abs(m),
        m**2 - Abs(m) ** 3 / 3 - Abs(m) / 10,
        m**2 + Heaviside(m),
        (m - x) ** 2 + x**2 - Abs(m) / 10,
        m**2 + x**2 - Max(m, x) / 3 - Max(-m, -x) / 3,
        m**2 + sign(m) * m,
        Abs(m - 0.5) + m**2 / 4,
        m**2 / 2 + Max(m, 0) ** 2,
    ],
    ids=str,
)
def test_a_kink_is_not_certified(expression):
    action = Action(expression, {symbol: Real() for symbol in sorted(expression.free_symbols, key=str)})
    assert "kink or a jump" in failed(action).diagnosis


def test_an_action_that_diverges_at_an_edge_is_told():
    """As the entropy of a perceptron beyond its capacity: the overlap of two solutions goes to one."""
    action = Action(log(1 - q) - q / (1 - q), {q: Between(0, 1)})
    assert "or diverges" in failed(action, initial={q: 0.5}).diagnosis


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "expression", [m**4 + x**2 - Heaviside(x + 7 * m) / 9, m**6 + 50 * x**2 - sign(m + x) / 5], ids=str
)
def test_a_jump_next_to_a_minimum_of_no_curvature_is_told(expression):
    """The point is known to a tenth along m, and there S jumps, though not between neighbouring numbers."""
    failed(Action(expression, {m: Real(), x: Real()}), initial={m: -0.4, x: 0.1})


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("domain", "expression", "edge"),
    [
        (Positive(), 3 * s + s**2, "s = 0"),
        (Between(0, 1), 3 * s + s**2, "s = 0"),
        (Between(-2, 4), (s - 5) ** 2, "s = 4"),
        (Positive(), 3 * s + (m - 1) ** 2 * (1 + s), "s = 0"),
    ],
    ids=str,
)
def test_where_s_is_lowest_on_an_edge_the_edge_is_named(domain, expression, edge):
    number = s if domain == Positive() else symbols("s", real=True)
    expression = expression.subs(s, number)
    free = {symbol: Real() for symbol in expression.free_symbols - {number}}
    with pytest.warns(ConvergenceWarning, match=f"ended on the edge of a domain, {edge}"):
        minimise(Action(expression, {number: domain, **free}))


def test_a_kink_is_no_obstacle_elsewhere():
    assert_close(minimise(Action((m - 2) ** 2 / 2 + Abs(m), {m: Real()}), initial={m: 3.0})[m], 1.0, 1e-12)


@pytest.mark.parametrize(
    ("terms", "is_certified"),
    [
        ({m**6: 1, m**5: 1}, False),
        ({m**6: 1}, True),
        ({m**4: 1, x * m: 1}, True),
        ({m**3: 1}, False),
        ({m**4: -1}, False),
        # The soft direction is m. Along the valley x = m^2, the action is -m^4 / 2 or m^4 / 2.
        ({x * m**2: -2, m**4: 1 - 1 / 2}, False),
        ({x * m**2: -2, m**4: 1 + 1 / 2}, False),
    ],
    ids=str,
)
def test_a_vanishing_curvature_is_degenerate_unless_the_slope_changes_its_sign_alone(terms, is_certified):
    """Of x^2 and some terms. Numbers before the terms are parameters, so that all share a compiled solve."""
    values = {factor: float(terms.get(term, 0)) for factor, term in TERMS.items()}
    if is_certified:
        assert minimise(SOFT, values, initial={m: 1e-3, x: 2e-3}).converged
    else:
        failed(SOFT, values)


def test_a_continuous_symmetry_is_told():
    hat = Action((m**2 + x**2 - 1) ** 2, {m: Real(), x: Real()})
    shown = repr(failed(hat, initial={m: 1.1, x: 0.4}))
    assert "degenerate" in shown and shown.startswith("No certified minimum\n")


def test_a_hessian_that_is_not_finite_is_told():
    action = Action(Abs(m) ** (s / 2) + m**2, {m: Real()}, [s])
    assert "not finite" in failed(action, {s: 2.5}).diagnosis


@pytest.mark.slow
def test_rounding_that_leaves_the_point_unknown_is_told_and_exact_cancellation_is_none():
    large = symbols("L", real=True)
    unknown = Action((m + large) ** 2 - m**2 - 2 * large * m + h * (m - 1) ** 2, {m: Real()}, [large, h])
    assert minimise(unknown, {large: 10.0, h: 1.0}, initial={m: 0.0}).converged
    # cancels by symbols, and so exactly
    solution = minimise(unknown, {large: 1e9, h: 1e-6}, initial={m: 0.0})
    assert_close(solution[m], 1.0, 1e-8)
    assert solution.action_error > 100
    hidden = Action(log_cosh(m + large) - log_cosh(large) - m + h * (m - 1) ** 2, {m: Real()}, [large, h])
    solution = failed(hidden, {large: 1e9, h: 1e-12})
    assert "rounding may move the point" in solution.diagnosis
    assert solution.error > 1e-6


@pytest.mark.parametrize("ridge", [1e-2, 1e-4, 1e-6])
def test_the_error_of_the_action_covers_rounding_in_a_factorised_matrix(ridge):
    F, y, rng = MatrixSymbol("F", 4, 2), MatrixSymbol("y", 4, 1), np.random.default_rng(3)
    K = s * F * F.T + alpha * Identity(4)
    action = Action(s - log(s) + log_det(K) + trace(y.T * inverse(K) * y), {s: Positive()}, [F, y, alpha])
    given = {"F": rng.normal(size=(4, 2)), "y": rng.normal(size=(4, 1)), "alpha": ridge}
    solution = minimise(action, given, initial={s: 1.0})
    with mpmath.workdps(40):
        at, features, labels = mpmath.mpf(float(solution[s])), mpmath.matrix(given["F"]), mpmath.matrix(given["y"])
        kernel = at * features * features.T + mpmath.mpf(ridge) * mpmath.eye(4)
        energy = mpmath.log(mpmath.det(kernel)) + (labels.T * mpmath.lu_solve(kernel, labels))[0]
        off = float(abs(at - mpmath.log(at) + energy - float(solution.action)))
    assert solution.converged and off <= solution.action_error <= 1e-15 * solution.action / ridge


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "field"), [(1.25, 0.0), (1.0, 0.0), (2.0, 0.0)])
def test_an_overlap_of_zero_is_found_on_the_edge_of_its_domain_and_said(temperature, field):
    values = {beta: 1 / temperature, h: field}
    solution = stationary(GLASS, values, index=1, initial={q: 0.3})
    assert solution.converged and solution[q] == 0.0
    assert solution.edges == ("q = 0",)
    assert "on the edge of the domain, q = 0" in solution.diagnosis
    assert [float(each[q]) for each in search(GLASS, values, index=1, starts=4)] == [0.0]


@pytest.mark.slow
def test_an_edge_into_which_the_action_falls_is_no_solution():
    with pytest.warns(ConvergenceWarning):
        assert not stationary(GLASS, {beta: 0.5, h: 0.0}, index=0, initial={q: 0.3}).converged
    falling = Action(log(s) + s, {s: Positive()})
    assert not failed(falling, initial={s: 1.0}).converged
    assert "edge of a domain" in failed(Action(s + s**2, {s: Positive()}), initial={s: 1.0}).diagnosis


@pytest.mark.parametrize(
    ("squares", "coupling", "is_minimum"),
    [
        ((1.0, 1.0), 5.0, True),
        # falls along one edge, although it rises where both order parameters do
        ((-0.5, 1e-8), 3.7, False),
        # constant along one edge
        ((2.0, 0.0), 0.5, False),
        # rises along both edges, and falls between them
        ((1.0, 1.0), -5.0, False),
        ((1.0, 100.0), -15.0, False),
    ],
)
def test_a_corner_of_two_edges_is_judged_along_each_and_between_them(squares, coupling, is_minimum):
    solution = minimise(CORNER, dict(zip("abc", (*squares, coupling), strict=True)), initial={s: 0.1, q: 0.1})
    assert not (solution.converged and len(solution.edges) == 2) or is_minimum
    assert solution.converged or not is_minimum


@pytest.mark.parametrize(("coupling", "is_minimum"), [(1.0, True), (1.9, True), (3.0, False), (-3.0, False)])
def test_an_edge_is_judged_along_the_valley_of_the_order_parameters_inside(coupling, is_minimum):
    solution = minimise(VALLEY, {"c": coupling}, initial={s: 0.1, m: 0.0})
    assert not (solution.converged and solution.edges) or is_minimum
    assert solution.converged or not is_minimum


@pytest.mark.quick(1)
@pytest.mark.parametrize("field", [1e-2, 1e-4, 1e-6])
def test_small_overlaps_are_known_to_rounding(field):
    solution = stationary(GLASS, {beta: 0.5, h: field}, index=1, initial={q: 0.5})
    # q = beta^2 (q + h^2) to leading order
    assert_close(solution[q], 0.25 * field**2 / 0.75, 10 * field**2)
    assert solution.error < 1e-9


@pytest.mark.slow
def test_a_derivative_that_does_not_exist_is_nan():
    on_edge = lambda b: stationary(GLASS, {beta: b, h: 0.0}, index=1, initial={q: 0.3})[q]  # noqa: E731
    assert np.isnan(jax.grad(on_edge)(0.5))
    landau = Action(m**4 / 4 + (1 - beta) * m**2 / 2, {m: Real()}, [beta])
    slopes = jax.vmap(jax.grad(lambda b: minimise(landau, {beta: b})[m]))(np.array([0.5, 1.0]))
    assert np.isnan(slopes).tolist() == [False, True]
    no_minimum = Action(exp(-beta * m), {m: Real()}, [beta])
    assert np.isnan(jax.grad(lambda b: minimise(no_minimum, {beta: b}, initial={m: 0.0})[m])(1.0))


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1e6, 1e9])
def test_solutions_do_not_depend_on_units(unit):
    expression = (m / alpha) ** 2 / 2 - log_cosh(1.5 * (m / alpha + h)) / 1.5
    action = Action(expression, {m: Real()}, [alpha, h])
    solution = minimise(action, {alpha: unit, h: 0.1}, initial={m: unit})
    assert solution.converged
    assert_close(solution[m] / unit, np.tanh(1.5 * (solution[m] / unit + 0.1)), 1e-9)
