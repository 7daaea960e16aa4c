"""Write the claim of a step as an equation between the LaTeX of both sides."""

from __future__ import annotations

from collections.abc import Callable

from sympy import Expr

from ..symbolic import Equation
from . import claims

Show = Callable[[Expr], str]


def statement(claim: claims.Claim, before: str, after: str, show: Show) -> Equation:
    """Return the claim of a step as an equation between the LaTeX of both sides."""
    match claim:
        case claims.Equal() | claims.NeuronsGathered():
            return Equation(before, after)
        case claims.EqualUpToConstant():
            return Equation(before, rf"{after} + \text{{const.}}")
        case claims.LargeSizeLimit():
            return Equation(rf"\lim_{{{show(claim.size)} \to \infty}} {before}", after)
        case claims.LeadingOrder():
            return Equation(before, rf"{after} + O(1) \quad ({show(claim.width)} \to \infty)")
        case claims.SumOverRows(per_row="before"):
            return Equation(_sum_over_rows(before, claim, show), after)
        case claims.SumOverRows():
            return Equation(before, _sum_over_rows(after, claim, show))
        case claims.AverageIs():
            return Equation(before, _average(after, claim, show))
        case claims.GaussianAverage():
            return Equation(_average(before, claim, show), after)
        case claims.SameMoments():
            sides = ((before, claim.weights), (after, claim.equivalent))
            return Equation(*(rf"\left\langle {side} \right\rangle_{{{show(over)}}}" for side, over in sides))
        case claims.SpinSum():
            configurations = rf"{show(claim.spins)} \in \{{-1, 1\}}^{{{show(claim.spins.shape[0])}}}"
            return Equation(rf"-2\log \sum_{{{configurations}}} {_weight(before)}", after)
        case claims.SpinCovariance():
            spins, law = show(claim.spins), rf"P\left({show(claim.spins)}\right) \propto {_weight(before)}"
            return Equation(
                rf"\operatorname{{Cov}}_{{{spins}}}\left[{show(claim.value)}\right]",
                rf"{after} \quad \left({law}\right)",
            )
        case claims.OrderParameterInserted():
            variables = rf"d{show(claim.symbol)}\, d{show(claim.conjugate)}"
            return Equation(_weight(before), rf"\int {variables}\; {_weight(after)}")
        case claims.GaussianDensity():
            source, column = show(claim.source), show(claim.column)
            return Equation(_weight(before), rf"\int d{column}\; {_weight(after)}\; e^{{-i {source}^T {column}}}")
        case claims.GramVolume():
            weights, overlap = show(claim.columns), show(claim.overlap)
            return Equation(rf"{_weight(before)}\; d{weights}", rf"{_weight(after)}\; d{overlap}", r"\propto")
        case claims.Stationary():
            return Equation(_extremum(before, claim.variable, show), after)
        case claims.Constrained():
            return Equation(_extremum(before, claim.multiplier, show), after)
        case claims.SourceDerivative():
            source, power = show(claim.source), "" if claim.order == 1 else f"^{claim.order}"
            factor = "" if claim.factor == 1 else rf"{show(claim.factor)}\,"
            operator = rf"\frac{{\partial{power}}}{{\partial {source}{power}}}"
            return Equation(rf"{factor}{operator}\left[{before}\right]_{{{source} = 0}}", after)
        case claims.MatrixDerivative():
            return Equation(rf"\frac{{\partial}}{{\partial {show(claim.source)}}}\left[{before}\right]", after)
        case claims.Gradient():
            return Equation(rf"\frac{{d}}{{d {show(claim.variable)}}}\left[{before}\right]", after)
        case claims.Response():
            moved = r",\; ".join(rf"\delta {show(symbol)} = {show(change)}" for symbol, change in claim.moved)
            moves = rf"\left[{after}\right] {show(claim.displacement)} \quad ({moved})"
            return Equation(rf"\delta\left[{before}\right]", moves)
        case claims.Solves():
            return Equation(f"{before} = 0", rf"{show(claim.variable)} = {after}", r"\;\Rightarrow\;")
        case claims.SolvesToFirstOrder():
            limit = dict(claim.limit)[claim.variable]
            return Equation(show(claim.variable), rf"{show(limit)} + \delta,\quad \delta = {after}")
    raise NotImplementedError(f"no way to write a {type(claim).__name__}; add one to derivation.document")


def _average(exponent: str, claim: claims.GaussianAverage, show: Show) -> str:
    over = rf"{show(claim.variable)} \sim \mathcal N\left(0,\, {show(claim.covariance)}\right)"
    return rf"-2\log\left\langle {_weight(exponent)}\right\rangle_{{{over}}}"


def _weight(exponent: str) -> str:
    return rf"e^{{-\frac12\left[{exponent}\right]}}"


def _extremum(action: str, variable: Expr, show: Show) -> str:
    return rf"\underset{{{show(variable)}}}{{\operatorname{{extr}}}} \left[{action}\right]"


def _sum_over_rows(of_row: str, claim: claims.SumOverRows, show: Show) -> str:
    rows = r",\; ".join(rf"{show(column)}^T \in \text{{rows of }} {show(matrix)}" for column, matrix in claim.rows)
    total = rf"\sum_{{{rows}}}" if claim.rows else show(claim.count)
    return rf"{total} \left[{of_row}\right]"
