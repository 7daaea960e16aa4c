"""Lowering: SymPy expressions to a straight-line `Program`, one small rule per node.

Stage 2 of `SymPy expression -> lowering -> Program -> emission -> compiled function`. Products are never formed where a
structured application will do: inverses become Cholesky solves (one factorisation shared by log-determinant and
solves), Kronecker factors become reshapes, traces of products become contractions. A node without a rule is an error.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import sympy as sp
from sympy.core.symbol import Str
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import checked_instance, checked_sequence, shown
from ..symbolic.atoms import Diagonal, LogDet, PartialTrace, PrincipalBlock, SideBySide, Softmax, SquareRoot, Stacked
from ..symbolic.averages import GaussianAverage
from ..symbolic.bound_variables import EntryVariable, bound_outside, check_matrices_are_fixed
from ..symbolic.matrix_functions import (
    EigenvalueSum,
    Entrywise,
    KernelMatrix,
    SpectralFunction,
    SumOfEntries,
    coefficient_and_factors,
    is_positive_definite,
)
from .names import ENTRY, SCALAR_NAMES, check_names, identifiers, numeric_functions
from .program import Instruction, Program, bind_sizes
from .scalars.coverage import refusal_of_node, written_nodes
from .scalars.printing import average_operation, print_scalar

# scalars that are computed before the formulas in which they stand
_OWN_INSTRUCTIONS = (EigenvalueSum, GaussianAverage, LogDet, SumOfEntries, sp.Trace)


def lower(name: str, outputs: Mapping[str, sp.Expr], arguments: Sequence[sp.Expr]) -> Program:
    """Lower the expressions `outputs`, functions of the symbols `arguments`, to one program.

    Common subexpressions are computed once. Raises `ValueError` if a free symbol is neither an argument nor a size
    that the arguments' shapes determine, if two different symbols have one name, or if a name cannot stand in generated
    source.
    """
    arguments = checked_sequence("arguments", arguments, "SymPy symbols")
    for i, argument in enumerate(arguments):
        checked_instance(f"arguments[{i}]", argument, (sp.Symbol, sp.MatrixSymbol))
    for output, expression in checked_instance("outputs", outputs, Mapping, "expressions by name").items():
        checked_instance(f"outputs[{shown(output)}]", expression, sp.Expr, "a SymPy expression")
    check_names(name, outputs, arguments)
    builder = _Builder()
    results = {output: builder.value(expression) for output, expression in outputs.items()}
    operands = [*(operand for step in builder.instructions for operand in step.operands), *results.values()]
    mentioned = identifiers(operands)
    sizes, needed = [], set(mentioned)
    for binding in reversed(bind_sizes(arguments)):
        if binding.size in needed:
            sizes.insert(0, binding)
            needed |= identifiers([binding.divisor])
    functions = numeric_functions(name, outputs.values())
    known = {argument.name for argument in arguments} | {binding.size for binding in sizes} | set(functions)
    known |= {step.target for step in builder.instructions}
    if unknown := sorted(mentioned - known - SCALAR_NAMES):
        raise ValueError(f"{name}: the symbols {unknown} are neither arguments nor sizes that the arguments determine")
    return Program(name, arguments, tuple(sizes), tuple(builder.instructions), results, functions)


@dataclass
class _Builder:
    """Value numbering: each expression is lowered once, each operation with the same operands is emitted once."""

    instructions: list[Instruction] = field(default_factory=list)
    values: dict[sp.Expr, str] = field(default_factory=dict)
    emitted: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)

    def emit(self, operation: str, *operands: str) -> str:
        key = (operation, operands)
        if key not in self.emitted:
            number = 1 + sum(step.operation == operation for step in self.instructions)
            self.emitted[key] = f"{operation}_{number}"
            self.instructions.append(Instruction(self.emitted[key], operation, operands))
        return self.emitted[key]

    def value(self, expression: sp.Expr) -> str:
        """The operand that holds `expression`."""
        if expression not in self.values:
            rule = next((rule for kind, rule in _RULES if isinstance(expression, kind)), None)
            if rule is None and getattr(expression, "is_Matrix", False):
                raise NotImplementedError(_no_rule_for(expression))
            self.values[expression] = self.scalar(expression) if rule is None else rule(self, expression)
        return self.values[expression]

    def scalar(self, expression: sp.Expr) -> str:
        """Python text of a scalar expression, its traces, log-determinants and averages computed before."""
        return print_scalar(self.with_results(expression, expression))

    def with_results(self, expression: sp.Expr, part: sp.Expr) -> sp.Expr:
        """`expression` with the scalars of a `part` of it that are computed before, under the names of their values."""
        found = sorted(set(_computed_before(part)), key=lambda node: node.sort_key())
        return expression.xreplace({node: sp.Symbol(self.value(node)) for node in found})

    def cholesky(self, matrix: MatrixExpr) -> str:
        if not is_positive_definite(matrix):
            raise NotImplementedError(
                f"{matrix} is not provably positive definite, and only Cholesky solves and log-determinants are "
                "generated; declare its symbols with positive_definite(...), give the regulariser a positive symbol"
            )
        return self.emit("cholesky", self.value(matrix))

    def apply(self, matrix: MatrixExpr, operand: str) -> str:
        """`matrix @ operand`, exploiting the structure of `matrix`."""
        if isinstance(matrix, sp.Identity):
            return operand
        if isinstance(matrix, sp.Inverse):
            if isinstance(matrix.arg, sp.KroneckerProduct):
                return self.apply(sp.KroneckerProduct(*(sp.Inverse(factor) for factor in matrix.arg.args)), operand)
            return self.emit("solve", self.cholesky(matrix.arg), operand)
        if isinstance(matrix, DiagMatrix):
            return self.emit("scale_rows", self.value(matrix.args[0]), operand)
        if not (isinstance(matrix, sp.KroneckerProduct) and len(matrix.args) == 2):
            return self.emit("matmul", self.value(matrix), operand)
        left, right = matrix.args
        if not isinstance(right, sp.Identity):
            operand = self.emit("kron_right_matmul", self.value(right), operand)
        if not isinstance(left, sp.Identity):
            operand = self.emit("kron_left_matmul", self.value(left), operand)
        return operand

    def chain(self, factors: Sequence[MatrixExpr]) -> str:
        """The product of `factors`: split where an inner size is one, a row transposed, else applied from the right."""
        if split := _inner_size_one(factors):
            return self.emit("matmul", self.chain(factors[:split]), self.chain(factors[split:]))
        if len(factors) > 1 and factors[0].shape[0] == 1 != factors[-1].shape[1]:
            return self.emit("transpose", self.chain(_transpose_factors(factors)))
        operand = self.value(factors[-1])
        for factor in reversed(factors[:-1]):
            operand = self.apply(factor, operand)
        return operand

    def halves(self, factors: Sequence[MatrixExpr]) -> tuple[str, str]:
        """X and Y with X^T Y the product of `factors`; a palindromic product shares them as far as it can."""
        split = _inner_size_one(factors) or len(factors) // 2
        return self.chain(_transpose_factors(factors[:split])), self.chain(factors[split:])


def _no_rule_for(matrix: MatrixExpr) -> str:
    return (
        f"{type(matrix).__name__} (in {shown(matrix)}) is not covered: write it with sums, products, inverses, "
        "Kronecker products, symbolic.entrywise and the other matrices of theorykit.symbolic"
    )


def check_covered(expression: sp.Expr) -> None:
    """Raise `ValueError` for a node of an expression that cannot be compiled, with what to write instead."""
    checked_instance("expression", expression, sp.Expr, "a SymPy expression")
    has_rule = tuple(kind for kinds, _ in _RULES for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
    for node in written_nodes(expression):
        if isinstance(node, has_rule) or type(node) in (sp.Lambda, Str, sp.Tuple):
            continue
        is_matrix = getattr(node, "is_Matrix", False)
        if reason := _no_rule_for(node) if is_matrix else refusal_of_node(node):
            raise ValueError(reason)
    try:
        _Builder().value(expression)
    except NotImplementedError as error:
        # of matrices that are not provably positive definite, and other nodes whose arguments are not admitted
        raise ValueError(str(error)) from error


def _computed_before(expression: sp.Basic) -> Iterator[sp.Expr]:
    """The scalars in an expression that are instructions of their own: they depend on no variable bound around it."""
    if isinstance(expression, _OWN_INSTRUCTIONS) and not bound_outside(expression):
        yield expression
    else:
        for argument in expression.args:
            yield from _computed_before(argument)


def _inner_size_one(factors: Sequence[MatrixExpr]) -> int:
    return next((i for i in range(1, len(factors)) if factors[i].shape[0] == 1), 0)


def _transpose_factors(factors: Sequence[MatrixExpr]) -> list[MatrixExpr]:
    return [factor.T.doit() for factor in reversed(factors)]


def _scale(builder: _Builder, coefficient: sp.Expr, operand: str) -> str:
    if coefficient == 1:
        return operand
    return builder.emit("scale", builder.scalar(coefficient), operand)


def _operation(name: str) -> Callable[[_Builder, sp.Expr], str]:
    """Rule for a node that is one operation on its arguments, matrices and scalars."""
    return lambda builder, expression: builder.emit(name, *map(builder.value, expression.args))


def _block_matrix(builder, expression):
    blocks = expression.blocks
    rows = [[builder.value(blocks[i, j]) for j in range(blocks.shape[1])] for i in range(blocks.shape[0])]
    joined = [row[0] if len(row) == 1 else builder.emit("beside", *row) for row in rows]
    return joined[0] if len(joined) == 1 else builder.emit("below", *joined)


def _principal_block(builder, expression):
    operation = ("leading_block", "trailing_block")[expression.index]
    return builder.emit(operation, builder.value(expression.matrix), builder.scalar(expression.sizes[0]))


def _entrywise(builder, expression):
    matrices = (expression.expr,) if isinstance(expression, ElementwiseApplyFunction) else expression.matrices
    check_matrices_are_fixed(expression.function.expr)
    names = [ENTRY if i == 0 else f"{ENTRY}_{i + 1}" for i in range(len(matrices))]
    variables = dict(zip(expression.function.variables, map(EntryVariable, names), strict=True))
    of_entries = builder.scalar(expression.function.expr.xreplace(variables))
    return builder.emit("entrywise", f"lambda {', '.join(names)}: {of_entries}", *map(builder.value, matrices))


def _of_eigenvalues(operation: str) -> Callable[[_Builder, sp.Expr], str]:
    """Rule for a function of a matrix's eigenvalues, which all functions of it share."""

    def rule(builder, expression):
        check_matrices_are_fixed(expression.function.expr)
        value = expression.function.expr.xreplace({expression.function.variables[0]: EntryVariable(ENTRY)})
        eigen = builder.emit("eigendecomposition", builder.value(expression.matrix))
        return builder.emit(operation, f"lambda {ENTRY}: {builder.scalar(value)}", eigen)

    return rule


def _gaussian_average(builder, expression):
    check_matrices_are_fixed(expression.integrand)
    operation, operands = average_operation(builder.with_results(expression, expression.integrand))
    return builder.emit(operation, *operands)


def _square_root(builder, expression):
    if not is_positive_definite(expression.matrix):
        raise NotImplementedError(f"{expression.matrix} is not provably positive definite: it may have no square root")
    # derivatives of the eigenvectors themselves have poles where eigenvalues agree
    eigen = builder.emit("eigendecomposition", builder.value(expression.matrix))
    return builder.emit("spectral_function", f"lambda {ENTRY}: jnp.sqrt({ENTRY})", eigen)


def _power(builder, expression):
    _, factors = coefficient_and_factors(sp.MatMul(expression))
    if factors == [expression]:
        raise NotImplementedError(f"matrix powers are lowered for non-zero integer exponents, got {expression}")
    return builder.chain(factors)


def _matrix_product(builder, expression):
    coefficient, factors = coefficient_and_factors(expression)
    return _scale(builder, coefficient, builder.chain(factors))


def _matrix_sum(builder, expression):
    """Terms c I are gathered and added to the diagonal."""
    on_diagonal, terms = sp.Integer(0), []
    for term in expression.args:
        coefficient, factors = coefficient_and_factors(sp.MatMul(term))
        if all(isinstance(factor, sp.Identity) for factor in factors):
            on_diagonal += coefficient
        else:
            terms.append(builder.value(term))
    if not terms:
        return _scale(builder, on_diagonal, builder.value(sp.Identity(expression.shape[0])))
    total = terms[0] if len(terms) == 1 else builder.emit("add", *terms)
    return total if on_diagonal == 0 else builder.emit("add_identity", total, builder.scalar(on_diagonal))


def _kronecker(builder, expression):
    return reduce(lambda left, right: builder.emit("kron", left, right), map(builder.value, expression.args))


def _linear_in_product(whole: str, of_product: str) -> Callable:
    """Rule for a linear map of a square matrix (trace, diagonal, partial trace) that need not form a product."""

    def rule(builder, expression, *extra: str):
        matrix = expression.args[0]
        coefficient, factors = coefficient_and_factors(sp.MatMul(matrix))
        one_solve = len(factors) == 2 and any(isinstance(factor, sp.Inverse) for factor in factors)
        if len(factors) == 1 or one_solve:
            return _scale(builder, coefficient, builder.emit(whole, builder.chain(factors), *extra))
        return _scale(builder, coefficient, builder.emit(of_product, *builder.halves(factors), *extra))

    return rule


def _partial_trace(builder, expression):
    operations = {0: ("sum_of_blocks", "sum_of_product_blocks"), 1: ("trace_of_blocks", "trace_of_product_blocks")}
    rule = _linear_in_product(*operations[expression.traced])
    return rule(builder, expression, builder.scalar(expression.traced_dimension))


def _diagonal(builder, expression):
    if isinstance(expression.matrix, sp.MatAdd):
        return builder.emit("add", *(builder.value(Diagonal(term)) for term in expression.matrix.args))
    return _linear_in_product("diagonal", "diagonal_of_product")(builder, expression)


def _trace(builder, expression):
    if not isinstance(expression.arg, sp.MatMul):
        return builder.emit("trace", builder.value(expression.arg))
    return _linear_in_product("trace", "trace_of_product")(builder, expression)


# First match wins: Inverse derives from MatPow. Scalar arithmetic is printed, not lowered.
_RULES = (
    (sp.MatrixSymbol, lambda builder, expression: expression.name),
    (sp.Identity, _operation("identity")),
    (sp.ZeroMatrix, _operation("zeros")),
    (sp.OneMatrix, _operation("ones")),
    (BlockMatrix, _block_matrix),
    (PrincipalBlock, _principal_block),
    (Stacked, _operation("stacked")),
    (SideBySide, _operation("side_by_side")),
    ((ElementwiseApplyFunction, Entrywise), _entrywise),
    (KernelMatrix, lambda builder, expression: builder.value(expression.entries)),
    (Softmax, _operation("softmax")),
    (DiagMatrix, _operation("diagonal_matrix")),
    (SquareRoot, _square_root),
    (SpectralFunction, _of_eigenvalues("spectral_function")),
    (
        sp.Inverse,
        lambda builder, expression: builder.apply(expression, builder.value(sp.Identity(expression.shape[0]))),
    ),
    (sp.MatPow, _power),
    (sp.Transpose, _operation("transpose")),
    (sp.MatMul, _matrix_product),
    (sp.MatAdd, _matrix_sum),
    (sp.KroneckerProduct, _kronecker),
    (PartialTrace, _partial_trace),
    (Diagonal, _diagonal),
    (sp.Trace, _trace),
    (GaussianAverage, _gaussian_average),
    (EigenvalueSum, _of_eigenvalues("eigenvalue_sum")),
    (SumOfEntries, _operation("sum_of_entries")),
    (LogDet, lambda builder, expression: builder.emit("log_det", builder.cholesky(expression.matrix))),
)
