"""Equations that are solved, and those that have no solution of the supported form, or several."""

import pytest
from sympy import Interval, MatrixSymbol, S, Trace, oo, sin

from theorykit.derivation import Derivation, solving
from theorykit.derivation.solving import RuleError
from theorykit.symbolic import inverse, positive_definite, sum_of
from theorykit.symbolic.atoms import LogDet

from .examples import SIZES, A, C, G, J, M, Q, U, m, multiplier, n, scale

X = positive_definite("X", m)
SOLVED = {
    "between factors": (C * X * C - A * A.T, inverse(C) * A * A.T * inverse(C)),
    "in an inverse of a sum": (inverse(inverse(C) + X) - A * A.T, sum_of([inverse(A * A.T), -inverse(C)])),
}


@pytest.mark.parametrize(("equation", "solution"), SOLVED.values(), ids=SOLVED)
def test_a_matrix_that_occurs_once_is_solved_for(equation, solution):
    assert solving.solve_for(equation, X) == solution


def test_of_several_numbers_the_one_in_the_range_is_the_solution():
    equation, negative = scale**2 - 4, {scale: Interval.open(-oo, 0)}
    assert solving.solve_for(equation, scale, {scale: Interval.open(0, oo)}) == 2
    assert solving.solve_for(equation, scale, negative) == -2


REFUSED = {
    "eliminate: twice": lambda: solving.eliminate(LogDet(Q) - Trace(U * Q) + Trace(M * inverse(Q)), Q),
    "eliminate: absent": lambda: solving.eliminate(LogDet(U), Q),
    "eliminate: linear": lambda: solving.eliminate(Trace(U * Q), Q),
    "eliminate: two numbers": lambda: solving.eliminate(scale**4 - 2 * scale**2, scale),
    "eliminate: in a log-determinant": lambda: solving.eliminate(LogDet(U + scale * M) + scale, scale),
    "eliminate: transcendental": lambda: solving.eliminate(sin(scale) - scale**3, scale),
    "eliminate_constrained: not linear": lambda: solving.eliminate_constrained(LogDet(Q) - Trace(U * Q), Q, U),
    "eliminate_constrained: two solutions": lambda: solving.eliminate_constrained(
        multiplier * (scale**2 - 3 * scale + 2), multiplier, scale
    ),
    "riccati: cubic": lambda: solving.riccati(inverse(U) * M * inverse(U) * G * inverse(U) - M, U),
    "riccati: linear": lambda: solving.riccati(M - inverse(U), U),
    "solve_for: in a sum of products": lambda: solving.solve_for(inverse(U + U * M * U) - M, U),
    "solve_for: in a product of sums": lambda: solving.solve_for(inverse(U + J * U * J) - M, U),
}


@pytest.mark.parametrize("solve", REFUSED.values(), ids=REFUSED)
def test_equations_without_one_supported_solution_are_refused(solve):
    with pytest.raises(RuleError):
        solve()


def test_large_terms_of_numbers_are_not_expanded():
    """An action of numbers keeps its form, because terms of an expansion may cancel."""
    number = S(10)
    step = solving.eliminate((scale - number) ** 2 + scale * n, scale)
    assert step.after == (step.claim.solution - number) ** 2 + step.claim.solution * n
    assert Derivation((step,), SIZES).verify().holds


def test_a_matrix_and_its_transpose_are_two_occurrences():
    with pytest.raises(RuleError, match="must occur in one"):
        solving.solve_for(MatrixSymbol("F", m, m) + MatrixSymbol("F", m, m).T - C, MatrixSymbol("F", m, m))
