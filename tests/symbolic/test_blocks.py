"""Matrices made of blocks: their values, their gradients, what is known of their definiteness, what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Identity, Inverse, KroneckerProduct, MatrixSymbol, OneMatrix, Symbol, Trace, ZeroMatrix
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix

from tests.expressions import assert_close
from theorykit.codegen import compile_expressions, interpret
from theorykit.codegen.lowering import lower
from theorykit.symbolic import SquareRoot, gradient, kronecker, positive_definite, quadratic_form
from theorykit.symbolic.algebra import expand_products, matrix_terms
from theorykit.symbolic.atoms import LogDet, PrincipalBlock, SideBySide, Stacked, below, beside, embed, principal_block
from theorykit.symbolic.matrix_functions import is_positive_definite, is_positive_semidefinite

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
def test_stacked_moves_blocks_of_columns_below_one_another(shape):
    values = random_values(shape)
    wide, result = values["wide"], interpret(Stacked(WIDE, H), values)
    heads, width, rows = shape
    assert result.shape == (heads * rows, width)
    for head in range(heads):
        assert_close(result[head * rows : (head + 1) * rows], wide[:, head * width : (head + 1) * width], 0)


@every_shape
def test_side_by_side_moves_blocks_of_rows_beside_one_another(shape):
    values = random_values(shape)
    tall, result = values["tall"], interpret(SideBySide(TALL, H), values)
    heads, width, columns = shape
    assert result.shape == (width, heads * columns)
    for head in range(heads):
        assert_close(result[:, head * columns : (head + 1) * columns], tall[head * width : (head + 1) * width], 0)


def test_the_two_moves_undo_one_another():
    assert SideBySide(Stacked(WIDE, H), H) == WIDE
    assert Stacked(SideBySide(TALL, N), N) == TALL
    assert Stacked(WIDE, 1) == WIDE and SideBySide(TALL, 1) == TALL
    assert SideBySide(Stacked(WIDE, H), N) != WIDE


def test_shapes_of_moved_blocks():
    assert Stacked(WIDE, H).shape == (H * P, N)
    assert SideBySide(TALL, N).shape == (H, N * P)


@every_shape
def test_principal_blocks_are_the_corners(shape):
    values, size = random_values(shape), shape[0]
    assert_close(interpret(PrincipalBlock(J, SIZES, 0), values), values["J"][:size, :size], 0)
    assert_close(interpret(PrincipalBlock(J, SIZES, 1), values), values["J"][size:, size:], 0)


@every_shape
def test_a_block_of_an_embedded_block_is_the_block(shape):
    values = random_values(shape)
    for index, block in enumerate((L, X)):
        whole = embed(block, SIZES, index)
        assert principal_block(whole, SIZES, index) == block
        corners = np.linalg.norm(interpret(whole, values)) ** 2, np.linalg.norm(values[block.name]) ** 2
        assert_close(*corners, 1e-12)
        assert_close(interpret(PrincipalBlock(whole, SIZES, index), values), values[block.name], 0)
        assert not np.any(interpret(PrincipalBlock(whole, SIZES, 1 - index), values))


def test_principal_blocks_of_an_identity_are_identities():
    assert principal_block(Identity(H + H * N), SIZES, 0) == Identity(H)
    assert principal_block(Identity(H + H * N), SIZES, 1) == Identity(H * N)


def test_a_principal_block_is_transposed_inside():
    whole = MatrixSymbol("whole", H + H * N, H + H * N)
    values = {**random_values((2, 3, 4)), "whole": np.arange(64.0).reshape(8, 8)}
    block = PrincipalBlock(whole, SIZES, 1)
    assert PrincipalBlock(whole.T, SIZES, 1) == block.T
    assert_close(interpret(block.T, values), interpret(block, values).T, 0)
    assert PrincipalBlock(J, SIZES, 0) == PrincipalBlock(J, SIZES, 0).T


@every_shape
def test_matrices_are_joined_beside_and_below(shape):
    values = random_values(shape)
    wide, tall = values["wide"], values["tall"]
    assert_close(interpret(beside(WIDE, TALL.T, WIDE), values), np.hstack([wide, tall.T, wide]), 0)
    assert_close(interpret(below(TALL, WIDE.T), values), np.vstack([tall, wide.T]), 0)
    assert beside(WIDE) == WIDE and below(TALL) == TALL


@every_shape
def test_moves_and_blocks_are_linear(shape):
    values = random_values(shape)
    for whole in (Stacked(3 * WIDE + TALL.T, H), SideBySide(3 * TALL - WIDE.T, N), PrincipalBlock(3 * J + J, SIZES, 0)):
        assert all(type(factor) is type(whole) for _, (factor,) in matrix_terms(whole))
        assert_close(interpret(expand_products(whole), values), interpret(whole, values), 1e-12)


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


def slope_along(expression, symbol, values, direction, step=1e-3):
    """Central differences, extrapolated once."""

    def slope(h):
        ends = [{**values, symbol.name: values[symbol.name] + sign * h * direction} for sign in (1, -1)]
        plus, minus = (interpret(expression, end) for end in ends)
        return (plus - minus) / (2 * h)

    return (4 * slope(step / 2) - slope(step)) / 3


@every_shape
@pytest.mark.parametrize(("expression", "symbol"), GRADIENTS, ids=str)
def test_gradients_through_blocks_are_those_of_differences(expression, symbol, shape):
    values = random_values(shape, 1)
    result, rng = interpret(gradient(expression, symbol), values), np.random.default_rng(2)
    assert result.shape == values[symbol.name].shape
    for _ in range(3):
        direction = rng.normal(size=result.shape)
        if symbol == symbol.T:
            direction = direction + direction.T
        assert_close(np.sum(result * direction), slope_along(expression, symbol, values, direction), 1e-7)
    if shape == SHAPES[0]:
        function = generated(expression)
        slope = jax.grad(lambda value: function({**values, symbol.name: value}))(jnp.asarray(values[symbol.name]))
        assert_close(result, (slope + slope.T) / 2 if symbol == symbol.T else slope)


def test_a_block_diagonal_of_three_has_no_gradient():
    with pytest.raises(NotImplementedError, match="two blocks"):
        gradient(Trace(BlockDiagMatrix(L, L, L)), L)


DEFINITE = [
    BlockDiagMatrix(A, W),
    PrincipalBlock(J, SIZES, 0),
    PrincipalBlock(BlockDiagMatrix(A, W) + J, SIZES, 1),
    SquareRoot(A),
    SquareRoot(2 * A),
    Inverse(PrincipalBlock(J, SIZES, 1)) + kronecker(A, Identity(N)),
]
SEMIDEFINITE = [OneMatrix(H, H), KroneckerProduct(OneMatrix(H, H), A), KroneckerProduct(X.T * X, A)]
NOT_PROVABLY = [
    BlockDiagMatrix(A, X),
    embed(A, SIZES, 0),
    PrincipalBlock(BlockDiagMatrix(L, W), SIZES, 1),
    SquareRoot(L),
    Stacked(MatrixSymbol("square", H, H**2), H),
    BlockDiagMatrix(A, -W),
    KroneckerProduct(OneMatrix(H, H), L),
    OneMatrix(H, N),
]


@pytest.mark.parametrize("expression", SEMIDEFINITE, ids=str)
def test_semidefinite_by_form_but_not_definite(expression):
    assert is_positive_semidefinite(expression) and not is_positive_definite(expression)
    assert is_positive_definite(expression + Identity(expression.shape[0]))
    assert np.linalg.eigvalsh(interpret(expression, random_values((2, 3, 4))))[0] > -1e-12


@pytest.mark.parametrize("expression", DEFINITE, ids=str)
def test_definite_by_form(expression):
    assert is_positive_definite(expression) and is_positive_semidefinite(expression)
    assert np.linalg.eigvalsh(interpret(expression, random_values((2, 3, 4))))[0] > 0


@pytest.mark.parametrize("expression", NOT_PROVABLY, ids=str)
def test_what_is_not_provable_is_not_claimed(expression):
    assert not is_positive_definite(expression)


@every_shape
def test_a_square_root_squares_to_its_matrix(shape):
    values = random_values(shape)
    root = interpret(SquareRoot(W), values)
    assert_close(root @ root, values["W"], 1e-10)
    assert_close(root, root.T, 1e-12)
    assert np.linalg.eigvalsh(root)[0] > 0
    assert SquareRoot(W) == SquareRoot(W).T


REFUSED = [
    (lambda: PrincipalBlock(J, (H, N), 0), "needs a matrix of size"),
    (lambda: PrincipalBlock(WIDE, (P, 0), 0), r"sizes\[1\] must be a whole number above zero"),
    (lambda: PrincipalBlock(J, (H, N, H), 0), "sizes must be 2 sizes"),
    (lambda: PrincipalBlock(J, SIZES, 2), "index must be from 0 to 1"),
    (lambda: SquareRoot(WIDE), "square"),
    (lambda: quadratic_form(WIDE, W), "column"),
]


@pytest.mark.parametrize(("make", "reason"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_has_no_such_blocks_is_refused(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


@pytest.mark.parametrize(
    "expression", [Stacked(WIDE, H), SideBySide(TALL, H), PrincipalBlock(J, SIZES, 0), SquareRoot(A)], ids=str
)
def test_entries_of_symbolic_size_are_not_expanded(expression):
    with pytest.raises(NotImplementedError, match="not expanded"):
        expression[0, 0]


def test_a_zero_block_stays_zero():
    assert principal_block(embed(L, SIZES, 0), SIZES, 1) == ZeroMatrix(H * N, H * N)


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
