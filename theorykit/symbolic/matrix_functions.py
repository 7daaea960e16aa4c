"""Functions of the entries of matrices, and properties that follow from the form of a matrix.

The code generator uses a Cholesky factorisation only if these functions prove that a matrix is positive definite.
"""

from collections.abc import Callable, Sequence

import sympy as sp
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr
from sympy.printing.precedence import precedence_traditional

from ..checks import checked_function
from .atoms import (
    Diagonal,
    EntryVariable,
    FunctionOfMatrix,
    SymmetricSymbol,
    are_equal_sizes,
    checked_matrices,
    checked_matrix,
    checked_scalar,
    checked_square,
    split_coefficient,
    with_value,
)
from .notation import SCALAR, enclosed, entry, indices, value_at

ENTRY = EntryVariable("x")
_NAMES = "xyzuvw"


class Entrywise(MatrixExpr):
    """Matrix with entries f(A_ij, B_ij, ...), for matrices of the same shape. `function` f is a SymPy `Lambda`.

    For a single matrix, SymPy's own `ElementwiseApplyFunction` is used.
    """

    function = property(lambda self: self.args[0])
    matrices = property(lambda self: self.args[1:])
    shape = property(lambda self: self.matrices[0].shape)

    def __new__(cls, function, *matrices):
        return super().__new__(cls, _with_standard_names(function), *matrices)

    def _entry(self, i, j, **kwargs):
        return self.function(*(matrix[i, j] for matrix in self.matrices))

    def doit(self, **hints):
        # SymPy would simplify Max and Min in the function again, which is slow.
        return Entrywise(self.function, *(matrix.doit(**hints) for matrix in self.matrices))

    def _eval_transpose(self):
        return Entrywise(self.function, *(matrix.T for matrix in self.matrices))

    def value(self, at):
        return at.algebra.entrywise(at.function(self.function.variables, self.function.expr), *map(at, self.matrices))

    def _latex(self, printer):
        at = indices(printer, self)
        return rf"\left[{entry(printer, self, at)}\right]_{{{at}}}"


class SumOfEntries(sp.Expr):
    """Sum of all entries of a matrix."""

    is_commutative = True
    matrix = property(lambda self: self.args[0])

    def value(self, at):
        return at.xp.sum(at(self.matrix), axis=(-2, -1))

    def pullback(self, cotangent):
        return [(self.matrix, cotangent * sp.OneMatrix(*self.matrix.shape))]

    precedence = SCALAR

    def _latex(self, printer):
        at = indices(printer, self.matrix)
        text, of_entries = entry(printer, self.matrix, at), getattr(self.matrix, "function", None)
        return rf"\sum_{{{at}}} " + (enclosed(text) if of_entries is not None and of_entries.expr.is_Add else text)


class KernelMatrix(FunctionOfMatrix):
    """Matrix with entries k(C_ii, C_ij, C_jj), a kernel of Gaussian numbers g with covariance matrix C.

    `function` k is a SymPy `Lambda` of three numbers. It must have the form E[f(g_i) f(g_j)] for some f, and `matrix`
    must be a covariance matrix. Neither is checked: the result is assumed to be positive semidefinite.
    """

    function = property(lambda self: self.args[0])
    matrix = property(lambda self: self.args[1])

    def __new__(cls, function, matrix):
        return MatrixExpr.__new__(cls, _with_standard_names(function), matrix)

    def _eval_transpose(self):
        return self

    def doit(self, **hints):
        return self.func(self.function, self.matrix.doit(**hints))

    @property
    def entries(self) -> MatrixExpr:
        own = Diagonal(self.matrix) * sp.OneMatrix(1, self.matrix.shape[0])
        return entrywise(self.function, own, self.matrix, own.T)

    def value(self, at):
        return at(self.entries)

    def pullback(self, cotangent):
        return [(self.entries, cotangent)]

    is_semidefinite = True

    def _latex(self, printer):
        row, column = indices(printer, self.matrix).split()
        matrix = enclosed(printer._print(self.matrix))
        places = (row + row, row + column, column + column)
        text = value_at(printer, self.function, *(f"{matrix}_{{{place}}}" for place in places))
        return rf"\left[{text}\right]_{{{row} {column}}}"


def entrywise(function: Callable[..., sp.Expr], *matrices: MatrixExpr) -> MatrixExpr:
    """Return the matrix of a function of k numbers, applied to the entries of k matrices of the same shape.

    Raises:
        ValueError: If the shapes differ, or the function returns no scalar.

    Example:
        >>> from sympy import MatrixSymbol
        >>> from theorykit.symbolic import entrywise, log_cosh, sum_of_entries
        >>> fields, labels = MatrixSymbol("h", 5, 1), MatrixSymbol("y", 5, 1)
        >>> losses = entrywise(lambda h, y: log_cosh(h) - h * y, fields, labels)
        >>> sum_of_entries(losses).free_symbols == {fields, labels}
        True
    """
    matrices = checked_matrices("matrices", matrices)
    for matrix in matrices[1:]:
        if not all(map(are_equal_sizes, matrices[0].shape, matrix.shape)):
            raise ValueError(f"the matrices must have one shape, got {matrices[0].shape} and {matrix.shape}")
    variables = _variables(len(matrices))
    value = value_of(function, variables)
    if len(matrices) == 1:
        return matrices[0].applyfunc(sp.Lambda(ENTRY, value))
    return of_entries(value, variables, matrices)


def sum_of_entries(matrix: MatrixExpr) -> sp.Expr:
    """Return the sum of all entries of a matrix, term by term, with scalar coefficients in front."""
    if isinstance(checked_matrix("matrix", matrix), sp.MatAdd):
        return sum((sum_of_entries(term) for term in matrix.args), sp.Integer(0))
    coefficient, factor = split_coefficient(matrix)
    if isinstance(factor, sp.OneMatrix):
        return coefficient * factor.shape[0] * factor.shape[1]
    return sp.Integer(0) if isinstance(factor, sp.ZeroMatrix) else coefficient * SumOfEntries(factor)


def sum_of_column(column: MatrixExpr) -> sp.Expr:
    """Sum the entries of a column as its product with a row of ones, so that the rules for products apply."""
    return sp.Trace(sp.OneMatrix(1, column.shape[0]) * column)


def of_entries(value: sp.Expr, variables: Sequence[EntryVariable], matrices: Sequence[MatrixExpr]) -> MatrixExpr:
    """Apply `value`, a function of the `variables`, to the entries of `matrices`, in simplest form.

    Coefficients are moved to the front, including coefficients of matrices in which `value` is linear. Repeated
    matrices, matrices with equal entries, and matrices that `value` does not depend on are removed.
    """
    shape, kept = matrices[0].shape, {}
    for variable, matrix in zip(variables, matrices, strict=True):
        coefficient, factor = split_coefficient(matrix)
        if isinstance(factor, (sp.OneMatrix, sp.ZeroMatrix)):
            entry = coefficient if isinstance(factor, sp.OneMatrix) else sp.Integer(0)
        elif value == variable * with_value(value, variable, sp.Integer(1)):
            entry = coefficient * kept.setdefault(factor, variable)
        else:
            entry = kept.setdefault(matrix, variable)
        value = with_value(value, variable, entry)
    kept = {matrix: variable for matrix, variable in kept.items() if value.has_free(variable)}
    coefficient, rest = value.as_independent(*kept.values(), as_Add=False) if kept else (value, sp.Integer(1))
    if not kept:
        return coefficient * sp.OneMatrix(*shape) if coefficient != 0 else sp.ZeroMatrix(*shape)
    if len(kept) == 1:
        ((matrix, variable),) = kept.items()
        if rest == variable:
            return coefficient * matrix
        return coefficient * matrix.applyfunc(sp.Lambda(ENTRY, rest.xreplace({variable: ENTRY})))
    return coefficient * Entrywise(sp.Lambda(tuple(kept.values()), rest), *kept)


def kernel_matrix(function: Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr], matrix: MatrixExpr) -> MatrixExpr:
    """Return the `KernelMatrix` of a function of C_ii, C_ij and C_jj, or the covariance C if the function is C_ij."""
    variables = _variables(3)
    value = value_of(function, variables)
    checked_square("matrix", matrix)
    return matrix if value == variables[1] else KernelMatrix(sp.Lambda(variables, value), matrix)


class AssumedPositiveDefinite(FunctionOfMatrix):
    """A symmetric matrix that is positive definite at the points of interest, though its form does not prove it.

    Its value is the matrix, or NaN if the matrix is not positive definite.
    """

    def __new__(cls, matrix):
        if not is_symmetric(checked_square("matrix", matrix)):
            raise ValueError(
                f"the matrix must be provably symmetric, got {matrix}; declare its symbols with symmetric(...), "
                "positive_semidefinite(...) or positive_definite(...)"
            )
        return super().__new__(cls, matrix)

    def _entry(self, i, j, **kwargs):
        return self.matrix[i, j]

    def _eval_transpose(self):
        return self

    def value(self, at):
        return at.algebra.assumed_definite(at(self.matrix))

    def pullback(self, cotangent):
        return [(self.matrix, cotangent)]

    def is_definite(self, proof):
        return True

    # Brackets are as for the matrix itself.
    printed = property(lambda self: self.matrix)
    precedence = property(lambda self: precedence_traditional(self.matrix))

    def _latex(self, printer):
        return printer._print(self.matrix)


def assume_positive_definite(matrix: MatrixExpr) -> MatrixExpr:
    """Return the same matrix, assumed to be positive definite. A provably positive definite matrix is unchanged.

    Use it for `log_det` and `inverse` of a matrix that is positive definite at the solution of a theory, but not for
    all values of its symbols. Elsewhere the result is NaN, and solvers avoid such points.

    Raises:
        ValueError: If the matrix is not provably symmetric. Write log det(I + A K) of symmetric A and K as
            log det(K^{-1} + A) + log det K.

    Example:
        >>> from sympy import Identity
        >>> from theorykit.symbolic import assume_positive_definite, gradient, log_det, symmetric
        >>> Q = symmetric("Q", 3)
        >>> gradient(log_det(assume_positive_definite(Identity(3) - Q)), Q)
        -(AssumedPositiveDefinite(I - Q))**(-1)
    """
    checked_square("matrix", matrix)
    return matrix if is_positive_definite(matrix) else AssumedPositiveDefinite(matrix)


def value_of(function: Callable[..., sp.Expr], variables: Sequence[EntryVariable]) -> sp.Expr:
    """Apply a function of expressions to the variables, and check that the result is a scalar."""
    return checked_scalar("the value of function", checked_function("function", function)(*variables))


def _with_standard_names(function: sp.Lambda) -> sp.Lambda:
    """Rename the variables to x, y, ..., so that identical functions compare equal."""
    own = _variables(len(function.variables))
    # Keep names if a function inside the function uses the new ones for its variables.
    others = function.expr.atoms(EntryVariable) - set(function.variables)
    if function.variables == own or others & set(own):
        return function  # SymPy would simplify Max and Min in a new function again, which is slow.
    return sp.Lambda(own, function.expr.xreplace(dict(zip(function.variables, own, strict=True))))


def _variables(number: int) -> tuple[EntryVariable, ...]:
    names = _NAMES if number <= len(_NAMES) else [f"x_{i}" for i in range(1, number + 1)]
    return tuple(EntryVariable(name) for name in names[:number])


def is_positive_definite(matrix: MatrixExpr) -> bool:
    """Return True if `matrix` is provably symmetric positive definite.

    An atom has a method `is_definite`, to which this function is passed.
    """
    return _is_definite(matrix, is_positive_definite)


def is_positive_semidefinite(matrix: MatrixExpr) -> bool:
    """Return True if `matrix` is provably symmetric positive semidefinite."""
    return _is_definite(matrix, is_positive_semidefinite)


def _is_definite(matrix: MatrixExpr, proof: Callable[[MatrixExpr], bool]) -> bool:
    """Apply the closure rules. The `proof` of parts is one of the two functions above."""
    strictly = proof is is_positive_definite
    if not strictly and getattr(matrix, "is_semidefinite", False):
        return True
    if hasattr(matrix, "is_definite"):
        return matrix.is_definite(proof)
    if isinstance(matrix, sp.MatrixBase):
        return bool(matrix.is_positive_definite if strictly else matrix.is_positive_semidefinite)
    if isinstance(matrix, sp.OneMatrix):
        return not strictly and matrix.shape[0] == matrix.shape[1]
    if isinstance(matrix, sp.MatAdd):
        return all(map(is_positive_semidefinite, matrix.args)) and any(map(proof, matrix.args))
    if isinstance(matrix, (sp.Inverse, sp.Transpose, sp.KroneckerProduct, BlockDiagMatrix)):
        return all(proof(each) for each in matrix.args if each.is_Matrix)
    if isinstance(matrix, sp.MatMul):
        coefficient, factors = coefficient_and_factors(matrix)
        # A X A^T is semidefinite for any A if X is, or if there is no X. It is definite if A and X are.
        while len(factors) > 1 and factors[0] == factors[-1].T and (not strictly or proof(factors[0])):
            factors = factors[1:-1]
        is_of_sign = coefficient.is_positive if strictly else coefficient.is_nonnegative
        return bool(is_of_sign) and len(factors) < 2 and all(map(proof, factors))
    return isinstance(matrix, sp.Identity)


def is_symmetric(matrix: MatrixExpr) -> bool:
    """Return True if `matrix` is provably symmetric."""
    if isinstance(matrix, SymmetricSymbol) or is_positive_semidefinite(matrix):
        return True
    if isinstance(matrix, sp.Inverse):
        return is_symmetric(matrix.arg)
    if isinstance(matrix, (BlockDiagMatrix, sp.KroneckerProduct, sp.MatAdd)) and all(map(is_symmetric, matrix.args)):
        return True
    return matrix.shape[0] == matrix.shape[1] and matrix.T.doit() == matrix.doit()


def coefficient_and_factors(product: sp.MatMul) -> tuple[sp.Expr, list[MatrixExpr]]:
    """Split a product into its scalar coefficient and its matrix factors. Integer powers become repeated factors."""
    coefficient, matrices = product.as_coeff_matrices()
    factors = []
    for matrix in matrices:
        is_power = isinstance(matrix, sp.MatPow) and not isinstance(matrix, sp.Inverse)
        if isinstance(matrix, sp.MatMul):
            inner_coefficient, inner = coefficient_and_factors(matrix)
            coefficient *= inner_coefficient
            factors += inner
        elif is_power and matrix.exp.is_Integer and matrix.exp != 0:
            factors += factors_of_power(matrix)
        else:
            factors.append(matrix)
    return coefficient, factors


def factors_of_power(power: sp.MatPow) -> tuple[MatrixExpr, ...]:
    """Return the factors of a power. Raises `NotImplementedError` if its exponent is not a whole number, or zero."""
    if not power.exp.is_Integer or power.exp == 0:
        raise NotImplementedError(f"powers of matrices must have nonzero integer exponents, got {power}")
    return (power.base if power.exp > 0 else sp.Inverse(power.base),) * abs(int(power.exp))
