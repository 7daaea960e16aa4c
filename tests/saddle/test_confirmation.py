"""False claims are not confirmed in 50 digits. `tests/test_frozen.py` confirms those of random actions."""

import pytest
from sympy import Abs, Heaviside, Max, cosh, log, sqrt, symbols, tanh

from theorykit.saddle import Action, Positive, Real, minimise
from theorykit.symbolic import log_cosh

from ..marks import slow
from .confirmation import claim_of, error_of_action, objection

m, x = symbols("m x", real=True)
s, a = symbols("s a", positive=True)


@pytest.mark.parametrize(
    "expression",
    [
        a * log(1 + m**2),
        log(2 + tanh(a * m**2) + m**4),
        *slow((a * (sqrt(1 + m**2) - 1), a * cosh(m), a * log_cosh(1 + m**2))),
    ],
    ids=str,
)
@pytest.mark.parametrize("at", (1e-8, 3e-5, 0.01))
def test_the_stated_error_of_the_action_covers_rounding_in_sums_within_its_terms(expression, at):
    """Of m^2 in 1 + m^2, only the digits above rounding remain, and no neighbouring number shows this."""
    action = Action(expression + (m - x) ** 2 / 2, {m: Real()}, [a, x])
    values = {"a": 1500.0, "x": at}
    found = minimise(action, values, initial={"m": 1.0})
    assert found.converged
    assert error_of_action(claim_of(action.expression, values, found, [1.0])) <= 1
    assert found.action_error < 1e-11


@pytest.fixture(scope="module")
def origin():
    """The minimum of a paraboloid at zero, a claim that other actions do not have to fulfil."""
    return minimise(Action(m**2 / 2 + x**2, {m: Real(), x: Real()}), initial={m: 0.0, x: 0.0})


@pytest.mark.parametrize(
    ("twin", "is_right"),
    [
        (m**2 / 2 + x**2, True),
        (m**4 + x**2, True),
        ((x - m**2) ** 2 + m**4 / 2, True),
        ((x - m**2) ** 2 - m**4 / 2, False),
        (m**3 + x**2, False),
        (m**6 + m**5 + x**2, False),
        (x**2 - m**2, False),
        (x**2 + m**2 + m / 10**5, False),
        (x**2 + m**2 / 2 - Max(m, -m), False),
        (x**2 + m**2 - Abs(m) ** 3 / 3 - Abs(m) / 10, False),
        (m**2 + x**2 - Max(m, x) / 3 - Max(-m, -x) / 3, False),
        (x**2 + m**2 + Heaviside(m), False),
        (x**2 + 0 * m + (x + m) ** 2 - 2 * (x + m) ** 2, False),
        ((m + x) ** 2, False),
    ],
    ids=str,
)
def test_a_false_claim_is_not_confirmed(origin, twin, is_right):
    reason = objection(claim_of(twin, {}, origin, [1.0, 1.0]))
    assert (reason is None) is is_right, reason


def test_a_false_claim_of_an_edge_is_not_confirmed():
    edge = minimise(Action(s**2, {s: Positive()}), initial={s: 1.0})
    assert edge.converged and edge.edges
    assert objection(claim_of(s**2, {}, edge, [1.0])) is None
    assert "slope" in objection(claim_of(s**2 + s, {}, edge, [1.0]))
    assert "falls" in objection(claim_of(-(s**2), {}, edge, [1.0]))


def test_an_action_without_its_stated_error_is_seen(origin):
    assert error_of_action(claim_of(m**2 / 2 + x**2, {}, origin, [1.0, 1.0])) <= 1
    assert error_of_action(claim_of(m**2 / 2 + x**2 + 1, {}, origin, [1.0, 1.0])) > 1
