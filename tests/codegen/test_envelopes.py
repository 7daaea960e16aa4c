"""Moreau envelopes and proximal points: against closed forms, many digits, the interpreter and differences."""

import pickle

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from sympy import (
    Abs,
    Lambda,
    Max,
    Piecewise,
    Rational,
    Symbol,
    cosh,
    exp,
    lambdify,
    log,
    sign,
    simplify,
    sqrt,
    srepr,
    symbols,
)

from tests.expressions import assert_close
from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import gradient, moreau, proximal
from theorykit.symbolic.documents.rendering import latex
from theorykit.symbolic.envelopes import MoreauEnvelope, derivative

X, OMEGA, Y = symbols("x omega y", real=True)
V, DELTA, WIDTH = symbols("V delta w", positive=True)
LOGISTIC = log(1 + exp(-Y * X))
SMOOTH = {"logistic": LOGISTIC, "exponential": exp(Y**2 * X), "root": sqrt(1 + (X - Y) ** 2), "cosh": log(cosh(X - Y))}
KINKED = {
    "hinge": Max(0, Y - X),
    "absolute": Abs(X - Y),
    "quantile": Max((X - Y) / 3, -2 * (X - Y) / 3),
    "Huber": Piecewise((X**2 / 2, Abs(X) <= DELTA), (DELTA * Abs(X) - DELTA**2 / 2, True)),
    "squared hinge": Max(0, Y - X) ** 2,
    "quadratic": 3 * (X - Y) ** 2 / 2,
    "two kinks": Abs(Abs(X) - 1) + 2 * Abs(X),
    "kink and curvature": Abs(X) + log(1 + exp(X)),
}
LOSSES = {**SMOOTH, **KINKED}
VALUES = {"omega": [-40.0, -2.3, -0.4, 0.31, 1.9, 30.0], "V": [1e-7, 0.3, 4.0, 900.0]}


def grid():
    omega, width = np.meshgrid(VALUES["omega"], VALUES["V"])
    return omega.ravel(), width.ravel()


def compiled(outputs):
    function = compile_expressions("f", outputs, [OMEGA, V, Y, DELTA])
    return jax.jit(lambda **values: function(**values))


@pytest.mark.quick("quadratic")
@pytest.mark.parametrize("name", LOSSES)
def test_compiled_values_and_slopes_are_those_of_the_interpreter_and_of_jax(name):
    envelope, point = (make(LOSSES[name], X, OMEGA, V) for make in (moreau, proximal))
    outputs = {"value": envelope, "point": point}
    outputs |= {f"slope_{s}": gradient(envelope, s) for s in (OMEGA, V, Y)}
    outputs |= {f"moved_{s}": gradient(point, s) for s in (OMEGA, V, Y)}
    omega, width = grid()
    function = compiled(outputs)
    found = function(omega=omega, V=width, y=0.7, delta=0.6)
    for key, expression in outputs.items():
        expected = interpret(expression, {"omega": omega, "V": width, "y": 0.7, "delta": 0.6})
        # Rounding of omega moves the point by as much.
        np.testing.assert_allclose(found[key], expected, rtol=1e-9, atol=1e-13 * 40)
    of_one = lambda omega, V, y: function(omega=omega, V=V, y=y, delta=0.6)  # noqa: E731
    for key, prefix in (("value", "slope"), ("point", "moved")):
        slopes = jax.vmap(jax.grad(lambda *at, key=key: of_one(*at)[key], (0, 1, 2)))(omega, width, np.full(24, 0.7))
        for symbol, slope in zip((OMEGA, V, Y), slopes, strict=True):
            np.testing.assert_allclose(slope, jnp.broadcast_to(found[f"{prefix}_{symbol}"], 24), rtol=1e-9, atol=1e-12)


@pytest.mark.quick("cosh", "exponential")
@pytest.mark.parametrize("name", SMOOTH)
def test_values_and_two_derivatives_agree_with_thirty_digits(name):
    at = {OMEGA: Rational(-7, 5), V: Rational(13, 4), Y: Rational(7, 10), DELTA: Rational(3, 5)}
    values = {symbol.name: float(value) for symbol, value in at.items()}
    envelope = moreau(SMOOTH[name], X, OMEGA, V)
    second = {f"{a}{b}": gradient(gradient(envelope, a), b) for a in (OMEGA, V, Y) for b in (OMEGA, V, Y)}
    found = compiled({"value": envelope, **second})(**values)
    with mpmath.workdps(45):

        def exact(omega, width, y):
            # `mpmath.diff` raises the precision of the steps.
            loss = lambdify((X, Y), SMOOTH[name], "mpmath")
            residual = lambda x: x - omega + width * mpmath.diff(lambda at: loss(at, y), x)  # noqa: E731
            x = mpmath.findroot(residual, (omega, omega + 1))
            return (x - omega) ** 2 / (2 * width) + loss(x, y)

        numbers = [mpmath.mpf(at[s].p) / at[s].q for s in (OMEGA, V, Y)]
        assert_close(found["value"], float(exact(*numbers)), 1e-13)
        for i, a in enumerate((OMEGA, V, Y)):
            for j, b in enumerate((OMEGA, V, Y)):
                orders = [(k == i) + (k == j) for k in range(3)]
                assert_close(found[f"{a}{b}"], float(mpmath.diff(exact, numbers, orders)), 1e-10)


def test_known_closed_forms():
    hinge = moreau(Max(0, 1 - X), X, OMEGA, V)
    below = Piecewise((1 - OMEGA - V / 2, OMEGA < 1 - V), ((1 - OMEGA) ** 2 / (2 * V), OMEGA <= 1), (0, True))
    assert hinge == below
    soft = proximal(Abs(X), X, OMEGA, V)
    at = {V: Rational(1, 2)}
    assert [soft.subs({**at, OMEGA: w}) for w in (-2, Rational(1, 3), 3)] == [-Rational(3, 2), 0, Rational(5, 2)]
    assert simplify(moreau((X - Y) ** 2 / 2, X, OMEGA, V) - (OMEGA - Y) ** 2 / (2 * (1 + V))) == 0
    # The square around the vertex loses no digits near it.
    near = compiled({"value": moreau(Max(0, 1 - X) ** 2, X, OMEGA, V)})(omega=1 - 1e-9, V=1.0, y=0, delta=1)["value"]
    assert_close(near, (1 - (1 - 1e-9)) ** 2 / 3, 1e-15)


@pytest.mark.parametrize(
    "loss, width, match",
    [
        (X**2, -V, "V must be positive"),
        (X**2, 0, "V must be positive"),
        (sign(X), V, "jumps"),
        (Piecewise((0, X < 1), (X, True)), V, "jumps at x = 1"),
        (Max(0, 1 - Y * X), V, "may be above or below .*; insert values"),
        (Max(0, Abs(X) - DELTA) + Max(0, Abs(X) - WIDTH), V, "must have a known order, but .*delta.*w"),
        # A half-line, an interval, a pole, and a curvature of unknown sign.
        *((loss, V, "real, finite and convex") for loss in (-log(X), -log(1 - X**2), X**-2, log(1 + (X - Y) ** 2))),
        (-exp(X), V, "not convex"),
        (-DELTA * X**2, V, "convex for all x, but its value is .* second derivative -.* at {x: -7/2, delta: "),
        (Abs(Abs(X) - 1), V, "not known to be convex: its slope changes by -2 at x = 0"),
        (Y * Abs(X), V, "not known to be convex: its slope changes by 2\\*y at x = 0; .* declare y with"),
    ],
)
def test_mistaken_losses_are_refused(loss, width, match):
    with pytest.raises(ValueError, match=match):
        moreau(loss, X, OMEGA, width)


def test_what_is_not_covered_is_refused():
    for loss in (Max(0, X**2 - 1), Max(0, 1 - X) ** 3):
        with pytest.raises(NotImplementedError, match="kink"):
            moreau(loss, X, OMEGA, V)


def test_equal_losses_are_equal_expressions_that_are_substituted_and_written():
    kappa = Symbol("kappa", real=True)
    envelope = moreau(LOGISTIC, X, OMEGA, V)
    assert envelope == moreau(log(1 + exp(-Y * kappa)), kappa, OMEGA, V)
    assert envelope.subs(Y, 2 * kappa) == envelope.xreplace({Y: 2 * kappa})
    assert envelope.subs(Y, kappa) == moreau(LOGISTIC.subs(Y, kappa), X, OMEGA, V)
    # The minimised variable is not a symbol of the result.
    assert envelope.free_symbols == {OMEGA, V, Y} and envelope.subs(X, 3) == envelope
    assert isinstance(envelope, MoreauEnvelope) and envelope.is_real
    assert pickle.loads(pickle.dumps(envelope)) == envelope and srepr(envelope)
    for each in (envelope, proximal(LOGISTIC, X, X + V, V)):
        assert latex(each**2 + gradient(each, V))


@pytest.mark.parametrize("omega", [-800.0, 800.0, 5e4])
def test_far_out_nothing_overflows(omega):
    function = compiled({name: moreau(loss, X, OMEGA, V) for name, loss in SMOOTH.items() if name != "cosh"})
    found = function(omega=omega, V=2.0, y=1.0, delta=1.0)
    assert_close(found["logistic"], max(-omega - 1, 0), 1e-12)
    if omega < 1e4:
        # The point solves x + 2 exp(x) = omega.
        point = float(omega - mpmath.lambertw(2 * mpmath.exp(mpmath.mpf(omega))))
        assert_close(found["exponential"], (point - omega) ** 2 / 4 + np.exp(point), 1e-11)
    slopes = jax.grad(lambda omega: function(omega=omega, V=2.0, y=1.0, delta=1.0)["logistic"])
    assert_close(slopes(omega), -1.0 if omega < 0 else 0.0, 1e-12)


def test_a_logistic_loss_and_its_slopes_keep_their_digits_where_they_are_small():
    loss = Lambda(X, log(1 + exp(-X)))
    points = jnp.array([-40.0, -3.0, 0.0, 2.0, 13.7, 36.0, 120.0, 700.0])
    for order in range(4):
        expression = derivative(loss, order)
        found = compile_expressions("f", {"value": expression}, [X])(x=points)["value"]
        with mpmath.workdps(400):
            exact = [float(mpmath.diff(lambda x: mpmath.log1p(mpmath.exp(-x)), float(x), order)) for x in points]
        # The third derivative is zero at zero.
        bound = 4e-15 * np.abs(exact) + (1e-30 if order == 3 else 0.0)
        assert np.all(np.abs(found - np.array(exact)) <= bound)
        # The interpreter computes the loss as it is written, and loses digits.
        if order:
            assert np.all(np.abs(interpret(expression, {"x": np.asarray(points)}) - np.array(exact)) <= bound)
