"""Confirm a certified point independently, from the expression alone and to at least 50 digits.

Gradients and Hessians are central differences with step 1e-30 in 150 digits, so they are accurate to 50 digits. No code
of the package evaluates anything here.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
from sympy import Expr, Symbol, lambdify

from theorykit.saddle import Between, Positive, PositiveDefinite, Solution

DIGITS = 150
# of the size of a number: how far it may be off beside its stated error, what counts as the same, how far differences
# are taken
_NEAR, _CLOSE, _BESIDE = mp.mpf(10) ** -6, mp.mpf(10) ** -12, mp.mpf(10) ** -30
# rounding of a coordinate that is stored in double precision
_ROUNDED = mp.mpf(2) ** -50
_MOST_STEPS, _MOST_JUMPS = 400, 3
# ratios of the lengths of Newton steps that differ by less are the same, and smaller ones are zero
_CONSTANT = mp.mpf(10) ** -2
# steps after which a point is exact, beside the sizes; of what is smaller than the unit, beside that
_SETTLED, _UNIT = mp.mpf(10) ** -26, mp.mpf(10) ** -3
# curvatures that may be zero, of the largest one
_SOFT = mp.mpf(10) ** -9
_RADII = [mp.mpf(10) ** -k for k in range(12, 2, -1)]
# relative to the range of the domain: next to an edge
_AT_EDGE, _NEXT_TO_EDGE, _FROM_EDGE, _INSIDE = (mp.mpf(10) ** -k for k in (60, 30, 12, 6))


class Claim(NamedTuple):
    """The claim of a solution: a stationary point of this index, known to this error.

    `stated` holds the action and its error. `place` maps a step, one entry per free coordinate in the metric of the
    domains, to the arguments of S. `sizes` are the scales of the coordinates. `edges` are the order parameters on
    edges, each as a function of the distance.
    """

    action: Callable[..., Any]
    place: Callable[[list], dict[str, Any]]
    sizes: list
    edges: list[tuple[str, Callable[[Any], Any]]]
    index: int
    error: Any
    stated: tuple[float, float]


def claim_of(twin: Expr, values: Mapping[str, float], solution: Solution, units: np.ndarray) -> Claim:
    """Return the claim of a converged solution; `twin` is the expression of its action in numbers alone."""
    free = {symbol.name: symbol for symbol in twin.free_symbols if isinstance(symbol, Symbol)}
    names = sorted(free)
    function = lambdify([free[name] for name in names], twin, modules=[_FUNCTIONS, "mpmath"])
    fixed = {name: mp.mpf(value) for name, value in values.items()}
    coordinates = [mp.mpf(float(x)) for x in solution.stats["coordinates"]]
    at_edge, moves, edges, sizes, start = np.asarray(solution.stats["at_edge"]), [], [], [], 0
    for symbol, domain in solution.of.order_parameters.items():
        if hasattr(symbol, "shape"):
            moves.append((3, _matrix(symbol.name, np.asarray(solution[symbol]), isinstance(domain, PositiveDefinite))))
            sizes, start = [*sizes, *[mp.mpf(1)] * 3], start + 3
            continue
        at, unit = coordinates[start], mp.mpf(float(units[start]))
        if at_edge[start]:
            edges.append((symbol.name, _from_edge(domain, at)))
        else:
            moves.append((1, _number(symbol.name, domain, at, unit)))
            sizes.append(mp.mpf(1) if isinstance(domain, (Positive, Between)) else abs(at))
        start += 1

    def place(step: list) -> dict[str, Any]:
        found, begin = {}, 0
        for count, move in moves:
            found |= move(step[begin : begin + count])
            begin += count
        return found

    def action(**given: Any) -> Any:
        arguments = {**fixed, **given}
        return function(*[arguments[name] for name in names])

    index, stated = int(solution.stats["asked"]), (float(solution.action), float(solution.action_error))
    return Claim(action, place, sizes, edges, index, mp.mpf(float(solution.error)), stated)


def objection(claim: Claim) -> str | None:
    """Return why the claim is wrong, or None if it is confirmed."""
    with mp.workdps(DIGITS):
        if claim.edges:
            changed, reason = _through_edges(claim)
            return reason or (_objection(changed) if claim.sizes else None)
        return _objection(claim)


def error_of_action(claim: Claim) -> float:
    """Return the error of the stated action in units of its stated error, for a point inside all domains."""
    with mp.workdps(DIGITS):
        action, error = map(mp.mpf, claim.stated)
        off = abs(claim.action(**claim.place([mp.mpf(0)] * len(claim.sizes))) - action)
        return float(off / error) if off else 0.0


def _objection(claim: Claim) -> str | None:
    count = len(claim.sizes)
    at = lambda step: claim.action(**claim.place(step))  # noqa: E731
    allowed = [claim.error + _NEAR * size + _ROUNDED for size in claim.sizes]
    origin = [mp.mpf(0)] * count
    polished, why = _polished(at, origin, claim.sizes, allowed)
    known = claim.error + _ROUNDED
    # a minimum lies between two points at which S is higher, with a kink or without
    if count == 1 and claim.index == 0 and min(at([known]), at([-known])) > at(origin):
        return None
    if polished is None:
        return why
    hessian = _second(at, polished, claim.sizes)
    curvatures, directions = _eigen(hessian)
    negative, unclear = _signature(at, polished, curvatures, directions, max(allowed))
    if unclear is not None:
        return unclear
    if negative != claim.index:
        return f"{negative} negative curvatures, not {claim.index}: {[mp.nstr(c, 5) for c in curvatures]}"
    if claim.index == 0 and (lower := _lower(at, polished, directions, claim.sizes)):
        return lower
    return _not_isolated(at, polished, claim, curvatures)


def _polished(at, start: list, sizes: list, allowed: list) -> tuple[list | None, str | None]:
    """Run Newton's method in 150 digits from `start`; return its end if that is within the allowed distance."""
    here, last, ratios, jumps = list(start), None, [], 0
    for _ in range(_MOST_STEPS):
        slope, hessian = _first(at, here, sizes), _second(at, here, sizes)
        try:
            step = [-x for x in mp.lu_solve(_regular(hessian), mp.matrix(slope))]
        except ZeroDivisionError:
            return None, "the Hessian is zero"
        # At the minimum of x^6 a step is 4/5 of the last one, and of |x|^(3/2) it is -1 times the last one. Sum the
        # geometric series.
        if last is not None:
            ratios.append(mp.fdot(step, last) / mp.fdot(last, last))
        last = step
        steady = len(ratios) > 1 and abs(ratios[-1] - ratios[-2]) < _CONSTANT < abs(ratios[-1])
        if steady and jumps < _MOST_JUMPS:
            step, last, ratios, jumps = [by / (1 - ratios[-1]) for by in step], None, [], jumps + 1
        here = [x + by for x, by in zip(here, step, strict=True)]
        if any(abs(x) > 100 * room + mp.mpf("1e-2") for x, room in zip(here, allowed, strict=True)):
            return None, f"Newton leads away, by {mp.nstr(max(map(abs, here)), 5)}"
        settled = [min(_CLOSE * room, _SETTLED * max(size, _UNIT)) for room, size in zip(allowed, sizes, strict=True)]
        if all(abs(by) <= near for by, near in zip(step, settled, strict=True)):
            break
    else:
        return None, "Newton does not settle"
    if off := [(x, room) for x, room in zip(here, allowed, strict=True) if abs(x) > room]:
        return None, f"the point is off by {mp.nstr(off[0][0], 5)}, of {mp.nstr(off[0][1], 5)} that are allowed"
    return here, None


def _regular(hessian: list[list]) -> Any:
    """The Hessian, with a little added where it vanishes along a direction in which the gradient does too."""
    largest = max(abs(entry) for row in hessian for entry in row)
    return mp.matrix(hessian) + mp.mpf("1e-60") * largest * mp.eye(len(hessian))


def _distances(sizes: list) -> list:
    return [_BESIDE * max(size, _UNIT) for size in sizes]


def _first(at, here: list, sizes: list) -> list:
    slopes = []
    for i, h in enumerate(_distances(sizes)):
        ahead, behind = ([x + side * h * (i == j) for j, x in enumerate(here)] for side in (1, -1))
        slopes.append((at(ahead) - at(behind)) / (2 * h))
    return slopes


def _second(at, here: list, sizes: list) -> list[list]:
    steps, count = _distances(sizes), len(sizes)
    middle, found = at(here), [[mp.mpf(0)] * count for _ in range(count)]

    def beside(i: int, j: int, of_i: int, of_j: int):
        moved = list(here)
        moved[i] += of_i * steps[i]
        moved[j] += of_j * steps[j]
        return at(moved)

    for i in range(count):
        found[i][i] = (beside(i, i, 1, 0) - 2 * middle + beside(i, i, -1, 0)) / steps[i] ** 2
        for j in range(i):
            corners = beside(i, j, 1, 1) - beside(i, j, 1, -1) - beside(i, j, -1, 1) + beside(i, j, -1, -1)
            found[i][j] = found[j][i] = corners / (4 * steps[i] * steps[j])
    return found


def _eigen(hessian: list[list]) -> tuple[list, list[list]]:
    with mp.workdps(60):
        values, vectors = mp.eigsy(mp.matrix(hessian))
        return list(values), [list(vectors[:, j]) for j in range(len(values))]


def _signature(at, here: list, curvatures: list, directions: list, allowed) -> tuple[int, str | None]:
    """How many curvatures are negative; soft ones by the action reduced to their direction, on both sides."""
    largest, negative = max(map(abs, curvatures)), 0
    for curvature, direction in zip(curvatures, directions, strict=True):
        if abs(curvature) > _SOFT * largest:
            negative += curvature < 0
            continue
        radius = max(30 * allowed, mp.mpf("1e-9"))
        ahead, behind = (_reduced(at, here, direction, side * radius) for side in (1, -1))
        if ahead == behind == 0:
            return 0, "the action is constant along a direction"
        if ahead * behind <= 0:
            return 0, f"an inflection: {mp.nstr(ahead, 5)} and {mp.nstr(behind, 5)} at {mp.nstr(radius, 5)}"
        negative += ahead < 0
    return negative, None


def _reduced(at, here: list, direction: list, distance) -> Any:
    """S - S(here) at a distance along a direction, stationary in the others."""
    count = len(here)
    moved = [x + distance * d for x, d in zip(here, direction, strict=True)]
    if count == 1:
        return at(moved) - at(here)
    basis = _complement(direction)
    ones = [mp.mpf(1)] * (count - 1)

    def beside(shift: list):
        return at([x + sum(s * b[i] for s, b in zip(shift, basis, strict=True)) for i, x in enumerate(moved)])

    shift = [mp.mpf(0)] * (count - 1)
    for _ in range(12):
        slope, hessian = _first(beside, shift, ones), _second(beside, shift, ones)
        by = mp.lu_solve(_regular(hessian), mp.matrix(slope))
        shift = [s - b for s, b in zip(shift, by, strict=True)]
        if max(map(abs, by)) < mp.mpf("1e-40") * abs(distance):
            break
    return beside(shift) - at(here)


def _complement(direction: list) -> list[list]:
    """An orthonormal basis of what is orthogonal to a unit vector."""
    columns, _ = mp.qr(mp.matrix(direction))
    return [list(columns[:, j]) for j in range(1, len(direction))]


def _lower(at, here: list, directions: list, sizes: list) -> str | None:
    """Whether S is lower next to the point: along axes, eigenvectors and random directions, at several radii."""
    rng, count = np.random.default_rng(0), len(here)
    axes = [[mp.mpf(int(i == j)) for j in range(count)] for i in range(count)]
    random = [[mp.mpf(float(x)) for x in row] for row in rng.normal(size=(3 * (count > 1), count))]
    lowest = at(here)
    for direction, side in product([*axes, *directions, *random], (1, -1)):
        probes = []
        for radius in _RADII:
            by = [side * radius * max(size, _UNIT) * d for size, d in zip(sizes, direction, strict=True)]
            probes.append(at([x + b for x, b in zip(here, by, strict=True)]) < lowest)
        if probes[0] and probes[1]:
            return f"S is lower next to the point along {[mp.nstr(side * d, 3) for d in direction]}"
    return None


def _not_isolated(at, here: list, claim: Claim, curvatures: list) -> str | None:
    """Newton's method from perturbed points: those that stay nearby come back to the same point."""
    if min(map(abs, curvatures)) <= _SOFT * max(map(abs, curvatures)):
        return None
    rng, near = np.random.default_rng(1), [min(claim.error + _CLOSE * size + _ROUNDED, _NEAR) for size in claim.sizes]
    for _ in range(2):
        perturbed = [x + room * float(rng.normal()) for x, room in zip(here, near, strict=True)]
        end, _why = _polished(at, perturbed, claim.sizes, [100 * room for room in near])
        if end is None:
            continue
        apart = max(abs(x - y) / room for x, y, room in zip(end, here, near, strict=True))
        if mp.mpf("1e-8") < apart < 1:
            return f"another stationary point within the stated error, {mp.nstr(apart, 5)} of it away"
    return None


def _through_edges(claim: Claim) -> tuple[Claim, str | None]:
    """Return the claim about the inner coordinates, with the others fixed at their edges, and what is wrong there.

    At a stationary point on an edge, the slope is small compared with the slope a short distance inside.
    """
    rest = claim.place([mp.mpf(0)] * len(claim.sizes))
    held, negative = {name: from_edge(_AT_EDGE) for name, from_edge in claim.edges}, 0
    if at_infinity := [name for name, value in held.items() if not mp.isfinite(value)]:
        return claim, f"{at_infinity[0]} is at infinity"
    on_edges = _settled(claim, held)
    for name, from_edge in claim.edges:

        def beyond(distance, name=name, from_edge=from_edge):
            return claim.action(**{**rest, **held, name: from_edge(distance)}) - claim.action(**{**rest, **held})

        here, inside = beyond(_NEXT_TO_EDGE) / _NEXT_TO_EDGE, beyond(_INSIDE) / _INSIDE
        if abs(here) > mp.mpf("1e-2") * abs(inside):
            return claim, f"S has a slope at the edge of {name}: {mp.nstr(here, 5)}, {mp.nstr(inside, 5)} inside"
        # the others inside their domains follow, stationary
        ahead = _settled(claim, {**held, name: from_edge(_FROM_EDGE)})
        if ahead is None or on_edges is None:
            return claim, "there is no stationary point of the others beside the edge"
        negative += ahead < on_edges
    if claim.index < negative or (not claim.sizes and claim.index != negative):
        return claim, f"S falls from {negative} edges, the index is {claim.index}"
    inner = lambda **given: claim.action(**{**held, **given})  # noqa: E731
    return claim._replace(action=inner, edges=[], index=claim.index - int(negative)), None


def _settled(claim: Claim, held: dict[str, Any]) -> Any:
    """Return S with some order parameters fixed, stationary in the others; None if these do not converge."""
    at = lambda step: claim.action(**{**claim.place(step), **held})  # noqa: E731
    origin = [mp.mpf(0)] * len(claim.sizes)
    if not claim.sizes:
        return at(origin)
    found, _ = _polished(at, origin, claim.sizes, [claim.error + _UNIT] * len(claim.sizes))
    return None if found is None else at(found)


def _number(name: str, domain: Any, at, unit) -> Callable[[list], dict[str, Any]]:
    if isinstance(domain, Positive):
        return lambda step: {name: mp.exp(at + step[0])}
    if isinstance(domain, Between):
        low, high = mp.mpf(domain.low), mp.mpf(domain.high)
        return lambda step: {name: low + (high - low) / (1 + mp.exp(-(at + step[0])))}
    return lambda step: {name: (at + step[0]) * unit}


def _from_edge(domain: Any, at) -> Callable[[Any], Any]:
    if isinstance(domain, Positive):
        return (lambda distance: distance) if at < 0 else (lambda distance: mp.inf)
    low, high = mp.mpf(domain.low), mp.mpf(domain.high)
    return lambda distance: low + (high - low) * distance if at < 0 else high - (high - low) * distance


def _matrix(name: str, value: np.ndarray, is_definite: bool) -> Callable[[list], dict[str, Any]]:
    """A symmetric matrix of two rows after a step; of a definite one C C^T the factor is multiplied, C T."""
    entries, half = [[mp.mpf(float(x)) for x in row] for row in value], mp.sqrt(mp.mpf(1) / 2)
    factor = mp.cholesky(mp.matrix(entries)) if is_definite else None

    def moved(step: list) -> dict[str, Any]:
        if factor is None:
            of_step = mp.matrix([[step[0], half * step[1]], [half * step[1], step[2]]])
            found = mp.matrix(entries) + of_step
        else:
            turn = mp.matrix([[mp.exp(step[0] / 2), 0], [half * step[1], mp.exp(step[2] / 2)]])
            found = factor * turn * (factor * turn).T
        return {f"{name}_{i}_{j}": found[i, j] for i, j in ((0, 0), (1, 0), (1, 1))}

    return moved


_FUNCTIONS = {"LogCosh": lambda x: mp.log(mp.cosh(x)), "Heaviside": lambda x, at=0.5: (mp.sign(x) + 1) / 2}
