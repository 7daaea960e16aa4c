"""Attempts at a saddle point, one after another until one converges.

Part of stage 4 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`.

Solves fail for two reasons. Where examples nearly depend on each other, rounding hides the way down: the examples are
rotated into their principal axes. Where the temperature is tiny beside the labels, the order parameters lie in a narrow
curved valley, along which steps are short: its minimum is followed down from a temperature at which there is no valley.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from ...saddle.solvers.minimisers import Newton
from ..data.principal_axes import in_principal_axes
from ..features.implicit import ImplicitFeatures
from ..order_parameters.coordinates import Coordinates, from_order_parameters
from ..specification.architecture import Architecture

# steps of an attempt beside which another way is likely to be shorter
_MOST_STEPS = 150
# ratio of successive temperatures, and the steps and the gradient norm that are enough at all but the last
_COOLING, _STAGE_STEPS, _STAGE_TOLERANCE = 10.0, 60, 1e-3
# the misfit of labels that nothing explains, per least width, at the temperature that continuation starts from
_HOT = 10.0
# features of so many entries in all are rotated
_ROTATED_SIZE = 2**25
# coordinates of which the Hessian is formed where nothing else has helped
_NEWTON_SIZE = 500


class Attempt(NamedTuple):
    """What is solved, where from, and how; `solver` None is the default one."""

    architecture: Architecture
    start: Coordinates
    solver: optx.AbstractMinimiser | None
    tolerance: float
    max_steps: int


def shorten(attempt: Attempt) -> Attempt:
    """The first attempt: with the default solver, a few steps beside which another way is likely to be shorter."""
    return attempt if attempt.solver is not None else attempt._replace(max_steps=min(attempt.max_steps, _MOST_STEPS))


def go_on(first: Any, solve: Callable[[tuple, Attempt], Any], data: tuple, attempt: Attempt) -> Any:
    """The saddle point of `attempt`, with all that was spent on it, where the `first` attempt did not converge.

    `solve` takes data in principal axes, and an attempt.
    """
    short = shorten(attempt).max_steps < attempt.max_steps
    out_of_steps = not short and first.result == optx.RESULTS.nonlinear_max_steps_reached
    if out_of_steps or data[0].size > _ROTATED_SIZE:
        return first
    rotated = data if isinstance(data[0], ImplicitFeatures) else (in_principal_axes(*data),)
    max_steps = attempt.max_steps if attempt.solver is None else math.inf
    search = _Search(first, lambda attempt: solve(rotated, attempt), max_steps)
    if attempt.solver is None:
        search.by_all_means(attempt, float(np.sum(np.square(data[1]))))
    else:
        search.by_the_given_solver(attempt)
    return search.outcome()


class _Search:
    """Attempts so far, and the steps of `max_steps` that are left for others. `solve` takes an attempt."""

    def __init__(self, first: Any, solve: Callable[[Attempt], Any], max_steps: int | float):
        self.attempts = [first]
        self.solve = solve
        self.spent = _spent_on(first)
        self.max_steps = max_steps

    @property
    def left(self) -> int | float:
        return self.max_steps - int(self.spent["steps"])

    def by_the_given_solver(self, attempt: Attempt) -> None:
        for start in (self.nearest_end(attempt), attempt.start):
            if not self.attempts[-1].converged:
                self.attempts.append(self._try(attempt._replace(start=start)))

    def by_all_means(self, attempt: Attempt, label_square: float) -> None:
        if len(attempt.start) <= _NEWTON_SIZE:
            attempt = attempt._replace(solver=Newton(atol=attempt.tolerance))
        ways = [
            (lambda attempt: self.cool_down(attempt, label_square), _MOST_STEPS),
            (self.nearest_end, self.max_steps),
        ]
        if self.attempts[-1].result != optx.RESULTS.nonlinear_max_steps_reached:
            # rounding hid the way down, which is not far
            ways.insert(0, (self.nearest_end, _MOST_STEPS))
        for start, most in ways:
            if self.attempts[-1].converged or self.left <= 0:
                return
            here = attempt._replace(start=start(attempt))
            if self.left > 0:
                self.attempts.append(self._try(here._replace(max_steps=min(most, self.left))))

    def cool_down(self, attempt: Attempt, label_square: float) -> Coordinates:
        """The start of `attempt`, after minimisation at falling temperatures down to its own."""
        architecture, start = attempt.architecture, attempt.start
        for temperature in _temperatures(architecture, label_square):
            if self.left <= 0:
                break
            warmer = eqx.tree_at(lambda a: a.temperature, architecture, temperature)
            steps = min(_STAGE_STEPS, self.left)
            solver = None if attempt.solver is None else Newton(atol=_STAGE_TOLERANCE)
            saddle = self._try(Attempt(warmer, start, solver, _STAGE_TOLERANCE, steps))
            start = _end(saddle, architecture, start)
        return start

    def nearest_end(self, attempt: Attempt) -> Coordinates:
        """Where the attempt ended that came nearest to a stationary point."""
        return _end(min(self.attempts, key=_distance), attempt.architecture, attempt.start)

    def _try(self, attempt: Attempt) -> Any:
        saddle = self.solve(attempt)
        self.spent = {name: self.spent[name] + number for name, number in _spent_on(saddle).items()}
        return saddle

    def outcome(self) -> Any:
        """The attempt that converged, or else the one that came nearest."""
        last = self.attempts[-1]
        best = last if last.converged else min(self.attempts, key=_distance)
        stats = {**best.stats, **self.spent, "attempts": jnp.array(len(self.attempts))}
        result = best.result
        if math.isfinite(self.max_steps) and not best.converged and bool(jnp.isfinite(best.gradient_norm)):
            # that of the best attempt may be for the few steps that it had
            codes = optx.RESULTS
            result = codes.nonlinear_max_steps_reached if self.left <= 0 else codes.nonlinear_divergence
        return eqx.tree_at(lambda saddle: (saddle.stats, saddle.result), best, (stats, result))


def _temperatures(architecture: Architecture, label_square: float) -> list[float]:
    """From one at which the misfit of unexplained labels is comparable to the entropy, to above the architecture's."""
    coldest = float(architecture.temperature)
    hottest = label_square / (_HOT * min(map(float, architecture.widths)))
    if not 0 < coldest < hottest:
        return []
    return np.geomspace(hottest, coldest, 1 + math.ceil(math.log(hottest / coldest, _COOLING)))[:-1].tolist()


def _spent_on(saddle: Any) -> dict[str, Any]:
    return {name: saddle.stats[name] for name in ("steps", "evaluations", "curvatures")}


def _distance(saddle: Any) -> float:
    return float(jnp.nan_to_num(saddle.gradient_norm, nan=jnp.inf))


def _end(saddle: Any, architecture: Architecture, otherwise: Coordinates) -> Coordinates:
    """Where an attempt ended, unless rounding has left no order parameters there."""
    coordinates = from_order_parameters(architecture, saddle.order_parameters)
    return coordinates if bool(jnp.all(jnp.isfinite(coordinates))) else otherwise
