"""The algebra of compiled functions: JAX arrays, and algorithms chosen by the structure of matrices.

Inverses become Cholesky solves, which log-determinants of the same matrix share. Kronecker factors become reshapes, and
traces of products become contractions. No product is formed if its trace or its diagonal suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial, reduce
from operator import add
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import sympy as sp
from jax.custom_derivatives import SymbolicZero
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float
from sympy import Expr, Lambda, Piecewise, Symbol
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..symbolic.atoms import Diagonal, EntryVariable, PartialTrace, matrix_scalars
from ..symbolic.averages import GaussianAverage, breaks, coefficients, features, singularities, without_exponential
from ..symbolic.envelopes import FunctionOfLoss, ProximalPoint, derivative
from ..symbolic.matrix_functions import coefficient_and_factors, factors_of_power
from ..symbolic.numeric import NumericFunction, slope_along
from .evaluate import Algebra, At
from .functions import ScalarFunction, proximal_point
from .quadrature import composite_mean, gaussian_mean

Factors = tuple[MatrixExpr, ...]


# Factorisations.


class Factorised(NamedTuple):
    """A symmetric positive definite matrix and its lower Cholesky factor.

    Derivatives are with respect to the matrix, not the factor, so they need only solves.
    """

    matrix: Float[Array, "n n"]
    lower: Float[Array, "n n"]


def cholesky(matrix):
    """Symmetrise the matrix and factorise it. The factor is NaN if the matrix is not positive definite."""
    symmetric = (matrix + matrix.T) / 2
    fixed = jax.lax.stop_gradient(symmetric)
    return Factorised(symmetric, jnp.linalg.cholesky(fixed, symmetrize_input=False))


@jax.custom_jvp
def log_det(of: Factorised):
    """Return log det A."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(of.lower)))


@log_det.defjvp
def _log_det_jvp(primals, tangents):
    (of,), (change,) = primals, tangents
    inverse = solve(of, jnp.eye(len(of.matrix)))
    return log_det(of), jnp.sum(inverse * change.matrix)


def solve(of: Factorised, right):
    """Return A^{-1} right."""

    def by_factor(_, right):
        return cho_solve((of.lower, True), right)

    return jax.lax.custom_linear_solve(lambda unknown: of.matrix @ unknown, right, by_factor, symmetric=True)


@jax.custom_jvp
def square_root(matrix):
    eigenvalues, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * jnp.sqrt(eigenvalues)) @ vectors.T


@square_root.defjvp
def _square_root_jvp(primals, tangents):
    # The change X of the root S solves S X + X S = change of the matrix. Unlike derivatives of eigenvectors, it is
    # finite for degenerate eigenvalues.
    (matrix,), (change,) = primals, tangents
    root = square_root(matrix)

    def solved(_, right):
        eigenvalues, vectors = jnp.linalg.eigh(jax.lax.stop_gradient(root))
        rotated = vectors.T @ right @ vectors
        return vectors @ (rotated / (eigenvalues[:, None] + eigenvalues)) @ vectors.T

    return root, jax.lax.custom_linear_solve(lambda x: root @ x + x @ root, change, solved, symmetric=True)


# Products of matrices. These rules also record the source.


def _factor(matrix: MatrixExpr, at: At):
    return at.once(("cholesky", matrix), lambda: at.algebra.cholesky(at(matrix)))


def _apply(matrix: MatrixExpr, operand, at: At):
    """Return matrix @ operand, and use the structure of the matrix."""
    if isinstance(matrix, sp.Identity):
        return operand
    if isinstance(matrix, sp.Inverse):
        if isinstance(matrix.arg, sp.KroneckerProduct):
            inverses = map(sp.Inverse, matrix.arg.args)
            return _apply(sp.KroneckerProduct(*inverses), operand, at)
        return at.algebra.solve(_factor(matrix.arg, at), operand)
    if isinstance(matrix, DiagMatrix):
        return at(matrix.args[0]) * operand
    if not (isinstance(matrix, sp.KroneckerProduct) and len(matrix.args) == 2):
        return at(matrix) @ operand
    left, right = matrix.args
    columns = operand.shape[1]
    if not isinstance(right, sp.Identity):
        inner = at(right)
        blocks = operand.reshape(-1, inner.shape[1], columns)
        operand = at.xp.einsum("cd,bdk->bck", inner, blocks).reshape(-1, columns)
    if not isinstance(left, sp.Identity):
        outer = at(left)
        blocks = operand.reshape(outer.shape[1], -1)
        operand = (outer @ blocks).reshape(-1, columns)
    return operand


def _chain(factors: Factors, at: At):
    """Return the product of factors, from the right to the left, and every partial product once.

    A product with an inner size of one is split there, and the product of a row is transposed.
    """

    def product():
        if len(factors) == 1:
            return at(factors[0])
        if split := _inner_size_one(factors):
            return _chain(factors[:split], at) @ _chain(factors[split:], at)
        if factors[0].shape[0] == 1 != factors[-1].shape[1]:
            return _chain(_transposed(factors), at).T
        return _apply(factors[0], _chain(factors[1:], at), at)

    return at.once(("product", factors), product)


def _inner_size_one(factors: Factors) -> int:
    return next((i for i in range(1, len(factors)) if factors[i].shape[0] == 1), 0)


@lru_cache(maxsize=4096)
def _transposed(factors: Factors) -> Factors:
    return tuple(factor.T.doit() for factor in reversed(factors))


@lru_cache(maxsize=4096)
def _split(matrix: MatrixExpr) -> tuple[Expr, Factors]:
    coefficient, factors = coefficient_and_factors(sp.MatMul(matrix))
    return coefficient, tuple(factors)


def _scaled(coefficient: Expr, value, at: At):
    return value if coefficient == 1 else at(coefficient) * value


def _linear(matrix: MatrixExpr, at: At, whole: Callable, of_product: Callable):
    """Apply a linear map of a square matrix, such as the trace, without forming products.

    `whole` takes the matrix, and `of_product` takes X and Y if the matrix is X^T Y.
    """
    coefficient, factors = _split(matrix)
    is_solve = len(factors) == 2 and any(isinstance(each, sp.Inverse) for each in factors)
    if len(factors) == 1 or is_solve:
        return _scaled(coefficient, whole(_chain(factors, at)), at)
    # The halves of a palindrome are the same matrix.
    split = _inner_size_one(factors) or len(factors) // 2
    halves = _chain(_transposed(factors[:split]), at), _chain(factors[split:], at)
    return _scaled(coefficient, of_product(*halves), at)


def _partial_trace(node, at):
    outer, inner = map(at.size, node.dimensions)
    whole, of_product = ("hahb->ab", "pha,phb->ab") if node.traced == 0 else ("aibi->ab", "pai,pbi->ab")

    def contracted(formula, shape, *matrices):
        return at.xp.einsum(formula, *(each.reshape(*shape) for each in matrices))

    return _linear(
        node.matrix,
        at,
        partial(contracted, whole, (outer, inner, outer, inner)),
        partial(contracted, of_product, (-1, outer, inner)),
    )


def _diagonal(node, at):
    if isinstance(node.matrix, sp.MatAdd):
        return reduce(add, (at(Diagonal(term)) for term in node.matrix.args))
    return _linear(
        node.matrix,
        at,
        lambda matrix: at.xp.diagonal(matrix)[:, None],
        lambda left, right: at.xp.sum(left * right, axis=0)[:, None],
    )


def _product(node, at):
    coefficient, factors = _split(node)
    return _scaled(coefficient, _chain(factors, at), at)


# Scalars.


def with_slopes(value: Callable, slope: Callable[[int], Callable]) -> Callable[..., Array]:
    """Add derivatives to `value`, an elementwise function of arrays: `slope(i)` with respect to argument i."""
    function = jax.custom_jvp(value)

    @partial(function.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        result = function(*primals)
        # Skip zero tangents, because their product with an infinite derivative would be NaN.
        changes = [
            slope(i)(*primals) * tangent for i, tangent in enumerate(tangents) if not isinstance(tangent, SymbolicZero)
        ]
        return result, jnp.broadcast_to(sum(changes), result.shape)

    return lambda *numbers: function(*(jnp.asarray(number, float) for number in numbers))


def _function_of(variables: Sequence[Any], expression: sp.Basic) -> Callable[..., Array]:
    return lambda *numbers: At(dict(zip(variables, numbers, strict=True)), Jax)(expression)


@cache
def _differentiable(node: Expr, places: tuple[int, ...], code: Callable) -> Callable[..., Array]:
    """Add symbolic derivatives to the code of a function of the symbols at these places in `node`."""
    names = [node.args[i].name for i in places]
    orders = [int(each) for each in node.args if each.is_Integer]

    @cache
    def slope(i: int) -> Callable[..., Array]:
        return _function_of(names, node.fdiff(places[i] + 1))

    return with_slopes(lambda *numbers: code(*numbers, *orders), slope)


def _by_code(node: Expr, at: At, code: Callable, known: Sequence[int] = ()) -> Array:
    """Evaluate a function by its code. The arguments at the positions `known` are not numbers."""
    symbols = {i: Symbol(f"x_{i}", real=True) for i in range(len(node.args)) if i not in known}
    generic = node.func(*(symbols.get(i, each) for i, each in enumerate(node.args)))
    return _differentiable(generic, tuple(symbols), code)(*(at(node.args[i]) for i in symbols))


@lru_cache(maxsize=4096)
def _cases(node: Expr):
    """Return the numbers in the cases, and each condition and value as a function of them."""
    leaves: dict[Expr, EntryVariable] = {}
    held, traversal = set(matrix_scalars(node)), sp.preorder_traversal(node)
    for each in traversal:
        if each.is_Symbol or isinstance(each, (GaussianAverage, FunctionOfLoss)) or each in held:
            leaves.setdefault(each, EntryVariable(f"case {len(leaves)}"))
            traversal.skip()
    variables = tuple(leaves.values())
    functions = [
        tuple(_function_of(variables, each.xreplace(leaves)) for each in (condition, value))
        for value, condition in node.args
    ]
    return list(leaves), functions


def _piecewise(node: Expr, at: At) -> Array:
    leaves, cases = _cases(node)
    return _first_case(list(map(at, leaves)), cases)


def _first_case(numbers: Sequence[Any], cases: Sequence[tuple[Callable, Callable]]) -> Array:
    """Return the value of the first case whose condition holds, or NaN.

    The derivative contains only this case. The derivative of another case may be infinite there, and zero times
    infinity would be NaN.
    """

    def value(*numbers):
        result = jnp.nan
        for condition, of_case in reversed(cases):
            result = jnp.where(condition(*numbers), of_case(*numbers), result)
        return jnp.asarray(result, float)

    def slope(i: int) -> Callable[..., Array]:
        slopes = [(condition, slope_along(of_case, i)) for condition, of_case in cases]
        return lambda *numbers: _first_case(numbers, slopes)

    return with_slopes(value, slope)(*numbers)


def _average(node: GaussianAverage, at: At) -> Array:
    if (found := without_exponential(node)) is not None:
        number, average = found
        return at(number) * at(average)
    of_variable = partial(at.function, (node.variable,))

    def numbers(polynomial):
        *lower, last = polynomial
        return tuple(map(at, lower if last == 0 else polynomial))

    def zeros(expression):
        polynomial = coefficients(expression, node.variable)
        return numbers(polynomial) if polynomial else of_variable(expression)

    function, kinks = of_variable(node.integrand), breaks(node)
    if not node.is_adaptive:
        return gaussian_mean(function, node.nodes, list(map(zeros, kinks)))
    ends = dict.fromkeys([*kinks, *singularities(node)])
    mean, error = composite_mean(function, list(map(zeros, ends)), list(map(numbers, features(node))))
    return mean if node.side == 0 else mean + at(node.side) * error


@cache
def _code_of_loss(kind: type, loss: Lambda) -> Callable[..., Array]:
    """Return a proximal point or an envelope as a function of omega, V and the parameters of the loss."""
    orders = [_function_of(loss.variables, derivative(loss, order)) for order in range(3)]

    @jax.jit
    def value(*numbers):
        omega, variance, *parameters = jnp.broadcast_arrays(*numbers)
        functions = [
            lambda x, of_order=of_order: jnp.broadcast_to(of_order(x, *parameters), x.shape) for of_order in orders
        ]
        point = proximal_point(*functions[1:], omega, variance)
        if kind is ProximalPoint:
            return point
        return variance * functions[1](point) ** 2 / 2 + functions[0](point)

    return value


class Jax(Algebra):
    """Evaluate in JAX. Functions of this algebra can be compiled, differentiated and mapped."""

    xp: Any = jnp
    is_traced = True
    stop_gradient = staticmethod(jax.lax.stop_gradient)
    cholesky: Callable = staticmethod(cholesky)
    solve: Callable = staticmethod(solve)
    log_det_of: Callable = staticmethod(log_det)
    square_root_of: Callable = staticmethod(square_root)
    rules: ClassVar = {
        sp.MatMul: _product,
        sp.MatPow: lambda node, at: _chain(factors_of_power(node), at),
        sp.Inverse: lambda node, at: _apply(node, at.xp.eye(at.size(node.shape[0])), at),
        PartialTrace: _partial_trace,
        Diagonal: _diagonal,
        # Operators on columns, such as a kernel that is never formed, have this attribute of arrays as well.
        sp.Transpose: lambda node, at: at(node.arg).T,
        Piecewise: _piecewise,
        GaussianAverage: _average,
        FunctionOfLoss: lambda node, at: _by_code(node, at, _code_of_loss(type(node), node.loss), (2,)),
        NumericFunction: lambda node, at: _by_code(node, at, type(node).implementation),
    }

    @staticmethod
    def function(row: ScalarFunction, node: Expr, at: At) -> Array:
        if row.by_jax:
            return row.jax(*map(at, node.args))
        return _by_code(node, at, row.jax, row.whole_numbers(node))

    @staticmethod
    def log_det(matrix, at):
        return at.algebra.log_det_of(_factor(matrix, at))

    @staticmethod
    def square_root(matrix, at):
        return at.algebra.square_root_of(at(matrix))

    @staticmethod
    def trace(matrix, at):
        """Return the trace of a matrix. That of X^T Y is a contraction."""
        return _linear(matrix, at, at.xp.trace, at.xp.vdot)

    @classmethod
    def kron(cls, left, right):
        return cls.xp.kron(left, right)

    @staticmethod
    def entrywise(function, *matrices):
        return jnp.broadcast_to(function(*matrices), matrices[0].shape)

    @classmethod
    def joined(cls, blocks, axis):
        return cls.xp.concatenate(blocks, axis=axis)
