"""The derivation of an action with the kind in it: every step's claim, and the two routes against each other."""

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
from sympy import Expr

from ... import bpkr
from ...codegen import interpret
from ..problems import random_problem, symbol_values
from ..report import Finding, Passed, Result
from .placement import Placement

IS_DERIVED = "an action with the layer is derived"
_ENGINE = "Steps are made of the layer's own two formulas, so this is no mistake in them"
# what is left of the difference of two equal expressions, in units of their size
_ROUNDING = 1e-10
# how many failures are told
_TOLD = 3


def check_derivation(placement: Placement, seed: int) -> Iterator[Result]:
    """That there is an action, that each step of its derivations holds, and that both routes arrive at it."""
    try:
        action = bpkr.derive(placement.architecture)
        derivations = action.derivations
    except Exception as error:
        yield Finding(
            IS_DERIVED,
            f"{type(error).__name__}: {' '.join(str(error).split())}",
            "a rule of the derivation engine does not know what stands in `forward` or `prior`, or is wrong itself. "
            f"{_ENGINE} as long as the specification is accepted",
        )
        return
    yield _steps(placement, derivations, seed)
    yield _routes(placement, action, seed)


def _steps(placement: Placement, derivations, seed: int) -> Result:
    claim = "every step of the derivation holds on random numbers"
    failures, count, largest = [], 0, 0.0
    for name, derivation in derivations.items():
        evidence = derivation.verify(seed).evidence
        count += len(evidence)
        largest = max(largest, *(item.error for item in evidence if item.holds), 0.0)
        failures += [(name, item) for item in evidence if not item.holds]
    if not failures:
        return Passed(claim, f"{count} steps, the largest error {largest:.1g} of what is tolerated")
    told = [_told(name, item) for name, item in failures[:_TOLD]]
    more = f"; and {len(failures) - _TOLD} more" if len(failures) > _TOLD else ""
    name, first = failures[0]
    return Finding(
        claim,
        f"{len(failures)} of {count} steps fail: {'; '.join(told)}{more}",
        f'the first that fails is made by the rule "{first.step.rule}" in the derivation "{name}": that rule is wrong, '
        f"or does not cover this layer. {_ENGINE}",
    )


def _told(name: str, item) -> str:
    error = item.reason or f"error {item.error:.3g} times what is tolerated"
    return f'"{item.step.rule}" ({name}, {item.step.section}), {error}'


def _routes(placement: Placement, action: bpkr.Action, seed: int) -> Result:
    claim = "both routes arrive at the same entropies"
    differences = action.route_differences
    if not any(differences):
        return Passed(claim, "their differences are zero, symbol by symbol")
    sizes = [
        _relative(placement, action, difference, entropy, seed)
        for difference, entropy in zip_longest(differences, action.entropies)
    ]
    if max(sizes) < _ROUNDING:
        return Passed(claim, f"their differences are {max(sizes):.1g} of the entropies")
    number = int(np.argmax(sizes))
    name = f"S_{number + 1}" if number < len(sizes) - 1 else "S_a"
    return Finding(
        claim,
        f"{name} differs by {differences[number]}, {sizes[number]:.3g} of its size at random order parameters",
        f"one of the two routes is wrong in {name}; the steps of which hold, above, says which. {_ENGINE}",
    )


def _relative(placement: Placement, action: bpkr.Action, difference: Expr, entropy: Expr, seed: int) -> float:
    problem = random_problem(placement.architecture, seed)
    values = symbol_values(problem) | _overlaps(action, problem)
    return abs(interpret(difference, values)) / max(abs(interpret(entropy, values)), 1.0)


def _overlaps(action: bpkr.Action, problem) -> dict[str, np.ndarray]:
    readout = np.asarray(problem.order_parameters.readout).reshape(problem.architecture.outputs, -1)
    values = (*problem.order_parameters.matrices, readout)
    return {symbol.name: np.asarray(value) for symbol, value in zip(action.symbols.overlaps, values, strict=True)}
