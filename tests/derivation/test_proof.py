"""Identities are proved: true ones hold exactly; false ones do not, however small the difference, but by chance."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sympy import Integer, Lambda, MatrixSymbol, Rational, Trace, sin, tanh

from theorykit.derivation import Derivation, Step, claims, field
from theorykit.derivation.field import PRIME, NotRational
from theorykit.derivation.step import chance_of_mistake, random_points, verification_blocks, written
from theorykit.symbolic import Softmax, entrywise, inverse, positive_definite
from theorykit.symbolic.atoms import LogDet
from theorykit.symbolic.documents import as_markdown
from theorykit.symbolic.matrix_functions import sum_of_column

from ..marks import slow
from .architectures import action
from .examples import SIZES, STEPS, A, C, M, U, W, Z, m, n, r, scale, w, y
from .mistakes import is_caught, planted

RELU = "gaussian_equivalence of a relu"
# what the claims of these are about is no identity of rational functions
NUMERIC = {
    "linearise_square": "an average",
    "linearise_form": "an average",
    "gaussian_average": "an average",
    "gaussian_average of a linear form": "an average",
    "gaussian_equivalence": "an average",
    RELU: "an average",
    "gaussian_density": "an average",
    "gram_volume": "a volume",
    "gram_volume with given rows": "a volume",
    "riccati": "which of several solutions is positive definite",
    "sum_over_spins": "an average",
    "covariance_over_spins": "an average",
    "gather_classes": "an odd or even function of entries",
    "gather_columns": "an odd or even function of entries",
    "slope": "a derivative of a function that is not rational",
    "slope through definitions": "a derivative of a function that is not rational",
    "response": "a derivative of a function that is not rational",
}
EXACT = {name: step for name, step in STEPS.items() if name not in NUMERIC}


def chance(step, sizes=SIZES, seed=0):
    return chance_of_mistake(step, random_points(sizes, seed))


@pytest.mark.parametrize("step", EXACT.values(), ids=EXACT)
def test_every_identity_is_proved(step):
    for seed in (0, 1):
        assert 0 < chance(step, seed=seed) < 1e-33


@pytest.mark.parametrize(("name", "why"), NUMERIC.items())
def test_other_claims_say_why_they_are_checked_on_numbers_only(name, why):
    with pytest.raises(NotRational, match=f"^{why}$"):
        chance(STEPS[name])


# averages over hidden units take a second each
@pytest.mark.parametrize("name", [name if name != RELU else slow([name])[0] for name in STEPS])
def test_a_mistake_in_what_a_step_arrives_at_is_refuted(name):
    """Exactly; by numbers if the claim is no identity, or holds for some functions of entries and not for others."""
    for mistake, step in planted(STEPS[name]):
        try:
            assert chance(step) is None, mistake
        except NotRational as why:
            holds_functions = any(side.has(Lambda, Softmax) for side in (step.before, step.after))
            assert name in NUMERIC or (holds_functions and str(why) == "a property of the functions in it"), mistake
            assert is_caught(step, SIZES), mistake


def test_a_mistake_that_rounding_hides_is_refuted():
    """One part in 1e13: on floating-point numbers the claim holds to its tolerance."""
    step = STEPS["woodbury"]
    wrong = replace(step, after=step.after * (1 + Rational(1, 10**13)))
    assert all(wrong.error(sizes, np.random.default_rng(0)) < 0.01 for sizes in SIZES)
    (evidence,) = Derivation((wrong,), SIZES).verify().evidence
    assert not evidence.holds and not evidence.proved and "false in exact arithmetic" in evidence.reason


def test_what_holds_on_symmetric_matrices_alone_is_refuted_of_others():
    matrix = MatrixSymbol("S", n, n)
    for symbol, holds in ((positive_definite("S", n), True), (matrix, False)):
        step = Step("transposed", LogDet(M + symbol) + Trace(symbol * U * M), Trace(M * U * symbol.T), claims.Equal())
        step = replace(step, after=step.after + LogDet(M + symbol.T) + 0 * scale)
        other = replace(step, after=Trace(M * U * symbol) + LogDet(M + symbol))
        assert (chance(step) is not None) and (chance(other) is not None) == holds


def of_functions(before, after):
    return Step("functions", before, after, claims.Equal())


def test_what_holds_of_any_function_is_proved_of_each():
    before = Trace(r.T * W * entrywise(tanh, W.T * (w + 2 * r))) + sum_of_column(entrywise(sin, Z.T * y))
    after = Trace(entrywise(tanh, 2 * W.T * r + W.T * w).T * W.T * r) + sum_of_column(entrywise(sin, Z.T * y))
    assert chance(of_functions(before, after)) < 1e-32


def test_what_holds_of_one_function_is_neither_proved_nor_refuted():
    before = entrywise(tanh, W.T * r)
    with pytest.raises(NotRational, match="a property of the functions"):
        chance(of_functions(before, -entrywise(tanh, -W.T * r)))
    (evidence,) = Derivation((of_functions(before, -entrywise(tanh, -W.T * r)),), SIZES).verify().evidence
    assert evidence.holds and not evidence.proved


def test_which_solution_is_positive_definite_is_no_identity():
    step = replace(STEPS["solve"], claim=claims.Solves(r, positive_definite=True))
    with pytest.raises(NotRational, match="positive definite"):
        chance(step)


def test_a_second_derivative_is_that_of_a_quadratic_function():
    before = Trace(w.T * M * w) + Trace(w.T * w) ** 2
    step = Step("twice", before, 2 * M, claims.Derivative(w, 2, Integer(1), at_zero=True))
    assert chance(step) is None
    assert chance(replace(step, before=Trace(w.T * M * w))) is not None
    for wrong in (M, 2 * M + U * M - M * U):
        assert chance(replace(step, before=Trace(w.T * M * w), after=wrong)) is None


def test_large_matrices_are_left_to_numbers():
    step = Step("large", LogDet(A), LogDet(A.T), claims.Equal())
    assert chance(step, ({m: 12},)) is not None
    with pytest.raises(NotRational, match="a matrix of 100 rows"):
        chance(step, ({m: 100},))


def test_what_is_singular_everywhere_is_not_decided():
    never = inverse(Z * Z.T + C - C)
    step = Step("singular", Trace(never), Trace(never), claims.Equal())
    with pytest.raises(NotRational, match="that is zero"):
        chance(step, ({m: 3, n: 1},))


@pytest.fixture
def small_prime(monkeypatch):
    """So small that false identities hold by chance."""
    monkeypatch.setattr(field, "PRIME", 409)
    monkeypatch.setattr(field, "MODULUS", 409**3)
    field.square_root.cache_clear()
    yield 409
    field.square_root.cache_clear()


def test_a_false_identity_passes_half_as_often_as_the_bound_admits(small_prime):
    """The product of (x - k)^2 over k = 1 ... 20 is zero modulo the square of the prime at 20 residues of the prime."""
    one, degree, seeds = MatrixSymbol("one", 1, 1), 40, 1500
    polynomial = Integer(1)
    for root in range(1, degree // 2 + 1):
        polynomial *= (Trace(one) - root) ** 2
    step = Step("adversary", polynomial, Integer(0), claims.Equal())
    found = [chance(step, ({n: 1},), seed) for seed in range(seeds)]
    passed, expected = sum(each is not None for each in found) / seeds, degree / 2 / small_prime
    deviation = np.sqrt(expected * (1 - expected) / seeds)
    assert abs(passed - expected) < 4 * deviation
    # the bound that is stated allows for three points, of which singular ones are left out
    assert {each for each in found if each is not None} == {3 * degree / PRIME}


def test_the_documents_say_what_is_proved_and_what_is_not():
    derivation = action("one layer").derivation
    verification = derivation.verify()
    text = as_markdown(list(verification_blocks(verification)))
    bound = written(verification.chance)
    count = len(verification.proved)
    assert f"{count} of them are identities and are proved at the sizes tried" in text and f"at most {bound}" in text
    assert re.search(r"to 1e-10; (\d+) proved", text) and "all configurations of spins, to" in text
    assert str(verification).endswith(
        f"{len(verification.proved)} of them proved at the sizes tried, with an error probability of at most {bound}"
    )
    assert str(verification).count("  proved, chance of error") == count
    assert str(verification).count("on numbers only: an average") == len(verification.evidence) - count
