"""The simplest explanation of how a stated forward map differs from a reference: a factor, a change, a term."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from sympy import Expr

from ..factors import EITHER, is_almost_one, name_factor
from .hypotheses import Change, Extra, changes, extras
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
    """The reference as a combination of parts of the statement, one row of coefficients a trial.

    `quantities` are those of the same trials; `unfit` says that trials at other numbers of heads are no such
    combination.
    """

    names: tuple[str, ...]
    coefficients: np.ndarray
    quantities: list[Mapping[str, float]]
    change: Change | None
    extra: Extra | None
    unfit: bool


@dataclass(frozen=True)
class Compared:
    """Trials and what the reference gives there: at the layer's own number of heads, and at another, if there is any.

    The others tell a factor of layer.heads from a number. The reference may be for its own number of heads alone.
    """

    trials: tuple[Trial, ...]
    referred: Sequence[np.ndarray]
    others: tuple[Trial, ...] = ()
    others_referred: Sequence[np.ndarray] = ()


def explain(compared: Compared) -> Explanation | None:
    """The simplest single mistake that makes the statement the reference at every trial; None if there is none."""
    for attempts in (_single, _double):
        fits = list(attempts(compared))
        for named in (True, False):
            found = [said for fit in fits if (said := _said(fit, named)) is not None]
            if found:
                return min(found, key=lambda each: each[0])[1]
    return None


def _term_name(expression: Expr, trial: Trial) -> str:
    return f"`{expression}`" if expression.has(trial.form.weights) else f"skip connection `{expression}`"


def _single(compared: Compared) -> Iterator[_Fit]:
    """Fits with one change, or one further term, or by blocks."""
    first = compared.trials[0]
    names = tuple(_term_name(expression, first) for expression in term_expressions(first.form))
    blocks = len(first.weights)
    attempts = [(change, None, Trial.terms, names) for change in (None, *changes(first))]
    attempts += [(None, None, _by_block, _names_by_block(blocks))] * (blocks > 1)
    attempts += [(None, extra, Trial.terms, names) for extra in extras(first)]
    return (fit for attempt in attempts if (fit := _fit(compared, *attempt)) is not None)


def _double(compared: Compared) -> Iterator[_Fit]:
    """Fits with one change and one further term."""
    first = compared.trials[0]
    names = tuple(_term_name(expression, first) for expression in term_expressions(first.form))
    pairs = product(changes(first), extras(first))
    fits = (_fit(compared, change, extra, Trial.terms, names) for change, extra in pairs)
    return (fit for fit in fits if fit is not None)


def _fit(compared: Compared, change: Change | None, extra: Extra | None, parts: Parts, names) -> _Fit | None:
    rows = _coefficients(compared.trials, compared.referred, change, extra, parts)
    if rows is None:
        return None
    quantities = [trial.quantities for trial in compared.trials]
    specific = any(each is not None and each.is_of_one_number_of_heads for each in (change, extra))
    if not compared.others or specific:
        return _Fit(names, rows, quantities, change, extra, unfit=False)
    others = _coefficients(compared.others, compared.others_referred, change, extra, parts)
    if others is None or others.shape[1] < rows.shape[1]:
        return _Fit(names, rows, quantities, change, extra, unfit=True)
    # of more blocks the first and the last are those of these names
    others = np.concatenate([others[:, : rows.shape[1] - 1], others[:, -1:]], axis=1)
    quantities += [trial.quantities for trial in compared.others]
    return _Fit(names, np.concatenate([rows, others]), quantities, change, extra, unfit=False)


def _coefficients(trials, referred, change: Change | None, extra: Extra | None, parts: Parts) -> np.ndarray | None:
    """Of the reference in parts of the statement, trial by trial; None where it is no combination of them."""
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
    return np.asarray(rows)


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


def _said(fit: _Fit, named: bool) -> tuple[float, Explanation] | None:
    """A fit in words, and how many differences it has; None where a factor has no name and is to have one."""
    count = fit.coefficients.shape[1] - (fit.extra is not None)
    names = fit.names if count == len(fit.names) else ("what does not depend on the weights", *fit.names)
    factors = [_factor(fit.coefficients[:, i], fit.quantities) for i in range(count)]
    worth = "" if fit.extra is None else name_factor(fit.coefficients[:, -1], fit.quantities)
    if named and ("" in factors or (fit.extra is not None and not worth)):
        return None
    differences: list[tuple[str, str]] = []
    if fit.change is not None:
        differences.append((f"the reference has {fit.change.words}, where the statement does not", fit.change.meaning))
    for factor in dict.fromkeys(factors):
        of = [name for name, each in zip(names, factors, strict=True) if each == factor]
        if factor == "0":
            said = f"the reference has no {_listed(of)}, which the statement has"
            differences.append((said, "a term too many in `forward`, or one that is missing in the reference"))
        elif factor != "1":
            times = _worth(factor, fit.coefficients[:, factors.index(factor)])
            verb, those = ("is", "that") if len(of) == 1 else ("are", "those")
            said = f"{_listed(of)} of the statement {verb} {times} times {those} of the reference"
            whole = f"the statement gives {times} times the reference"
            differences.append((whole if len(of) == count else said, _meaning(factor)))
    if fit.extra is not None:
        said = f"the reference has another term, {worth or 'a number'} * {fit.extra.words}"
        differences.append((said, f"a term is missing in `forward`: {fit.extra.kind}"))
    if not differences:  # it is no more than the rounding by which factors are named
        return None
    measured, meanings = (list(dict.fromkeys(each)) for each in zip(*differences, strict=True))
    # a statement that has nothing of the reference explains nothing; names that are not told apart explain less
    ambiguous = any(EITHER in name for name in (*factors, worth))
    cost = len(differences) + 3 * (set(factors) == {"0"}) + 0.5 * fit.unfit + 0.25 * ambiguous
    return cost, Explanation("; ".join(measured), "; ".join(meanings))


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _factor(coefficients: np.ndarray, quantities) -> str:
    """What the statement's part is in units of the reference's: "0" if the reference has none of it."""
    if np.all(np.abs(coefficients) < AGREES):
        return "0"
    return name_factor(1 / coefficients, quantities, AGREES) if np.all(coefficients) else ""


def _worth(factor: str, coefficients: np.ndarray) -> str:
    if factor in ("-1", "0"):
        return factor
    value = 1 / coefficients[0]
    if not factor:
        return f"{value:.4g} (at the first trial; it depends on sizes or parameters)"
    is_number = factor.replace(".", "").replace("-", "").isdigit()
    return factor if is_number else f"{factor} = {value:.4g}"


def _meaning(factor: str) -> str:
    """The mistake that a factor most likely is; of names that are not told apart, each."""
    if EITHER in factor:
        meanings = dict.fromkeys(map(_meaning, factor.split(EITHER)))
        return f"{'; or '.join(meanings)}" + ": the sizes that were tried do not tell" * (len(meanings) > 1)
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
    if "layer.heads" in factor and "blocks" in factor:
        return f"{sign}one side divides by the number of heads, and the other by that of weight blocks"
    if "layer.heads" in factor:
        return f"{sign}the normalisation by heads: one side divides by sqrt(layer.heads), the other otherwise"
    if "layer.tokens" in factor:
        return f"{sign}the normalisation by tokens: one side takes a mean over tokens, the other a sum"
    if "blocks" in factor:
        return f"{sign}the normalisation by the number of weight blocks"
    if not factor:
        return "a factor that depends on sizes or parameters in another way"
    if any(letter.isalpha() for letter in factor.replace("sqrt", "")):
        return f"{sign}a power of a parameter too many or too few: {factor}"
    if re.fullmatch(r"-?[01]\.\d+", factor) and is_almost_one(float(factor)):
        return f"{sign}a factor of {factor}: single precision on one side, or a constant of few digits"
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
