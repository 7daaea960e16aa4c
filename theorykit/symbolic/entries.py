"""Functions of the entries of matrices of one shape, and sums over entries: of data, of neurons."""

from collections.abc import Callable, Sequence

from sympy import Expr, Integer, Lambda, OneMatrix, Trace, ZeroMatrix
from sympy.matrices.expressions.matadd import MatAdd
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import (
    are_equal_sizes,
    checked_column,
    checked_function,
    checked_instance,
    checked_matrices,
    checked_matrix,
    checked_scalar,
    checked_square,
    shown,
)
from .atoms import Diagonal, FunctionOfMatrix, split_coefficient
from .bound_variables import EntryVariable, new_variable, with_value

ENTRY = EntryVariable("x")
_NAMES = "xyzuvw"


class Entrywise(MatrixExpr):
    """f(A_ij, B_ij, ...): a `function`, a SymPy `Lambda` of k numbers, of the entries of k matrices of one shape.

    Of one matrix it is SymPy's own `ElementwiseApplyFunction`; `entrywise` makes whichever it is.
    """

    def __new__(cls, function, *matrices):
        checked_instance("function", function, Lambda)
        matrices = _checked_alike(matrices)
        if len(function.variables) != len(matrices):
            raise ValueError(f"function must be of {len(matrices)} numbers, one for each matrix, got {shown(function)}")
        checked_scalar("what function returns", function.expr)
        return super().__new__(cls, _with_own_variables(function), *matrices)

    @property
    def function(self):
        """The function of k numbers."""
        return self.args[0]

    @property
    def matrices(self):
        """The k matrices."""
        return self.args[1:]

    @property
    def shape(self):
        """That of each of the matrices."""
        return self.matrices[0].shape

    def _entry(self, i, j, **kwargs):
        return self.function(*(matrix[i, j] for matrix in self.matrices))

    def _eval_transpose(self):
        return Entrywise(self.function, *(matrix.T for matrix in self.matrices))


class SumOfEntries(Expr):
    """The sum of all entries of a matrix."""

    is_commutative = True

    def __new__(cls, matrix):
        return super().__new__(cls, checked_matrix("matrix", matrix))

    @property
    def matrix(self):
        """The matrix."""
        return self.args[0]


class KernelMatrix(FunctionOfMatrix):
    """k(C_ii, C_ij, C_jj), a kernel of each two of the Gaussian numbers whose covariance is the matrix C.

    `function` k is a SymPy `Lambda` of three numbers. It must be E[f(g_i) f(g_j)] for some f, and `matrix` a
    covariance, which is not checked: the result is taken to be positive semidefinite.
    """

    def __new__(cls, function, matrix):
        checked_instance("function", function, Lambda)
        if len(function.variables) != 3:
            raise ValueError(f"function must be of three numbers, got {shown(function)}")
        checked_scalar("what function returns", function.expr)
        checked_square("matrix", matrix)
        # with variables of the names that Entrywise gives them
        own = Entrywise(function, matrix, matrix, matrix).function
        return super().__new__(cls, own, matrix)

    @property
    def function(self):
        """The kernel, a function of three numbers."""
        return self.args[0]

    @property
    def matrix(self):
        """The covariance."""
        return self.args[1]

    @property
    def shape(self):
        """That of the covariance."""
        return self.matrix.shape

    @property
    def entries(self) -> MatrixExpr:
        """The same as a function of the entries of three matrices."""
        own = Diagonal(self.matrix) * OneMatrix(1, self.matrix.shape[0])
        return entrywise(self.function, own, self.matrix, own.T)

    def _eval_transpose(self):
        return self


def entrywise(function: Callable[..., Expr], *matrices: MatrixExpr) -> MatrixExpr:
    """A function of k numbers, applied to the entries of k matrices of one shape; equal wherever both are.

    >>> from sympy import MatrixSymbol
    >>> from theorykit.symbolic import entrywise, log_cosh, sum_of_entries
    >>> fields, labels = MatrixSymbol("h", 5, 1), MatrixSymbol("y", 5, 1)
    >>> sum_of_entries(entrywise(lambda h, y: log_cosh(h) - h * y, fields, labels)).free_symbols == {fields, labels}
    True
    """
    checked_function("function", function)
    matrices = _checked_alike(matrices)
    variables = _variables(len(matrices))
    try:
        value = checked_scalar("what function returns", function(*variables))
    except TypeError as error:
        raise TypeError(f"function must take {len(matrices)} expressions to another: {error}") from error
    return matrices[0].applyfunc(Lambda(ENTRY, value)) if len(matrices) == 1 else of_entries(value, variables, matrices)


def sum_of_entries(matrix: MatrixExpr) -> Expr:
    """The sum of all entries of a matrix, taken of each term, the scalar coefficient in front."""
    if isinstance(checked_matrix("matrix", matrix), MatAdd):
        return sum((sum_of_entries(term) for term in matrix.args), Integer(0))
    coefficient, factor = split_coefficient(matrix)
    if isinstance(factor, OneMatrix):
        return coefficient * factor.shape[0] * factor.shape[1]
    return Integer(0) if isinstance(factor, ZeroMatrix) else coefficient * SumOfEntries(factor)


def sum_of_column(column: MatrixExpr) -> Expr:
    """The sum of a column's entries as the product of a row of ones with it: rules know products."""
    return Trace(OneMatrix(1, checked_column("column", column).shape[0]) * column)


def of_entries(value: Expr, variables: Sequence[EntryVariable], matrices: Sequence[MatrixExpr]) -> MatrixExpr:
    """The matrix of `value`, a function of the `variables`, of the entries of `matrices`, in its simplest form.

    Coefficients stand in front, of matrices in which it is linear too; a matrix that occurs twice, one of equal
    entries, and one of which it is no function are left out.
    """
    shape, kept = matrices[0].shape, {}
    for variable, matrix in zip(variables, matrices, strict=True):
        coefficient, factor = split_coefficient(matrix)
        if isinstance(factor, (OneMatrix, ZeroMatrix)):
            entry = coefficient if isinstance(factor, OneMatrix) else Integer(0)
        elif value == variable * with_value(value, variable, Integer(1)):
            entry = coefficient * kept.setdefault(factor, variable)
        else:
            entry = kept.setdefault(matrix, variable)
        value = with_value(value, variable, entry)
    kept = {matrix: variable for matrix, variable in kept.items() if value.has_free(variable)}
    coefficient, rest = value.as_independent(*kept.values(), as_Add=False) if kept else (value, Integer(1))
    if not kept:
        return coefficient * OneMatrix(*shape) if coefficient != 0 else ZeroMatrix(*shape)
    if len(kept) == 1:
        ((matrix, variable),) = kept.items()
        if rest == variable:
            return coefficient * matrix
        return coefficient * matrix.applyfunc(Lambda(ENTRY, rest.xreplace({variable: ENTRY})))
    return coefficient * Entrywise(Lambda(tuple(kept.values()), rest), *kept)


def kernel_matrix(function: Callable[[Expr, Expr, Expr], Expr], matrix: MatrixExpr) -> MatrixExpr:
    """`KernelMatrix` of a function that takes C_ii, C_ij and C_jj; the covariance C itself where that is C_ij."""
    checked_function("function", function)
    own, between, other = map(EntryVariable, "xyz")
    try:
        value = checked_scalar("what function returns", function(own, between, other))
    except TypeError as error:
        raise TypeError(f"function must take three expressions to another: {error}") from error
    checked_square("matrix", matrix)
    return matrix if value == between else KernelMatrix(Lambda((own, between, other), value), matrix)


def _checked_alike(matrices: Sequence[MatrixExpr]) -> tuple[MatrixExpr, ...]:
    matrices = checked_matrices("matrices", matrices)
    for matrix in matrices[1:]:
        if not all(map(are_equal_sizes, matrices[0].shape, matrix.shape)):
            raise ValueError(f"the matrices must have one shape, got {matrices[0].shape} and {matrix.shape}")
    return matrices


def _variables(number: int) -> tuple[EntryVariable, ...]:
    names = _NAMES if number <= len(_NAMES) else [f"x_{i}" for i in range(1, number + 1)]
    return tuple(EntryVariable(name) for name in names[:number])


def _with_own_variables(function: Lambda) -> Lambda:
    """The function with variables of the names x, y, ..., so that functions which are the same are equal."""
    own = _variables(len(function.variables))
    # of a function in the function, which has its own
    others = function.expr.atoms(EntryVariable) - set(function.variables)
    if not others & set(own):
        return Lambda(own, function.expr.xreplace(dict(zip(function.variables, own, strict=True))))
    if all(isinstance(variable, EntryVariable) for variable in function.variables):
        return function
    expression, own = function.expr, ()
    for variable in function.variables:
        own = (*own, new_variable(EntryVariable, variable.name, expression))
        expression = expression.xreplace({variable: own[-1]})
    return Lambda(own, expression)
