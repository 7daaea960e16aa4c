"""Matrices made of blocks: their values, their gradients, what is known of their definiteness, what they refuse."""

import numpy as np
import pytest
from sympy import Identity, Inverse, MatrixSymbol, Symbol, Trace
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix

from tests.expressions import assert_close
from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import SquareRoot, gradient, positive_definite
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


def test_a_block_diagonal_of_three_has_no_gradient():
    with pytest.raises(NotImplementedError, match="two blocks"):
        gradient(Trace(BlockDiagMatrix(L, L, L)), L)


WITHOUT_PROOF = [SquareRoot(L), SquareRoot(-A), SquareRoot(A - Identity(H)), SquareRoot(WIDE * W * WIDE.T)]
NO_CHOLESKY = [LogDet(SquareRoot(L)), Inverse(BlockDiagMatrix(A, X)), LogDet(embed(A, SIZES, 0))]


@pytest.mark.parametrize("expression", [*WITHOUT_PROOF, *NO_CHOLESKY], ids=str)
def test_a_root_or_factor_that_may_not_exist_is_refused(expression):
    with pytest.raises(NotImplementedError, match="not provably positive definite"):
        compile_expressions("refused", {"value": expression}, SYMBOLS)
