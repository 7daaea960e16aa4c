"""Matrices made of blocks: their values, their gradients, what is known of their definiteness, what they refuse."""

import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Identity, Inverse, KroneckerProduct, MatrixSymbol, OneMatrix, Symbol, Trace, ZeroMatrix
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix

from tests.expressions import assert_close, assert_gradient
from tests.marks import slow
from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import SquareRoot, gradient, kronecker, positive_definite
from theorykit.symbolic.algebra import expand_products, matrix_terms
from theorykit.symbolic.atoms import LogDet, PrincipalBlock, SideBySide, Stacked, below, beside, embed, principal_block

H, N, P = (Symbol(name, integer=True, positive=True) for name in "HNP")
A, W = positive_definite("A", H), positive_definite("W", H * N)
J = positive_definite("J", H + H * N)  # of the joined blocks
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


every_shape = pytest.mark.parametrize("shape", SHAPES)
# each is compiled for each shape
some_shape = pytest.mark.parametrize("shape", [SHAPES[0], *slow(SHAPES[1:])])


@every_shape
def test_blocks_are_moved_cut_out_embedded_and_joined(shape):
    values, (heads, width, _) = random_values(shape), shape
    wide, tall, whole = values["wide"], values["tall"], values["J"]
    stacked = np.concatenate([wide[:, head * width : (head + 1) * width] for head in range(heads)])
    in_a_row = np.hstack([tall[head * width : (head + 1) * width] for head in range(heads)])
    assert_close(interpret(Stacked(WIDE, H), values), stacked, 0)
    assert_close(interpret(SideBySide(TALL, H), values), in_a_row, 0)
    assert_close(interpret(PrincipalBlock(J, SIZES, 0), values), whole[:heads, :heads], 0)
    assert_close(interpret(PrincipalBlock(J, SIZES, 1), values), whole[heads:, heads:], 0)
    assert_close(interpret(beside(WIDE, TALL.T, WIDE), values), np.hstack([wide, tall.T, wide]), 0)
    assert_close(interpret(below(TALL, WIDE.T), values), np.vstack([tall, wide.T]), 0)
    for index, block in enumerate((L, X)):
        embedded = embed(block, SIZES, index)
        assert principal_block(embedded, SIZES, index) == block
        assert principal_block(embedded, SIZES, 1 - index).is_ZeroMatrix
        assert_close(interpret(PrincipalBlock(embedded, SIZES, index), values), values[block.name], 0)
        assert_close(np.linalg.norm(interpret(embedded, values)), np.linalg.norm(values[block.name]), 1e-12)
    # linear
    for each in (Stacked(3 * WIDE + TALL.T, H), SideBySide(3 * TALL - WIDE.T, N), PrincipalBlock(3 * J + J, SIZES, 0)):
        assert all(type(factor) is type(each) for _, (factor,) in matrix_terms(each))
        assert_close(interpret(expand_products(each), values), interpret(each, values), 1e-12)


def test_blocks_are_written_in_their_simplest_form():
    assert SideBySide(Stacked(WIDE, H), H) == WIDE and Stacked(SideBySide(TALL, N), N) == TALL
    assert Stacked(WIDE, 1) == WIDE and SideBySide(TALL, 1) == TALL and SideBySide(Stacked(WIDE, H), N) != WIDE
    assert Stacked(WIDE, H).shape == (H * P, N) and SideBySide(TALL, N).shape == (H, N * P)
    assert beside(WIDE) == WIDE and below(TALL) == TALL
    assert [principal_block(Identity(H + H * N), SIZES, i) for i in (0, 1)] == [Identity(H), Identity(H * N)]
    assert SquareRoot(W) == SquareRoot(W).T and PrincipalBlock(J, SIZES, 0) == PrincipalBlock(J, SIZES, 0).T
    whole = MatrixSymbol("whole", H + H * N, H + H * N)
    assert PrincipalBlock(whole.T, SIZES, 1) == PrincipalBlock(whole, SIZES, 1).T
    values = {**random_values((2, 3, 4)), "whole": np.arange(64.0).reshape(8, 8)}
    assert_close(interpret(PrincipalBlock(whole, SIZES, 1).T, values), np.arange(64.0).reshape(8, 8)[2:, 2:].T, 0)
    for atom in (Stacked(WIDE, H), SideBySide(TALL, H), PrincipalBlock(J, SIZES, 0), SquareRoot(A)):
        with pytest.raises(NotImplementedError, match="no symbolic form"):
            atom[0, 0]


def generated(expression):
    function = compile_expressions("generated", {"value": expression}, SYMBOLS)
    return lambda values: function.call_from({name: jnp.asarray(value) for name, value in values.items()})["value"]


MIXED = kronecker(A, Identity(N))
GRADIENTS = [
    (Trace(L * PrincipalBlock(J, SIZES, 0) * L), J),
    (Trace(X * PrincipalBlock(J * J, SIZES, 1)), J),
    (LogDet(PrincipalBlock(J, SIZES, 1)) - LogDet(J), J),
    (Trace(Inverse(PrincipalBlock(J, SIZES, 0)) * L), J),
    (Trace(J * BlockDiagMatrix(A, W)), A),
    (Trace(J * BlockDiagMatrix(L, 2 * X) * J * BlockDiagMatrix(L, X)), L),
    (LogDet(J + BlockDiagMatrix(A, W)), W),
    (LogDet(J + BlockDiagMatrix(A, MIXED)), A),
    (Trace(J * embed(L * A, SIZES, 0)), L),
    (Trace(J * embed(X * X, SIZES, 1)), X),
    (Trace(Stacked(WIDE, H) * Stacked(WIDE, H).T), WIDE),
    (Trace(Stacked(WIDE * W, H).T * KroneckerProduct(A, Identity(P)) * Stacked(WIDE, H)), WIDE),
    (Trace(Stacked(WIDE * W, H).T * KroneckerProduct(A, Identity(P)) * Stacked(WIDE, H)), W),
    (Trace(SideBySide(TALL, H) * KroneckerProduct(L, Identity(P)) * SideBySide(W * TALL, H).T), TALL),
    (Trace(SideBySide(TALL, N).T * SideBySide(X * TALL, N)), X),
]


@some_shape
@pytest.mark.parametrize(("expression", "symbol"), GRADIENTS, ids=str)
def test_gradients_through_blocks_are_those_of_jax_and_of_differences(expression, symbol, shape):
    assert_gradient(expression, symbol, random_values(shape, 1), generated, differences=1e-7)


def test_a_block_diagonal_of_three_has_no_gradient():
    with pytest.raises(NotImplementedError, match="two blocks"):
        gradient(Trace(BlockDiagMatrix(L, L, L)), L)


@every_shape
def test_a_square_root_squares_to_its_matrix(shape):
    values = random_values(shape)
    root = interpret(SquareRoot(W), values)
    assert_close(root @ root, values["W"], 1e-10)
    assert_close(root, root.T, 1e-12)
    assert np.linalg.eigvalsh(root)[0] > 0


EXPRESSIONS = [
    *(OneMatrix(H, P), OneMatrix(1, P) * WIDE, KroneckerProduct(OneMatrix(1, N), A) / N),
    *(beside(WIDE, TALL.T, WIDE), below(TALL, 2 * WIDE.T)),
    *(BlockMatrix([[A, ZeroMatrix(H, H * N)], [ZeroMatrix(H * N, H), X]]), BlockDiagMatrix(L, X)),
    *(BlockDiagMatrix(A, KroneckerProduct(A, Identity(N))) * J, embed(L, SIZES, 0) + embed(X, SIZES, 1)),
    *(PrincipalBlock(J, SIZES, 0), PrincipalBlock(J * J, SIZES, 1), Inverse(PrincipalBlock(J, SIZES, 0)) * L),
    *(Stacked(WIDE, H), Stacked(WIDE * X, H) * OneMatrix(N, 2), SideBySide(TALL, H), SideBySide(X * TALL, N).T),
    *(SideBySide(Stacked(WIDE, H), P), SquareRoot(W)),
    SquareRoot(PrincipalBlock(J, SIZES, 1) + Identity(H * N) / 3),
    *(Inverse(SquareRoot(A)) * L * SquareRoot(A), Trace(SquareRoot(W) * X), LogDet(SquareRoot(W))),
    *(LogDet(BlockDiagMatrix(A, W) + J), Trace(embed(L, SIZES, 0) * J)),
    Trace(Stacked(WIDE, H).T * Stacked(WIDE, H)),
]


@some_shape
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_generated_blocks_equal_interpreted_ones(expression, shape):
    values = random_values(shape)
    assert_close(generated(expression)(values), interpret(expression, values))


WITHOUT_PROOF = [SquareRoot(L), SquareRoot(-A), SquareRoot(A - Identity(H)), SquareRoot(WIDE * W * WIDE.T)]
NO_CHOLESKY = [LogDet(SquareRoot(L)), Inverse(BlockDiagMatrix(A, X)), LogDet(embed(A, SIZES, 0))]


@pytest.mark.parametrize("expression", [*WITHOUT_PROOF, *NO_CHOLESKY], ids=str)
def test_a_root_or_factor_that_may_not_exist_is_refused(expression):
    with pytest.raises(NotImplementedError, match="not provably positive definite"):
        compile_expressions("refused", {"value": expression}, SYMBOLS)


def test_a_function_picks_its_arguments_out_of_more():
    function = compile_expressions("picked", {"value": Trace(A * L)}, (A, L))
    values = {name: jnp.asarray(value) for name, value in random_values((2, 3, 4)).items()}
    assert_close(function.call_from({**values, "unheard_of": None})["value"], np.sum(values["A"] * values["L"]))
    with pytest.raises(ValueError, match="no entries for L"):
        function.call_from({"A": values["A"]})
