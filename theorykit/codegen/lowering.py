"""Lower every node of an expression to instructions of a JAX function, or evaluate it literally in NumPy.

`lower` makes a straight-line `Program`. It does not form matrices if a structured operation suffices: inverses become
Cholesky solves (a log-determinant and solves share one factorisation), Kronecker factors become reshapes, and traces of
products become contractions. `interpret` is the oracle of generated code. It evaluates every node as written: it forms
Kronecker products, and computes inverses and log-determinants by LU. The two functions share no algorithm, only the
table of nodes at the end of this module. Nodes that are not in the table raise an error.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from typing import Any, NamedTuple

import numpy as np

# Import these modules lazily, because few users need them.
import scipy
import sympy as sp
from sympy.core.numbers import ImaginaryUnit
from sympy.logic.boolalg import BooleanFalse, BooleanTrue
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import checked_instance, checked_sequence, shown
from ..symbolic.atoms import (
    BoundVariable,
    Diagonal,
    EntryVariable,
    LogDet,
    PartialTrace,
    PrincipalBlock,
    SideBySide,
    Softmax,
    SquareRoot,
    Stacked,
    bound_outside,
    check_matrices_are_fixed,
)
from ..symbolic.averages import GaussianAverage
from ..symbolic.envelopes import MoreauEnvelope, ProximalPoint
from ..symbolic.matrix_functions import (
    AssumedPositiveDefinite,
    EigenvalueSum,
    Entrywise,
    KernelMatrix,
    SpectralFunction,
    SumOfEntries,
    coefficient_and_factors,
    is_positive_definite,
)
from ..symbolic.numeric import NumericFunction
from ..symbolic.spectral_laws import LawFunctionBase, SpectralAverage
from .functions import TABLE
from .names import ENTRY, SCALAR_NAMES, check_names, identifiers, numeric_functions
from .oracle import Value, mean_of_average, mean_over_law, value_of_loss
from .program import Instruction, Program, bind_sizes
from .scalars import (
    as_float,
    average_operation,
    factors_of_exponentials,
    log_without_overflow,
    print_scalar,
    terms_of_exponentials,
    with_tanh,
)

# Scalars that become separate instructions before the formulas that contain them.
_OWN_INSTRUCTIONS = (
    *(EigenvalueSum, GaussianAverage, LawFunctionBase, LogDet, SpectralAverage, SumOfEntries, sp.Trace),
)


def lower(name: str, outputs: Mapping[str, sp.Expr], arguments: Sequence[sp.Expr]) -> Program:
    """Lower the expressions `outputs`, functions of the symbols `arguments`, to one program.

    Raises `ValueError` if a free symbol is neither an argument nor a size that the shapes of the arguments determine,
    if two different symbols have the same name, or if a name is not valid in generated source.
    """
    arguments = checked_sequence("arguments", arguments, "SymPy symbols")
    for i, argument in enumerate(arguments):
        checked_instance(f"arguments[{i}]", argument, (sp.Symbol, sp.MatrixSymbol))
    for output, expression in checked_instance("outputs", outputs, Mapping, "expressions by name").items():
        checked_instance(f"outputs[{shown(output)}]", expression, sp.Expr, "a SymPy expression")
    check_names(name, outputs, arguments)
    builder = _Builder()
    results = {output: builder.value(expression) for output, expression in outputs.items()}
    functions = numeric_functions(name, outputs.values())
    instructions = _adaptive_means_together(builder.instructions)
    program = Program(name, arguments, (), instructions, results, functions)
    mentioned = identifiers(program.operands())
    sizes, needed = [], set(mentioned)
    for binding in reversed(bind_sizes(arguments)):
        if binding.size in needed:
            sizes.insert(0, binding)
            needed |= identifiers([binding.divisor])
    known = {argument.name for argument in arguments} | {binding.size for binding in sizes} | set(functions)
    known |= {step.target for step in instructions}
    if unknown := sorted(mentioned - known - SCALAR_NAMES):
        raise ValueError(f"{name}: the symbols {unknown} are neither arguments nor sizes that the arguments determine")
    return replace(program, sizes=tuple(sizes))


def _adaptive_means_together(instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Compute all adaptive means without a tilt by one operation, unless instructions need some of them earlier."""
    mean = "adaptive_gaussian_mean"
    places = [i for i, step in enumerate(instructions) if step.operation == mean and len(step.operands) <= 4]
    means = [instructions[i] for i in places]
    until = instructions[: places[-1] + 1] if places else []
    if len(means) < 2 or {m.target for m in means} & identifiers(o for step in until for o in step.operands):
        return tuple(instructions)
    together = Instruction(f"{mean}s_1", f"{mean}s", tuple(f"({', '.join(each.operands)})" for each in means))
    named = [Instruction(each.target, "named", (f"{together.target}[{i}]",)) for i, each in enumerate(means)]
    others = [step for step in until if step not in means]
    return (*others, together, *named, *instructions[len(until) :])


def check_covered(expression: sp.Expr) -> None:
    """Raise `ValueError` for an expression that cannot be compiled. The message suggests a replacement."""
    checked_instance("expression", expression, sp.Expr, "a SymPy expression")
    try:
        _Builder().value(expression)
    except NotImplementedError as error:
        raise ValueError(str(error)) from error


def interpret(expression: sp.Expr, values: Mapping[str, Value]) -> Value:
    """Evaluate an expression in NumPy. Repeated subexpressions are evaluated once.

    Args:
        expression: a scalar or matrix expression.
        values: values of its symbols and sizes by name. Matrices are 2-d arrays, or stacks of them along the first
            axes. The value is then a stack, too.

    Raises:
        ValueError: a symbol has no value.
        NotImplementedError: there is no rule for a part of the expression.
    """
    if not isinstance(expression, sp.Basic):
        raise TypeError(f"expression must be a SymPy expression, got {shown(expression)}")
    return _Evaluation(checked_instance("values", values, Mapping, "numbers and arrays by name"), {})(expression)


@dataclass
class _Builder:
    """Lower expressions by value numbering: each expression is lowered once, and each operation is emitted once."""

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
        """Return the operand that holds `expression`."""
        if expression not in self.values:
            rules = _rules_for(type(expression))
            if rules is None and getattr(expression, "is_Matrix", False):
                raise NotImplementedError(
                    f"{type(expression).__name__} (in {shown(expression)}) is not covered: write it with sums, "
                    "products, inverses, Kronecker products, symbolic.entrywise and matrices of theorykit.symbolic"
                )
            rule = rules.lower if rules else None
            self.values[expression] = rule(self, expression) if rule else self.scalar(expression)
        return self.values[expression]

    def scalar(self, expression: sp.Expr) -> str:
        """Return Python text for a scalar expression, and emit instructions for its traces, averages and so on."""
        return print_scalar(self.with_results(expression, expression))

    def with_results(self, expression: sp.Expr, part: sp.Expr) -> sp.Expr:
        """Emit instructions for scalars in a `part` of `expression`, and replace them by the names of the results."""
        found = sorted(set(_computed_before(part)), key=lambda node: node.sort_key())
        return expression.xreplace({node: sp.Symbol(self.value(node)) for node in found})

    def scale(self, coefficient: sp.Expr, operand: str) -> str:
        return operand if coefficient == 1 else self.emit("scale", self.scalar(coefficient), operand)

    def cholesky(self, matrix: MatrixExpr) -> str:
        if not is_positive_definite(matrix):
            raise NotImplementedError(
                f"{matrix} is not provably positive definite, as Cholesky solves and log-determinants require; declare "
                "its symbols with positive_definite(...), and the regulariser with positive=True; if it is positive "
                "definite only at the solution, use symbolic.assume_positive_definite(...)"
            )
        return self.emit("cholesky", self.value(matrix))

    def apply(self, matrix: MatrixExpr, operand: str) -> str:
        """Emit `matrix @ operand`, and use the structure of `matrix`."""
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
        """Emit the product of `factors`, from the right to the left.

        A product with an inner size of one is split there, and the product of a row is transposed.
        """
        if split := _inner_size_one(factors):
            return self.emit("matmul", self.chain(factors[:split]), self.chain(factors[split:]))
        if len(factors) > 1 and factors[0].shape[0] == 1 != factors[-1].shape[1]:
            return self.emit("transpose", self.chain(_transpose_factors(factors)))
        operand = self.value(factors[-1])
        for factor in reversed(factors[:-1]):
            operand = self.apply(factor, operand)
        return operand

    def halves(self, factors: Sequence[MatrixExpr]) -> tuple[str, str]:
        """Return X and Y such that X^T Y is the product of `factors`. The halves of a palindrome share instructions."""
        split = _inner_size_one(factors) or len(factors) // 2
        return self.chain(_transpose_factors(factors[:split])), self.chain(factors[split:])


@dataclass(frozen=True)
class _Evaluation:
    """Evaluate nodes from values of the symbols, and cache the results in `known`.

    The keys of `symbols` are names, or bound variables themselves. The value of a bound variable may be an array, and
    scalar expressions that contain the variable are then arrays too.
    """

    symbols: Mapping[str | BoundVariable, Value]
    known: dict[sp.Basic, Value]

    def __call__(self, node: sp.Basic) -> Value:
        if node not in self.known:
            rules = _rules_for(type(node))
            if rules is None:
                raise NotImplementedError(f"the interpreter has no rule for {type(node).__name__} (in {node})")
            self.known[node] = rules.evaluate(node, self)
        return self.known[node]

    def where(self, values: Mapping[BoundVariable, Value]) -> "_Evaluation":
        """Return an evaluation with additional values of bound variables."""
        return _Evaluation({**self.symbols, **values}, {})


def _computed_before(expression: sp.Basic) -> Iterator[sp.Expr]:
    """Yield the scalars in an expression that become separate instructions, which contain no outer bound variables."""
    if isinstance(expression, _OWN_INSTRUCTIONS) and not bound_outside(expression):
        yield expression
    else:
        for argument in expression.args:
            yield from _computed_before(argument)


def _inner_size_one(factors: Sequence[MatrixExpr]) -> int:
    return next((i for i in range(1, len(factors)) if factors[i].shape[0] == 1), 0)


def _transpose_factors(factors: Sequence[MatrixExpr]) -> list[MatrixExpr]:
    return [factor.T.doit() for factor in reversed(factors)]


# Rules. `_lower_...` adds instructions to a builder and returns the operand with the result. `_value_...` evaluates.


def _operation(name: str) -> Callable[[_Builder, sp.Expr], str]:
    """Make the rule for a node that is a single operation on its arguments."""
    return lambda builder, node: builder.emit(name, *map(builder.value, node.args))


def _value_of_symbol(node, at):
    key = node if isinstance(node, BoundVariable) else node.name
    if key not in at.symbols:
        raise ValueError(f"values must be a mapping with a number or an array for {node.name}, got {shown(at.symbols)}")
    return at.symbols[key]


def _lower_blocks(builder, node):
    rows, columns = node.blocks.shape
    grid = [[builder.value(node.blocks[i, j]) for j in range(columns)] for i in range(rows)]
    joined = [row[0] if len(row) == 1 else builder.emit("beside", *row) for row in grid]
    return joined[0] if len(joined) == 1 else builder.emit("below", *joined)


def _value_of_blocks(node, at):
    rows, columns = node.blocks.shape
    blocks = [[at(node.blocks[i, j]) for j in range(columns)] for i in range(rows)]
    batch = np.broadcast_shapes(*(block.shape[:-2] for row in blocks for block in row))
    return np.block([[np.broadcast_to(block, (*batch, *block.shape[-2:])) for block in row] for row in blocks])


def _value_of_principal_block(node, at):
    split, matrix = int(at(node.sizes[0])), at(node.matrix)
    return matrix[..., :split, :split] if node.index == 0 else matrix[..., split:, split:]


def _matrices(node):
    return (node.expr,) if isinstance(node, ElementwiseApplyFunction) else node.matrices


def _lower_entrywise(builder, node):
    matrices = _matrices(node)
    check_matrices_are_fixed(node.function.expr)
    names = [ENTRY if i == 0 else f"{ENTRY}_{i + 1}" for i in range(len(matrices))]
    variables = dict(zip(node.function.variables, map(EntryVariable, names), strict=True))
    of_entries = builder.scalar(node.function.expr.xreplace(variables))
    return builder.emit("entrywise", f"lambda {', '.join(names)}: {of_entries}", *map(builder.value, matrices))


def _value_of_entrywise(node, at):
    own = {variable: EntryVariable(f"entry {i}") for i, variable in enumerate(node.function.variables)}
    # The axes of stacks come last, like the axes of scalars.
    entries = [np.moveaxis(at(matrix), (-2, -1), (0, 1)) for matrix in _matrices(node)]
    of_entries = at.where(dict(zip(own.values(), entries, strict=True)))(node.function.expr.xreplace(own))
    return np.moveaxis(np.broadcast_arrays(of_entries, *entries)[0].astype(float), (0, 1), (-2, -1))


def _value_of_softmax(node, at):
    weights = np.exp(at(node.column))
    return weights / np.sum(weights, axis=-2, keepdims=True)


def _value_if_positive_definite(node, at):
    matrix = at(node.matrix)
    return np.where(np.linalg.eigvalsh(matrix)[..., :1, None] > 0, matrix, np.nan)


def _lower_square_root(builder, node):
    if not is_positive_definite(node.matrix):
        raise NotImplementedError(
            f"{node.matrix} is not provably positive definite, so it may have no square root; declare its symbols with "
            "positive_definite(...)"
        )
    # `spectral_function` has its own derivative, because derivatives of eigenvectors diverge at degenerate eigenvalues.
    eigen = builder.emit("eigendecomposition", builder.value(node.matrix))
    return builder.emit("spectral_function", f"lambda {ENTRY}: jnp.sqrt({ENTRY})", eigen)


def _of_eigenvalues(operation: str) -> Callable[[_Builder, sp.Expr], str]:
    """Make the rule for a function of the eigenvalues of a matrix. All such functions share one decomposition."""

    def rule(builder, node):
        check_matrices_are_fixed(node.function.expr)
        value = node.function.expr.xreplace({node.function.variables[0]: EntryVariable(ENTRY)})
        eigen = builder.emit("eigendecomposition", builder.value(node.matrix))
        return builder.emit(operation, f"lambda {ENTRY}: {builder.scalar(value)}", eigen)

    return rule


def _eigenvalues(node, at):
    """Return the function of each eigenvalue, and orthonormal eigenvectors, from the Schur form."""
    triangular, vectors = scipy.linalg.schur(at(node.matrix))
    own = EntryVariable("eigenvalue")
    value = node.function.expr.xreplace({node.function.variables[0]: own})
    return np.array([at.where({own: each})(value) for each in np.diag(triangular)]), vectors


def _value_of_spectral_function(node, at):
    values, vectors = _eigenvalues(node, at)
    return (vectors * values) @ vectors.T


def _lower_power(builder, node):
    _, factors = coefficient_and_factors(sp.MatMul(node))
    if factors == [node]:
        raise NotImplementedError(f"a power of a matrix must have a nonzero integer exponent, got {node}")
    return builder.chain(factors)


def _value_of_power(node, at):
    if not node.exp.is_Integer:
        raise NotImplementedError(f"a power of a matrix must have an integer exponent, got MatPow {node}")
    return np.linalg.matrix_power(at(node.base), int(node.exp))


def _lower_product(builder, node):
    coefficient, factors = coefficient_and_factors(node)
    return builder.scale(coefficient, builder.chain(factors))


def _value_of_product(node, at):
    matrices = [at(factor) for factor in node.args if factor.is_Matrix]
    scale = reduce(operator.mul, (at(factor) for factor in node.args if not factor.is_Matrix), 1.0)
    return np.expand_dims(scale, (-2, -1)) * reduce(operator.matmul, matrices)


def _lower_sum(builder, node):
    """Lower a sum. Terms c I are added to the diagonal of the other terms."""
    on_diagonal, terms = sp.Integer(0), []
    for term in node.args:
        coefficient, factors = coefficient_and_factors(sp.MatMul(term))
        if all(isinstance(factor, sp.Identity) for factor in factors):
            on_diagonal += coefficient
        else:
            terms.append(builder.value(term))
    if not terms:
        return builder.scale(on_diagonal, builder.value(sp.Identity(node.shape[0])))
    total = terms[0] if len(terms) == 1 else builder.emit("add", *terms)
    return total if on_diagonal == 0 else builder.emit("add_identity", total, builder.scalar(on_diagonal))


def _linear_in_product(whole: str, of_product: str) -> Callable:
    """Make the rule for a linear map of a square matrix, such as the trace, which does not form matrix products."""

    def rule(builder, node, *extra: str):
        coefficient, factors = coefficient_and_factors(sp.MatMul(node.args[0]))
        one_solve = len(factors) == 2 and any(isinstance(factor, sp.Inverse) for factor in factors)
        if len(factors) == 1 or one_solve:
            return builder.scale(coefficient, builder.emit(whole, builder.chain(factors), *extra))
        return builder.scale(coefficient, builder.emit(of_product, *builder.halves(factors), *extra))

    return rule


def _lower_partial_trace(builder, node):
    operations = (("sum_of_blocks", "sum_of_product_blocks"), ("trace_of_blocks", "trace_of_product_blocks"))
    return _linear_in_product(*operations[node.traced])(builder, node, builder.scalar(node.traced_dimension))


def _value_of_partial_trace(node, at):
    outer, inner = (int(at(dimension)) for dimension in node.dimensions)
    matrix = at(node.matrix)
    spans = [slice(a * inner, (a + 1) * inner) for a in range(outer)]
    blocks = [[matrix[..., rows, columns] for columns in spans] for rows in spans]
    if node.traced == 0:
        return sum(blocks[h][h] for h in range(outer))
    traces = np.array([[_trace(block) for block in row] for row in blocks])
    return np.moveaxis(traces, (0, 1), (-2, -1))


def _trace(matrix):
    return np.trace(matrix, axis1=-2, axis2=-1)


def _kronecker(left, right):
    product = left[..., :, None, :, None] * right[..., None, :, None, :]
    return product.reshape(*product.shape[:-4], -1, left.shape[-1] * right.shape[-1])


def _lower_diagonal(builder, node):
    if isinstance(node.matrix, sp.MatAdd):
        return builder.emit("add", *(builder.value(Diagonal(term)) for term in node.matrix.args))
    return _linear_in_product("diagonal", "diagonal_of_product")(builder, node)


def _lower_trace(builder, node):
    if not isinstance(node.arg, sp.MatMul):
        return builder.emit("trace", builder.value(node.arg))
    return _linear_in_product("trace", "trace_of_product")(builder, node)


def _value_of_log_det(node, at):
    with np.errstate(invalid="ignore"):
        sign, value = np.linalg.slogdet(at(node.matrix))
    if np.any(sign <= 0):
        raise ValueError(f"LogDet needs a matrix with a positive determinant, got {node.matrix}")
    return value


def _lower_average(builder, node):
    check_matrices_are_fixed(node.integrand)
    operation, operands = average_operation(builder.with_results(node, node.integrand))
    return builder.emit(operation, *operands)


def _value_of_cases(node, at):
    left, result = True, np.nan
    for value, condition in node.args:
        holds = np.logical_and(left, at(condition))
        # A case may be undefined where its condition does not hold.
        if np.any(holds):
            with np.errstate(all="ignore"):
                result = np.where(holds, at(value), result)
        left = np.logical_and(left, np.logical_not(holds))
    return result[()]


def _value_of_function(node, at):
    row = TABLE[type(node)]
    whole = row.whole_numbers(node)
    return row.numpy(*(int(argument) if i in whole else at(argument) for i, argument in enumerate(node.args)))


def _value_of_scalar_product(node, at):
    with np.errstate(invalid="ignore"):
        value = reduce(operator.mul, map(at, node.args))
    # A ratio of exponential functions may be infinity over infinity.
    if not np.any(np.isnan(value)):
        return value
    if (simpler := with_tanh(node)) != node:
        return at(simpler)
    if (found := factors_of_exponentials(node)) is None:
        return value
    rest, sums = found
    logs, signs = 0.0, 1.0
    for terms, power in sums:
        log_of_sum, sign = _log_of_sum(terms, at)
        logs, signs = logs + power * log_of_sum, signs * sign**power
    return at(rest) * signs * np.exp(logs)


def _value_of_log(node, at):
    (of,) = node.args
    value = TABLE[sp.log].numpy(at(of))
    if np.all(np.isfinite(value)):
        return value
    if (found := log_without_overflow(of)) is not None:
        return at(found)
    if (terms := terms_of_exponentials(of)) is None:
        return value
    found, sign = _log_of_sum(terms, at)
    return np.where(sign > 0, found, np.nan)


def _log_of_sum(terms, at):
    """Return the logarithm and the sign of the sum of c exp(u) over pairs (c, u)."""
    factors, exponents = (np.broadcast_arrays(*map(at, each)) for each in zip(*terms, strict=True))
    return scipy.special.logsumexp(exponents, axis=0, b=factors, return_sign=True)


def _lower_of_law(builder, node):
    # XLA does not share loops, so a function that occurs several times is computed once.
    return builder.emit("named", print_scalar(reduce(builder.with_results, node.args, node)))


def _value_of_spectral_average(node, at):
    own = EntryVariable("eigenvalue")
    value = node.function.expr.xreplace({node.function.variables[0]: own})

    return mean_over_law(lambda x: at.where({own: x})(value), *map(at, node.parameters), tuple(map(int, node.orders)))


def _folded(function: Callable) -> Callable:
    """Make the rule that reduces the arguments of a node by a function of two numbers."""
    return lambda node, at: reduce(function, map(at, node.args))


def _filled(array: Callable) -> Callable:
    """Make the rule for a matrix that depends only on its shape."""
    return lambda node, at: array([int(at(side)) for side in node.shape])


class _Rules(NamedTuple):
    """The rules of a node.

    - `lower`: adds instructions for the node. None for scalar arithmetic, which is printed as text.
    - `evaluate`: returns the value of the node in NumPy.
    """

    lower: Callable[[_Builder, Any], str] | None
    evaluate: Callable[[Any, _Evaluation], Value]


# Rules of scalar arithmetic, which generated code contains as text.
_SCALARS = {
    sp.Symbol: _value_of_symbol,
    sp.Number: lambda node, at: as_float(node),
    sp.NumberSymbol: lambda node, at: as_float(node),
    ImaginaryUnit: lambda node, at: 1j,
    sp.Add: lambda node, at: sum(map(at, node.args)),
    sp.Mul: _value_of_scalar_product,
    sp.Pow: lambda node, at: at(node.base) ** at(node.exp),
    sp.Piecewise: _value_of_cases,
    BooleanTrue: lambda node, at: True,
    BooleanFalse: lambda node, at: False,
    sp.StrictGreaterThan: _folded(np.greater),
    sp.GreaterThan: _folded(np.greater_equal),
    sp.StrictLessThan: _folded(np.less),
    sp.LessThan: _folded(np.less_equal),
    sp.Equality: _folded(np.equal),
    sp.Unequality: _folded(np.not_equal),
    sp.And: _folded(np.logical_and),
    sp.Or: _folded(np.logical_or),
    sp.Not: lambda node, at: np.logical_not(at(node.args[0])),
    sp.Max: _folded(np.maximum),
    sp.Min: _folded(np.minimum),
    NumericFunction: lambda node, at: np.asarray(type(node).implementation(*map(at, node.args)))[()],
    **dict.fromkeys((MoreauEnvelope, ProximalPoint), value_of_loss),
    **{kind: _value_of_function for kind in TABLE if not issubclass(kind, LawFunctionBase)},
    sp.log: _value_of_log,
}
_RULES = {
    sp.MatrixSymbol: _Rules(lambda builder, node: node.name, _value_of_symbol),
    sp.Identity: _Rules(_operation("identity"), lambda node, at: np.eye(int(at(node.shape[0])))),
    sp.ZeroMatrix: _Rules(_operation("zeros"), _filled(np.zeros)),
    sp.OneMatrix: _Rules(_operation("ones"), _filled(np.ones)),
    BlockMatrix: _Rules(_lower_blocks, _value_of_blocks),
    PrincipalBlock: _Rules(
        lambda builder, node: builder.emit(
            ("leading_block", "trailing_block")[node.index], builder.value(node.matrix), builder.scalar(node.sizes[0])
        ),
        _value_of_principal_block,
    ),
    Stacked: _Rules(
        _operation("stacked"), lambda node, at: np.concatenate(np.split(at(node.matrix), int(at(node.blocks)), -1), -2)
    ),
    SideBySide: _Rules(
        _operation("side_by_side"),
        lambda node, at: np.concatenate(np.split(at(node.matrix), int(at(node.blocks)), -2), -1),
    ),
    ElementwiseApplyFunction: _Rules(_lower_entrywise, _value_of_entrywise),
    Entrywise: _Rules(_lower_entrywise, _value_of_entrywise),
    KernelMatrix: _Rules(lambda builder, node: builder.value(node.entries), lambda node, at: at(node.entries)),
    Softmax: _Rules(_operation("softmax"), _value_of_softmax),
    DiagMatrix: _Rules(
        _operation("diagonal_matrix"), lambda node, at: at(node.args[0]) * np.eye(int(at(node.shape[0])))
    ),
    AssumedPositiveDefinite: _Rules(lambda builder, node: builder.value(node.matrix), _value_if_positive_definite),
    SquareRoot: _Rules(_lower_square_root, lambda node, at: scipy.linalg.sqrtm(at(node.matrix))),
    SpectralFunction: _Rules(_of_eigenvalues("spectral_function"), _value_of_spectral_function),
    EigenvalueSum: _Rules(_of_eigenvalues("eigenvalue_sum"), lambda node, at: np.sum(_eigenvalues(node, at)[0])),
    sp.Inverse: _Rules(
        lambda builder, node: builder.apply(node, builder.value(sp.Identity(node.shape[0]))), _value_of_power
    ),
    sp.MatPow: _Rules(_lower_power, _value_of_power),
    sp.Transpose: _Rules(_operation("transpose"), lambda node, at: np.swapaxes(at(node.arg), -2, -1)),
    sp.MatMul: _Rules(_lower_product, _value_of_product),
    sp.MatAdd: _Rules(_lower_sum, lambda node, at: sum(map(at, node.args))),
    sp.KroneckerProduct: _Rules(
        lambda builder, node: reduce(partial(builder.emit, "kron"), map(builder.value, node.args)), _folded(_kronecker)
    ),
    PartialTrace: _Rules(_lower_partial_trace, _value_of_partial_trace),
    Diagonal: _Rules(_lower_diagonal, lambda node, at: np.diagonal(at(node.matrix), 0, -2, -1)[..., None]),
    sp.Trace: _Rules(_lower_trace, lambda node, at: _trace(at(node.arg))),
    SumOfEntries: _Rules(_operation("sum_of_entries"), lambda node, at: np.sum(at(node.matrix), (-2, -1))),
    LogDet: _Rules(lambda builder, node: builder.emit("log_det", builder.cholesky(node.matrix)), _value_of_log_det),
    GaussianAverage: _Rules(_lower_average, mean_of_average),
    SpectralAverage: _Rules(_lower_of_law, _value_of_spectral_average),
    **{kind: _Rules(_lower_of_law, _value_of_function) for kind in TABLE if issubclass(kind, LawFunctionBase)},
    **{kind: _Rules(None, evaluate) for kind, evaluate in _SCALARS.items()},
}


@cache
def _rules_for(kind: type[sp.Basic]) -> _Rules | None:
    """Return the rules of the closest base class."""
    return next((_RULES[each] for each in kind.__mro__ if each in _RULES), None)
