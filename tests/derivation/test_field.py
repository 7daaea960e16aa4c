"""Values modulo the prime against the same arithmetic with fractions, and degrees against those of polynomials."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sympy import (
    Identity,
    Integer,
    Inverse,
    KroneckerProduct,
    Matrix,
    MatrixSymbol,
    OneMatrix,
    Poly,
    Rational,
    Symbol,
    Trace,
    cancel,
    fraction,
    isprime,
    log,
    pi,
    sqrt,
    symbols,
    tanh,
)
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix

from theorykit.derivation.field import (
    PRIME,
    Dual,
    NotRational,
    Residues,
    SingularPoint,
    determinant,
    inverse,
    random_point,
    square_root,
)
from theorykit.symbolic import Diagonal, SquareRoot, entrywise, symmetric
from theorykit.symbolic.atoms import LogDet, PartialTrace, PrincipalBlock, SideBySide, Stacked
from theorykit.symbolic.matrix_functions import SumOfEntries

A, B, C = (MatrixSymbol(name, 4, 4) for name in "ABC")
x, y = symbols("x y", positive=True)
n = Symbol("n", integer=True, positive=True)


def matrices(size=4):
    entries = st.lists(st.integers(-5, 5), min_size=size**2, max_size=size**2)
    return entries.map(lambda numbers: np.array(numbers, dtype=object).reshape(size, size))


def determinant_of_fractions(matrix):
    """By expansion along the first row, which divides by nothing."""
    if len(matrix) == 1:
        return matrix[0, 0]
    minors = (np.delete(matrix[1:], column, axis=1) for column in range(len(matrix)))
    terms = zip(matrix[0], minors, strict=True)
    return sum((-1) ** i * entry * determinant_of_fractions(minor) for i, (entry, minor) in enumerate(terms))


def inverse_of_fractions(matrix):
    """By cofactors."""
    result = np.empty(matrix.shape, dtype=object)
    for i, j in np.ndindex(*matrix.shape):
        minor = np.delete(np.delete(matrix, i, axis=0), j, axis=1)
        result[j, i] = Fraction((-1) ** (i + j) * determinant_of_fractions(minor), determinant_of_fractions(matrix))
    return result


def in_the_field(numbers):
    def one(number):
        number = Fraction(number)
        return number.numerator * pow(number.denominator, -1, PRIME) % PRIME

    return np.vectorize(one, otypes=[object])(numbers) if isinstance(numbers, np.ndarray) else one(numbers)


def at(**given_values):
    point = random_point({n: 2}, "a test")
    known = {"A": A, "B": B, "C": C}
    return point.where({known[name]: Residues(value % PRIME) for name, value in given_values.items()})


def test_the_prime_is_one_and_has_the_roots_that_are_said():
    assert isprime(PRIME) and PRIME.bit_length() == 127
    assert not any(isprime(PRIME + step) for step in range(8 * 4849845, 2**127 - PRIME, 8 * 4849845))
    for number in (-1, 2, 3, 5, 6, 7, 11, 12, 13, 17, 19):
        assert pow(square_root(number), 2, PRIME) == number % PRIME
    assert square_root(6) == square_root(2) * square_root(3) % PRIME


@given(st.integers(1, 4).flatmap(matrices))
def test_inverse_and_determinant_are_those_of_fractions(matrix):
    expected = determinant_of_fractions(matrix)
    if expected == 0:
        with pytest.raises(SingularPoint):
            determinant(matrix)
        with pytest.raises(SingularPoint):
            inverse(matrix)
    else:
        assert determinant(matrix) == expected % PRIME
        if len(matrix) > 1:
            assert np.array_equal(inverse(matrix), in_the_field(inverse_of_fractions(matrix)))


def test_large_matrices_are_inverted():
    matrix = random_point({}, "large")(MatrixSymbol("X", 12, 12)).entries
    assert np.array_equal(matrix @ inverse(matrix) % PRIME, np.eye(12, dtype=int))


def _blocks(a):
    return [[a[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] for j in range(2)] for i in range(2)]


WAYS = {
    "sums and products": (
        A * B + 3 * A.T - B / 7 + Identity(4),
        lambda a, b: a @ b + 3 * a.T - b / Fraction(7) + _one(),
    ),
    "powers": (A**3 * B, lambda a, b: a @ a @ a @ b),
    "inverse": (Inverse(A) * B, lambda a, b: inverse_of_fractions(a) @ b),
    "inverse power": (A**-2, lambda a, b: inverse_of_fractions(a @ a)),
    "trace": (Trace(A * Inverse(A + B)), lambda a, b: np.trace(a @ inverse_of_fractions(a + b))),
    "scalars": (Trace(A) ** 2 / (3 + Trace(B) ** 2), lambda a, b: Fraction(np.trace(a) ** 2, 3 + np.trace(b) ** 2)),
    "Kronecker": (Trace(KroneckerProduct(A, B) ** 2), lambda a, b: np.trace(np.kron(a, b) @ np.kron(a, b))),
    "partial trace": (PartialTrace(A, (2, 2), 0), lambda a, b: _blocks(a)[0][0] + _blocks(a)[1][1]),
    "other partial trace": (
        PartialTrace(A, (2, 2), 1),
        lambda a, b: np.array([[np.trace(block) for block in row] for row in _blocks(a)]),
    ),
    "stacked": (Stacked(A, 2), lambda a, b: np.vstack([a[:, :2], a[:, 2:]])),
    "side by side": (SideBySide(A, 2), lambda a, b: np.hstack([a[:2], a[2:]])),
    "principal blocks": (
        PrincipalBlock(A, (1, 3), 0) * OneMatrix(1, 3) * PrincipalBlock(B, (1, 3), 1),
        lambda a, b: a[:1, :1] @ np.ones((1, 3), dtype=int) @ b[1:, 1:],
    ),
    "blocks": (BlockMatrix([[A, B], [B, A]]), lambda a, b: np.block([[a, b], [b, a]])),
    "diagonal blocks": (BlockDiagMatrix(A, B), lambda a, b: np.block([[a, 0 * a], [0 * a, b]])),
    "diagonal": (DiagMatrix(Diagonal(A)) * B, lambda a, b: np.diag(np.diag(a)) @ b),
    "sum of entries": (SumOfEntries(A * B), lambda a, b: np.sum(a @ b)),
}


def _one():
    return np.array([[int(i == j) for j in range(4)] for i in range(4)], dtype=object)


@pytest.mark.parametrize(("expression", "expected"), WAYS.values(), ids=WAYS)
@given(a=matrices(), b=matrices())
def test_every_node_is_that_of_fractions(expression, expected, a, b):
    assume(determinant_of_fractions(a) != 0 and determinant_of_fractions(a + b) != 0)
    found, wanted = at(A=a, B=b)(expression).entries, in_the_field(expected(a, b))
    assert np.array_equal(found, wanted)


@given(a=matrices(), b=matrices())
def test_a_derivative_is_that_of_fractions(a, b):
    d = determinant_of_fractions(a)
    assume(d != 0)
    point, inverted = at(A=a, B=b), inverse_of_fractions(a)
    direction = point(B)
    of_log = point.slope(n * LogDet(A) / 3, A, direction)
    assert of_log.entries == in_the_field(Fraction(2, 3) * np.trace(inverted @ b))
    of_inverse = point.slope(Trace(Inverse(A) * B) ** 2, A, direction)
    t = np.trace(inverted @ b)
    assert of_inverse.entries == in_the_field(-2 * t * np.trace(inverted @ b @ inverted @ b))


@given(a=matrices(2), b=matrices(2))
def test_dual_numbers_obey_the_product_rule(a, b):
    found = Dual(a, b) @ Dual(b, a) % PRIME
    assert np.all(found.value == a @ b % PRIME) and np.all(found.slope == (a @ a + b @ b) % PRIME)


def zero(expression):
    point = random_point({n: 2}, "zero")
    return all(each.is_zero for each in point(expression).zeros())


@pytest.mark.parametrize(
    "expression",
    [
        LogDet(A * B) - LogDet(A) - LogDet(B),
        n * LogDet(A) / 4 - LogDet(A.T) / 2,
        LogDet(KroneckerProduct(A, B)) - 4 * LogDet(A) - 4 * LogDet(B),
        log(4) - 2 * log(2),
        x * log(2 * pi * y) - x * log(pi) - x * log(2) - x * log(y),
        sqrt(x) * sqrt(n) * LogDet(x * A) - sqrt(2 * x) * (LogDet(A) + 4 * log(x)),
        sqrt(x * y / 12) * 2 * sqrt(3) - sqrt(x) * sqrt(y),
        (x + y) ** 2 / (x * y) - x / y - y / x - 2,
    ],
)
def test_expressions_that_are_zero_are_found_to_be(expression):
    assert zero(expression)


@pytest.mark.parametrize(
    "expression",
    [
        LogDet(A * B) - LogDet(A),
        x * LogDet(A) - y * LogDet(A),
        LogDet(A) - LogDet(A.T) + 1,
        LogDet(2 * A) - LogDet(A),
        sqrt(n) * LogDet(A) - LogDet(A),
        sqrt(2) * LogDet(A) - sqrt(3) * LogDet(A),
        LogDet(A) - LogDet(A + A.T),
        sqrt(x) - x,
        pi - Rational(355, 113),
        log(x) - log(y),
    ],
)
def test_expressions_that_are_not_zero_are_found_not_to_be(expression):
    assert not zero(expression)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (tanh(x), "tanh"),
        (sqrt(x + y), r"the square root of x \+ y"),
        (x ** Rational(1, 3), "a power 1/3"),
        (LogDet(A) ** 2, "a power of a logarithm"),
        (LogDet(A) * log(x), "a product of logarithms"),
        (LogDet(A) * (1 / (x + 1)), "not a polynomial"),
        (log(log(x)), "the logarithm of a logarithm"),
        (0.3 * x, "Float"),
        (SquareRoot(A), "SquareRoot"),
        (Trace(MatrixSymbol("X", Symbol("m"), 2) * MatrixSymbol("Y", 2, Symbol("m"))), "the size m"),
        (entrywise(lambda entry: tanh(x * entry), A), "with parameters"),
    ],
)
def test_what_is_no_rational_function_is_refused_by_name(expression, why):
    with pytest.raises(NotRational, match=why):
        random_point({n: 2}, "refused")(expression)


def test_symmetric_matrices_are_drawn_for_symmetric_symbols_alone():
    point, S = random_point({}, "symmetric"), symmetric("A", 4)
    assert np.array_equal(point(S).entries, point(S).entries.T)
    assert not np.array_equal(point(A).entries, point(A).entries.T)
    assert point(x).entries == pow(point(sqrt(x)).entries, 2, PRIME)


def test_a_point_that_differs_in_one_symbol_is_the_same_in_all_others():
    point = random_point({n: 2}, "moved")
    moved = point.draw(A)
    assert np.array_equal(moved(Inverse(B)).entries, point(Inverse(B)).entries)
    assert not np.array_equal(moved(A * B).entries, point(A * B).entries)
    assert point.define(((B, A + C),))(Trace(B)).entries == point(Trace(A + C)).entries
    sized = MatrixSymbol("S", n, n)
    assert point.scaled(n, 3)(Trace(Identity(n))).entries == 6 and point.scaled(n, 3)(sized).shape == (6, 6)


OF_DEGREE = {
    "product": Trace(A * B * A),
    "inverse": Trace(Inverse(A) * B),
    "inverse of a sum": Trace(Inverse(Inverse(A) + B)),
    "sum of fractions": 1 / Trace(A) + 1 / Trace(B) + Trace(A * B) / Trace(A + B) ** 2,
    "Kronecker": Trace(KroneckerProduct(A, Inverse(B)) ** 2),
}


@pytest.mark.parametrize("expression", OF_DEGREE.values(), ids=OF_DEGREE)
def test_degrees_are_bounds_of_those_on_a_line(expression):
    """On a random line A = A_0 + t A_1 an expression is a rational function of t, of the full degrees."""
    small = {symbol: MatrixSymbol(symbol.name, 2, 2) for symbol in (A, B)}
    expression, t = expression.xreplace(small), Symbol("t")
    rng = np.random.default_rng(0)
    lines = {
        symbol: Matrix(2, 2, lambda i, j: Integer(rng.integers(-9, 9)) + t * Integer(rng.integers(-9, 9)))
        for symbol in small.values()
    }
    explicit = expression.subs(lines).doit()
    above, below = fraction(cancel(explicit))
    value = random_point({}, "degrees")(expression)
    assert Poly(above, t).degree() <= value.above and Poly(below, t).degree() <= value.below


def test_the_degree_of_a_polynomial_that_has_many_zeros_is_its_own():
    one = MatrixSymbol("one", 1, 1)
    polynomial = Integer(1)
    for root in range(7):
        polynomial *= Trace(one) - root
    value = random_point({}, "roots")(polynomial)
    assert (value.above, value.below) == (7, 0)
    for root, point in product(range(7), [random_point({}, "roots")]):
        given_root = point.where({one: Residues(np.array([[root]], dtype=object))})
        assert given_root(polynomial).is_zero
