"""Generated code for matrices made of blocks and for square roots, against the interpreter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Identity, Inverse, KroneckerProduct, MatrixSymbol, OneMatrix, Symbol, Trace, ZeroMatrix
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix

from tests.expressions import assert_close
from theorykit.codegen import compile_expressions, interpret, lower
from theorykit.symbolic import (
    LogDet,
    PrincipalBlock,
    SideBySide,
    SquareRoot,
    Stacked,
    below,
    beside,
    embed,
    gradient,
    positive_definite,
)

H, N, P = (Symbol(name, integer=True, positive=True) for name in "HNP")
A, W, J = positive_definite("A", H), positive_definite("W", H * N), positive_definite("J", H + H * N)
L, X = MatrixSymbol("L", H, H), MatrixSymbol("X", H * N, H * N)
WIDE, TALL = MatrixSymbol("wide", P, H * N), MatrixSymbol("tall", H * N, P)
SYMBOLS = (A, W, J, L, X, WIDE, TALL)
SIZES = (H, H * N)
SHAPES = ((2, 3, 4), (1, 2, 3), (3, 1, 2))


def random_values(shape, seed=0):
    rng = np.random.default_rng(seed)
    sizes = dict(zip((H, N, P), shape, strict=True))
    values = {size.name: number for size, number in sizes.items()}
    for symbol in SYMBOLS:
        rows, columns = (int(side.subs(sizes)) for side in symbol.shape)
        value = rng.normal(size=(rows, columns)) / np.sqrt(columns)
        values[symbol.name] = value @ value.T + np.eye(rows) if symbol in (A, W, J) else value
    return values


def generated(expression):
    function = compile_expressions("generated", {"value": expression}, SYMBOLS)
    return lambda values: function.call_from({name: jnp.asarray(value) for name, value in values.items()})["value"]


def operations(expression):
    return lower("lowered", {"value": expression}, SYMBOLS).operation_counts()


EXPRESSIONS = [
    OneMatrix(H, P),
    OneMatrix(1, P) * WIDE,
    KroneckerProduct(OneMatrix(1, N), A) / N,
    beside(WIDE, TALL.T, WIDE),
    below(TALL, 2 * WIDE.T),
    BlockMatrix([[A, ZeroMatrix(H, H * N)], [ZeroMatrix(H * N, H), X]]),
    BlockDiagMatrix(L, X),
    BlockDiagMatrix(A, KroneckerProduct(A, Identity(N))) * J,
    embed(L, SIZES, 0) + embed(X, SIZES, 1),
    PrincipalBlock(J, SIZES, 0),
    PrincipalBlock(J * J, SIZES, 1),
    Inverse(PrincipalBlock(J, SIZES, 0)) * L,
    Stacked(WIDE, H),
    Stacked(WIDE * X, H) * OneMatrix(N, 2),
    SideBySide(TALL, H),
    SideBySide(X * TALL, N).T,
    SideBySide(Stacked(WIDE, H), P),
    SquareRoot(W),
    SquareRoot(PrincipalBlock(J, SIZES, 1) + Identity(H * N) / 3),
    Inverse(SquareRoot(A)) * L * SquareRoot(A),
    Trace(SquareRoot(W) * X),
    LogDet(SquareRoot(W)),
    LogDet(BlockDiagMatrix(A, W) + J),
    Trace(embed(L, SIZES, 0) * J),
    Trace(Stacked(WIDE, H).T * Stacked(WIDE, H)),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_generated_blocks_equal_interpreted_ones(expression, shape):
    values = random_values(shape)
    assert_close(generated(expression)(values), interpret(expression, values))


GRADIENTS = [
    (LogDet(PrincipalBlock(J, SIZES, 1)) - LogDet(J), J),
    (Trace(X * PrincipalBlock(J * J, SIZES, 1)), J),
    (Trace(Stacked(WIDE * W, H).T * Stacked(WIDE, H)), W),
    (Trace(SideBySide(TALL, N).T * SideBySide(X * TALL, N)), X),
    (LogDet(J + BlockDiagMatrix(A, W)), A),
]


@pytest.mark.parametrize(("expression", "symbol"), GRADIENTS, ids=str)
def test_the_generated_gradient_is_the_gradient_of_the_generated_function(expression, symbol):
    values, function = random_values((2, 3, 4)), generated(expression)
    slope = jax.grad(lambda value: function({**values, symbol.name: value}))(jnp.asarray(values[symbol.name]))
    if symbol == symbol.T:
        slope = (slope + slope.T) / 2
    assert_close(generated(gradient(expression, symbol))(values), slope)


def test_a_block_is_cut_out_and_blocks_are_moved_once():
    assert operations(PrincipalBlock(J, SIZES, 0)) == {"leading_block": 1}
    assert operations(PrincipalBlock(J, SIZES, 1)) == {"trailing_block": 1}
    assert operations(Stacked(WIDE, H)) == {"stacked": 1}
    assert operations(SideBySide(TALL, H)) == {"side_by_side": 1}
    assert operations(beside(WIDE, WIDE)) == {"beside": 1}
    assert operations(below(TALL, TALL)) == {"below": 1}


def test_the_same_square_root_is_taken_once():
    taken = operations(SquareRoot(A) * L * SquareRoot(A))
    assert (taken["eigendecomposition"], taken["spectral_function"]) == (1, 1)


WITHOUT_PROOF = [SquareRoot(L), SquareRoot(-A), SquareRoot(A - Identity(H)), SquareRoot(WIDE * W * WIDE.T)]
NO_CHOLESKY = [LogDet(SquareRoot(L)), Inverse(BlockDiagMatrix(A, X)), LogDet(embed(A, SIZES, 0))]


@pytest.mark.parametrize("expression", [*WITHOUT_PROOF, *NO_CHOLESKY], ids=str)
def test_a_root_or_factor_that_may_not_exist_is_refused(expression):
    with pytest.raises(NotImplementedError, match="not provably positive definite"):
        operations(expression)


def test_a_function_picks_its_arguments_out_of_more():
    function = compile_expressions("picked", {"value": Trace(A * L)}, (A, L))
    values = {name: jnp.asarray(value) for name, value in random_values((2, 3, 4)).items()}
    assert_close(function.call_from({**values, "unheard_of": None})["value"], np.sum(values["A"] * values["L"]))
    with pytest.raises(ValueError, match="none for L"):
        function.call_from({"A": values["A"]})
