"""Find single mistakes that explain a difference between a stated forward map and a reference."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from ..hypotheses import EITHER, Explanation, Fit, Hypothesis, Place, explain, is_almost_one, name_factor
from .trials import Trial, term_expressions

AGREES = 1e-9
Pair = tuple[Trial, np.ndarray]
"""A trial and the result of the reference for it."""
# Largest number of heads or blocks whose permutations are tried.
_MOST_PERMUTED = 4
# Cost of a factor without a name, which is higher than that of any number of named differences.
_UNNAMED = 100.0


class _Guess(NamedTuple):
    """A possible ingredient of the reference.

    - `words`: description of the ingredient.
    - `meaning`: the corresponding mistake.
    - `of`: function that returns the changed trial, or the additional term.
    - `is_general`: whether the guess applies to layers with more heads or blocks.
    """

    words: str
    meaning: str
    of: Callable[[Trial], Trial | np.ndarray]
    is_general: bool = True


def _normalised(weights: np.ndarray, axis: int) -> np.ndarray:
    return weights / weights.sum(axis=axis, keepdims=True)


# Possible changes of a parameter, a number or a matrix.
_POWERS: dict[str, Callable] = {
    "{} squared": lambda value: value**2,
    "the inverse of {}": lambda value: 1 / value,
    "1 for {}": lambda value: 1.0,
    "the square root of {}": np.sqrt,
    "-{}": lambda value: -value,
}
_POWERS_OF_MATRICES: dict[str, Callable] = {
    "{} squared": lambda value: value @ value,
    "the inverse of {}": np.linalg.inv,
    "1 for {}": lambda value: np.eye(len(value)),
    "the Cholesky factor of {}": np.linalg.cholesky,
}
_MASKED = "one side masks the attention, which is done in bpkr.attention(..., mask=...)"
_AGAIN = "one side takes the softmax again"
# Possible ingredient of the reference, its meaning, and the change of attention (heads, keys, queries).
_OF_ATTENTION = (
    (
        "the transpose of the attention",
        "attention is (heads, keys, queries): `hidden @ attention[h]`. One side has its transpose",
        lambda attention: attention.swapaxes(1, 2),
    ),
    (
        "the sum of all heads' attention for each",
        "on one side each weight block acts on all heads",
        lambda attention: np.broadcast_to(attention.sum(axis=0), attention.shape),
    ),
    (
        "attention that is divided by its sum over queries",
        "attention sums to one over keys already, and one side normalises it again",
        lambda attention: _normalised(attention, 2),
    ),
    ("a softmax over keys of the attention", _AGAIN, lambda attention: _normalised(np.exp(attention), 1)),
    ("a softmax over queries of the attention", _AGAIN, lambda attention: _normalised(np.exp(attention), 2)),
    ("causal attention, not renormalised", _MASKED, np.triu),
    ("causal attention", _MASKED, lambda attention: _normalised(np.triu(attention), 1)),
    ("anti-causal attention, not renormalised", _MASKED, np.tril),
    ("anti-causal attention", _MASKED, lambda attention: _normalised(np.tril(attention), 1)),
    (
        "attention applied twice",
        "attention mixes the tokens twice on one side",
        lambda attention: attention @ attention,
    ),
    (
        "no mixing of tokens",
        "attention is missing on one side",
        lambda attention: np.broadcast_to(np.eye(attention.shape[1]), attention.shape),
    ),
    (
        "the mean over tokens for attention",
        "one side takes the mean over tokens",
        lambda attention: np.full_like(attention, 1 / attention.shape[1]),
    ),
)


def _mean(hidden: np.ndarray) -> np.ndarray:
    return np.broadcast_to(hidden.mean(axis=1, keepdims=True), hidden.shape)


_EACH_TOKEN = "weights that act on each token itself"
# Terms that layers commonly have, in the notation of `forward`.
_TERMS = (
    _Guess("layer.hidden", "the skip connection", lambda trial: trial.hidden),
    _Guess(
        "layer.hidden * OneMatrix(layer.tokens, layer.tokens) / layer.tokens",
        "a skip connection that takes the mean over tokens",
        lambda trial: _mean(trial.hidden),
    ),
    _Guess("weights * hidden", _EACH_TOKEN, lambda trial: trial.weights.sum(axis=0) @ trial.hidden),
    _Guess("weights * hidden, of the first block", _EACH_TOKEN, lambda trial: trial.weights[0] @ trial.hidden),
    _Guess(
        "weights * hidden * mean over tokens",
        "weights that act on the mean over tokens",
        lambda trial: trial.weights.sum(axis=0) @ _mean(trial.hidden),
    ),
    _Guess(
        "weights * hidden * attention, one block per head",
        "attention",
        lambda trial: np.asarray(
            sum(block @ trial.hidden @ mixing for block, mixing in zip(trial.weights, trial.attention, strict=False))
        ),
    ),
    _Guess(
        "weights * hidden * attention of all heads, of the first block",
        "attention of all heads",
        lambda trial: trial.weights[0] @ trial.hidden @ trial.attention.sum(axis=0),
    ),
)


def explain_difference(pairs: Sequence[Pair], others: Sequence[Pair] = ()) -> Explanation:
    """Find the simplest mistake that turns the statement into the reference, or the place where they differ.

    `others` are trials with another number of heads, which the reference need not support.
    """
    places, further = (
        [Place(trial, target, AGREES * np.max(np.abs(target)), trial.quantities) for trial, target in each]
        for each in (pairs, others)
    )
    first = pairs[0][0]
    blocks = [f"weight block {block}" for block in range(1, len(first.weights) + 1)]
    single = [_hypothesis(first, change, None) for change in (None, *_changes(first))]

    def by_block(trial: Trial) -> tuple:
        # Split the statement into one part per block, and a part that does not depend on the weights, if there is one.
        nothing = replace(trial, weights=np.zeros_like(trial.weights)).stated()
        found = []
        for block, weights in enumerate(trial.weights):
            only = np.zeros_like(trial.weights)
            only[block] = weights
            found.append(replace(trial, weights=only).stated() - nothing)
        return 0, [nothing, *found] if np.any(nothing) else found

    single += [Hypothesis(by_block, partial(_words, blocks, None, None))] * (len(blocks) > 1)
    single += [_hypothesis(first, None, extra) for extra in _extras(first)]
    double = (_hypothesis(first, *pair) for pair in product(_changes(first), _extras(first)))
    if found := explain((single, double), places, further):
        return found
    trial, target = pairs[0]
    stated = trial.stated()
    differs = np.abs(stated - target) > AGREES * np.max(np.abs(target))
    size = np.max(np.abs(stated - target)) / np.max(np.abs(target))
    correlation = float(np.sum(stated * target) / np.sqrt(np.sum(stated**2) * np.sum(target**2)))
    meaning = "no single factor, transpose, order or missing term explains it"
    for name, agrees in (("unit", ~differs.any(axis=1)), ("token", ~differs.any(axis=0))):
        if np.any(agrees) and not np.all(agrees):
            wrong = ", ".join(str(index + 1) for index in np.flatnonzero(~agrees)[:8])
            meaning = f"they agree except at {name} {wrong}, counted from 1, which the two sides treat differently"
    agreement = [not np.any(np.abs(trial.stated() - r) > AGREES * np.max(np.abs(r))) for trial, r in pairs]
    if any(agreement):
        right, wrong = (
            ", ".join(f"{name} {value:g}" for name, value in pairs[agreement.index(agrees)][0].quantities.items())
            for agrees in (True, False)
        )
        meaning = f"they agree for {right}, and not for {wrong}"
    measured = f"they differ by {size:.3g} of the largest entry, with an overlap (cosine) of {correlation:.3g}"
    return Explanation(measured, meaning)


def _hypothesis(first: Trial, change: _Guess | None, extra: _Guess | None) -> Hypothesis:
    names = []
    for term in term_expressions(first.form):
        names.append(f"`{term}`" if term.has(first.form.weights) else f"skip connection `{term}`")

    def parts(trial: Trial) -> tuple | None:
        columns = (trial if change is None else change.of(trial)).terms()
        if extra is not None:
            value = None if trial.attention is None and "attention" in extra.words else extra.of(trial)
            if value is None or value.shape != trial.shape:
                return None
            columns.append(value)
        return 0, columns

    is_general = all(each is None or each.is_general for each in (change, extra))
    return Hypothesis(parts, partial(_words, names, change, extra), is_general)


def _changes(trial: Trial) -> Iterator[_Guess]:
    def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Trial], Trial]:
        return lambda trial: replace(trial, **{name: change(getattr(trial, name))})

    def permuted(name: str, words: str, meaning: str) -> Iterator[_Guess]:
        count = len(getattr(trial, name))
        for order in list(permutations(range(count)))[1:] if 1 < count <= _MOST_PERMUTED else ():
            said = f"{words} in the order {tuple(place + 1 for place in order)}"
            yield _Guess(said, meaning, changed(name, lambda array, order=order: array[list(order)]), is_general=False)

    if trial.attention is not None:
        yield from permuted("attention", "the heads", "heads are permuted, and act with the weights of other heads")
        yield from (_Guess(words, meaning, changed("attention", change)) for words, meaning, change in _OF_ATTENTION)
    _, next_width, width = trial.weights.shape
    if next_width == width:
        yield _Guess(
            "the transpose of every weight block",
            "weights[a] is (next_width, width): `weights[a] @ hidden`",
            changed("weights", lambda weights: weights.swapaxes(1, 2)),
        )
    yield from permuted("weights", "the weight blocks", "weight blocks are permuted")
    yield _Guess(
        "the first weight block for all",
        "the reference shares one block of weights: layer.weights(1)",
        changed("weights", lambda weights: np.broadcast_to(weights[:1], weights.shape)),
    )
    for name, value in trial.parameters.items():
        for words, power in (_POWERS_OF_MATRICES if np.ndim(value) else _POWERS).items():
            yield _Guess(
                words.format(name),
                f"the parameter {name} enters differently, for example as a variance in place of a standard deviation",
                changed("parameters", lambda values, name=name, power=power: {**values, name: power(values[name])}),
            )


def _extras(trial: Trial) -> Iterator[_Guess]:
    yield from _TERMS
    for block in range(1, len(trial.weights)):
        is_last = block == len(trial.weights) - 1
        yield _Guess(
            f"weights * hidden, of {'the last block' if is_last else f'block {block + 1}'}",
            _EACH_TOKEN,
            lambda trial, block=-1 if is_last else block: trial.weights[block] @ trial.hidden,
            is_general=is_last,
        )


def _words(names: Sequence[str], change: _Guess | None, extra: _Guess | None, fit: Fit) -> Explanation | None:
    """Describe a fit in words. None if the difference is only the rounding in names of factors."""
    count = fit.factors.shape[1] - (extra is not None)
    names = names if count == len(names) else ("what does not depend on the weights", *names)
    factors = [_factor(fit.factors[:, i], fit.quantities) for i in range(count)]
    worth = "" if extra is None else name_factor(fit.factors[:, -1], fit.quantities)
    differences: list[tuple[str, str]] = []
    if change is not None:
        differences.append((f"the reference has {change.words}, where the statement does not", change.meaning))
    for factor in dict.fromkeys(factors):
        of = [name for name, each in zip(names, factors, strict=True) if each == factor]
        if factor == "0":
            said = f"the reference has no {listed(of)}, which the statement has"
            differences.append((said, "one term too many in `forward`, or a term missing in the reference"))
        elif factor != "1":
            times, value = factor, 1 / fit.factors[0, factors.index(factor)]
            if not factor:
                times = f"{value:.4g} (at the first trial; it depends on sizes or parameters)"
            elif not factor.replace(".", "").replace("-", "").isdigit():
                times = f"{factor} = {value:.4g}"
            verb, those = ("is", "that") if len(of) == 1 else ("are", "those")
            said = f"{listed(of)} of the statement {verb} {times} times {those} of the reference"
            whole = f"the statement gives {times} times the reference"
            differences.append((whole if len(of) == count else said, _meaning(factor)))
    if extra is not None:
        said = f"the reference has another term, {worth or 'a number'} * {extra.words}"
        differences.append((said, f"a term is missing in `forward`: {extra.meaning}"))
    if not differences:
        return None
    measured, meanings = (list(dict.fromkeys(each)) for each in zip(*differences, strict=True))
    # A statement without common terms with the reference explains nothing, and ambiguous names explain less.
    is_ambiguous = any(EITHER in name for name in (*factors, worth))
    cost = len(differences) + 3 * (set(factors) == {"0"}) + 0.5 * fit.fails_elsewhere + 0.25 * is_ambiguous
    cost += _UNNAMED * ("" in factors or (extra is not None and not worth))
    return Explanation("; ".join(measured), "; ".join(meanings), cost)


def listed(things: Iterable) -> str:
    """List things in words, with "and" before the last."""
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last


def _factor(factors: np.ndarray, quantities: Sequence) -> str:
    """Name the statement's part in units of the reference's, or "0" if the reference lacks it."""
    if np.all(np.abs(factors) < AGREES):
        return "0"
    return name_factor(1 / factors, quantities, AGREES) if np.all(factors) else ""


_BY_UNITS = "the normalisation by units: `forward` divides by sqrt(layer.width) alone"
# Parts of a factor's name, and the most likely mistake. The first match is used.
_FACTORS = (
    (
        ("layer.width", "layer.next_width"),
        "one side divides by the number of units before the layer, and the other by the number after it",
    ),
    (("layer.width",), _BY_UNITS),
    (("layer.next_width",), _BY_UNITS),
    (("layer.heads", "blocks"), "one side divides by the number of heads, the other by the number of weight blocks"),
    (("layer.heads",), "the normalisation by heads: one side divides by sqrt(layer.heads)"),
    (("layer.tokens",), "the normalisation by tokens: a mean over tokens, or a sum"),
    (("blocks",), "the normalisation by the number of weight blocks"),
)


def _meaning(factor: str) -> str:
    if EITHER in factor:
        meanings = dict.fromkeys(map(_meaning, factor.split(EITHER)))
        return f"{'; or '.join(meanings)}" + ": the sizes tried do not distinguish them" * (len(meanings) > 1)
    if factor == "-1":
        return "a sign"
    if not factor:
        return "a factor that depends on sizes or parameters in another way"
    said = f"a factor of {factor}"
    if known := [meaning for held, meaning in _FACTORS if all(each in factor for each in held)]:
        said = known[0]
    elif any(letter.isalpha() for letter in factor.replace("sqrt", "")):
        said = f"one power of a parameter too many or too few: {factor}"
    elif re.fullmatch(r"-?[01]\.\d+", factor) and is_almost_one(float(factor)):
        said += ": single precision on one side, or a constant of few digits"
    return ("a sign, and " if factor.startswith("-") else "") + said
