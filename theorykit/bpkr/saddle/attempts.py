"""Retry a solve with one strategy after another until one converges.

Part of stage 4 of `Architecture -> derive -> Action -> compile -> Problem -> solve -> predict`.

Solves fail for two reasons. If examples are nearly linearly dependent, rounding hides the descent direction. Then we
rotate the examples into their principal axes. If the temperature is tiny compared to the labels, the minimum lies in a
narrow curved valley, where steps are short. Then we follow the minimum from a high temperature, without such a valley.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from ...saddle.solvers.minimisers import Newton
from ..data.data import Data
from ..data.transformations import in_principal_axes
from ..evaluation.bound_action import BoundAction
from ..features.implicit import ImplicitFeatures
from ..order_parameters.coordinates import Coordinates, from_order_parameters

# After this many steps of one attempt, another strategy is likely to be faster.
MOST_STEPS = 150
# Ratio of successive temperatures in continuation.
_COOLING = 10.0
# Steps at each temperature above the last, which only has to give a starting point.
_STAGE_STEPS = 60
# Gradient norm that suffices at these temperatures.
_STAGE_TOLERANCE = 1e-3
# Continuation starts at the temperature at which the misfit of the labels alone is this many times the smallest width.
_HOT = 10.0
# Rotate features with at most this many entries, because rotation needs a singular value decomposition.
_ROTATED_SIZE = 2**25
# Retries of the default solver use Newton's method, which forms the Hessian, up to this number of coordinates.
_NEWTON_SIZE = 500


class Attempt(NamedTuple):
    """One attempt at a solve: the action, the starting point, the solver (None for the default) and its limits."""

    bound: BoundAction
    start: Coordinates
    solver: optx.AbstractMinimiser | None
    tolerance: float
    max_steps: int


def retry(first: Any, solve: Callable[[Any, Attempt], Any], data: Data, attempt: Attempt) -> Any:
    """Retry `attempt`, whose `first` solve did not converge; the `stats` of the result count the total work.

    `solve` takes data in principal axes and an attempt. The default solver has the steps of `attempt` in total. A given
    solver has them in each of two attempts: from the end point with the smallest gradient, and from the start.
    """
    codes, is_default = optx.RESULTS, attempt.solver is None
    if (not is_default and first.result == codes.nonlinear_max_steps_reached) or data.features.size > _ROTATED_SIZE:
        return first
    is_implicit = isinstance(data.features, ImplicitFeatures)
    rotated = data if is_implicit else in_principal_axes(data.features, data.labels)
    attempts, spent, start = [first], _work(first), attempt.start
    budget = attempt.max_steps if is_default else math.inf
    architecture = attempt.bound.architecture

    def steps_left() -> int | float:
        return budget - int(spent["steps"])

    def solved(attempt: Attempt) -> Any:
        saddle = solve(rotated, attempt)
        spent.update({name: spent[name] + number for name, number in _work(saddle).items()})
        return saddle

    def end_of(saddle: Any, otherwise: Coordinates) -> Coordinates:
        coordinates = from_order_parameters(architecture, saddle.order_parameters)
        # Rounding may have made the end point NaN.
        return coordinates if bool(jnp.all(jnp.isfinite(coordinates))) else otherwise

    def nearest_end() -> Coordinates:
        return end_of(min(attempts, key=_distance), start)

    def cooled() -> Coordinates:
        at = start
        for temperature in _temperatures(architecture, float(np.sum(np.square(architecture.root_power * data.labels)))):
            if steps_left() <= 0:
                break
            warmer = eqx.tree_at(lambda bound: bound.architecture.temperature, attempt.bound, np.asarray(temperature))
            solver = None if attempt.solver is None else Newton(atol=_STAGE_TOLERANCE)
            at = end_of(solved(Attempt(warmer, at, solver, _STAGE_TOLERANCE, min(_STAGE_STEPS, steps_left()))), at)
        return at

    if is_default:
        ways = [(cooled, MOST_STEPS), (nearest_end, budget)]
        if first.result != codes.nonlinear_max_steps_reached:
            # Rounding errors stopped the first solve, probably close to the minimum.
            ways.insert(0, (nearest_end, MOST_STEPS))
        if len(start) <= _NEWTON_SIZE:
            attempt = attempt._replace(solver=Newton(atol=attempt.tolerance))
    else:
        ways = [(nearest_end, attempt.max_steps), (lambda: start, attempt.max_steps)]
    for begin, most in ways:
        if attempts[-1].converged or steps_left() <= 0:
            break
        here = attempt._replace(start=begin())
        if steps_left() > 0:
            attempts.append(solved(here._replace(max_steps=min(most, steps_left()))))

    last = attempts[-1]
    best = last if last.converged else min(attempts, key=_distance)
    stats, result = {**best.stats, **spent, "attempts": jnp.array(len(attempts))}, best.result
    if is_default and not best.converged and bool(jnp.isfinite(best.gradient_norm)):
        # The result of the best attempt may refer to the small budget of that attempt.
        result = codes.nonlinear_max_steps_reached if steps_left() <= 0 else codes.nonlinear_divergence
    return eqx.tree_at(lambda saddle: (saddle.stats, saddle.result), best, (stats, result))


def _temperatures(architecture, label_square: float) -> list[float]:
    """Return decreasing temperatures above the architecture's, starting with a misfit comparable to the entropy."""
    coldest = float(architecture.temperature)
    hottest = label_square / (_HOT * min(map(float, architecture.relative_widths)))
    if not 0 < coldest < hottest:
        return []
    return np.geomspace(hottest, coldest, 1 + math.ceil(math.log(hottest / coldest, _COOLING)))[:-1].tolist()


def _work(saddle: Any) -> dict[str, Any]:
    return {name: saddle.stats[name] for name in ("steps", "evaluations", "curvatures")}


def _distance(saddle: Any) -> float:
    return float(jnp.nan_to_num(saddle.gradient_norm, nan=jnp.inf))
