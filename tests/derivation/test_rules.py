"""Every rule: what it claims of its step holds on numbers, and what it does not cover it refuses."""

import pytest
from sympy import Identity, MatrixSymbol, S, Trace, cosh, exp, log, sin, tanh
from sympy.matrices.expressions.diagonal import DiagMatrix

from tests.marks import slow
from theorykit.derivation import Derivation, claims, rules
from theorykit.derivation.rules import RuleError
from theorykit.symbolic import entrywise, inverse, kronecker, normal, positive_definite, sum_of
from theorykit.symbolic.algebra import expand_products
from theorykit.symbolic.atoms import LogDet, Stacked

from .examples import (
    SIZES,
    STEPS,
    A,
    B,
    C,
    G,
    J,
    M,
    N,
    P,
    Q,
    R,
    T,
    U,
    V,
    W,
    Z,
    assignment,
    distinct,
    drive,
    f,
    j,
    k,
    m,
    n,
    r,
    scale,
    t,
    v,
    w,
    y,
)

every_rule = pytest.mark.parametrize("name", STEPS)


@every_rule
@pytest.mark.parametrize("seed", [0, *slow([1])])
def test_the_claim_of_every_rule_holds_on_numbers(name, seed):
    step = STEPS[name]
    # averages over hidden units take a second at any sizes
    sizes = SIZES[1:2] if isinstance(step.claim, claims.SameMoments) else SIZES
    verification = Derivation((step,), sizes).verify(seed)
    assert verification.holds, str(verification)


@every_rule
def test_every_rule_changes_something_and_has_a_name(name):
    step = STEPS[name]
    assert step.after != step.before
    assert step.rule


def test_a_rule_keeps_what_it_is_told_to_record():
    record = {"section": "Somewhere", "equations": "12", "assumptions": ("N large",)}
    step = rules.reduce_traces(Trace(kronecker(Identity(k), U)), **record)
    assert (step.section, step.equations, step.assumptions) == ("Somewhere", "12", ("N large",))


def test_every_rule_has_an_example():
    defined = {name for name, each in vars(rules).items() if getattr(each, "__module__", "") == rules.__name__}
    not_rules = {
        "bilinear_matrix",
        "inner_matrix",
        "inner_of_form",
        "polynomial",
        "solve_for",
        "terms_with",
        "terms_without",
    }
    shown = {name.split(" ")[0] for name in STEPS}
    assert {name for name in defined if name[0].islower()} - not_rules == shown


X = positive_definite("X", m)
SUM = LogDet(U) + Trace(U * M) + LogDet(M) * Trace(Q) + N * n + log(scale)
UNTOUCHED = Trace(y.T * inverse(inverse(C) + A * A.T) * y)
TWO_PATHS = {Z: v * w.T, y: B * w}
# of rules and of what takes expressions apart: found, and expected
FOUND = {
    "an average of what does not vary": lambda: (
        rules.gaussian_average(Trace(M), v, C).after,
        Trace(M),
    ),
    "an exact solution": lambda: (STEPS["eliminate"].definitions[0][1], inverse(U) - inverse(M)),
    "an update that is none": lambda: (rules.woodbury(UNTOUCHED, C, M).after, UNTOUCHED),
    "blocks that are not stacked": lambda: (rules.unstack(Trace(A.T * A)).after, Trace(A.T * A)),
    "a determinant without blocks": lambda: (rules.gather_blocks(LogDet(U)).after, LogDet(U)),
    "constants": lambda: (SUM - rules.drop_constants(SUM, (U, Q)).after, N * n + log(scale)),
    "terms with and without": lambda: (rules.terms_with(SUM, U) + rules.terms_without(SUM, U), SUM),
    "an inner matrix": lambda: (rules.inner_matrix(2 * Trace(R * M * R.T) / N, R), 2 * M / N),
    "a quadratic form": lambda: (rules.inner_of_form(Trace(j.T * M * j) / N + Trace(M * j * j.T), j), M / N + M),
    "a bilinear form": lambda: (rules.bilinear_matrix(2 * Trace(y.T * B * j), y, j), B),
    "a bilinear form transposed": lambda: (rules.bilinear_matrix(2 * Trace(j.T * B.T * y), y, j), B),
    "a solution between factors": lambda: (rules.solve_for(C * X * C - A * A.T, X), inverse(C) * A * A.T * inverse(C)),
    "a solution in an inverse": lambda: (
        rules.solve_for(inverse(inverse(C) + X) - A * A.T, X),
        inverse(A * A.T) - inverse(C),
    ),
    "a leading order": lambda: (rules.leading_order(N * Trace(U) + LogDet(U), N).after, N * Trace(U)),
    "a number before a response": lambda: (rules.response(Z.T * y, {Z: v * (M * w).T}, w).after, Trace(y.T * v) * M),
    "a response of two paths": lambda: (
        rules.response(Z.T * y, TWO_PATHS, w).after,
        sum_of([rules.response(Z.T * y, {symbol: change}, w).after for symbol, change in TWO_PATHS.items()]),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_rule_arrives_at_what_is_expected(name):
    found, expected = FOUND[name]()
    if found.is_Matrix:
        assert expand_products(found - expected).is_ZeroMatrix
    else:
        assert normal(found - expected) == 0


def test_a_multiplier_fixes_its_variable():
    ((variable, _),) = STEPS["constrain"].definitions
    assert variable == U and not STEPS["constrain"].after.has(Q)


SQUARES = Trace((f - y).T * (f - y)) / T


def gathered(before):
    return rules.gather_classes(before, (W, drive), (MatrixSymbol("C_c", P, n), distinct), assignment)


def gathered_columns(before):
    classes = MatrixSymbol("Xbar_c", P, n), MatrixSymbol("X_c", P, n), distinct
    return rules.gather_columns(before, (W, drive), classes, assignment)


REFUSED = {
    "linearise_square: not a square": lambda: rules.linearise_square(Trace(A.T * A * A) / T, t),
    "linearise_square: no trace": lambda: rules.linearise_square(LogDet(C) / T, t),
    "linearise_form: not a form": lambda: rules.linearise_form(LogDet(M), r, w, N),
    "split_into_rows: no trace": lambda: rules.split_into_rows(LogDet(C) + SQUARES, [(v, V)]),
    "split_into_rows: no rows": lambda: rules.split_into_rows(SQUARES, [(v, V)]),
    "split_into_rows: rows far apart": lambda: rules.split_into_rows(Trace(V * A * Z * R.T * R), [(v, V)]),
    "gaussian_average: cubic": lambda: rules.gaussian_average(Trace(v.T * A * v * v.T * y), v, C),
    "gaussian_average: inside a determinant": lambda: rules.gaussian_average(LogDet(C + v * v.T), v, C),
    "determinant_lemma: no determinant": lambda: rules.determinant_lemma(SQUARES, C, M),
    "determinant_lemma: other covariance": lambda: rules.determinant_lemma(LogDet(2 * C + Z * M * Z.T), C, M),
    "determinant_lemma: full rank": lambda: rules.determinant_lemma(LogDet(inverse(C) + A * A.T), C, M),
    "determinant_lemma: two updates": lambda: rules.determinant_lemma(
        LogDet(inverse(C) + Z * M * Z.T + B * M * B.T), C, M
    ),
    "invert_update: full rank": lambda: rules.invert_update(Trace(inverse(inverse(C) + A * A.T)), C, M),
    "invert_update: no inverse": lambda: rules.invert_update(LogDet(inverse(C) + Z * M * Z.T), C, M),
    "push_through: nothing to push": lambda: rules.push_through(inverse(inverse(C) + Z * M * Z.T) * y, C, M),
    "push_through: another matrix": lambda: rules.push_through(U * Z.T * inverse(inverse(C) + Z * M * Z.T) * y, C, M),
    "rescale: absent": lambda: rules.rescale(LogDet(M) + Trace(inverse(M)), C, scale),
    "abbreviate: absent": lambda: rules.abbreviate(LogDet(M), {Q: Z.T * Z}),
    "abbreviate: a multiple": lambda: rules.abbreviate(LogDet(M + Z.T * Z), {Q: 2 * Z.T * Z}),
    "sum_over_rows: no quadratic form": lambda: rules.sum_over_rows(Trace(r.T * M * w), N, [(r, R)]),
    "insert_order_parameter: absent": lambda: rules.insert_order_parameter(LogDet(M), Z.T * C * Z, U, Q, N),
    "insert_order_parameter: another factor": lambda: rules.insert_order_parameter(
        LogDet(inverse(M) + 2 * Z.T * C * Z), Z.T * C * Z, U, Q, N
    ),
    "gather_blocks: not the same blocks": lambda: rules.gather_blocks(
        Trace(U * Stacked(MatrixSymbol("X", N, k * n), k).T * Stacked(MatrixSymbol("Y", N, k * n), k))
    ),
    "gather_blocks: mixed rows": lambda: rules.gather_blocks(
        Trace(
            U
            * Stacked(MatrixSymbol("X", N, k * n), k).T
            * MatrixSymbol("mix", k * N, k * N)
            * Stacked(MatrixSymbol("X", N, k * n), k)
        )
    ),
    "join_branches: a branch is missing": lambda: rules.join_branches(
        Trace(M * R.T * R), (R, V), MatrixSymbol("j", N, n + m), N
    ),
    "unstack: no trace": lambda: rules.unstack(LogDet(C)),
    "name: no trace": lambda: rules.name(LogDet(Z.T * C * Z), Q, Z.T * C * Z),
    "vectorise: no trace": lambda: rules.vectorise(LogDet(C), m),
    "sum_over_rows: in a determinant": lambda: rules.sum_over_rows(LogDet(M + r * r.T), N, [(r, R)]),
    "vectorise: no blocks": lambda: rules.vectorise(Trace(A.T * A), m),
    "name: absent": lambda: rules.name(Trace(A.T * A), Q, Z.T * C * Z),
    "leading_order: quadratic": lambda: rules.leading_order(N**2 * LogDet(U), N),
    "gaussian_density: linear term": lambda: rules.gaussian_density(Trace(j.T * M * j) + Trace(j.T * w), j, r),
    "gaussian_density: constant": lambda: rules.gaussian_density(Trace(j.T * M * j) + LogDet(M), j, r),
    "source_derivative: cubic": lambda: rules.source_derivative(Trace(j.T * M * j * j.T * w), j, S.One),
    "eliminate: twice": lambda: rules.eliminate(LogDet(Q) - Trace(U * Q) + Trace(M * inverse(Q)), Q),
    "eliminate: absent": lambda: rules.eliminate(LogDet(U), Q),
    "eliminate: linear": lambda: rules.eliminate(Trace(U * Q), Q),
    "eliminate: two numbers": lambda: rules.eliminate(scale**4 - 2 * scale**2, scale),
    "eliminate: in a log-determinant": lambda: rules.eliminate(LogDet(U + scale * M) + scale, scale),
    "eliminate: transcendental": lambda: rules.eliminate(sin(scale) - scale**3, scale),
    "eliminate_constrained: not linear": lambda: rules.eliminate_constrained(LogDet(Q) - Trace(U * Q), Q, U),
    "constrain: not linear": lambda: rules.constrain(LogDet(Q) - Trace(U * Q), Q, U),
    "constrain: not a multiple": lambda: rules.constrain(Trace(Q * U) - Trace(Q * M * J), Q, U),
    "riccati: cubic": lambda: rules.riccati(inverse(U) * M * inverse(U) * G * inverse(U) - M, U),
    "riccati: linear": lambda: rules.riccati(M - inverse(U), U),
    "inner_matrix: other order": lambda: rules.inner_matrix(Trace(M * R.T * MatrixSymbol("K", N, N) * R), R),
    "inner_matrix: absent": lambda: rules.inner_matrix(Trace(M), R),
    "inner_of_form: linear": lambda: rules.inner_of_form(Trace(j.T * w), j),
    "bilinear_matrix: other column": lambda: rules.bilinear_matrix(Trace(j.T * M * w), j, r),
    "insert_overlap: absent": lambda: rules.insert_overlap(LogDet(U), Z.T * y, r, w, N),
    "name_sum: absent": lambda: rules.name_sum(A * Z, B, A * B + Z),
    "sum_over_spins: quadratic": lambda: rules.sum_over_spins(Trace(y.T * C * y), y),
    "sum_over_spins: no spins": lambda: rules.sum_over_spins(LogDet(C), y),
    "covariance_over_spins: quadratic": lambda: rules.covariance_over_spins(Trace(y.T * C * y), y, A * y),
    "covariance_over_spins: no column of spins": lambda: rules.covariance_over_spins(Trace(y.T * v), y, A * f),
    "covariance_over_spins: not linear": lambda: rules.covariance_over_spins(Trace(y.T * v), y, y * y.T * A * y),
    "gather_columns: an odd function": lambda: gathered_columns(W * DiagMatrix(entrywise(tanh, drive.T * y)) * W.T),
    "gather_columns: no function": lambda: gathered_columns(W * DiagMatrix(drive.T * y) * W.T),
    "gather_columns: other columns": lambda: gathered_columns(W * DiagMatrix(entrywise(cosh, drive.T * y)) * R),
    "gather_columns: one side": lambda: gathered_columns(W * entrywise(cosh, drive.T * y)),
    "gather_classes: another function": lambda: gathered(W * entrywise(cosh, drive.T * y)),
    "gather_classes: nothing shared": lambda: gathered(W * entrywise(tanh, V * y) + r),
    "gather_classes: weights elsewhere": lambda: gathered(W * entrywise(tanh, V * A.T * drive * V * y)),
    "gather_classes: a shift": lambda: gathered(W * entrywise(tanh, drive.T * y + V * f)),
    "set_to_zero: absent": lambda: rules.set_to_zero(A * Z, w),
    "write_out: absent": lambda: rules.write_out(A * Z, {B: Z}),
    "solve_for: in a sum of products": lambda: rules.solve_for(inverse(U + U * M * U) - M, U),
}


@pytest.mark.parametrize("apply", REFUSED.values(), ids=REFUSED)
def test_what_a_rule_does_not_cover_it_refuses(apply):
    with pytest.raises(RuleError):
        apply()


def test_rows_and_overlaps_that_are_none_are_refused_by_name():
    with pytest.raises(ValueError, match="rows must have at least one pair"):
        rules.split_into_rows(S.One, [])
    overlap = positive_definite("U", 3)
    with pytest.raises(ValueError, match="given must have fewer rows than overlap, but both have 3"):
        rules.gram_volume(S.One, MatrixSymbol("X", 3, 5), overlap, S(5), positive_definite("G", 3))


def test_the_order_of_blocks_is_that_of_kronecker_products():
    step = STEPS["gather_blocks"]
    kappa = positive_definite("kappa", k)
    assert step.after.has(kronecker(kappa, U)) and not step.after.has(kronecker(U, kappa))


def test_numbers_in_functions_do_not_matter_to_rules():
    step = rules.drop_constants(exp(-scale) * LogDet(U) + exp(-scale), (U,))
    assert Derivation((step,), SIZES).verify().holds


def test_forces_are_named_and_defined():
    step = STEPS["slope through definitions"]
    ((force, value),) = step.definitions
    assert step.after.has(force) and value.has(tanh) and not value.has(force)
