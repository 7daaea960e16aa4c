"""A derivation as a person reads it: every step, what it claims, and whether the claim held when it was checked."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from sympy import Expr

from ..checks import checked_arguments, checked_whole_number
from ..symbolic import Block, Equation, Heading, Text, latex
from ..symbolic.documents.document import Folded, Items
from . import claims
from .step import Derivation, Evidence, Step, Verification, written

Show = Callable[[Expr], str]


@checked_arguments
def derivation_blocks(derivation: Derivation, names: Mapping[Expr, str], level: int = 3) -> Iterator[Block]:
    """The steps of a derivation, section by section, numbered; `names` as `symbolic.latex` takes them."""
    show = partial(latex, symbol_names=names)
    for block in _by_section(derivation, level):
        if isinstance(block, Heading):
            yield block
        else:
            number, step = block
            yield Text(_caption(number, step))
            yield from _statement(step, show)


@checked_arguments
def verified_blocks(
    derivation: Derivation, verification: Verification, names: Mapping[Expr, str], level: int = 3
) -> Iterator[Block]:
    """`derivation_blocks`, each step in its own part that says how it was checked, and to what error.

    `verification` is that of the whole derivation.
    """
    if [item.step for item in verification.evidence] != list(derivation.steps):
        raise ValueError("verification must be that of derivation, of which it has other steps")
    show = partial(latex, symbol_names=names)
    for block in _by_section(derivation, level):
        if isinstance(block, Heading):
            yield block
        else:
            number, step = block
            evidence = next(item for item in verification.evidence if item.step is step)
            yield Folded(_caption(number, step), tuple(_statement(step, show)), _remark(evidence))


def _by_section(derivation: Derivation, level: int) -> Iterator[Heading | tuple[int, Step]]:
    """Every step with its number, counted from 1, under headings where sections have names."""
    checked_whole_number("level", level, least=1, most=6)
    numbers = itertools.count(1)
    for section, steps in derivation.sections():
        if section:
            yield Heading(section, level)
        yield from ((next(numbers), step) for step in steps)


def _statement(step: Step, show: Show) -> Iterator[Text | Equation]:
    yield statement(step.claim, show(step.before), show(step.after), show)
    # a name that is printed as what it stands for needs no explanation
    shown = [(show(symbol), show(value)) for symbol, value in step.definitions]
    defined = ", ".join(f"${symbol} = {value}$" for symbol, value in shown if symbol != value)
    if defined:
        yield Text(f"with {defined}.")


def _remark(evidence: Evidence) -> str:
    verdict = "Holds" if evidence.holds else "**FAILS**"
    if evidence.reason:
        return f"{verdict}: {evidence.reason}. To be checked by {_how_checked(evidence.step.claim)}."
    error = evidence.error * evidence.step.claim.tolerance
    checked = f"{verdict}: error {error:.1e}, by {_how_checked(evidence.step.claim)}."
    if evidence.proved:
        return f"{checked} Proved at these sizes but for a chance of {written(evidence.chance)}."
    return f"{checked} On numbers only: {evidence.numeric}." if evidence.numeric else checked


def _caption(number: int, step: Step) -> str:
    word = "Eqs." if {",", "-"} & set(step.equations) else "Eq."
    equations = f", {word} ({step.equations})" if step.equations else ""
    assumptions = f" Assumes: {'; '.join(step.assumptions)}." if step.assumptions else ""
    return f"**{number}. {step.rule[0].upper()}{step.rule[1:]}**{equations}.{assumptions}"


@checked_arguments
def verification_blocks(verification: Verification) -> Iterator[Block]:
    """What was checked, in a line for each kind of claim, and how much of it was proved."""
    kinds = Counter(_how_checked(item.step.claim) for item in verification.evidence)
    proved = Counter(_how_checked(item.step.claim) for item in verification.proved)
    lines = []
    for how, count in kinds.items():
        some = f"; {proved[how]} of them proved" if proved[how] else ""
        lines.append(f"{count} by {how}{'; proved' if proved[how] == count else some}")
    verdict = "all hold" if verification.holds else f"**{len(verification.failures)} FAIL**"
    exact = ""
    if verification.proved:
        exact = (
            f" {len(verification.proved)} of them are proved at the sizes tried, as identities that hold in exact "
            "arithmetic at random points of a prime field; a false one would have passed with a chance of at most "
            f"{written(verification.chance)}."
        )
    yield Text(f"{len(verification.evidence)} steps were checked on random numbers, and {verdict}.{exact} By kind:")
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
    claims.SameMoments: "quadrature over directions and lengths of the weights, to {tolerance}",
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
    claims.SpinCovariance: "moments over all configurations of the spins, to {tolerance}",
    claims.NeuronsGathered: "evaluation with a random class and sign for every neuron, to {tolerance}",
    claims.Solves: "the residual, to {tolerance}",
    claims.SolvesToFirstOrder: "mixed second differences of the action, to {tolerance}",
}


def statement(claim: claims.Claim, before: str, after: str, show: Show) -> Equation:
    """What a step claims, as an equation between the LaTeX of both sides."""
    match claim:
        case claims.Equal() | claims.NeuronsGathered():
            return Equation(before, after)
        case claims.EqualUpToConstant():
            return Equation(before, rf"{after} + \text{{const.}}")
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
            nonlinear, linear = show(claim.weights), show(claim.equivalent)
            return Equation(_mean(before, nonlinear), _mean(after, linear))
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
            return Equation(_source_derivative(before, claim, show), after)
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
    raise NotImplementedError(f"no way to write a claim of type {type(claim).__name__}; add one to derivation.document")


def _mean(value: str, over: str) -> str:
    return rf"\left\langle {value} \right\rangle_{{{over}}}"


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


def _source_derivative(expression: str, claim: claims.SourceDerivative, show: Show) -> str:
    source, power = show(claim.source), "" if claim.order == 1 else f"^{claim.order}"
    factor = "" if claim.factor == 1 else rf"{show(claim.factor)}\,"
    operator = rf"\frac{{\partial{power}}}{{\partial {source}{power}}}"
    return rf"{factor}{operator}\left[{expression}\right]_{{{source} = 0}}"
