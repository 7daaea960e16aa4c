"""The package reproduces the frozen numbers: see the adapter `tests/frozen.py`."""

import numpy as np
import pytest

from . import frozen
from .frozen import FOLDER, Case, read

# Factor by which a stated error may grow.
MOST_GROWTH = 10.0
# Groups of which outcomes are counted, and shares of the converged solves that may be lost.
COUNTED = {"random_actions": 0.05, "ill_conditioned": 0.005}
# Share of the solves of theory 1 that may end in a lower minimum.
MOST_LOWER = 0.02
# Cases that are dear, of groups that have other quick cases.
DEAR = {"textbook-branch_hysteresis", "branches-branch logistic doublings"}
# Of the hard solves, the cases and the number of instances of each that the quick tests take.
FEW = {"random_actions": (("002",), 13), "ill_conditioned": (("2-12x3",), 24)}


def cases() -> list:
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        for case in read(path.stem) if path.stem not in COUNTED else ():
            name = f"{path.stem}-{case.name}"
            marks = () if case.quick and name not in DEAR else pytest.mark.slow
            found.append(pytest.param(case, id=name, marks=marks))
    return found


def difference(key: str, case: Case, found) -> str | None:
    """Return how a result differs from the frozen one, or None if it agrees within its tolerance.

    A tolerance is a number, relative to the largest entry of the frozen array, or one of

    - `equal`: the same integers, booleans or text.
    - `expression`: the same `srepr`, or a difference that expands to zero.
    - `error`: a stated error, which may not grow beyond `MOST_GROWTH` times the frozen one.
    """
    tolerance, expected = case.tolerances[key], case.found[key]
    value = found[key]
    if tolerance == "expression":
        same = value == expected or frozen.are_equal_expressions(expected, value)
        return None if same else f"{key}: {value}\nfrozen: {expected}"
    if isinstance(expected, str):
        return None if value == expected else f"{key}: {value}\nfrozen: {expected}"
    value = np.asarray(value)
    if value.shape != expected.shape:
        return f"{key} has shape {value.shape}, frozen {expected.shape}"
    if tolerance == "equal":
        return None if np.array_equal(value, expected) else f"{key}: {value}, frozen {expected}"
    if not np.array_equal(np.isnan(value), np.isnan(expected)):
        return f"{key} is NaN at other places"
    if tolerance == "error":
        allowed = MOST_GROWTH * expected + np.finfo(float).eps
        return None if np.all((value >= 0) & (value <= allowed)) else f"{key}: {value}, frozen {expected}"
    finite = np.abs(expected[np.isfinite(expected)])
    allowed = tolerance * max(finite.max(initial=0.0), 1e-300)
    same = np.where(np.isfinite(expected), np.abs(value - expected) <= allowed, value == expected)
    same |= np.isnan(expected)
    return None if np.all(same) else f"{key} is off by {np.max(np.abs(value - expected)[~same]):.3g}, of {allowed:.3g}"


@pytest.mark.parametrize("case", cases())
def test_frozen_numbers_are_reproduced(case):
    found = frozen.KINDS[case.kind](case.spec, case.given)
    assert not (missing := case.tolerances.keys() - found.keys()), f"no results {missing}"
    wrong = [text for key in case.tolerances if (text := difference(key, case, found))]
    assert not wrong, "\n".join(wrong)


def change_of_action(case: Case, found) -> np.ndarray:
    """Return how much S is above the frozen one, in units of the stated errors, and zero if not both converged."""
    both = (found["outcome"] == frozen.CONVERGED) & (case.found["outcome"] == frozen.CONVERGED)
    return np.where(both, (found["S"] - case.found["S"]) / (found["S_error"] + case.found["S_error"]), 0.0)


def assert_as_many_converge(group: str, cases: list[Case]) -> None:
    """Solve again: as many converge, and no solution is wrong.

    Solutions of random actions are confirmed in 50 digits. Those of theory 1 have the frozen S, or a few a lower one.
    """
    wrong, lower, before, after = [], 0, 0, 0
    for case in cases:
        found = frozen.KINDS[case.kind](case.spec | {"confirm": True}, case.given)
        before += int(np.sum(case.found["outcome"] == frozen.CONVERGED))
        after += int(np.sum(found["outcome"] == frozen.CONVERGED))
        if "objections" in found:
            wrong += [f"{case.name}, {row}: {text}" for row, text in enumerate(found["objections"]) if text]
        else:
            change = change_of_action(case, found)
            wrong += [f"{case.name}, {row}: S is {change[row]:.3g} errors higher" for row in np.flatnonzero(change > 1)]
            lower += int(np.sum(change < -1))
    assert not wrong, "\n".join(wrong)
    assert lower <= MOST_LOWER * before, f"{lower} solves have a lower S"
    assert after >= (1 - COUNTED[group]) * before > 0, f"{after} solves converged, {before} before"


@pytest.mark.parametrize("group", COUNTED)
def test_some_hard_solves_converge_as_before(group):
    names, most = FEW[group]
    few = [case for case in read(group) if case.name in names]
    for case in few:
        for arrays in (case.given, case.found):
            arrays |= {name: values[:most] for name, values in arrays.items()}
    assert_as_many_converge(group, few)


@pytest.mark.slow
@pytest.mark.parametrize("group", COUNTED)
def test_2000_hard_solves_converge_as_before(group):
    assert_as_many_converge(group, read(group))
