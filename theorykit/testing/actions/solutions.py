"""Where an action is stationary: the signature, the edges of its domains, and what finite systems tend to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...checks import by_name
from ...saddle import Action, Between, Solution, search
from ...saddle.bound_action import BoundAction
from ...saddle.solve import end_points, one_of
from ..report import Finding, Passed, Result

Sampled = Callable[[int], Mapping[Any, tuple[float, float]]]
"""Of a system of a size: the mean of every order parameter that is a number, and its standard error."""

_STARTS = 16
# a coordinate of an interval beyond which its edge is reached
_EDGE = 8.0
# standard errors by which a sampled mean may be off
_ERRORS = 4.0


def check_stationary(action: Action, bound: BoundAction, values: Mapping, index: int, seed: int):
    """The stationary points of the index that random starts lead to, and what that says."""
    kind = "minimum" if index == 0 else f"stationary point of index {index}"
    claim = f"the action has a {kind}"
    found = search(action, values, index=index, starts=_STARTS, seed=seed)
    if found:
        reached = sum(solution.stats["reached"] for solution in found)
        at = "; ".join(solution.place for solution in found[:3])
        return found, Passed(claim, f"{len(found)} from {reached} of {_STARTS} starts, at {at}")
    return found, _without_solution(action, bound, values, index, claim, seed)


def _without_solution(
    action: Action, bound: BoundAction, values: Mapping, index: int, claim: str, seed: int
) -> Finding:
    coordinates = len(bound.layout.owners)
    for other in range(min(coordinates, 6) + 1):
        if other != index and (elsewhere := search(action, values, index=other, starts=_STARTS, seed=seed)):
            kind = "minima" if other == 0 else f"points of index {other}"
            measured = f"none from {_STARTS} starts, but {kind}, as at {elsewhere[0].place}"
            if other == coordinates - index:
                return Finding(claim, measured, "the sign of the whole action, which turns minima into maxima")
            return Finding(
                claim, measured, f"a sign, or the number of order parameters that it is maximal in: index={other}?"
            )
    return _at_the_edge(action, values, index, claim, seed)


def _at_the_edge(action: Action, values: Mapping, index: int, claim: str, seed: int) -> Finding:
    ends = end_points(action, values, index=index, starts=_STARTS, seed=seed)
    for solution in (one_of(ends, at) for at in range(_STARTS)):
        coordinates = np.asarray(solution.stats["coordinates"])
        for name, coordinate in zip(solution.owners, coordinates, strict=True):
            domain = next(d for s, d in action.order_parameters.items() if s.name == name)
            if isinstance(domain, Between) and abs(coordinate) > _EDGE:
                edge = domain.high if coordinate > 0 else domain.low
                return Finding(
                    claim,
                    f"none from {_STARTS} starts; {name} runs to the edge {edge:g} of its domain",
                    f"the domain {domain} of {name} is too narrow, or the action lacks a term that keeps it inside",
                )
    return Finding(
        claim,
        f"none from {_STARTS} starts: {solution.diagnosis}",
        "a term that bounds the action is missing, or has the wrong sign; or an order parameter is not fixed by it",
    )


def check_degenerate(found: Sequence[Solution]) -> Result:
    """Directions in which the action is all but flat."""
    claim = "the action fixes every order parameter"
    ratios = []
    for solution in found:
        sizes = np.abs(np.asarray(solution.hessian_eigenvalues))
        ratios.append(np.min(sizes) / np.max(sizes))
    if min(ratios) > 1e-9:
        return Passed(claim, f"eigenvalues of the Hessian differ by at most a factor {1 / min(ratios):.3g}")
    solution = found[int(np.argmin(ratios))]
    return Finding(
        claim,
        f"an eigenvalue of the Hessian is {min(ratios):.1g} of the largest at {solution.place}",
        "a coupling term is missing, or there is a continuous symmetry",
    )


def check_finite_size(found: Sequence[Solution], sampled: Sampled, sizes: Sequence[int]) -> Result:
    """The order parameters of finite systems against the saddle point that is nearest to them."""
    claim = "order parameters of finite systems tend to the saddle point"
    samples = [by_name("sampled", sampled(size)) for size in sizes]
    last = samples[-1]
    nearest = min(found, key=lambda solution: sum(abs(float(solution[name]) - last[name][0]) for name in last))
    worst, lines = 0.0, []
    for name in last:
        limit = float(nearest[name])
        off = [sample[name][0] - limit for sample in samples]
        # one over the square root of the size is the slowest that fluctuations fall
        allowed = _ERRORS * last[name][1] + abs(off[0]) * (sizes[0] / sizes[-1]) ** 0.5
        lines.append(f"{name}: {', '.join(f'{value:+.2g}' for value in off)} off {limit:.4g}")
        worst = max(worst, abs(off[-1]) / max(allowed, 1e-300))
    measured = f"at sizes {', '.join(map(str, sizes))}, {'; '.join(lines)}"
    if worst <= 1:
        return Passed(claim, measured)
    return Finding(
        claim, measured, "the action is not that of the system that was sampled: a factor or a term is wrong"
    )
