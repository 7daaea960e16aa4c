"""Functions by cases, numbers of any size, users' functions, and limits far out."""

import random
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

from tests.expressions import assert_close
from theorykit import saddle
from theorykit.codegen import compile_expressions, interpret
from theorykit.codegen.compiled import check_covered
from theorykit.symbolic import (
    GaussianAverage,
    entrywise,
    gradient,
    log_cosh,
    log_normal_cdf,
    numeric_function,
    sum_of_entries,
    trace,
)

X, Y = sp.Symbol("x", real=True), sp.Symbol("y", real=True)
HUBER = sp.Piecewise((X**2 / 2, sp.And(X < 1, X > -1)), (abs(X) - sp.Rational(1, 2), True))


def compiled(expression, symbols=(X,), **options):
    function = compile_expressions("f", {"value": expression}, symbols, **options)
    return lambda *numbers: function(**{s.name: jnp.asarray(at) for s, at in zip(symbols, numbers, strict=True)})[
        "value"
    ]


POINTS = (-2.0, 0.0, 0.5, 2.0)
# cases, each with the points at which another case, or its derivative, is not a number
CASES = {
    HUBER: (-3.0, -0.4, 0.0, 0.7, 2.0),
    sp.Piecewise((sp.sqrt(X), X > 0), (0, True)): (-1.0, 0.0, 4.0),
    sp.Piecewise((sp.log(X) * X, X > 0), (0, sp.Eq(X, 0)), (1 / X, True)): (-2.0, 0.0, 3.0),
    sp.Piecewise((1, sp.Eq(X, 0)), (X / (sp.exp(X) - 1), True)): (0.0, 1.3),
    sp.Piecewise((sp.log(X), sp.Not(sp.Or(X <= 0, X > 100))), (X**2, True)): (-2.5, 3.3, 200.0),
    sp.Piecewise((sp.Piecewise((X, X > 1), (X**3, True)), X > 0), (sp.exp(-1 / X**2), X < -1), (X**2, True)): POINTS,
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("expression", CASES, ids=str)
def test_cases_that_do_not_hold_leave_no_trace(expression):
    function, slope = compiled(expression), gradient(expression, X)
    for point in CASES[expression]:
        branch = expression.subs(X, sp.Float(point)) if point else expression.subs(X, 0)
        assert_close(function(point), float(branch), 1e-13)
        assert_close(interpret(expression, {"x": point}), float(branch), 1e-13)
        by_jax = jax.grad(function)(point)
        assert np.isfinite(by_jax) and np.isfinite(jax.jit(jax.hessian(function))(point))
        assert_close(compiled(slope)(point), by_jax, 1e-13)
        assert_close(interpret(slope, {"x": point}), by_jax, 1e-13)
        if point:
            step = 1e-5
            assert_close((function(point + step) - function(point - step)) / (2 * step), by_jax, 1e-6)
    points = jnp.array(CASES[expression])
    assert_close(jax.vmap(compiled(expression))(points), [function(x) for x in CASES[expression]], 1e-14)
    assert_close(jax.vmap(jax.grad(function))(points), [jax.grad(function)(x) for x in CASES[expression]], 1e-13)


def test_cases_stand_in_averages_and_in_functions_of_entries_and_of_traces():
    z, matrix = sp.Symbol("z", real=True), sp.MatrixSymbol("A", 2, 2)
    smooth = GaussianAverage(sp.Piecewise((sp.exp(-1 / (X + z) ** 2), X + z > 0), (0, True)), z)
    value = compiled(smooth)
    # derivatives of the branch that does not hold overflow at zero
    assert np.isfinite(jax.grad(value)(0.0)) and np.isfinite(value(0.0))
    of_entries = sum_of_entries(entrywise(lambda entry: sp.Piecewise((sp.sqrt(entry), entry > 0), (Y, True)), matrix))
    numbers = {"A": np.array([[1.0, -1.0], [4.0, 0.0]]), "y": 0.5}
    assert compiled(of_entries, (matrix, Y))(numbers["A"], 0.5) == interpret(of_entries, numbers) == 4.0
    of_trace = sp.Piecewise((sp.log(sp.Trace(matrix)), sp.Trace(matrix) > 0), (sp.Trace(matrix * matrix), True))
    slope = gradient(of_trace, matrix)
    for sign in (1.0, -1.0):
        at = {"A": sign * np.array([[1.0, 0.3], [0.2, 2.0]])}
        by_jax = jax.grad(compiled(of_trace, (matrix,)))(jnp.asarray(at["A"]))
        assert_close(interpret(slope, at), by_jax, 1e-13)
        assert_close(compiled(slope, (matrix,))(at["A"]), by_jax, 1e-13)


def numbers(count):
    generator = random.Random(0)
    for _ in range(count):
        digits = generator.choice((1, 5, 15, 17, 19, 25, 60, 200))
        whole = generator.randint(-(10**digits), 10**digits) or 1
        yield sp.Integer(whole)
        yield sp.Rational(whole, generator.randint(1, 10 ** generator.choice((3, 20, 80))))
        yield sp.Float(str(Fraction(whole, 7).numerator), 40) / 7
    yield from map(sp.Integer, (10**20, 2**63, 2**53 + 1))
    yield from (
        sp.binomial(70, 35),
        sp.Rational(1, 10**300),
        sp.Float(0.1 + 0.2),
        sp.Float("1e-310"),
        sp.Float("0.1", 60),
        sp.Rational(10**330, 10**25 + 1),
    )


def test_any_number_is_a_coefficient_an_exponent_a_constant_and_scales_a_matrix():
    matrix, values = sp.MatrixSymbol("A", 2, 2), {"x": 0.37, "A": np.array([[0.25, 1.0], [2.0, 0.5]])}
    expressions, expected = {}, {}
    for i, number in enumerate(each for each in numbers(20) if abs(int(each)) < 10**308):
        ratio = (number.p, number.q) if number.is_Rational else float(number).as_integer_ratio()
        exact = float(Fraction(*map(int, ratio)))
        power = (1 + X / 10**20) ** number
        forms = {"c": number * X, "s": number + X, "t": trace(number * matrix), "v": number, "e": power}
        numbers_ = {"c": 0.37 * exact, "s": 0.37 + exact, "t": 0.75 * exact, "v": exact, "e": interpret(power, values)}
        expressions |= {f"{name}{i}": form for name, form in forms.items()}
        expected |= {f"{name}{i}": found for name, found in numbers_.items()}
    results = compile_expressions("f", expressions, (X, matrix))(x=0.37, A=jnp.asarray(values["A"]))
    for name, value in expected.items():
        assert float(results[name]) == pytest.approx(value, rel=1e-12 if name[0] == "e" else 1e-14)
        assert interpret(expressions[name], values) == pytest.approx(value, rel=1e-14)
    assert compiled(sp.Float(0.1 + 0.2) * X)(1.0) == 0.1 + 0.2
    assert jax.grad(jax.grad(jax.grad(compiled(X**2.0))))(0.0) == 0.0


@pytest.mark.parametrize(
    "number", [10 ** sp.S(400), sp.Float("-1e400"), sp.Rational(1, 10**400), sp.oo, sp.Rational(10**500, 7), sp.I]
)
def test_numbers_beyond_double_precision_are_refused_with_their_value(number):
    for expression in (number * X, X + number, sum_of_entries(number * sp.MatrixSymbol("A", 2, 2))):
        with pytest.raises(ValueError, match=r"E[+-]400|e[+-]400|E\+499|oo|I is not a real"):
            check_covered(expression)
    with pytest.raises(ValueError, match=r"double precision|not a real number"):
        saddle.Action(X**2 + number * X, {X: saddle.Real()})


FAR = {
    sp.tanh(X): (-1.0, 1.0),
    sp.erf(X): (-1.0, 1.0),
    sp.atan(X): (-np.pi / 2, np.pi / 2),
    log_cosh(X): (1e300, 1e300),
    log_normal_cdf(X): (-np.inf, 0.0),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("expression", FAR, ids=str)
def test_functions_are_finite_where_they_have_a_limit_with_their_derivatives(expression):
    function, slope = compiled(expression), gradient(expression, X)
    for size, tolerance in ((1e300, 1e-15), (1e3, 2e-3)):
        for point, limit in zip((-size, size), FAR[expression], strict=True):
            if size == 1e300:
                assert_close(function(point), limit, tolerance) if np.isfinite(limit) else None
                assert not np.isnan(function(point))
            for derivative in (jax.grad(function), jax.grad(jax.grad(function))):
                assert np.isfinite(derivative(point))
            assert_close(compiled(slope)(point), jax.grad(function)(point), 1e-13)
            assert np.isfinite(jax.grad(compiled(slope))(point))
    steep = jax.grad(compiled(log_normal_cdf(X)))
    assert steep(-1e8) == pytest.approx(1e8, rel=1e-12) and jax.grad(steep)(-1e8) == pytest.approx(-1, rel=1e-9)
    assert compiled(gradient(log_normal_cdf(X), X))(-1e8) == pytest.approx(1e8, rel=1e-12)


def steep(x):
    return jnp.arctan(50 * x) ** 2


def saturating(x, y):
    return jnp.logaddexp(x, y)


STEEP = numeric_function("steep", steep)
CODED = numeric_function("coded", jnp.tanh)
BOTH = numeric_function("both", saturating)


@pytest.mark.parametrize("function", [STEEP, CODED], ids=lambda function: function.__name__)
def test_a_numeric_function_is_one_like_all_others(function):
    expression = X * function(X / 2) + GaussianAverage(function(X + Y), Y) + function(0)
    plain = steep if function is STEEP else np.tanh
    run = compiled(function(X))
    for point in (-1.1, 0.02, 0.9):
        assert_close(run(point), plain(point), 1e-14)
        assert_close(interpret(function(X), {"x": point}), plain(point), 1e-14)
        slope = gradient(function(X), X)
        for written, derivative in (
            (slope, jax.grad(steep if function is STEEP else jnp.tanh)),
            (gradient(slope, X), jax.grad(jax.grad(steep if function is STEEP else jnp.tanh))),
        ):
            assert_close(compiled(written)(point), derivative(point), 1e-11)
            assert_close(interpret(written, {"x": point}), derivative(point), 1e-11)
        for take in (jax.grad, jax.jacfwd):
            assert_close(take(jax.grad(run))(point), derivative(point), 1e-11)
    assert_close(compiled(expression)(0.4), interpret(expression, {"x": 0.4}), 1e-9 if function is not STEEP else 0.1)
    batch = jax.vmap(compiled(expression))(jnp.array([0.4, 0.5]))
    assert_close(batch, [compiled(expression)(0.4), compiled(expression)(0.5)], 1e-13)
    assert function.__name__ in str(expression)
    check_covered(expression)


def test_a_numeric_function_has_any_number_of_arguments():
    expression = BOTH(X, Y) ** 2 + BOTH(Y, 1)
    function = compiled(expression, (X, Y))
    plain = lambda x, y: jnp.logaddexp(x, y) ** 2 + jnp.logaddexp(y, 1.0)  # noqa: E731
    for place, symbol in enumerate((X, Y)):
        slope = gradient(expression, symbol)
        expected = jax.grad(plain, place)(0.3, -0.8)
        assert_close(compiled(slope, (X, Y))(0.3, -0.8), expected, 1e-13)
        assert_close(jax.grad(function, place)(0.3, -0.8), expected, 1e-13)
        for other, at in enumerate((X, Y)):
            curvature = jax.grad(jax.grad(plain, place), other)(0.3, -0.8)
            assert_close(compiled(gradient(slope, at), (X, Y))(0.3, -0.8), curvature, 1e-12)
            assert_close(jax.jit(jax.jacfwd(jax.grad(function, place), other))(0.3, -0.8), curvature, 1e-12)
    assert BOTH(X, Y).diff(X, Y) == BOTH(X, Y).diff(Y, X)


def test_functions_of_one_name_do_not_share_code():
    one, other = (numeric_function("same", f) for f in (jnp.sin, jnp.cos))
    assert one is not other and one(X) != other(X) and one is numeric_function("same", jnp.sin)
    actions = [saddle.Action(X**2 + f(X), {X: saddle.Real()}) for f in (one, other)]
    assert actions[0] != actions[1]
    values = [float(action.compiled(x=0.3)["term_1"]) + float(action.compiled(x=0.3)["term_0"]) for action in actions]
    assert_close(values, [0.09 + np.sin(0.3), 0.09 + np.cos(0.3)], 1e-14)
    assert_close(compiled(one(X) + other(X))(0.3), np.sin(0.3) + np.cos(0.3), 1e-15)
    assert_close(compiled(one(sp.Symbol("same")), (sp.Symbol("same"),))(0.3), np.sin(0.3), 1e-15)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: "text", "must be JAX code of numbers"),
        (lambda x: jnp.array([x, x]), "must return a number"),
        (lambda x: x + 1j, "f must return real numbers"),
    ],
)
def test_a_wrong_numeric_function_is_refused(f, message):
    with pytest.raises(ValueError, match=message):
        numeric_function("f", f)
    with pytest.raises(ValueError, match="coded must take real numbers, got complex numbers"):
        interpret(CODED(X), {"x": 0.3 + 1j})
