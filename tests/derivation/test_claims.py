"""No claim is empty: wrong claims fail, and what averages and densities are is checked sharply."""

from dataclasses import replace

import pytest
from sympy import Identity, S, Trace

from theorykit.derivation import Derivation, Step, claims
from theorykit.symbolic import SquareRoot, inverse, positive_definite
from theorykit.symbolic.atoms import LogDet

from .examples import KINDS, SIZES, STEPS, C, G, M, N, Q, U, Z, j, k, m, n, r, scale, w, y
from .mistakes import is_caught, planted


def test_mistakes_of_every_kind_are_planted_for_every_claim():
    found = [(type(step.claim), mistake) for step in STEPS.values() for mistake, _ in planted(step)]
    assert {claim for claim, _ in found} == KINDS
    kinds = ("wrong sign", "factor 2", "factor 1/2", "too many", "too few", "dropped", "transposed", "squared")
    assert all(any(kind in mistake for _, mistake in found) for kind in kinds)


def claiming(name, **changes):
    """A step of a rule, with fields of its claim changed."""
    return replace(STEPS[name], claim=replace(STEPS[name].claim, **changes))


def of(name, change):
    """A step of a rule that arrives at something else."""
    return replace(STEPS[name], after=change(STEPS[name].after))


def before_density():
    """A density of columns whose characteristic function has a linear term."""
    step = STEPS["gaussian_density"]
    return replace(step, before=step.before + Trace(j.T * M * r))


def defined(name):
    return STEPS[name].claim.definitions


def with_other_root(after):
    return after.xreplace({node: -node for node in after.atoms(SquareRoot) if node.has(G)})


_WITHOUT_DELTA = N * LogDet(inverse(M) + U) + N * LogDet(M)
_SPINS = "covariance_over_spins"
# Mistakes that are no changes of a symbol or a factor, which `planted` makes.
WRONG = {
    "rows forgotten": lambda: claiming("sum_over_rows", count=N - 1),
    "no delta function": lambda: of("insert_order_parameter", lambda _: _WITHOUT_DELTA),
    "a delta function of the trace": lambda: of(
        "insert_order_parameter", lambda _: _WITHOUT_DELTA + N * Trace(Q) * (Trace(Z.T * C * Z) / N - Trace(U))
    ),
    "a linear term in a density": lambda: of("gaussian_density", lambda after: after + Trace(w.T * M * r)),
    "a linear term in a characteristic function": lambda: before_density(),
    "a term of the fourth degree in a density": lambda: of(
        "gaussian_density", lambda after: after + Trace(w.T * w) ** 2 / 100
    ),
    "a gradient that is not symmetric": lambda: of("derivative of a source", lambda after: after + U * M - M * U),
    "the root of a Riccati equation that is negative": lambda: of("riccati", with_other_root),
    "a constant that is none": lambda: claiming("drop_constants", variables=(U, M)),
    "an order that is not leading": lambda: of("leading_order", lambda after: after + LogDet(U)),
    "a wrong constraint": lambda: claiming("eliminate_constrained", solution=M),
    "spins that are not all": lambda: claiming("sum_over_spins", variable=r),
    "a covariance of something else": lambda: claiming(_SPINS, value=2 * STEPS[_SPINS].claim.value),
    "second moments that are no covariance": lambda: of(_SPINS, lambda after: after + scale * y * y.T),
    "a gradient of another shape": lambda: of("slope", lambda after: after.T),
    "a gradient that forgets what moves": lambda: claiming(
        "slope through definitions", definitions=defined("slope through definitions")[2:]
    ),
    "a response to something else that moves": lambda: claiming(
        "response", definitions=STEPS["response"].claim.definitions[1:]
    ),
    "columns that classes do not share": lambda: claiming("gather_columns", definitions=defined("gather_columns")[::2]),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_a_wrong_claim_fails(make):
    assert is_caught(make(), SIZES)


def test_the_other_root_of_a_riccati_equation_solves_it_all_the_same():
    assert not is_caught(replace(of("riccati", with_other_root), claim=claims.Solves(U)), SIZES)


class NotANumber(claims.Claim):
    """An error that is not a number, as overflow makes it."""

    def error(self, before, after, values, rng):
        return float("nan")


UNDEFINED = LogDet(-positive_definite("A", n))


@pytest.mark.parametrize(
    ("side", "claim", "why"), [(Trace(U), NotANumber(), "not a number"), (UNDEFINED, claims.Equal(), "determinant")]
)
def test_a_claim_that_cannot_be_evaluated_fails_and_says_why(side, claim, why):
    evidence = Derivation((Step("nothing", side, side, claim),), SIZES).verify().evidence[0]
    assert not evidence.holds and evidence.error == float("inf")
    assert evidence.reason in str(evidence) and why in evidence.reason


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_that_are_not_numbers_are_not_lost_among_those_that_are():
    step = STEPS["eliminate"]
    undefined = (Trace(U) - Trace(U + Identity(n))) ** S.Half
    assert is_caught(replace(step, after=step.after + undefined), SIZES)


def test_evidence_says_which_step_failed_and_by_how_much():
    good, bad = STEPS["vectorise"], of("reduce_traces", lambda after: 2 * after)
    verification = Derivation((good, bad, good), SIZES).verify()
    assert [item.step for item in verification.failures] == [bad]
    assert not verification.holds
    lines = str(verification).splitlines()
    assert "FAILS" in lines[1] and bad.rule in lines[1] and "holds" in lines[0] and lines[-1] == "3 steps, 1 failed"


def test_verification_is_reproducible_and_seeded():
    derivation = Derivation((STEPS["eliminate"],), SIZES)
    assert str(derivation.verify(3)) == str(derivation.verify(3))
    errors = {derivation.verify(seed).evidence[0].error for seed in range(3)}
    assert len(errors) == 3


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
def test_averages_are_checked_sharply_in_any_dimension(dimension):
    step, sizes = STEPS["gaussian_average"], {k: 1, m: dimension, n: 2, N: 3}
    assert not is_caught(step, (sizes,))
    for wrong in (step.after * (1 + S(1) / 10**6), step.after + S(1) / 10**6):
        assert is_caught(replace(step, after=wrong), (sizes,))
