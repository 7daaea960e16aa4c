"""No claim is empty: mistakes planted in a true step of every rule make it fail."""

from dataclasses import replace

import numpy as np
import pytest
from sympy import Identity, S, Trace, sqrt

from theorykit.derivation import Derivation, Step, claims
from theorykit.derivation.document import _CHECKED_BY
from theorykit.derivation.sampling import random_values
from theorykit.symbolic import SquareRoot, inverse, positive_definite
from theorykit.symbolic.atoms import LogDet

from .examples import RULES, SIZES, C, G, J, M, N, Q, U, W, Z, f, j, k, m, n, r, scale, t, v, w, y
from .mistakes import is_caught, planted

STEPS = {name: make() for name, make in RULES.items()}
MISTAKES = [
    pytest.param(wrong, id=f"{name}: {mistake}") for name, step in STEPS.items() for mistake, wrong in planted(step)
]


@pytest.mark.parametrize("step", MISTAKES)
def test_a_mistake_in_what_a_rule_arrives_at_is_caught(step):
    assert is_caught(step, SIZES)


def test_mistakes_are_planted_for_every_claim_but_that_of_the_expansion():
    planted_in = {type(parameter.values[0].claim) for parameter in MISTAKES}
    every = {getattr(claims, name) for name in claims.__all__} - {claims.Claim, claims.SolvesToFirstOrder}
    assert planted_in == every


def test_every_kind_of_mistake_is_planted():
    kinds = ("wrong sign", "factor 2", "factor 1/2", "too many", "too few", "dropped", "transposed", "squared")
    assert all(any(kind in parameter.id for parameter in MISTAKES) for kind in kinds)


def test_every_claim_says_how_it_is_checked():
    assert set(_CHECKED_BY) == {getattr(claims, name) for name in claims.__all__} - {claims.Claim}


def wrong_average(covariance):
    step = STEPS["gaussian_average"]
    return replace(step, claim=claims.GaussianAverage(v, covariance))


def inserted(**changes):
    step = STEPS["insert_order_parameter"]
    return replace(step, claim=replace(step.claim, **changes))


def of(name, after):
    return replace(STEPS[name], after=after)


OTHER_ROOT = STEPS["riccati"].after.xreplace(
    {node: -node for node in STEPS["riccati"].after.atoms(SquareRoot) if node.has(G)}
)
WRONG = {
    "another covariance": wrong_average(C),
    "a covariance of the wrong power": wrong_average(scale**2 * C),
    "no delta function": of("insert_order_parameter", N * LogDet(inverse(M) + U) + N * LogDet(M)),
    "a delta function of the trace": of(
        "insert_order_parameter",
        N * LogDet(inverse(M) + U) + N * LogDet(M) + N * Trace(Q) * (Trace(Z.T * C * Z) / N - Trace(U)),
    ),
    "the conjugate with the wrong sign": of(
        "insert_order_parameter", STEPS["insert_order_parameter"].after.xreplace({Q: -Q})
    ),
    "another weight of the conjugate": inserted(weight=sqrt(N)),
    "another value": inserted(value=2 * Z.T * C * Z / N),
    "a linear term in a density": of("gaussian_density", STEPS["gaussian_density"].after + Trace(w.T * M * r)),
    "a linear term in a characteristic function": replace(
        STEPS["gaussian_density"], before=STEPS["gaussian_density"].before + Trace(j.T * M * r)
    ),
    "a term of the fourth degree in a density": of(
        "gaussian_density", STEPS["gaussian_density"].after + Trace(w.T * w) ** 2 / 100
    ),
    "a gradient that is not symmetric": of(
        "derivative of a source", STEPS["derivative of a source"].after + U * M - M * U
    ),
    "the root of a Riccati equation that is negative": of("riccati", OTHER_ROOT),
    "rows forgotten": replace(STEPS["sum_over_rows"], claim=replace(STEPS["sum_over_rows"].claim, count=N - 1)),
    "a volume that depends on something else": of("gram_volume", STEPS["gram_volume"].after + LogDet(M)),
    "a constant that is none": replace(STEPS["drop_constants"], claim=claims.EqualUpToConstant((U, M))),
    "an order that is not leading": of("leading_order", STEPS["leading_order"].after + LogDet(U)),
    "another width": replace(STEPS["leading_order"], claim=claims.LeadingOrder(n)),
    "a wrong solution": replace(
        STEPS["eliminate"], claim=replace(STEPS["eliminate"].claim, solution=inverse(U) + inverse(M))
    ),
    "a multiplier that holds something else": replace(
        STEPS["constrain"], claim=replace(STEPS["constrain"].claim, value=STEPS["constrain"].claim.value / scale)
    ),
    "a derivative of another order": replace(
        STEPS["source_derivative"], claim=replace(STEPS["source_derivative"].claim, factor=S.Half)
    ),
    "spins that are not all": replace(STEPS["sum_over_spins"], claim=claims.SpinSum(r)),
    "a covariance over spins that are not all": replace(
        STEPS["covariance_over_spins"], claim=replace(STEPS["covariance_over_spins"].claim, spins=r)
    ),
    "a covariance of something else": replace(
        STEPS["covariance_over_spins"],
        claim=replace(STEPS["covariance_over_spins"].claim, value=2 * STEPS["covariance_over_spins"].claim.value),
    ),
    "second moments that are no covariance": of(
        "covariance_over_spins", STEPS["covariance_over_spins"].after + scale * y * y.T
    ),
    "a gradient of another shape": of("slope", STEPS["slope"].after.T),
    "a gradient that forgets what moves": replace(
        STEPS["slope through definitions"],
        claim=replace(
            STEPS["slope through definitions"].claim,
            definitions=STEPS["slope through definitions"].claim.definitions[2:],
        ),
    ),
    "a response to something else that moves": replace(
        STEPS["response"], claim=replace(STEPS["response"].claim, moved=STEPS["response"].claim.moved[1:])
    ),
    "sums over classes that are not those": replace(
        STEPS["gather_classes"],
        claim=replace(STEPS["gather_classes"].claim, definitions=STEPS["gather_classes"].claim.definitions[:1]),
    ),
    "columns that classes do not share": replace(
        STEPS["gather_columns"],
        claim=replace(
            STEPS["gather_columns"].claim,
            definitions=(STEPS["gather_columns"].claim.definitions[0], STEPS["gather_columns"].claim.definitions[2]),
        ),
    ),
    "a definition of another value": replace(STEPS["name"], claim=claims.Equal(((Q, Z.T * C * Z),))),
}


@pytest.mark.parametrize("step", WRONG.values(), ids=WRONG)
def test_a_wrong_claim_fails(step):
    assert is_caught(step, SIZES)


def test_the_other_root_of_a_riccati_equation_solves_it_all_the_same():
    step = STEPS["riccati"]
    assert not is_caught(replace(step, after=OTHER_ROOT, claim=claims.Solves(U)), SIZES)


class NotANumber(claims.Claim):
    """An error that is not a number, as overflow makes it."""

    def _error(self, before, after, values, rng):
        return float("nan")


def test_an_error_that_is_not_a_number_is_a_failure():
    step = Step("nothing", Trace(U), Trace(U), NotANumber())
    evidence = Derivation((step,), SIZES).verify().evidence[0]
    assert not evidence.holds and evidence.error == float("inf")
    assert str(evidence).endswith("(not a number)")


def test_a_claim_that_cannot_be_evaluated_fails_and_says_why():
    undefined = LogDet(-positive_definite("A", n))
    evidence = Derivation((Step("nothing", undefined, undefined, claims.Equal()),), SIZES).verify().evidence[0]
    assert not evidence.holds and evidence.reason in str(evidence) and "determinant" in evidence.reason


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_that_are_not_numbers_are_not_lost_among_those_that_are():
    step = STEPS["eliminate"]
    undefined = (Trace(U) - Trace(U + Identity(n))) ** S.Half
    assert is_caught(replace(step, after=step.after + undefined), SIZES)


def test_evidence_says_which_step_failed_and_by_how_much():
    good, bad = STEPS["vectorise"], of("reduce_traces", 2 * STEPS["reduce_traces"].after)
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


def test_sections_keep_the_order_of_steps():
    first, second = (replace(STEPS["vectorise"], section=section) for section in "ab")
    other = replace(first, rule="another")
    sections = list(Derivation((first, second, other), SIZES).sections())
    assert sections == [("a", [first, other]), ("b", [second])]


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
def test_averages_are_checked_sharply_in_any_dimension(dimension):
    """Also above three, where the check is by Monte Carlo."""
    step, sizes = STEPS["gaussian_average"], {k: 1, m: dimension, n: 2, N: 3}
    assert not is_caught(step, (sizes,))
    for wrong in (step.after * (1 + S(1) / 10**6), step.after + S(1) / 10**6):
        assert is_caught(replace(step, after=wrong), (sizes,))


def test_averages_that_almost_vanish_are_checked_sharply():
    """exp(-i y^T d) averages to almost nothing where d is large."""
    before = 2 * S.ImaginaryUnit * Trace(t.T * (f - y)) * 20
    after = 400 * Trace((f - y).T * (f - y)) * scale
    step = Step("average", before, after, claims.GaussianAverage(t, scale * Identity(m)))
    sizes = ({m: 1}, {m: 2}, {m: 3})
    assert not is_caught(step, sizes)
    assert all(is_caught(replace(step, after=after * factor), (size,)) for factor in (2, S.Half) for size in sizes)


def test_random_values_are_what_symbols_declare():
    for sizes in SIZES:
        values = random_values([Trace(U), Trace(W * W.T), scale, J], sizes, np.random.default_rng(0))
        assert np.linalg.eigvalsh(values["U"])[0] > 0 and values["W"].shape == (sizes[n], sizes[N])
        assert values[scale.name] > 0
