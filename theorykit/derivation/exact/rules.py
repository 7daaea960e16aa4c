"""How the value of a node follows from those of its arguments: one rule for each kind that is a rational function."""

from collections.abc import Callable
from functools import cache, reduce

import numpy as np
from sympy import (
    Add,
    Basic,
    Identity,
    KroneckerProduct,
    MatAdd,
    MatMul,
    MatPow,
    MatrixSymbol,
    Mul,
    OneMatrix,
    Pow,
    Symbol,
    Trace,
    Transpose,
    ZeroMatrix,
    log,
    pi,
)
from sympy import Rational as RationalNumber
from sympy.core.numbers import ImaginaryUnit, Pi
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix

from ...symbolic import Diagonal, Softmax
from ...symbolic.atoms import LogDet, PartialTrace, PrincipalBlock, SideBySide, Stacked
from ...symbolic.bound_variables import BoundVariable
from ...symbolic.matrix_functions import Entrywise, SumOfEntries
from . import residues
from .residues import PRIME, NotRational
from .values import Logarithms, Residues, fraction


@cache
def rule_for(kind: type[Basic]) -> Callable:
    """The rule for nodes of this type."""
    return next((rule for node_type, rule in _RULES if issubclass(kind, node_type)), _refuse)


def _refuse(node, at):
    raise NotRational(type(node).__name__)


def _entrywise(node, at):
    matrices = [at(node.expr)] if isinstance(node, ElementwiseApplyFunction) else list(map(at, node.matrices))
    if node.function.free_symbols:
        raise NotRational("a function of entries with parameters")
    degree = max(matrix.above for matrix in matrices) + max(matrix.below for matrix in matrices)
    of_entries = np.vectorize(lambda *entries: at.of_any_function(node.function, entries, degree), otypes=[object])
    return Residues(of_entries(*(matrix.entries for matrix in matrices)), 1)


def _softmax(node, at):
    column = at(node.column)
    degree = column.above + column.below
    return Residues(at.of_any_function(Softmax, tuple(column.entries[:, 0]), degree, column=True), 1)


ANY_FUNCTIONS = (ElementwiseApplyFunction, Entrywise, Softmax)
"""Functions of which nothing is known here but that equal arguments have equal values."""


def _product(node, at):
    factors = list(map(at, node.args))
    if any(isinstance(factor, Logarithms) for factor in factors):
        raise NotRational("a logarithm, multiplied by a matrix")
    return reduce(lambda left, right: left @ right if left.is_matrix and right.is_matrix else left * right, factors)


def _scalar_product(node, at):
    values = list(map(at, node.args))
    held = [i for i, value in enumerate(values) if isinstance(value, Logarithms)]
    if not held:
        return reduce(lambda left, right: left * right, values)
    if len(held) > 1:
        raise NotRational("a product of logarithms")
    coefficient = Mul(*(argument for i, argument in enumerate(node.args) if i != held[0]))
    return values[held[0]].times(at.coefficients(coefficient), at(coefficient))


def _matrix_power(node, at):
    exponent = at.number(node.exp)
    if exponent is None or exponent.denominator != 1 or exponent == 0:
        raise NotRational(f"the power {node.exp} of a matrix")
    return at(node.base).power(int(exponent))


def _power(node, at):
    exponent = at.number(node.exp)
    if exponent is None or exponent.denominator > 2:
        raise NotRational(f"a power {node.exp}")
    if exponent.denominator == 1:
        return at(node.base).power(int(exponent))
    return at.root(node.base).power(int(2 * exponent))


def _partial_trace(node, at):
    outer, inner = map(at.size, node.dimensions)
    axes = (0, 2) if node.traced == 0 else (1, 3)
    blocks = (outer, inner, outer, inner)
    return at(node.matrix).linear(lambda entries: np.trace(entries.reshape(blocks), axis1=axes[0], axis2=axes[1]))


def _principal_block(node, at):
    split = at.size(node.sizes[0])
    kept = slice(None, split) if node.index == 0 else slice(split, None)
    return at(node.matrix)[kept, kept]


def _stacked(node, at):
    blocks = at.size(node.blocks)
    return at(node.matrix).linear(lambda entries: np.concatenate(np.split(entries, blocks, axis=1)))


def _side_by_side(node, at):
    blocks = at.size(node.blocks)
    return at(node.matrix).linear(lambda entries: np.hstack(np.split(entries, blocks)))


def _block_matrix(node, at):
    rows, columns = node.blocks.shape
    blocks = [[at(node.blocks[i, j]) for j in range(columns)] for i in range(rows)]
    every = [block for row in blocks for block in row]
    below = sum(block.below for block in every)
    above = max(block.above + below - block.below for block in every)
    return Residues(np.block([[block.entries for block in row] for row in blocks]), above, below)


def _kronecker(left, right):
    return Residues(np.kron(left.entries, right.entries) % PRIME, left.above + right.above, left.below + right.below)


def _log(node, at):
    value = at(node.args[0])
    if isinstance(value, Logarithms):
        raise NotRational("the logarithm of a logarithm")
    return value.logarithm()


def _constant(entry: int) -> Callable:
    def rule(node, at):
        return Residues(np.full(at.shape(node), entry, dtype=object))

    return rule


# First match wins, and the matrix nodes derive from the scalar ones.
_RULES = (
    (BoundVariable, _refuse),
    ((Symbol, MatrixSymbol), lambda node, at: at.symbol(node)),
    (RationalNumber, lambda node, at: fraction(at.number(node))),
    (Pi, lambda node, at: at.root(pi).power(2)),
    (ImaginaryUnit, lambda node, at: Residues(residues.square_root(-1))),
    (Identity, lambda node, at: Residues(residues.identity(at.size(node.shape[0])))),
    (ZeroMatrix, _constant(0)),
    (OneMatrix, _constant(1)),
    (BlockMatrix, _block_matrix),
    (PrincipalBlock, _principal_block),
    (Stacked, _stacked),
    (SideBySide, _side_by_side),
    (MatPow, _matrix_power),
    (Transpose, lambda node, at: at(node.arg).T),
    (MatMul, _product),
    (Mul, _scalar_product),
    ((MatAdd, Add), lambda node, at: sum(map(at, node.args))),
    (KroneckerProduct, lambda node, at: reduce(_kronecker, map(at, node.args))),
    (PartialTrace, _partial_trace),
    (SumOfEntries, lambda node, at: at(node.matrix).linear(np.sum)),
    ((ElementwiseApplyFunction, Entrywise), _entrywise),
    (Softmax, _softmax),
    (DiagMatrix, lambda node, at: at(node.args[0]).linear(lambda column: np.diag(column[:, 0]))),
    (Diagonal, lambda node, at: at(node.matrix).linear(lambda entries: np.diag(entries)[:, None])),
    (Trace, lambda node, at: at(node.arg).trace()),
    (LogDet, lambda node, at: at(node.matrix).log_determinant()),
    (log, _log),
    (Pow, _power),
)
