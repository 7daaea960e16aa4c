"""Random matrix and scalar expressions over a few fixed symbols, and random values of these symbols."""

from collections import Counter
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.extend.core import jaxprs_in_params
from sympy import (
    Identity,
    Inverse,
    KroneckerProduct,
    MatMul,
    MatPow,
    MatrixSymbol,
    Rational,
    Symbol,
    Trace,
    Transpose,
    exp,
    log,
)

from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import Diagonal, gradient, partial_trace, positive_definite, quadratic_form, trace
from theorykit.symbolic.atoms import LogDet, PartialTrace, PositiveDefiniteSymbol, SymmetricSymbol

H, N, P = (Symbol(name, integer=True, positive=True) for name in "HNP")
SHAPES = ((2, 3, 4), (1, 2, 1))

A, B, W = positive_definite("A", H), positive_definite("B", N), positive_definite("W", H * N)
L, R, X = MatrixSymbol("L", H, H), MatrixSymbol("R", N, N), MatrixSymbol("X", H * N, H * N)
F, y, v = MatrixSymbol("F", P, H * N), MatrixSymbol("y", P, 1), MatrixSymbol("v", H * N, 1)
s, t = Symbol("s", positive=True), Symbol("t", positive=True)
SYMBOLS = (A, B, W, L, R, X, F, y, v, s, t)
DEFINITE, GENERAL = {H: A, N: B, H * N: W}, {H: L, N: R, H * N: X}

square_sizes = st.sampled_from([H, N, H * N, P])


def random_values(shape, seed):
    """A value for every symbol and size, by name: well-conditioned definite matrices, entries of order one."""
    generator, sizes = np.random.default_rng(seed), dict(zip((H, N, P), shape, strict=True))
    drawn = {symbol.name: random_value(symbol, sizes, generator) for symbol in SYMBOLS}
    return drawn | {size.name: float(number) for size, number in sizes.items()}


def random_value(symbol, sizes, generator):
    if not symbol.is_Matrix:
        return float(generator.uniform(0.5, 1.5))
    rows, columns = (int(dimension.subs(sizes)) for dimension in symbol.shape)
    value = generator.standard_normal((rows, columns)) / np.sqrt(rows)
    return value @ value.T + np.eye(rows) if isinstance(symbol, PositiveDefiniteSymbol) else value


random_numbers = st.builds(random_values, st.sampled_from(SHAPES), st.integers(0, 2**32 - 1))


def generate(expression):
    """The generated JAX function of `expression`, of a dictionary of values by name."""
    function = compile_expressions("generated", {"value": expression}, SYMBOLS)
    return lambda values: function(**{symbol.name: jnp.asarray(values[symbol.name]) for symbol in SYMBOLS})["value"]


def primitives_of(outputs, arguments, values):
    """How often each JAX operation occurs in the compiled function, counted in its jaxpr."""

    def count(jaxpr):
        found = Counter(equation.primitive.name for equation in jaxpr.eqns)
        for equation in jaxpr.eqns:
            # A solve contains the product and the substitutions that it may use.
            inner = () if equation.primitive.name == "custom_linear_solve" else jaxprs_in_params(equation.params)
            found += sum(map(count, inner), Counter())
        return found

    function = compile_expressions("counted", outputs, arguments)
    arrays = {each.name: jnp.asarray(values[each.name]) for each in arguments}
    return count(jax.make_jaxpr(lambda given: function(**given))(arrays).jaxpr)


def assert_close(actual, expected, tolerance=1e-9):
    """Largest difference small beside the largest entry, or beside one."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.max(np.abs(actual - expected)) <= tolerance * (1 + np.max(np.abs(expected)))


def assert_gradient(
    expression, symbol, values, compiled=generate, close=1e-9, differences=1e-6, steps=(1e-3, 5e-4), seed=0
):
    """The gradient, interpreted and generated, is that of JAX and, along a direction, of differences.

    `compiled` makes of an expression a function of values by name. A gradient by a symmetric symbol is symmetric.
    """

    def in_space(value):
        return (value + value.T) / 2 if isinstance(symbol, SymmetricSymbol) else value

    slope, start, function = gradient(expression, symbol), values[symbol.name], compiled(expression)
    automatic = in_space(jax.grad(lambda at: function({**values, symbol.name: at}))(jnp.asarray(start)))
    assert_close(interpret(slope, values), automatic, close)
    assert_close(compiled(slope)(values), automatic, 1e-10)
    direction = in_space(np.random.default_rng(seed).standard_normal(np.shape(start)))

    def difference(h):
        ends = (interpret(expression, {**values, symbol.name: start + sign * h * direction}) for sign in (1, -1))
        return -np.diff(list(ends))[0] / (2 * h)

    # central differences, extrapolated if there are two steps
    found = [difference(step) for step in steps]
    found = found[0] if len(found) == 1 else (4 * found[1] - found[0]) / 3
    assert_close(found, np.sum(automatic * direction), differences)


def kronecker(left, right):
    """Kronecker product with scalar coefficients in front: SymPy multiplies no others."""
    (c, a), (d, b) = left.doit().as_coeff_mmul(), right.doit().as_coeff_mmul()
    return c * d * KroneckerProduct(a.doit(), b.doit())


@lru_cache
def definite(size, depth=2):
    """Provably positive definite expressions of the given size."""
    base = st.just(DEFINITE[size] if size in DEFINITE else F * W * F.T + t * Identity(P))
    if depth == 0:
        return base
    same = definite(size, depth - 1)
    rules = [
        st.builds(Inverse, same),
        st.builds(lambda a, b: a + b, same, same),
        st.builds(lambda c, a: c * a, st.sampled_from([2, Rational(1, 3), s, s * t]), same),
        st.builds(lambda c, a: a + c * Identity(size), st.sampled_from([1, s, s + t]), same),
    ]
    return st.one_of(base, *rules, *_definite_by_size(size, depth - 1))


def _definite_by_size(size, depth):
    if size == H * N:
        left, right = definite(H, depth), definite(N, depth)
        return [
            st.builds(kronecker, left, right),
            st.builds(lambda a: kronecker(a, Identity(N)), left),
            st.builds(lambda b: kronecker(Identity(H), b), right),
            st.builds(lambda a, b: X.T * a * X + b, definite(size, depth), definite(size, depth)),
        ]
    whole = definite(H * N, depth)
    if size == P:
        return [st.builds(lambda a: F * a * F.T + t * Identity(P), whole)]
    return [st.builds(lambda a: PartialTrace(a, (H, N), 1 if size == H else 0), whole)]


@lru_cache
def square(size, depth=2):
    """Square matrix expressions of the given size."""
    base = st.sampled_from([DEFINITE[size], GENERAL[size]] if size in GENERAL else [F * W * F.T, F * X * F.T])
    if depth == 0:
        return base
    same = square(size, depth - 1)
    rules = [
        definite(size, depth),
        st.builds(Transpose, same),
        st.builds(lambda a, b: a * b, same, same),
        st.builds(lambda a, b: a + b, same, same),
        st.builds(lambda a, b: a - b / 3, same, same),
        st.builds(lambda c, a: c * a, st.sampled_from([-1, Rational(2, 3), s, -s * t, Trace(L), LogDet(B)]), same),
        st.builds(lambda a, power: MatPow(a, power).doit(), same, st.sampled_from([2, 3])),
    ]
    return st.one_of(base, *rules, *_square_by_size(size, depth - 1))


def _square_by_size(size, depth):
    if size == H * N:
        left, right = square(H, depth), square(N, depth)
        return [
            st.builds(kronecker, left, right),
            st.builds(lambda a: kronecker(a, Identity(N)), left),
            st.builds(lambda b: kronecker(Identity(H), b), right),
            st.builds(lambda a: F.T * a * F, square(P, depth)),
            st.builds(lambda a: a * v * v.T, square(size, depth)),
        ]
    whole = square(H * N, depth)
    if size == P:
        return [st.builds(lambda a: F * a * F.T, whole), st.builds(lambda a: y * y.T * a, square(P, depth))]
    return [st.builds(lambda a: partial_trace(a, (H, N), 1 if size == H else 0), whole)]


def positive_scalars(depth=2):
    """Scalar expressions whose value is positive."""
    traces = square_sizes.flatmap(lambda size: st.builds(Trace, definite(size, depth)))
    forms = st.builds(quadratic_form, st.just(v), definite(H * N, depth))
    return st.one_of(st.sampled_from([s, t]), traces, forms)


@lru_cache
def scalars(depth=2):
    """Scalar expressions: traces, log-determinants, quadratic forms; sums, products, powers, functions of them."""
    base = st.one_of(
        positive_scalars(depth),
        square_sizes.flatmap(lambda size: st.builds(trace, square(size, depth))),
        square_sizes.flatmap(lambda size: st.builds(LogDet, definite(size, depth))),
        st.builds(quadratic_form, st.just(v), square(H * N, depth)),
        st.builds(quadratic_form, st.just(y), square(P, depth)),
    )
    if depth == 0:
        return base
    inner, positive = scalars(depth - 1), positive_scalars(depth - 1)
    return st.one_of(
        base,
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a, power: a**power, positive, st.sampled_from([2, -1, Rational(1, 2), s])),
        st.builds(log, positive),
        st.builds(lambda a: exp(-a), positive),
    )


@lru_cache
def matrices(depth=2):
    """Matrix expressions of many shapes: square ones, rectangular products, rows, columns, diagonals."""
    whole, outer = square(H * N, depth), square(P, depth)
    return st.one_of(
        square_sizes.flatmap(lambda size: square(size, depth)),
        st.builds(lambda a, b: MatMul(a, F, b), outer, whole),
        st.builds(lambda a, b: MatMul(y.T, a, F, b), outer, whole),
        st.builds(lambda a: MatMul(a, v), whole),
        st.builds(lambda a, b: MatMul(a, y, v.T, b), outer, whole),
        square_sizes.flatmap(lambda size: st.builds(Diagonal, square(size, depth))),
    )
