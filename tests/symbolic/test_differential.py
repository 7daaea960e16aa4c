"""Gradients against automatic differentiation and finite differences, and where SymPy's own derivative is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import (
    Determinant,
    HadamardProduct,
    Heaviside,
    Identity,
    Inverse,
    KroneckerProduct,
    MatPow,
    MatrixSymbol,
    Rational,
    Symbol,
    Trace,
    ZeroMatrix,
    exp,
    floor,
    log,
    sign,
    tanh,
)

from tests.expressions import (
    SHAPES,
    SYMBOLS,
    A,
    B,
    F,
    H,
    L,
    N,
    P,
    R,
    W,
    X,
    assert_close,
    generate,
    random_numbers,
    random_values,
    s,
    scalars,
    t,
    v,
    y,
)
from theorykit.codegen import interpret
from theorykit.symbolic import (
    Diagonal,
    GaussianAverage,
    LogDet,
    PartialTrace,
    PositiveDefiniteSymbol,
    gradient,
    quadratic_form,
)


def symbols_of(expression):
    return [symbol for symbol in SYMBOLS if expression.has(symbol)]


def automatic_gradient(expression, symbol, values):
    """`jax.grad` of the generated function; its symmetric part for a symmetric symbol."""
    function = generate(expression)
    result = jax.grad(lambda value: function({**values, symbol.name: value}))(jnp.asarray(values[symbol.name]))
    return (result + result.T) / 2 if isinstance(symbol, PositiveDefiniteSymbol) else result


def finite_difference(expression, symbol, values, direction, step=1e-3):
    """Central differences of the interpreter along `direction`, extrapolated once to fourth order."""

    def slope(h):
        ends = [{**values, symbol.name: values[symbol.name] + sign * h * direction} for sign in (1, -1)]
        plus, minus = (interpret(expression, end) for end in ends)
        return (plus - minus) / (2 * h)

    return (4 * slope(step / 2) - slope(step)) / 3


def random_direction(symbol, like, seed):
    value = np.random.default_rng(seed).standard_normal(np.shape(like))
    value = value + value.T if isinstance(symbol, PositiveDefiniteSymbol) else value
    return value / np.linalg.norm(value)


def assert_gradient(expression, symbol, values, seed=0):
    result = interpret(gradient(expression, symbol), values)
    direction = random_direction(symbol, values[symbol.name], seed)
    assert_close(result, automatic_gradient(expression, symbol, values))
    assert_close(np.sum(result * direction), finite_difference(expression, symbol, values, direction), 1e-6)


@given(scalars().filter(symbols_of), st.data(), random_numbers, st.integers(0, 100))
def test_gradient_equals_jax_grad_and_finite_differences(expression, data, values, seed):
    assert_gradient(expression, data.draw(st.sampled_from(symbols_of(expression))), values, seed)


@given(scalars().filter(symbols_of), st.data(), random_numbers)
def test_generated_gradient_equals_interpreted_gradient(expression, data, values):
    slope = gradient(expression, data.draw(st.sampled_from(symbols_of(expression))))
    assert_close(generate(slope)(values), interpret(slope, values))


PARTIAL = PartialTrace(W, (H, N), 1)
EVERY_RULE = [
    (Trace(L * PartialTrace(X, (H, N), 1)), X),
    (Trace(R * PartialTrace(X, (H, N), 0)), X),
    (Trace(PartialTrace(X * W, (H, N), 0) * R.T), W),
    (Trace(KroneckerProduct(L, R) * X), L),
    (Trace(KroneckerProduct(L, R) * X), R),
    (LogDet(KroneckerProduct(A, B) + W), A),
    (LogDet(KroneckerProduct(A, B) + W), B),
    (LogDet(F * KroneckerProduct(A, Identity(N)) * F.T + t * Identity(P)), A),
    (quadratic_form(y, Inverse(F * W * F.T + t * Identity(P))), W),
    (quadratic_form(y, Inverse(F * W * F.T + t * Identity(P))), F),
    (quadratic_form(y, Inverse(F * W * F.T + t * Identity(P))), y),
    (quadratic_form(y, Inverse(F * W * F.T + t * Identity(P))), t),
    (quadratic_form(v, X), v),
    (Trace(MatPow(L, 3)), L),
    (Trace(MatPow(A, -2)), A),
    (Trace(X.T * X), X),
    (Trace(L) ** 2 * LogDet(A) + log(Trace(A)) * exp(-Trace(L)), L),
    (s ** Trace(L), L),
    (s ** (t * s), s),
    (Trace(Trace(L) * L * A), L),
    (LogDet(s * A + t**2 * Identity(H)), t),
    (s * Trace(A * L * PARTIAL), W),
    (Trace(A * Inverse(PARTIAL)), W),
    (LogDet(Identity(H) + Inverse(PARTIAL)), W),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("expression", "symbol"), EVERY_RULE, ids=str)
def test_every_rule_gives_the_gradient(expression, symbol, shape):
    assert_gradient(expression, symbol, random_values(shape, 1))


SILENT_FAILURES_OF_SYMPY = [
    (LogDet(L.T * L + Identity(H)), L, 2 * L * Inverse(L.T * L + Identity(H))),
    (LogDet(A), A, Inverse(A)),
    (Trace(L) + Trace(A * L), L, Identity(H) + A),
    (3 * Trace(L) - Trace(L.T * L), L, 3 * Identity(H) - 2 * L),
    (log(Trace(A)), A, Identity(H) / Trace(A)),
    (exp(-Trace(A * L)), L, -exp(-Trace(A * L)) * A),
    (Trace(L) * Trace(L), L, 2 * Trace(L) * Identity(H)),
]


@pytest.mark.parametrize(("expression", "symbol", "expected"), SILENT_FAILURES_OF_SYMPY, ids=str)
def test_gradient_is_right_where_sympy_is_silently_wrong(expression, symbol, expected):
    values = random_values((2, 3, 4), 3)
    result = interpret(gradient(expression, symbol), values)
    assert np.linalg.norm(result) > 0
    assert_close(result, interpret(expected, values), 1e-12)


def test_gradient_of_log_det_of_a_general_matrix_is_its_inverse_transposed():
    assert gradient(LogDet(X), X) == Inverse(X).T


def test_a_kronecker_factor_of_size_one_has_a_gradient():
    one = MatrixSymbol("one", 1, 1)
    values = random_values((2, 3, 4), 4) | {"one": np.array([[0.7]])}
    for product in (KroneckerProduct(one, A), KroneckerProduct(A, one)):
        result = interpret(gradient(Trace(product * L), one), values)
        assert_close(result, [[interpret(Trace(A * L), values)]], 1e-12)


def test_gradient_with_respect_to_an_absent_symbol_is_zero():
    assert gradient(Trace(A), X) == ZeroMatrix(H * N, H * N)
    assert gradient(Trace(A), s) == 0


@pytest.mark.parametrize("symbol", [A, X, v], ids=str)
def test_a_zero_gradient_is_a_matrix_of_zeros(symbol):
    values, zero = random_values((2, 3, 4), 0), gradient(s**2, symbol)
    expected = np.zeros_like(values[symbol.name])
    assert_close(interpret(zero, values), expected)
    assert_close(generate(zero)(values), expected)


@given(scalars(), random_numbers)
def test_gradient_in_a_symmetric_symbol_is_symmetric(expression, values):
    result = interpret(gradient(expression + Trace(W), W), values)
    assert_close(result, result.T, 1e-12)


def test_a_matrix_has_no_gradient():
    with pytest.raises(ValueError, match="scalar"):
        gradient(A * L, A)


WITHOUT_A_RULE = [
    (Determinant(A), A, "Determinant"),
    (Trace(HadamardProduct(A, L)), L, "HadamardProduct"),
    (A[0, 1] ** 2, A, "MatrixElement"),
    (Trace(Diagonal(L) * Diagonal(A).T), L, "Diagonal"),
    (Heaviside(s - 2), s, "Heaviside"),
    (sign(s * t - 2), s, "sign"),
    (GaussianAverage(Heaviside(tanh(t) * s - 2), t), s, "Heaviside"),
    (GaussianAverage(Heaviside(s - 2) * tanh(t), t), s, "Heaviside"),
    (floor(s * t), s, "floor"),
    (Trace(MatPow(A, Rational(1, 2))), A, "MatPow|powers"),
    (Trace(MatPow(A, Symbol("k", integer=True))), A, "MatPow|powers"),
    (Trace(KroneckerProduct(A, B, A)), A, "KroneckerProduct"),
    (Trace(KroneckerProduct(F, F.T)), F, "KroneckerProduct"),
]


@pytest.mark.parametrize(("expression", "symbol", "name"), WITHOUT_A_RULE, ids=str)
def test_a_node_without_a_rule_is_named_and_never_zero(expression, symbol, name):
    with pytest.raises(NotImplementedError, match=name):
        gradient(expression, symbol)
