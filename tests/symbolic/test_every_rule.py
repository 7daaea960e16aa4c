"""Every rule, on a table of expressions and on random ones, against the interpreter, which evaluates as it is written.

Compiled code and its source have the value of the expression, the algebra keeps it, and gradients are those of JAX and
of differences.
"""

import ast

import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from sympy import Identity, Inverse, KroneckerProduct, MatAdd, MatMul, MatPow, MatrixSymbol, OneMatrix, Trace, log
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix

from tests.expressions import SYMBOLS, H, N, P, assert_close, assert_gradient, matrices, random_value, scalars
from tests.marks import slow
from theorykit.codegen import compile_expressions, interpret
from theorykit.codegen.sizes import bound_sizes
from theorykit.symbolic import (
    Diagonal,
    GaussianAverage,
    Softmax,
    SquareRoot,
    assume_positive_definite,
    entrywise,
    kronecker,
    log_cosh,
    log_normal_cdf,
    normal,
    positive_definite,
    quadratic_form,
    sum_of_entries,
)
from theorykit.symbolic.algebra import expand_products, simplify_traces
from theorykit.symbolic.atoms import LogDet, PartialTrace, PrincipalBlock, SideBySide, Stacked, below, beside, embed

A, B, W, L, R, X, F, y, v, s, t = SYMBOLS
z = sp.Symbol("z", real=True)
# Of the joined blocks, and of several rows and columns.
SIZES = (H, H * N)
J, WHOLE = positive_definite("J", H + H * N), MatrixSymbol("whole", H + H * N, H + H * N)
TALL, U, V, c = (MatrixSymbol(*each) for each in (("tall", H * N, P), ("U", P, N), ("V", P, N), ("c", P, 1)))
SHAPES = ({H: 2, N: 3, P: 4}, {H: 1, N: 2, P: 3}, {H: 3, N: 1, P: 2})

KRON, DIAG = KroneckerProduct(A, B), BlockDiagMatrix(A, W)
KERNEL = F * KroneckerProduct(A, Identity(N)) * F.T
REGULARISED = KERNEL + t * Identity(P)
BOTH, RIGHT, LEFT = (KroneckerProduct(*each) for each in ((L, R), (L, Identity(N)), (Identity(H), R)))
PARTIAL = PartialTrace(W, (H, N), 1)
ASSUMED = LogDet(assume_positive_definite(9 * Identity(H * N) + KRON - W / 9))

MATRICES = [
    *(A, X.T, MatMul(-s, Trace(L), X, W), MatPow(X, 3) * W, MatPow(A, -2), Inverse(W), Inverse(KRON) * X),
    *(L * Inverse(A), Inverse(REGULARISED) * F * X, KroneckerProduct(L, y, v.T), X * BOTH, F * LEFT.T * v),
    *(KroneckerProduct(L, Identity(H), R), *(kron * X for kron in (BOTH, RIGHT, LEFT)), Inverse(2 * s * W) * X),
    *((A + L) * (A - L), MatMul(s, MatMul(2, L + A, A), Identity(H)), KroneckerProduct(A + L, R - 2 * B)),
    *(KroneckerProduct(2 * A, s * Identity(N)) * X, (KRON + W) * (X - KRON), L * sp.ZeroMatrix(H, H) + A),
    *(2 * A + L / 3 - s * t * Identity(H), MatAdd(A, Identity(H), MatMul(s, Identity(H))), X * v * y.T),
    *(F * X * v * v.T * W, y.T * F * X, v.T * X * v, y.T * F * v * v.T, (F * X + F * W).T * (F * X - F * W)),
    *(PartialTrace(X, (H, N), 0), PartialTrace(X * W * X, (H, N), 1), PartialTrace(Inverse(W) * X, (H, N), 1)),
    *(PartialTrace(X + 2 * W, (H, N), 0) * R, PartialTrace(v * v.T, (H, N), 0), PartialTrace(RIGHT * X, (H, N), 0)),
    *(Diagonal(X), Diagonal(X + s * W * X - 2 * Identity(H * N)), Diagonal(v * v.T * X), Diagonal(-3 * X.T * X)),
    *(Diagonal(KERNEL - KERNEL.T * Inverse(REGULARISED) * KERNEL), Diagonal(Inverse(W)), Diagonal(s * Identity(H))),
    *(beside(F, TALL.T, F), below(TALL, 2 * F.T), BlockDiagMatrix(L, X), KroneckerProduct(OneMatrix(1, N), A) / N),
    *(BlockMatrix([[A, sp.ZeroMatrix(H, H * N)], [sp.ZeroMatrix(H * N, H), X]]), OneMatrix(1, P) * F, DIAG * WHOLE),
    *(PrincipalBlock(J * J, SIZES, 1), Inverse(PrincipalBlock(J, SIZES, 0)) * L, Stacked(F * (X + 2 * W), H)),
    *(embed(L, SIZES, 0) + embed(X, SIZES, 1), SideBySide(X * TALL, N).T, SideBySide(X * (2 * X - W), N)),
    *(SideBySide(Stacked(F, H), P), SquareRoot(W), Inverse(SquareRoot(A)) * L * SquareRoot(A)),
    *(SquareRoot(PrincipalBlock(J, SIZES, 1) + Identity(H * N) / 3), PartialTrace(X, (H, N), 1).T),
]
OF_ENTRIES = {
    "a sum over data": sum_of_entries(entrywise(lambda x, y: log_cosh(s * x) - x * y, F * v, y)),
    "of one column": sum_of_entries(entrywise(lambda x: sp.tanh(s * x), c)) ** 2,
    "of one row": Trace(c.T.applyfunc(sp.Lambda(z, sp.exp(s * z / 3))) * y),
    "of two": Trace(entrywise(lambda x, y: x**2 * sp.tanh(s * y), U, V) * B * entrywise(lambda x, y: x * y, V, U).T),
    "of three": sum_of_entries(entrywise(lambda x, y, u: sp.cos(x * y + s) * u, U, V, U * B)),
    "of transposes": sum_of_entries(entrywise(lambda x, y: x * sp.cos(y), U.T, V.T) * c),
    "with traces": sum_of_entries(entrywise(lambda x, y: sp.tanh(x * Trace(B) / 9) * y * LogDet(B), U, V)),
    "of a function": sum_of_entries(entrywise(lambda x, y: sp.cos(x) * y, entrywise(lambda x, y: x * y, U, V), V)),
    "with an average": sum_of_entries(entrywise(lambda x, y: GaussianAverage(sp.tanh((x + s * z) / 2), z) * y, U, V)),
}
SCALARS = [
    *(Trace(X + W), Trace(2 * X * W), Trace(Inverse(W) * X), Trace(X * Inverse(W) * X.T * W), Trace(v * v.T * X)),
    *(Trace(RIGHT * X), Trace(BOTH), Trace(Identity(H)), quadratic_form(v, X), LogDet(REGULARISED)),
    *(LogDet(Inverse(KRON)), LogDet(KroneckerProduct(A, Identity(N))), LogDet(DIAG) + LogDet(s * Inverse(W))),
    *(LogDet(3 * s * KRON), LogDet(2 * A + s * A), LogDet(SquareRoot(W)), Trace(DIAG * WHOLE)),
    Trace(WHOLE * BlockDiagMatrix(L, X) * WHOLE * DIAG),
    *(Trace((A + L) * (A - L)), Trace(KroneckerProduct(Identity(H), B) * X * W), Trace(L) + Trace(Trace(L) * A * L)),
    Trace(X * KroneckerProduct(A, Identity(N)) * W * LEFT),
    Trace(PartialTrace(X, (H, N), 0)) * Trace(PartialTrace(W * X, (H, N), 1)),
    Trace(A * PartialTrace(X * BOTH, (H, N), 1)) + log(2 * s * t) + Trace(2 * y * y.T) ** 2,
    LogDet(A) * Trace(A) / Trace(B) + sp.exp(-s) * sp.cos(s) + sp.tanh(t) + sp.sqrt(s + t) + log(t) ** 2,
    *(log(2 * sp.pi * s), s**t + sp.Rational(1, 3), sp.Abs(s - 3 * t), sp.Max(s, t) ** 2 - sp.Abs(s - 1)),
    sum(Trace(L) ** power * s ** (12 - power) / (1 + t**power) for power in range(12)),
    *(sp.Piecewise((s, s > t), (t**2, True)), log_normal_cdf(s - 2), s ** sp.Rational(3, 2) / sp.sqrt(s + t)),
    *(GaussianAverage(sp.tanh(s * z + t), z), log(1 + sp.exp(s - t)) / 3, -((s - t) ** 2) * s, Trace(Softmax(v).T * v)),
    *(sp.Piecewise((-2, sp.Eq(H, 2)), (t, True)) - s, L[0, 0] * sp.Integer(2) ** (-s), sum_of_entries(beside(X, W))),
    *(ASSUMED, *OF_ENTRIES.values()),
]
GRADIENTS = [
    *((Trace(L * PartialTrace(X, (H, N), 1)), X), (Trace(PartialTrace(X * W, (H, N), 0) * R.T), W)),
    *((Trace(BOTH * X), symbol) for symbol in (L, R)),
    *((LogDet(KRON + W), symbol) for symbol in (A, B)),
    *((LogDet(REGULARISED), A), (ASSUMED, A), (ASSUMED, B)),
    *((quadratic_form(y, Inverse(F * W * F.T + t * Identity(P))), symbol) for symbol in (W, F, y, t)),
    *((Trace(MatPow(L, 3)), L), (Trace(MatPow(A, -2)), A), (s ** Trace(L), L), (s ** (t * s), s)),
    *((Trace(L) ** 2 * LogDet(A) + log(Trace(A)) * sp.exp(-Trace(L)), L), (quadratic_form(v, X), v)),
    *((Trace(Trace(L) * L * A), L), (LogDet(s * A + t**2 * Identity(H)), t), (s * Trace(A * L * PARTIAL), W)),
    *((Trace(A * Inverse(PARTIAL)), W), (LogDet(Identity(H) + Inverse(PARTIAL)), W)),
    *((Trace(X * PrincipalBlock(J * J, SIZES, 1)), J), (LogDet(PrincipalBlock(J, SIZES, 1)) - LogDet(J), J)),
    *((Trace(Inverse(PrincipalBlock(J, SIZES, 0)) * L), J), (Trace(J * DIAG), A), (LogDet(J + DIAG), W)),
    (Trace(J * BlockDiagMatrix(L, 2 * X) * J * BlockDiagMatrix(L, X)), L),
    (LogDet(J + BlockDiagMatrix(A, kronecker(A, Identity(N)))), A),
    *((Trace(J * embed(L * A, SIZES, 0)), L), (Trace(J * embed(X * X, SIZES, 1)), X)),
    *((Trace(Stacked(F * W, H).T * KroneckerProduct(A, Identity(P)) * Stacked(F, H)), symbol) for symbol in (F, W)),
    (Trace(SideBySide(TALL, H) * KroneckerProduct(L, Identity(P)) * SideBySide(W * TALL, H).T), TALL),
    (Trace(SideBySide(TALL, N).T * SideBySide(X * TALL, N)), X),
    *((each, symbol) for each in OF_ENTRIES.values() for symbol in (U, V, B, c, y, s) if each.has(symbol)),
]


def setting(expression, sizes, seed=0):
    """Return the values of all symbols by name, and what compiles an expression to a function of these values."""
    generator, symbols = np.random.default_rng(seed), sorted(expression.free_symbols - set(sizes), key=str)
    values = {each.name: random_value(each, sizes, generator) for each in symbols}
    values |= {size.name: number for size, number in sizes.items()}
    shapes = [each for each in symbols if each.is_Matrix]
    arguments = [*symbols, *(size for size in sizes if size not in bound_sizes(shapes))]

    return values, lambda of: compile_expressions("f", {"value": of}, arguments)


def on_device(values):
    """Return numbers, which may be sizes, and arrays of JAX."""
    return {name: jnp.asarray(value) if isinstance(value, np.ndarray) else value for name, value in values.items()}


def executed(source):
    """Return the function that a source defines last. The source imports nothing but `jax`."""
    tree, namespace = ast.parse(source), {}
    names = [name for node in tree.body if isinstance(node, ast.Import) for name in node.names]
    modules = [*(name.name for name in names), *(node.module for node in tree.body if isinstance(node, ast.ImportFrom))]
    assert {module.split(".")[0] for module in modules} <= {"jax"}
    exec(compile(tree, "written", "exec"), namespace)
    return namespace[[node.name for node in tree.body if isinstance(node, ast.FunctionDef)][-1]]


def assert_every_value_is_that_of_the_interpreter(expression, sizes, seed=0):
    values, compiled = setting(expression, sizes, seed)
    expected, function = interpret(expression, values), compiled(expression)
    assert_close(function.call_from(on_device(values))["value"], expected)
    if not expression.has(GaussianAverage):
        given_values = {each.name: on_device(values)[each.name] for each in function.arguments}
        assert_close(executed(function.source)(**given_values)["value"], expected)
    once = expand_products(expression) if expression.is_Matrix else normal(expression)
    assert (expand_products(once) if once.is_Matrix else normal(once)) == once
    for same in (once,) if expression.is_Matrix else (once, simplify_traces(expression)):
        assert_close(interpret(same, values), expected, 1e-10)


@pytest.mark.parametrize("sizes", [SHAPES[0], *slow(SHAPES[1:])], ids=str)
@pytest.mark.parametrize("expression", [*MATRICES, *SCALARS], ids=str)
def test_every_form_has_the_value_of_the_interpreter(expression, sizes):
    assert_every_value_is_that_of_the_interpreter(expression, sizes)


@given(st.one_of(matrices(), scalars()), st.sampled_from(SHAPES), st.integers(0, 2**32 - 1))
def test_any_expression_has_the_value_of_the_interpreter(expression, sizes, seed):
    assert_every_value_is_that_of_the_interpreter(expression, sizes, seed)


@pytest.mark.parametrize("sizes", [SHAPES[0], *slow(SHAPES[1:])], ids=str)
@pytest.mark.parametrize(("expression", "symbol"), GRADIENTS, ids=str)
def test_every_rule_gives_the_gradient(expression, symbol, sizes):
    values, compiled = setting(expression, sizes)
    compiled_from = lambda of: lambda at: compiled(of).call_from(on_device(at))["value"]  # noqa: E731
    assert_gradient(expression, symbol, values, compiled_from)


@given(scalars().filter(lambda scalar: scalar.free_symbols & set(SYMBOLS)), st.data(), st.sampled_from(SHAPES))
def test_any_scalar_has_the_gradient_of_jax_and_of_differences(expression, data, sizes):
    symbol = data.draw(st.sampled_from(sorted(expression.free_symbols & set(SYMBOLS), key=str)))
    values, compiled = setting(expression, sizes)
    compiled_from = lambda of: lambda at: compiled(of).call_from(on_device(at))["value"]  # noqa: E731
    assert_gradient(expression, symbol, values, compiled_from)
