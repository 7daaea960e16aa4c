"""A derivation as a person reads it: every step, what it claims, and whether the claim held when it was checked."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np
from sympy import Expr

from ..checks import checked_arguments, checked_whole_number
from ..symbolic import Block, Equation, Heading, Text, latex
from ..symbolic.documents.document import Folded, Items
from . import claims
from .step import Derivation, Evidence, Step, Verification, written

Show = Callable[[Expr], str]


@checked_arguments
def derivation_blocks(
    derivation: Derivation,
    names: Mapping[Expr, str] = MappingProxyType({}),
    level: int = 3,
    verification: Verification | None = None,
) -> Iterator[Block]:
    """The steps of a derivation, section by section, numbered; `names` as `symbolic.latex` takes them.

    With its `verification`, each step is in its own part that says how it was checked, and to what error.
    """
    if verification is not None and [item.step for item in verification.evidence] != list(derivation.steps):
        raise ValueError("verification must be that of derivation, of which it has other steps")
    checked_whole_number("level", level, least=1, most=6)
    show, numbers = partial(latex, symbol_names=names), itertools.count(1)
    for section, steps in derivation.sections():
        if section:
            yield Heading(section, level)
        for step in steps:
            caption = _caption(next(numbers), step)
            if verification is None:
                yield Text(caption)
                yield from _statement(step, show)
            else:
                evidence = next(item for item in verification.evidence if item.step is step)
                yield Folded(caption, tuple(_statement(step, show)), _remark(evidence))


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
    return claim.checked_by.format(np.format_float_scientific(claim.tolerance, trim="-", exp_digits=1))


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
