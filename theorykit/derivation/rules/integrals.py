"""Rules that integrate: Gaussian averages, one row at a time, densities, volumes, derivatives by a source."""

from collections.abc import Sequence

from sympy import Expr, Identity, MatrixSymbol, S, Trace, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_arguments, checked_whole_number
from ...symbolic import SquareRoot, inverse, log_det, normal, sum_of, transpose
from ...symbolic.algebra import Factors, expand_products, from_terms, product_of, rotations
from ...symbolic.atoms import PrincipalBlock
from ..claims import (
    AverageIs,
    GaussianAverage,
    GaussianDensity,
    GramVolume,
    SameMoments,
    SourceDerivative,
    SumOverRows,
)
from ..step import Step
from .terms import RuleError, change_products, change_products_with, inner_of_form, polynomial, scalar_terms


@checked_arguments
def linearise_square(before: Expr, auxiliary: MatrixSymbol, **record) -> Step:
    """c tr(d^T d) as the Gaussian average of exp(-i t^T d) over t ~ N(0, c I): Hubbard-Stratonovich."""
    ((coefficient, node),) = scalar_terms(before)
    if not isinstance(node, Trace) or len(node.arg.args) != 2 or transpose(node.arg.args[0]) != node.arg.args[1]:
        raise RuleError(f"linearise_square needs c tr(d^T d), got {before}")
    after = 2 * S.ImaginaryUnit * Trace(auxiliary.T * node.arg.args[1])
    covariance = coefficient * Identity(auxiliary.shape[0])
    return Step("Hubbard-Stratonovich", before, after, AverageIs(auxiliary, covariance), **record)


@checked_arguments
def linearise_form(before: Expr, column: MatrixSymbol, auxiliary: MatrixSymbol, weight: Expr, **record) -> Step:
    """The quadratic form r^T M r / N as the Gaussian average of exp(-i w^T r / N^(1/2)) over w ~ N(0, M)."""
    covariance = expand_products(weight * inner_of_form(before, column))
    after = 2 * S.ImaginaryUnit * Trace(auxiliary.T * column) / sqrt(weight)
    return Step("read backwards as weights", before, after, AverageIs(auxiliary, covariance), **record)


@checked_arguments
def split_into_rows(before: Expr, rows: Sequence[tuple[MatrixSymbol, MatrixExpr]], **record) -> Step:
    """A function of products over rows, such as tr(M R^T R), as a sum over rows: of one row it is the same function.

    `rows` pairs column symbols with the matrices whose rows they stand for.
    """
    names = {member: column for column, member in rows}
    after = change_products(before, lambda factors: Trace(product_of(_one_row(factors, names))))
    claim = SumOverRows(tuple(rows), rows[0][1].shape[0], per_row="after")
    return Step("one row at a time", before, after, claim, **record)


def _one_row(factors: Factors, names: dict) -> Factors:
    """The cyclic product with the pair R^T R (or a single R) in which the row index is summed cut open."""
    for rotated in rotations(factors):
        if rotated[0] in names:
            last = transpose(rotated[-1])
            if last in names:
                return (names[rotated[0]].T, *rotated[1:-1], names[last])
    raise RuleError(f"no index of rows in {factors}")


@checked_arguments
def sum_over_rows(before: Expr, count: Expr, rows: Sequence[tuple[MatrixSymbol, MatrixExpr]], **record) -> Step:
    """A function of one row, summed over `count` rows; the inverse of `split_into_rows`."""
    names = dict(rows)
    after = S.Zero
    for coefficient, node in scalar_terms(normal(before)):
        term = coefficient * node
        if node.has(*names):
            after += change_products(term, lambda factors: Trace(product_of(_all_rows(factors, names))))
        else:
            after += count * term
    claim = SumOverRows(tuple(rows), count, per_row="before")
    return Step("sum over rows", before, normal(after), claim, **record)


def _all_rows(factors: Factors, names: dict) -> Factors:
    for first, *middle, last in rotations(factors):
        if transpose(first) in names and last in names:
            return (*middle, transpose(names[last]), names[last])
    raise RuleError(f"expected a quadratic form of rows, got {factors}")


@checked_arguments
def gaussian_average(before: Expr, variable: MatrixSymbol, covariance: MatrixExpr, **record) -> Step:
    """Integrate a column ~ N(0, C) out of an exponent v^T A v + 2 b^T v + c: a Gaussian integral over one weight block.

    Gives logdet C + logdet(C^{-1} + A) + c - b^T (C^{-1} + A)^{-1} b.
    """
    quadratic, linear, constant = polynomial(before, variable)
    precision = sum_of([inverse(covariance), *quadratic])
    after = constant
    if quadratic:
        after += log_det(covariance) + log_det(precision)
    if linear:
        shift = sum_of(linear)
        after -= Trace(product_of((transpose(shift), inverse(precision), shift)))
    claim = GaussianAverage(variable, covariance)
    return Step("Gaussian integral", before, normal(after), claim, **record)


@checked_arguments
def gaussian_density(before: Expr, source: MatrixSymbol, column: MatrixSymbol, **record) -> Step:
    """From the characteristic function exp(-g^T M g/2) of a column to its density: logdet M + x^T M^{-1} x."""
    covariance = inner_of_form(before, source)
    after = normal(log_det(covariance) + Trace(column.T * inverse(covariance) * column))
    return Step("density of Gaussian columns", before, after, GaussianDensity(source, column), **record)


@checked_arguments
def gram_volume(
    before: Expr, columns: MatrixSymbol, overlap: MatrixSymbol, count: Expr, given: MatrixSymbol | None = None, **record
) -> Step:
    """From the density of n x N weights X to that of their overlap U: the volume of the weights that have it.

    U holds X X^T / N; where some rows of all weights are `given` by their own overlap, those are its leading block.
    The volume is det(U)^((N - n - 1)/2), divided by that of the given rows.
    """
    size = overlap.shape[0]
    block, exponent = overlap, count - size - 1
    volume = -exponent * log_det(overlap)
    if given is not None:
        inner = given.shape[0]
        block = PrincipalBlock(overlap, (inner, expand(size - inner)), 1)
        volume += (count - inner - 1) * log_det(given)

    def by_overlap(factors: Factors) -> Expr:
        *middle, _, _ = next(r for r in rotations(factors) if r[-2:] == (columns, columns.T))
        return count * Trace(product_of((*middle, block)))

    after = expand(change_products_with(before, columns, by_overlap) + volume)
    claim = GramVolume(columns, overlap, count, given)
    return Step("volume of weights with an overlap", before, after, claim, **record)


@checked_arguments
def gaussian_equivalence(
    before: Expr, hidden: MatrixExpr, weights: MatrixSymbol, kernel: tuple[MatrixSymbol, MatrixExpr], **record
) -> Step:
    """Nonlinear units phi(V X), `hidden`, as linear ones V' kappa^(1/2) of the same covariance: an ansatz.

    `kernel` pairs the symbol kappa (tokens x tokens) with what it stands for; `weights` is V, a row a unit.
    """
    symbol, value = kernel
    equivalent = MatrixSymbol(_with_tilde(weights.name), weights.shape[0], symbol.shape[0])
    linear = equivalent * SquareRoot(symbol)
    after = before.xreplace({hidden: linear, transpose(hidden): transpose(linear)})
    if after == before:
        raise RuleError(f"{hidden} does not occur in {before}")
    claim = SameMoments(weights, equivalent, symbol, value)
    return Step("Gaussian equivalence", before, after, claim, definitions=((symbol, value),), **record)


@checked_arguments
def source_derivative(before: Expr, source: MatrixSymbol, factor: Expr, order: int = 1, **record) -> Step:
    """`factor` times the first derivative, or the matrix of second derivatives, in a column source, at zero."""
    checked_whole_number("order", order, least=1, most=2)
    quadratic, linear, _ = polynomial(before, source)
    found = [2 * factor * matrix for matrix in (quadratic if order == 2 else linear)]
    shape = (source.shape[0], source.shape[0] if order == 2 else 1)
    after = sum_of(found) if found else from_terms([], shape)
    name = "source differentiated twice" if order == 2 else "source differentiated"
    return Step(name, before, after, SourceDerivative(source, order, factor), **record)


def _with_tilde(name: str) -> str:
    """The name of what stands for another, as SymPy prints it: V_0 becomes Vtilde_0."""
    letter, *index = name.split("_", 1)
    return "_".join((f"{letter}tilde", *index))
