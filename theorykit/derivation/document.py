"""A derivation as a person reads it: every step, what it claims, and whether the claim held when it was checked."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import singledispatch

import numpy as np
from sympy import Expr

from ..annotations import checked_arguments
from ..arguments import checked_whole_number
from ..symbolic import Block, Equation, Heading, Items, Text, latex
from . import claims
from .step import Derivation, Step, Verification

Show = Callable[[Expr], str]


@checked_arguments
def derivation_blocks(derivation: Derivation, names: Mapping[Expr, str], level: int = 3) -> Iterator[Block]:
    """The steps of a derivation, section by section, numbered; `names` as `symbolic.latex` takes them."""
    checked_whole_number("level", level, least=1, most=6)

    def show(expression: Expr) -> str:
        return latex(expression, names)

    number = 0
    for section, steps in derivation.sections():
        yield Heading(section, level)
        for step in steps:
            number += 1
            yield Text(_caption(number, step))
            yield statement(step.claim, show(step.before), show(step.after), show)
            # a name that is printed as what it stands for needs no explanation
            shown = [(show(symbol), show(value)) for symbol, value in step.definitions]
            defined = ", ".join(f"${symbol} = {value}$" for symbol, value in shown if symbol != value)
            if defined:
                yield Text(f"with {defined}.")


def _caption(number: int, step: Step) -> str:
    equations = f", Eqs. ({step.equations})" if step.equations else ""
    assumptions = f" Assumes: {'; '.join(step.assumptions)}." if step.assumptions else ""
    return f"**{number}. {step.rule[0].upper()}{step.rule[1:]}**{equations}.{assumptions}"


@checked_arguments
def verification_blocks(verification: Verification) -> Iterator[Block]:
    """What was checked, in a line for each kind of claim."""
    kinds = Counter(_how_checked(item.step.claim) for item in verification.evidence)
    lines = [f"{count} by {how}" for how, count in kinds.items()]
    verdict = "all hold" if verification.holds else f"**{len(verification.failures)} FAIL**"
    yield Text(f"{len(verification.evidence)} steps were checked on random numbers, and {verdict}:")
    yield Items(tuple(lines))


def _how_checked(claim: claims.Claim) -> str:
    tolerance = np.format_float_scientific(claim.tolerance, trim="-", exp_digits=1)
    return _CHECKED_BY[type(claim)].format(tolerance=tolerance)


_CHECKED_BY = {
    claims.Equal: "evaluation of both sides, to {tolerance}",
    claims.EqualUpToConstant: "evaluation of differences, to {tolerance}",
    claims.SumOverRows: "summing over rows, to {tolerance}",
    claims.LeadingOrder: "evaluation at two widths, to {tolerance}",
    claims.GaussianAverage: "Gauss-Hermite quadrature, to {tolerance}, or Monte Carlo above three dimensions",
    claims.AverageIs: "Gauss-Hermite quadrature, to {tolerance}, or Monte Carlo above three dimensions",
    claims.OrderParameterInserted: "evaluation where the delta function is, to {tolerance}",
    claims.GaussianDensity: "second differences of both exponents, to {tolerance}",
    claims.GramVolume: "Jacobians of linear maps of weights and overlaps, to {tolerance}",
    claims.SourceDerivative: "finite differences, to {tolerance}",
    claims.MatrixDerivative: "finite differences, to {tolerance}",
    claims.Stationary: "finite differences and evaluation, to {tolerance}",
    claims.Constrained: "finite differences and evaluation, to {tolerance}",
    claims.Gradient: "finite differences along random directions, to {tolerance}",
    claims.Response: "finite differences of what moves, to {tolerance}",
    claims.SpinSum: "summing over all configurations of the spins, to {tolerance}",
    claims.NeuronsGathered: "evaluation with a random class and sign for every neuron, to {tolerance}",
    claims.Solves: "the residual, to {tolerance}",
    claims.SolvesToFirstOrder: "mixed second differences of the action, to {tolerance}",
}


@singledispatch
def statement(claim: claims.Claim, before: str, after: str, show: Show) -> Equation:
    """What a step claims, as an equation between the LaTeX of both sides."""
    raise NotImplementedError(f"no way to write a claim of type {type(claim).__name__}; add one to derivation.document")


def _average(exponent: str, claim, show: Show) -> str:
    over = rf"{show(claim.variable)} \sim \mathcal N\left(0,\, {show(claim.covariance)}\right)"
    return rf"-2\log\left\langle {_weight(exponent)}\right\rangle_{{{over}}}"


def _weight(exponent: str) -> str:
    return rf"e^{{-\frac12\left[{exponent}\right]}}"


def _extremum(action: str, variable: Expr, show: Show) -> str:
    return rf"\underset{{{show(variable)}}}{{\operatorname{{extr}}}} \left[{action}\right]"


@statement.register
def _(claim: claims.Equal, before, after, show):
    return Equation(before, after)


@statement.register
def _(claim: claims.EqualUpToConstant, before, after, show):
    return Equation(before, rf"{after} + \text{{const.}}")


@statement.register
def _(claim: claims.GaussianAverage, before, after, show):
    return Equation(_average(before, claim, show), after)


@statement.register
def _(claim: claims.AverageIs, before, after, show):
    return Equation(before, _average(after, claim, show))


@statement.register
def _(claim: claims.SumOverRows, before, after, show):
    rows = r",\; ".join(rf"{show(column)}^T \in \text{{rows of }} {show(matrix)}" for column, matrix in claim.rows)
    total = rf"\sum_{{{rows}}}" if claim.rows else show(claim.count)
    one_row, whole = (before, after) if claim.per_row == "before" else (after, before)
    left, right = rf"{total} \left[{one_row}\right]", whole
    return Equation(left, right) if claim.per_row == "before" else Equation(right, left)


@statement.register
def _(claim: claims.OrderParameterInserted, before, after, show):
    variables = rf"d{show(claim.symbol)}\, d{show(claim.conjugate)}"
    return Equation(_weight(before), rf"\int {variables}\; {_weight(after)}")


@statement.register
def _(claim: claims.GaussianDensity, before, after, show):
    source, column = show(claim.source), show(claim.column)
    return Equation(_weight(before), rf"\int d{column}\; {_weight(after)}\; e^{{-i {source}^T {column}}}")


@statement.register
def _(claim: claims.GramVolume, before, after, show):
    weights, overlap = show(claim.columns), show(claim.overlap)
    return Equation(rf"{_weight(before)}\; d{weights}", rf"{_weight(after)}\; d{overlap}", r"\propto")


@statement.register
def _(claim: claims.LeadingOrder, before, after, show):
    return Equation(before, rf"{after} + O(1) \quad ({show(claim.width)} \to \infty)")


@statement.register
def _(claim: claims.Stationary, before, after, show):
    return Equation(_extremum(before, claim.variable, show), after)


@statement.register
def _(claim: claims.Constrained, before, after, show):
    return Equation(_extremum(before, claim.multiplier, show), after)


@statement.register
def _(claim: claims.SourceDerivative, before, after, show):
    source, power = show(claim.source), "" if claim.order == 1 else f"^{claim.order}"
    factor = "" if claim.factor == 1 else rf"{show(claim.factor)}\,"
    operator = rf"\frac{{\partial{power}}}{{\partial {source}{power}}}"
    return Equation(rf"{factor}{operator}\left[{before}\right]_{{{source} = 0}}", after)


@statement.register
def _(claim: claims.MatrixDerivative, before, after, show):
    return Equation(rf"\frac{{\partial}}{{\partial {show(claim.source)}}}\left[{before}\right]", after)


@statement.register
def _(claim: claims.Gradient, before, after, show):
    return Equation(rf"\frac{{d}}{{d {show(claim.variable)}}}\left[{before}\right]", after)


@statement.register
def _(claim: claims.Response, before, after, show):
    moved = r",\; ".join(rf"\delta {show(symbol)} = {show(change)}" for symbol, change in claim.moved)
    return Equation(
        rf"\delta\left[{before}\right]", rf"\left[{after}\right] {show(claim.displacement)} \quad ({moved})"
    )


@statement.register
def _(claim: claims.SpinSum, before, after, show):
    configurations = rf"{show(claim.spins)} \in \{{-1, 1\}}^{{{show(claim.spins.shape[0])}}}"
    return Equation(rf"-2\log \sum_{{{configurations}}} {_weight(before)}", after)


@statement.register
def _(claim: claims.NeuronsGathered, before, after, show):
    return Equation(before, after)


@statement.register
def _(claim: claims.Solves, before, after, show):
    return Equation(f"{before} = 0", rf"{show(claim.variable)} = {after}", r"\;\Rightarrow\;")


@statement.register
def _(claim: claims.SolvesToFirstOrder, before, after, show):
    limit = dict(claim.limit)[claim.variable]
    return Equation(show(claim.variable), rf"{show(limit)} + \delta,\quad \delta = {after}")
