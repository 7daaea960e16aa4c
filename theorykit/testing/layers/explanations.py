"""The simplest explanation of how a stated forward map differs from a reference: a factor, a change, a term."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sympy import Expr

from ..factors import name_factor
from .hypotheses import Change, Extra, changes, extras, quantities_of
from .trials import Trial, term_expressions, with_weights

AGREES = 1e-9
Parts = Callable[[Trial], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Explanation:
    """What the reference is, if it is not the statement: `measured`, and the mistake that makes it so, `meaning`."""

    measured: str
    meaning: str


@dataclass(frozen=True)
class _Fit:
    """The reference as a combination of parts of the statement, one row of coefficients a trial."""

    names: tuple[str, ...]
    coefficients: np.ndarray
    extra: Extra | None = None


def explain(trials: tuple[Trial, ...], referred: Sequence[np.ndarray]) -> Explanation | None:
    """The simplest single mistake that makes the statement the reference at every trial; None if there is none."""
    first = trials[0]
    names = tuple(_term_name(expression, first) for expression in term_expressions(first.form))
    every_change = [None, *changes(first)]
    for named in (True, False):
        for found in _attempts(trials, referred, names, every_change, named):
            return found
    return None


def _term_name(expression: Expr, trial: Trial) -> str:
    return f"`{expression}`" if expression.has(trial.form.weights) else f"skip connection `{expression}`"


def _attempts(trials, referred, names, every_change, named: bool) -> Iterator[Explanation]:
    """Explanations from the simplest on; factors are such as have a name, or any."""

    def fitted(change: Change | None, extra: Extra | None, parts: Parts, of: tuple[str, ...]) -> Iterator[Explanation]:
        fit = _fit(trials, referred, change, extra, parts, of)
        if fit is not None:
            explanation = _said(fit, change, quantities_of(trials), named)
            if explanation is not None:
                yield explanation

    for change in every_change:
        yield from fitted(change, None, Trial.terms, names)
    for extra in extras():
        yield from fitted(None, extra, Trial.terms, names)
    blocks = len(trials[0].weights)
    if blocks > 1:
        yield from fitted(None, None, _by_block, _names_by_block(blocks))
    for change in every_change[1:]:
        for extra in extras():
            yield from fitted(change, extra, Trial.terms, names)


def _fit(trials, referred, change: Change | None, extra: Extra | None, parts: Parts, names) -> _Fit | None:
    rows = []
    for trial, target in zip(trials, referred, strict=True):
        columns = list(parts(trial if change is None else change.apply(trial)))
        if extra is not None:
            value = extra.value(trial)
            if value is None:
                return None
            columns.append(value)
        matrix = np.stack([column.ravel() for column in columns], axis=1)
        if not np.all(np.isfinite(matrix)) or np.linalg.matrix_rank(matrix) < len(columns):
            return None
        solution, *_ = np.linalg.lstsq(matrix, target.ravel(), rcond=None)
        if np.max(np.abs(matrix @ solution - target.ravel())) > AGREES * np.max(np.abs(target)):
            return None
        rows.append(solution)
    return _Fit(names, np.asarray(rows), extra)


def _by_block(trial: Trial) -> tuple[np.ndarray, ...]:
    """What does not depend on the weights, if there is any, and the part of each weight block."""
    nothing = with_weights(trial, np.zeros_like).stated()

    def alone(block: int) -> Trial:
        only = np.zeros_like(trial.weights)
        only[block] = trial.weights[block]
        return with_weights(trial, lambda _: only)

    found = tuple(alone(block).stated() - nothing for block in range(len(trial.weights)))
    return (nothing, *found) if np.any(nothing) else found


def _names_by_block(blocks: int) -> tuple[str, ...]:
    return tuple(f"weight block {block}" for block in range(1, blocks + 1))


def _said(fit: _Fit, change: Change | None, quantities, named: bool) -> Explanation | None:
    """A fit in words; None where a factor has no name and is to have one."""
    count = fit.coefficients.shape[1] - (fit.extra is not None)
    names = fit.names if count == len(fit.names) else ("what does not depend on the weights", *fit.names)
    measured, meanings = [], []
    factors = [_factor(fit.coefficients[:, i], quantities) for i in range(count)]
    if named and any(factor == "" for factor in factors):
        return None
    if len(set(factors)) == 1 and factors[0] not in ("0", "1"):
        measured.append(f"the statement gives {_worth(factors[0], fit.coefficients[:, 0])} times the reference")
        meanings.append(_meaning(factors[0]))
    elif set(factors) != {"1"}:
        for i, (name, factor) in enumerate(zip(names, factors, strict=True)):
            if factor == "0":
                measured.append(f"the reference has no {name}, which the statement has")
                meanings.append("a term too many in `forward`, or one that is missing in the reference")
            elif factor != "1":
                times = _worth(factor, fit.coefficients[:, i])
                measured.append(f"{name} of the statement is {times} times that of the reference")
                meanings.append(_meaning(factor))
    if change is not None:
        measured.insert(0, f"the reference has {change.words}, where the statement does not")
        meanings.insert(0, change.meaning)
    if fit.extra is not None:
        worth = _coefficient(fit.coefficients[:, -1], quantities)
        if named and not worth:
            return None
        measured.append(f"the reference has another term, {worth or 'a number'} * {fit.extra.words}")
        meanings.append(f"a term is missing in `forward`: {fit.extra.kind}")
    return Explanation("; ".join(measured), "; ".join(dict.fromkeys(meanings)))


def _factor(coefficients: np.ndarray, quantities) -> str:
    """What the statement's part is in units of the reference's: "0" if the reference has none of it."""
    if np.all(np.abs(coefficients) < AGREES):
        return "0"
    return name_factor(1 / coefficients, quantities) if np.all(coefficients) else ""


def _coefficient(coefficients: np.ndarray, quantities) -> str:
    return name_factor(coefficients, quantities)


def _worth(factor: str, coefficients: np.ndarray) -> str:
    if factor in ("-1", "0"):
        return factor
    value = 1 / coefficients[0]
    if not factor:
        return f"{value:.4g} (at the first trial; it depends on sizes or parameters)"
    is_number = factor.replace(".", "").replace("-", "").isdigit()
    return factor if is_number else f"{factor} = {value:.4g}"


def _meaning(factor: str) -> str:
    """The mistake that a factor most likely is."""
    if factor == "-1":
        return "a sign"
    sign = "a sign, and " if factor.startswith("-") else ""
    of_widths = ("layer.width" in factor, "layer.next_width" in factor)
    if all(of_widths):
        return f"{sign}one side divides by the units before the layer, and the other by those after it"
    if any(of_widths):
        return (
            f"{sign}the normalisation by units: `forward` divides by sqrt(layer.width), once, and by no other width; "
            "here one side does not"
        )
    if "layer.heads" in factor:
        return f"{sign}the normalisation by heads: one side divides by sqrt(layer.heads), the other otherwise"
    if "layer.tokens" in factor:
        return f"{sign}the normalisation by tokens: one side takes a mean over tokens, the other a sum"
    if "blocks" in factor:
        return f"{sign}the normalisation by the number of weight blocks"
    if not factor:
        return "a factor that depends on sizes or parameters in another way"
    if any(letter.isalpha() for letter in factor.replace("sqrt", "").replace("or", "")):
        return f"{sign}a power of a parameter too many or too few: {factor}"
    return f"{sign}a factor of {factor}"


def localise(trials: tuple[Trial, ...], referred: Sequence[np.ndarray]) -> Explanation:
    """Where the statement and the reference differ, if no single mistake explains it."""
    trial, target = trials[0], referred[0]
    stated = trial.stated()
    differs = np.abs(stated - target) > AGREES * np.max(np.abs(target))
    size = np.max(np.abs(stated - target)) / np.max(np.abs(target))
    correlation = float(np.sum(stated * target) / np.sqrt(np.sum(stated**2) * np.sum(target**2)))
    where = _where("token", ~differs.any(axis=0)) or _where("unit", ~differs.any(axis=1))
    agreement = [
        not np.any(np.abs(t.stated() - r) > AGREES * np.max(np.abs(r))) for t, r in zip(trials, referred, strict=True)
    ]
    if any(agreement):
        right, wrong = (_sizes(trials[agreement.index(agrees)]) for agrees in (True, False))
        where = f"they agree for {right}, and not for {wrong}"
    measured = f"they differ by {size:.3g} of the largest entry, with an overlap (cosine) of {correlation:.3g}"
    meaning = where or "no single factor, transpose, order or missing term explains it"
    return Explanation(measured, meaning)


def _where(name: str, agrees: np.ndarray) -> str:
    if not np.any(agrees) or np.all(agrees):
        return ""
    wrong = ", ".join(str(index + 1) for index in np.flatnonzero(~agrees)[:8])
    return f"they agree except at {name} {wrong}, counted from 1: this one is treated otherwise on one side"


def _sizes(trial: Trial) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in trial.quantities.items())
