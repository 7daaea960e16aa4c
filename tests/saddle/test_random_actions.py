"""Random actions: no point is certified that 50 digits do not confirm."""

import warnings
from collections import Counter

import pytest
from sympy import Abs, Heaviside, Max, cosh, log, sqrt, symbols, tanh

from theorykit.saddle import Action, Positive, Real, Solution, minimise, stationary
from theorykit.saddle.bound_action import bind
from theorykit.symbolic import log_cosh

from .confirmation import claim_of, error_of_action, objection
from .random_actions import Case, cases_of

# about 150 structures, each solved at as many values as make 2,000 solves
_STRUCTURES, _VALUES, _PER_TEST = 154, 13, 11
# structures that the fast suite takes: of one to four order parameters, smooth and not
# and one at which the slope of tanh is lost in 1 - tanh^2
_QUICK = (1, 2, 3, 288)

m, x = symbols("m x", real=True)
s, a = symbols("s a", positive=True)


def solved(case: Case) -> tuple[Solution | None, str]:
    """The solution of a case, if it converged, and what came of it."""
    try:
        action = case.structure.make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if case.structure.index:
                found = stationary(action, case.values, index=case.structure.index, initial=case.initial)
            else:
                found = minimise(action, case.values, initial=case.initial)
    except ValueError:
        return None, "refused"
    return (found, "converged") if found.converged else (None, f"flagged {int(found.stats['verdict'])}")


def confirmed(seeds: range | tuple[int, ...], count: int) -> Counter:
    """What came of the cases of some structures; fails if a certified point is not what it is claimed to be."""
    outcomes, wrong = Counter(), []
    for seed in seeds:
        for number, case in enumerate(cases_of(seed, count)):
            found, outcome = solved(case)
            outcomes[outcome] += 1
            if found is None:
                continue
            units = bind(found.of, case.values, case.initial).units
            claim = claim_of(case.structure.twin, case.values, found, units)
            off = 0 if claim.edges else error_of_action(claim)
            if reason := objection(claim) or (off > 1 and f"the action is off by {off:.3g} of its stated errors"):
                wrong.append((seed, number, reason, case.structure.twin, case.values, case.initial))
    assert not wrong, wrong
    return outcomes


@pytest.mark.slow
def test_certified_points_of_random_actions_are_confirmed_in_50_digits():
    outcomes = confirmed(_QUICK, 4)
    assert outcomes["converged"] >= 6


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, _STRUCTURES, _PER_TEST))
def test_certified_points_of_2000_random_actions_are_confirmed_in_50_digits(first):
    outcomes = confirmed(range(first, first + _PER_TEST), _VALUES)
    print(dict(outcomes))
    assert outcomes["converged"] > 0.3 * outcomes.total()


@pytest.mark.parametrize(
    "expression",
    [a * log(1 + m**2), a * (sqrt(1 + m**2) - 1), a * cosh(m), log(2 + tanh(a * m**2) + m**4), a * log_cosh(1 + m**2)],
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
