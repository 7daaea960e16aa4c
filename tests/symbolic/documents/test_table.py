"""Expressions as a table of plain values: they come back as they were, and what is none is refused."""

import json

import pytest
import sympy
from hypothesis import example, given
from hypothesis import strategies as st
from sympy import Add, Basic, Float, Integer, Lambda, MatrixSymbol, Mul, Pow, Rational, S, Symbol
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix

from theorykit import dmft, symbolic
from theorykit.codegen import lowering
from theorykit.symbolic.atoms import LogDet, PartialTrace, PrincipalBlock, SideBySide, Stacked, below, beside
from theorykit.symbolic.documents import table
from theorykit.symbolic.documents.table import ExpressionTable, read_expressions
from theorykit.symbolic.numeric import NumericFunction

N = Symbol("N", integer=True, positive=True)
SYMBOLS = (N, Symbol("x"), Symbol("x", positive=True), Symbol("sigma2_1", real=True))
A, B = MatrixSymbol("A", N, N), symbolic.positive_definite("B", N)
C = symbolic.positive_semidefinite("C", 2 * N)


def again(expression: Basic) -> Basic:
    entered = ExpressionTable()
    number = entered.enter(expression)
    return read_expressions(json.loads(json.dumps(entered.rows)))[number]


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(Integer),
    st.fractions().map(lambda number: Rational(number.numerator, number.denominator)),
    st.floats(allow_nan=False, allow_infinity=False).map(Float),
    st.integers(1, 10**6).map(lambda number: Float(number, 40) / 7),
    st.sampled_from((S.ImaginaryUnit, S.Pi, S.Exp1, S.Half, S.Infinity)),
)
SCALARS = st.recursive(
    NUMBERS | st.sampled_from(SYMBOLS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda terms: Add(*terms)),
        st.lists(inner, min_size=1, max_size=3).map(lambda terms: Mul(*terms)),
        st.tuples(inner, inner).map(lambda pair: Add(*pair, evaluate=False)),
        st.tuples(inner, inner).map(lambda pair: Mul(*pair, evaluate=False)),
        st.tuples(inner, st.integers(-3, 3)).map(lambda pair: Pow(*pair, evaluate=False)),
        st.tuples(st.sampled_from((sympy.exp, sympy.log, sympy.cosh, sympy.asinh)), inner).map(
            lambda pair: pair[0](pair[1], evaluate=False)
        ),
    ),
    max_leaves=8,
)
SQUARES = st.recursive(
    st.sampled_from((A, B, sympy.Identity(N), sympy.OneMatrix(N, N), sympy.ZeroMatrix(N, N))),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: sympy.MatAdd(*terms)),
        st.tuples(SCALARS.filter(lambda number: number.is_finite is not False), inner, inner).map(
            lambda factors: sympy.MatMul(*factors)
        ),
        inner.map(lambda matrix: matrix.T),
        inner.map(sympy.Inverse),
        inner.map(lambda matrix: sympy.MatPow(matrix, Rational(1, 2))),
        inner.map(symbolic.SquareRoot),
        inner.map(lambda matrix: PrincipalBlock(BlockDiagMatrix(matrix, matrix), (N, N), 1)),
        st.tuples(inner, inner).map(
            lambda pair: (
                PartialTrace(sympy.KroneckerProduct(*pair, check=False), (N, N), 0)
                if not all(matrix.is_Identity for matrix in pair)
                else pair[0]
            )
        ),
    ),
    max_leaves=6,
)


@given(SCALARS)
@example(sympy.Float(0.0))
def test_scalars_come_back_as_they_were(expression):
    read = again(expression)
    assert read == expression and type(read) is type(expression)
    assert sympy.srepr(read) == sympy.srepr(expression)


@given(SQUARES)
def test_matrices_come_back_as_they_were(matrix):
    for expression in (matrix, LogDet(matrix), sympy.Trace(matrix), symbolic.Diagonal(matrix)):
        read = again(expression)
        assert read == expression and symbolic.latex(read) == symbolic.latex(expression)


@pytest.mark.parametrize(
    "expression",
    [
        below(A, B),
        beside(A, B, A),
        Stacked(MatrixSymbol("W", 3, 4 * N), N),
        SideBySide(MatrixSymbol("W", 4 * N, 3), N),
        symbolic.Softmax(MatrixSymbol("z", N, 1)),
        sympy.HadamardProduct(A, B),
        sympy.DiagMatrix(MatrixSymbol("z", N, 1)),
        MatrixSymbol("z", N, 1).applyfunc(Lambda(Symbol("x", real=True), sympy.tanh(Symbol("x", real=True)))),
        Mul(2, Add(N, 1, evaluate=False), evaluate=False),
        sympy.Tuple(N, A),
        symbolic.GaussianAverage(sympy.tanh(Symbol("x") * Symbol("z")), Symbol("z"), 32),
        symbolic.entrywise(sympy.tanh, A),
        symbolic.sum_of_entries(symbolic.entrywise(lambda x, y: x * sympy.tanh(y), A, B)),
    ],
    ids=str,
)
def test_every_kind_comes_back_as_it_was(expression):
    assert again(expression) == expression


def test_every_kind_that_can_be_evaluated_can_be_kept():
    of_rows_of_their_own = {Symbol, sympy.Number, sympy.core.numbers.NumberSymbol, BlockMatrix}
    of_rows_of_their_own |= {sympy.core.numbers.ImaginaryUnit, type(sympy.true), type(sympy.false)}
    # code of Python, which is refused by name
    of_rows_of_their_own |= {NumericFunction}
    assert set(lowering._RULES) <= set(table._KNOWN.values()) | of_rows_of_their_own


def test_the_second_theory_comes_back_as_it_was():
    theory = dmft.derive()
    for step in theory.derivation.steps:
        assert again(step.before) == step.before and again(step.after) == step.after


def test_symbols_of_one_name_are_told_apart():
    entered = ExpressionTable()
    numbers = [entered.enter(symbol) for symbol in SYMBOLS]
    read = [read_expressions(entered.rows)[number] for number in numbers]
    assert read == list(SYMBOLS) and [symbol.assumptions0 for symbol in read] == [s.assumptions0 for s in SYMBOLS]


def test_what_occurs_twice_is_written_once():
    inner = sympy.Inverse(A + B)
    entered = ExpressionTable()
    entered.enter(inner * A * inner + inner)
    assert sum(row[0] == "Inverse" for row in entered.rows) == 1
    assert len({json.dumps(row) for row in entered.rows}) == len(entered.rows)


class Own(sympy.Function):
    """A function of a user."""


@pytest.mark.parametrize(
    ("expression", "named"), [(Own(N), "test_table.Own"), (sympy.Dummy("d"), "Dummy"), (sympy.Sum(N, (N, 1, 2)), "Sum")]
)
def test_an_expression_of_another_kind_is_named(expression, named):
    with pytest.raises(ValueError, match=named):
        ExpressionTable().enter(1 + expression)
