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
    S,
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
    MODULUS,
    PRIME,
    NotRational,
    Point,
    Residues,
    SingularPoint,
    defined,
    eliminate,
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
    return int(Matrix(matrix).det())


def inverse_of_fractions(matrix):
    inverted = Matrix(matrix).inv()
    return np.vectorize(lambda entry: Fraction(int(entry.p), int(entry.q)), otypes=[object])(np.array(inverted))


def in_the_field(numbers):
    def one(number):
        number = Fraction(number)
        return number.numerator * pow(number.denominator, -1, MODULUS) % MODULUS

    return np.vectorize(one, otypes=[object])(numbers) if isinstance(numbers, np.ndarray) else one(numbers)


def at(**given_values):
    known = {"A": A, "B": B, "C": C}
    values = {known[name]: Residues(value % MODULUS) for name, value in given_values.items()}
    return Point({n: 2}, "a test").where(values)


def test_the_prime_is_one_and_has_the_roots_that_are_said():
    assert isprime(PRIME) and PRIME.bit_length() == 127
    assert not any(isprime(PRIME + step) for step in range(8 * 4849845, 2**127 - PRIME, 8 * 4849845))
    for number in (-1, 2, 3, 5, 6, 7, 11, 12, 13, 17, 19):
        assert pow(square_root(number), 2, MODULUS) == number % MODULUS
    assert square_root(6) == square_root(2) * square_root(3) % MODULUS


@given(st.integers(1, 4).flatmap(matrices))
def test_inverse_and_determinant_are_those_of_fractions(matrix):
    expected, value = determinant_of_fractions(matrix), Residues(matrix % MODULUS)
    one, none = (np.eye(len(matrix), size, dtype=object) for size in (len(matrix), 0))
    if expected == 0:
        with pytest.raises(SingularPoint):
            eliminate(value, none)
        return
    assert eliminate(value, none)[1].entries == expected % MODULUS
    if len(matrix) > 1:
        assert np.array_equal(eliminate(value, one)[0].entries, in_the_field(inverse_of_fractions(matrix)))


def test_large_matrices_are_inverted():
    X = MatrixSymbol("X", 12, 12)
    assert np.array_equal(Point({}, "large")(X * Inverse(X)).entries, np.eye(12, dtype=int))


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
    of_log = point.slope(lambda moved: moved(n * LogDet(A) / 3), A, direction)
    assert (of_log - in_the_field(Fraction(2, 3) * np.trace(inverted @ b))).is_zero
    of_inverse = point.slope(lambda moved: moved(Trace(Inverse(A) * B) ** 2), A, direction)
    t = np.trace(inverted @ b)
    assert (of_inverse - in_the_field(-2 * t * np.trace(inverted @ b @ inverted @ b))).is_zero
    assert not (of_inverse - in_the_field(1 - 2 * t * np.trace(inverted @ b @ inverted @ b))).is_zero


def test_a_derivative_has_the_logarithms_that_the_function_multiplies():
    """d/dx x log(x y) = log(x y) + 1, of which the logarithm is known to fewer digits."""
    point = Point({}, "product with a logarithm")
    slope = point.slope(lambda moved: moved(x * log(x * y)), x, Residues(1))
    assert (slope - point(log(x) + log(y) + 1)).is_zero
    assert not any((slope - point(wrong)).is_zero for wrong in (log(x) + log(y), log(x) + 1, S.One))


def zero(expression):
    return Point({n: 2}, "zero")(expression).is_zero


@pytest.mark.parametrize(
    "expression",
    [
        LogDet(A * B) - LogDet(A) - LogDet(B),
        n * LogDet(A) / 4 - LogDet(A.T) / 2,
        LogDet(KroneckerProduct(A, B)) - 4 * LogDet(A) - 4 * LogDet(B),
        log(4) - 2 * log(2),
        (LogDet(A * B) - LogDet(A) - LogDet(B)) / (x + 1),
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
        LogDet(A) / (x + 1) - LogDet(A) / (y + 1),
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
        (1 / LogDet(A), "a power of a logarithm"),
        (LogDet(A) * log(x), "a product of logarithms"),
        (Inverse(log(x) * A), "a matrix of logarithms"),
        (log(log(x)), "the logarithm of a logarithm"),
        (0.3 * x, "Float"),
        (SquareRoot(A), "SquareRoot"),
        (Trace(MatrixSymbol("X", Symbol("m"), 2) * MatrixSymbol("Y", 2, Symbol("m"))), "the size m"),
        (entrywise(lambda entry: tanh(x * entry), A), "with parameters"),
    ],
)
def test_what_is_no_rational_function_is_refused_by_name(expression, why):
    with pytest.raises(NotRational, match=why):
        Point({n: 2}, "refused")(expression)


def test_symmetric_matrices_are_drawn_for_symmetric_symbols_alone():
    point, even = Point({}, "symmetric"), symmetric("A", 4)
    assert np.array_equal(point(even).entries, point(even).entries.T)
    assert not np.array_equal(point(A).entries, point(A).entries.T)
    assert point(x).entries == pow(point(sqrt(x)).entries, 2, MODULUS)


def test_a_point_that_differs_in_one_symbol_is_the_same_in_all_others():
    point = Point({n: 2}, "moved")
    moved = point.draw(A)
    assert np.array_equal(moved(Inverse(B)).entries, point(Inverse(B)).entries)
    assert not np.array_equal(moved(A * B).entries, point(A * B).entries)
    assert defined(point, ((B, A + C),))(Trace(B)).entries == point(Trace(A + C)).entries
    sized = MatrixSymbol("S", n, n)
    wider = point.where({n: 3 * point(n)})
    assert wider(Trace(Identity(n))).entries == 6 and wider(sized).shape == (6, 6)


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
    value = Point({}, "degrees")(expression)
    assert Poly(above, t).degree() <= value.above and Poly(below, t).degree() <= value.below


def test_the_degree_of_a_polynomial_that_has_many_zeros_is_its_own():
    one = MatrixSymbol("one", 1, 1)
    polynomial = Integer(1)
    for root in range(7):
        polynomial *= Trace(one) - root
    value = Point({}, "roots")(polynomial)
    assert (value.above, value.below) == (7, 0)
    for root, point in product(range(7), [Point({}, "roots")]):
        given_root = point.where({one: Residues(np.array([[root]], dtype=object))})
        assert given_root(polynomial).is_zero
