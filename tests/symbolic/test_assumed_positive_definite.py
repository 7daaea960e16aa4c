"""A matrix that is positive definite at the solution only: an identity where it is, NaN where it is not, and named."""

import jax
import numpy as np
import pytest
from sympy import Identity, KroneckerProduct, Symbol, Trace, Transpose, symbols

from theorykit import saddle
from theorykit.codegen import compile_expressions, interpret
from theorykit.derivation import Derivation, Step, claims, solving
from theorykit.symbolic import assume_positive_definite, inverse, log_det, normal, positive_definite, symmetric
from theorykit.symbolic.documents.rendering import latex
from theorykit.symbolic.matrix_functions import is_positive_definite, is_symmetric

n = Symbol("n", integer=True, positive=True)
alpha = Symbol("alpha", positive=True)
A, C, Q = symmetric("A", n), positive_definite("C", n), positive_definite("Q", n)
ASSUMED = assume_positive_definite(inverse(C) + A)
S = log_det(ASSUMED) + Trace(inverse(ASSUMED) * Q)
INSIDE = np.array([[0.4, 0.3], [0.3, -0.2]])
OUTSIDE = -np.eye(2)  # the determinant of the matrix is positive here, but it has two negative eigenvalues
DATA = {"C": np.diag(np.array([0.5, 0.8])), "Q": np.array([[2.0, 0.5], [0.5, 1.0]])}
CHANNEL = saddle.Action(
    -Trace(A * Q) / 2 + log_det(ASSUMED) / 2 + log_det(C) / 2 + alpha * log_det(Identity(n) + Q) / 2,
    {A: saddle.Symmetric(), Q: saddle.PositiveDefinite()},
    [C, alpha],
)


def compiled(expressions, at):
    return compile_expressions("f", expressions, [A, C, Q])(**jax.tree.map(jax.numpy.asarray, {"A": at, **DATA}))


def test_of_the_same_value_where_it_is_positive_definite():
    matrix = np.linalg.inv(DATA["C"]) + INSIDE
    expected = np.log(np.linalg.det(matrix)) + np.trace(np.linalg.solve(matrix, DATA["Q"]))
    assert abs(compiled({"S": S}, INSIDE)["S"] - expected) < 1e-14
    assert abs(interpret(S, {"A": INSIDE, **DATA, "n": 2}) - expected) < 1e-14


def test_nan_where_it_is_not_even_if_the_determinant_is_positive():
    outside = 5 * OUTSIDE
    assert np.linalg.det(np.linalg.inv(DATA["C"]) + outside) > 0
    assert np.isnan(compiled({"S": S}, outside)["S"])
    assert np.isnan(interpret(S, {"A": outside, **DATA, "n": 2}))


def test_transparent_in_print_but_kept_by_algebra():
    assert latex(log_det(ASSUMED)) == latex(log_det(inverse(C) + A))
    assert latex(A * ASSUMED) == latex(A * (inverse(C) + A))
    assert normal(S) == S and normal(2 * Trace(ASSUMED * Q) - Trace(2 * ASSUMED * Q)) == 0
    assert Transpose(ASSUMED).doit() == ASSUMED and inverse(inverse(ASSUMED)) == ASSUMED
    assert (
        is_positive_definite(ASSUMED) and is_positive_definite(KroneckerProduct(ASSUMED, Q)) and is_symmetric(ASSUMED)
    )


def test_dropped_where_it_can_be_proved():
    assert assume_positive_definite(inverse(C) + Q) == inverse(C) + Q
    assert normal(log_det(ASSUMED).xreplace({A: Q - inverse(C)})) == log_det(Q)
    assert inverse(ASSUMED.xreplace({A: Q - inverse(C)})) == inverse(Q)


@pytest.mark.parametrize("matrix", [Identity(n) + A * C, A * C, C - A * C * A * C])
def test_refuses_matrices_that_are_not_provably_symmetric(matrix):
    with pytest.raises(ValueError, match="provably symmetric"):
        assume_positive_definite(matrix)


def test_the_compiler_suggests_it():
    with pytest.raises(ValueError, match="assume_positive_definite"):
        saddle.Action(log_det(Identity(n) + A), {A: saddle.Symmetric()})


def test_steps_are_verified_where_the_matrix_is_positive_definite():
    lemma = solving.eliminate(-Trace(A * Q) + log_det(ASSUMED), A)
    found = Derivation((lemma,), ({n: 2}, {n: 3})).verify()
    assert found.holds and len(found.proved) == 1
    before = log_det(assume_positive_definite(A - 100 * Identity(n)))
    never = Step("never", before, before.xreplace({A: Q}), claims.Equal(((A, Q),)))
    assert "not a number" in str(Derivation((never,), ({n: 2},)).verify())


def test_points_outside_are_nan_and_named():
    values = {C: np.eye(2), alpha: 1.0}
    assert np.isfinite(CHANNEL(A=INSIDE, Q=np.eye(2), C=np.eye(2), alpha=1.0))
    with pytest.warns(RuntimeWarning, match=r"NaN: C\*\*\(-1\) \+ A is not positive definite"):
        assert np.isnan(CHANNEL(A=5 * OUTSIDE, Q=np.eye(2), C=np.eye(2), alpha=1.0))
    with pytest.raises(ValueError, match="not positive definite, its smallest eigenvalue is -4"):
        saddle.minimise(CHANNEL, values, initial={A: 5 * OUTSIDE, Q: np.eye(2)})


def test_a_solve_outside_names_the_matrix():
    x = symbols("x", real=True)
    nowhere = saddle.Action(log_det(assume_positive_definite(C - (100 + x**2) * Identity(n))), {x: saddle.Real()}, [C])
    with pytest.warns(saddle.ConvergenceWarning, match="is not positive definite, its smallest eigenvalue is"):
        found = saddle.minimise(nowhere, {C: np.eye(2)})
    assert not found.converged
