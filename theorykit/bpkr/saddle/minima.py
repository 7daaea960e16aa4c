"""Search for other minima of the action: solve from many starting points, and by continuation.

The action is not convex, and a solve finds one minimum. No proof excludes others, so this module searches for them.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import PRNGKeyArray

from ...checks import checked_flag, checked_key, checked_number, checked_whole_number, refuse_traced
from ...progress import Progress
from ...saddle.diagnosis import ConvergenceWarning
from ...saddle.solve import distinct
from ...workers import Workers, check_executor, run_tasks
from ..data.data import Data
from ..evaluation.problem import Problem, as_problem
from ..order_parameters.coordinates import gp_coordinates, to_order_parameters
from ..specification.architecture import Architecture
from .saddle import Saddle, solve

# Minima with coordinates closer than this are the same. Solves are much more accurate than this, and distinct minima
# are much farther apart.
_SAME = 1e-4
# Continuation in the richness starts at this fraction of it, and takes this many steps.
_LAZY, _RICHER = 1e-2, 8


def search(
    problem: Problem | Architecture,
    data: Data | None = None,
    *,
    key: PRNGKeyArray,
    starts: int = 16,
    spread: float = 1.0,
    executor: Workers = None,
    progress: bool = True,
    **options: Any,
) -> list[Saddle]:
    """Solve from the Gaussian-process limit, from random points, and by continuation.

    Continuation starts near the Gaussian process: from large widths, or with a richness from a small richness.

    Args:
        problem: the architecture with its data, or the architecture alone.
        data: the data, if `problem` is an architecture.
        key: JAX random key for the random points.
        starts: the number of random points.
        spread: standard deviation of their coordinates (whitened Cholesky factors, logarithmic on the diagonal).
        executor: selects where the solves run; see `bpkr.sweeps.sweep`.
        progress: show a bar.
        options: keywords of `bpkr.solve`.

    Returns:
        The distinct minima, lowest action first. Their `stats` have two more entries: `reached`, the number of solves
        that ended in the minimum, and `followed`, whether continuation did.

    Raises:
        ValueError: the data do not fit, or no solve converges.

    Warns:
        ConvergenceWarning: some solves did not converge.
    """
    refuse_traced("search", problem, data, key)
    checked_key("key", key)
    check_executor(executor)
    checked_flag("progress", progress)
    checked_whole_number("starts", starts, least=0)
    checked_number("spread", spread, above=0.0)
    problem = as_problem(problem, data)
    architecture = problem.architecture
    origin = gp_coordinates(architecture)
    noise = spread * jax.random.normal(key, (starts, len(origin)), dtype=jnp.float64)
    # Begin with the longest task, continuation.
    tasks = [(None,), (origin,), *((coordinates,) for coordinates in noise)]
    cost = problem.description
    with Progress("minima", len(tasks), "starting point", shown=progress, cost=cost) as report:
        solved = {}
        for number, saddle in run_tasks(executor, _solve_from, tasks, (problem, options)):
            solved[number] = saddle
            report.update()
    converged = [number for number in range(len(tasks)) if solved[number].converged]
    failed = f"{len(tasks) - len(converged)} of {len(tasks)} solves did not converge"
    if not converged:
        raise ValueError(f"{failed}; the last: {solved[len(tasks) - 1].diagnosis}")
    if len(converged) < len(tasks):
        warnings.warn(failed, ConvergenceWarning, stacklevel=2)
    saddles, minima = [solved[number] for number in converged], []
    ends = [np.asarray(saddle.coordinates) for saddle in saddles]
    for group in distinct([float(saddle.action) for saddle in saddles], ends, _SAME):
        first = saddles[group[0]]
        counts = {"reached": len(group), "followed": 0 in [converged[i] for i in group]}
        minima.append(replace(first, stats={**first.stats, **counts}))
    return minima


def _solve_from(problem: Problem, options, coordinates: ArrayLike | None) -> Saddle:
    """Solve from a starting point, or, without one, by continuation from nearly a Gaussian process.

    Continuation solves at decreasing widths, or at increasing richness if there is one, each from the previous
    solution, until a solve does not converge.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if coordinates is not None:
            return solve(problem, initial=to_order_parameters(problem.architecture, coordinates), **options)
        if problem.architecture.richness is not None:
            name, factors = "richness", np.geomspace(_LAZY, 1.0, _RICHER)
        else:
            examples = problem.data.replaces or len(problem.data.labels)
            highest = max(100.0 * examples / max(map(float, problem.architecture.widths)), 10.0)
            name, factors = "widths", np.geomspace(highest, 1.0, int(np.ceil(np.log2(highest))) + 1)
        initial, whole = None, getattr(problem.architecture, name)
        for factor in factors.tolist():
            scaled = jax.tree.map(lambda number, factor=factor: factor * number, whole)
            there = eqx.tree_at(lambda p, name=name: getattr(p.architecture, name), problem, scaled)
            saddle = solve(there, initial=initial, **options)
            if not saddle.converged:
                break
            initial = saddle.order_parameters
    return saddle
