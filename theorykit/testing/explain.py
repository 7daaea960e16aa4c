"""Explain the difference between your formula and your NumPy.

We guess what the reference has: a changed symbol, another term. A guess explains the
difference if least squares find a factor per term with which its terms sum to the
reference in every trial. Factors get names, such as 1/sqrt(layer.width). We report the
guess that differs least from your formula.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations, product
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from sympy import Expr, MatrixSymbol, Mul, Rational, Symbol

from ..codegen import interpret
from ..symbolic.atoms import SymmetricSymbol

Point = Mapping[str, Any]
Terms = Mapping[str, Callable[[Point], Any]]
Change = Callable[[Point], Point]
# A change of your formula, the name of a further term, and all terms.
_Guess = tuple[str, str, Terms]

# Normalisations are square roots of sizes.
_POWERS = [Rational(power, 2) for power in (1, -1, 2, -2, 3, -3, 4, -4)]
_MOST_NAMED = 3
# Above the cost of any number of named differences.
_UNNAMED = 100.0
# Errors of terms where a guess does not apply.
_ERRORS = (AttributeError, IndexError, NotImplementedError, TypeError, ValueError)
_OF_NUMBERS = {
    "-{0}": np.negative,
    "{0}**2": np.square,
    "1/{0}": np.reciprocal,
    "2*{0}": lambda value: 2 * value,
    "{0}/2": lambda value: value / 2,
    "sqrt({0})": np.sqrt,
    "1": np.ones_like,
}
_OF_MATRICES = {
    "{0}.T": np.transpose,
    "{0}.I": np.linalg.inv,
    "{0}**2": lambda value: value @ value,
    "cholesky({0})": np.linalg.cholesky,
    "I": lambda value: np.eye(len(value)),
    "the diagonal of {0}": lambda value: np.diag(np.diag(value)),
    "{0}, reversed,": lambda value: value[::-1, ::-1],
}
_OF_PAIRS = {"{1}": lambda one, other: other, "{0}*{1}": np.multiply, "{0}/{1}": np.divide}


@dataclass(frozen=True, repr=False)
class Finding:
    """The result of one check: the claim, the observation, and the mistake.

    `meaning`, the mistake, is empty if the claim holds.
    """

    check: str
    measured: str
    meaning: str = ""

    def __repr__(self) -> str:
        parts = ("WRONG: " * bool(self.meaning) + self.check, self.measured, self.meaning)
        return "\n- ".join(fill(part, 98, subsequent_indent="  ") for part in parts if part)


@dataclass(frozen=True, repr=False)
class Report:
    """The results of all checks of one object. Print it to read it."""

    subject: str
    checks: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.checks if each.meaning)

    @property
    def holds(self) -> bool:
        return not self.findings

    def __repr__(self) -> str:
        count = f"{len(self.findings)} of {len(self.checks)}"
        return "\n".join([f"{self.subject}: {count} checks failed", *map(repr, self.checks)])


class Trial(NamedTuple):
    """The reference (points, ...) at points with the same parameters.

    At several points, formulas are equal if they differ by a constant. `tolerance` is
    the relative error of equal formulas, and `quantities` may be part of a factor.
    """

    points: Sequence[Point]
    reference: Any
    tolerance: float
    quantities: Mapping[str, float | int]
    place: str = ""

    def centred(self, values: Any) -> np.ndarray:
        values = np.asarray(values, dtype=float)
        return (values - values.mean(axis=0) * (len(values) > 1)).ravel()

    def values(self, term: Callable[[Point], Any]) -> np.ndarray:
        with np.errstate(all="ignore"):
            return self.centred([term(point) for point in self.points])


def random_value(symbol: Expr, sizes: Mapping[str, Any], rng: np.random.Generator) -> Any:
    if not isinstance(symbol, MatrixSymbol):
        return rng.uniform(0.5, 1.5) * (-1.0 if symbol.is_negative else 1.0)
    matrix = rng.normal(size=[int(interpret(side, sizes)) for side in symbol.shape])
    if isinstance(symbol, SymmetricSymbol):
        return matrix @ matrix.T / len(matrix) + 0.3 * np.eye(len(matrix))
    return matrix


def of_shape(shape: tuple[int, ...], found: Any) -> np.ndarray:
    """Return a result of the user's NumPy, which must be finite float64 of this shape."""
    found = np.asarray(found)
    if found.dtype != float or found.shape != shape or not np.all(np.isfinite(found)):
        raise ValueError(f"it returns {found.dtype} of shape {found.shape}, not finite float64 of shape {shape}")
    return found


def put(name: str, change: Callable[..., Any], *names: str) -> Change:
    """Return a change of a value, as a function of itself or of other values."""
    names = names or (name,)
    return lambda point: {**point, name: change(*(point[each] for each in names))}


def changes_of(point: Point, names: Sequence[str]) -> dict[str, Change]:
    """Return changes of one value, and exchanges of two."""
    found = {}
    for name in names:
        forms = _OF_MATRICES if np.ndim(point[name]) else _OF_NUMBERS
        found |= {f"{form.format(name)} in place of {name}": put(name, forms[form]) for form in forms}
    for one, other in permutations(names, 2):
        if np.shape(point[one]) == np.shape(point[other]):
            found[f"{one} and {other} exchanged"] = lambda at, a=one, b=other: {**at, a: at[b], b: at[a]}
            for form, change in _OF_PAIRS.items():
                found[f"{form.format(one, other)} in place of {one}"] = put(one, change, one, other)
    return found


def compare(claim: str, terms: Terms, trials: Sequence[Trial], changes: Mapping[str, Change], extras: Terms) -> Finding:
    """Compare the sum of your terms with the reference, and name the mistake.

    The reference may have `changes` of values, and further terms, `extras`.
    """
    errors = []
    for trial in trials:
        target = trial.centred(trial.reference)
        error = np.max(np.abs(sum(map(trial.values, terms.values())) - target))
        errors.append(error / max(np.max(np.abs(target)), 1e-300))
    said = f"they differ by {max(errors):.2g} of the size"
    wrong = [trial for trial, error in zip(trials, errors, strict=True) if not error <= trial.tolerance]
    if not wrong:
        return Finding(claim, said)
    places = [trial.place for trial in wrong]
    if right := [trial.place for trial in trials if trial.place not in places]:
        said += f", but agree for {'; '.join(right)}"
    guesses = [*_guesses(terms, changes, extras)]
    # Orders of heads are guesses for one number of heads.
    meaning = _explain(guesses, wrong) or _explain(guesses, wrong[:3])
    return Finding(claim, said, meaning or "no factor, transpose, order or term explains it")


def _guesses(terms: Terms, changes: Mapping[str, Change], extras: Terms) -> Iterator[_Guess]:
    yield "", "", terms
    for said, change in changes.items():
        new = {name: lambda at, of=term, to=change: of(to(at)) for name, term in terms.items()}
        yield said, "", new
        for name in terms if len(terms) > 1 else ():
            yield f"{said}, in {name}", "", {**terms, name: new[name]}
    for extra, term in extras.items():
        yield "", (name := f"{extra} in addition"), {**terms, name: term}


def _explain(guesses: Sequence[_Guess], trials: Sequence[Trial]) -> str:
    """Describe the simplest guess that equals the reference, or return ""."""
    values = cache(lambda number, term: trials[number].values(term))

    def fit(terms: Terms, number: int, free: Sequence[str]) -> dict[str, float] | None:
        """Fit the factors of `free` terms, if they are unique."""
        target = trials[number].centred(trials[number].reference)
        least = trials[number].tolerance * np.max(np.abs(target))
        try:
            columns = {name: values(number, term) for name, term in terms.items()}
            columns = {name: each for name, each in columns.items() if np.any(np.abs(each) > least)}
            matrix = np.stack([*columns.values()], axis=1)
            is_free = np.array([name in free for name in columns])
            rest = target - matrix @ ~is_free
            found, _, rank, _ = np.linalg.lstsq(matrix[:, is_free], rest, rcond=None)
        except _ERRORS:
            return None
        error = np.max(np.abs(matrix[:, is_free] @ found - rest))
        if not error <= least or rank < len(found):
            return None
        factors = np.ones(len(columns))
        factors[is_free] = found
        return dict(zip(columns, factors, strict=True))

    best = (math.inf, "")
    for change, extra, terms in guesses:
        # Linearly dependent terms have no unique factors, but one of them may.
        for free in ((*terms,), *((name, extra) for name in terms)):
            fits = []
            while len(fits) < len(trials) and (found := fit(terms, len(fits), free)) is not None:
                fits.append((found, trials[len(fits)]))
            if len(fits) == len(trials):
                best = min(best, _described(change, extra, terms, fits), key=lambda each: each[0])
        # No difference costs less, and later guesses take longer.
        if best[0] <= 1:
            break
    return best[1]


def _described(change: str, extra: str, terms: Terms, fits: Sequence[tuple[Mapping, Trial]]) -> tuple[float, str]:
    """Return the cost of a guess, 1 per difference, and its description."""
    factors = {}
    for name in terms:
        if known := [(fit[name], trial) for fit, trial in fits if name in fit]:
            factors[name] = _factor(*zip(*known, strict=True))
    said = [change] * bool(change)
    for factor in dict.fromkeys(factors.values()):
        names = [name for name in factors if factors[name] == factor]
        if factor == "0":
            said.append(f"no {', '.join(names)}")
        elif factor != "1" or extra in names:
            names = names if factor != "1" else [extra]
            said.append(f"{factor or 'a factor'} times {', '.join(names)}")
    own = [factor for name, factor in factors.items() if name != extra]
    if not said or factors.get(extra) == "0":
        return math.inf, ""
    # A formula without common terms with the reference explains nothing.
    cost = len(said) + 3 * all(factor == "0" for factor in own) + _UNNAMED * ("" in factors.values())
    cost += 0.25 * any(" or " in factor for factor in factors.values())
    return cost, f"the reference has {'; '.join(said)}"


def _factor(values: Sequence[float] | np.ndarray, trials: Sequence[Trial]) -> str:
    """Write a factor as a product of powers of quantities and of 2 and 3.

    Up to three products that the trials do not distinguish are all named. If there are
    more, or none, a constant is a number, and the result else "".
    """
    values, tolerance = np.array(values), trials[0].tolerance
    if np.all(np.abs(values) < tolerance):
        return "0"
    sign = -1 if np.all(values < 0) else 1
    names = set.intersection(*(set(trial.quantities) for trial in trials))
    bases = {name: np.array([trial.quantities[name] for trial in trials]) for name in sorted(names)}
    bases |= {number: np.full(len(values), float(number)) for number in "23"}
    bases = {name: base for name, base in bases.items() if np.any(base != 1)}
    for count in range(3):
        found = []
        for chosen, powers in product(combinations(bases, count), product(_POWERS, repeat=count)):
            pairs = list(zip(chosen, powers, strict=True))
            worth = math.prod(bases[name] ** float(power) for name, power in pairs)
            if np.all(np.abs(values - sign * worth) <= tolerance * worth):
                found.append(str(sign * Mul(*(Symbol(name) ** power for name, power in pairs))))
        # The simplest name is the most likely one.
        if found:
            break
    if 0 < len(found) <= _MOST_NAMED:
        return " or ".join(found)
    digits = 12 if abs(abs(values[0]) - 1) < 1e-5 else 6
    return "" if np.ptp(values) > tolerance * np.max(np.abs(values)) else f"{values[0]:.{digits}g}"
