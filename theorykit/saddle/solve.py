"""Find, certify and differentiate stationary points of an action."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float, Int

from .._jit import jit
from ..checks import array_module, checked_instance, checked_number, checked_whole_number, is_traced, on_host
from .action import Action
from .bound_action import BEYOND, BoundAction, Values, bind, initial_coordinates
from .certificate import COARSE, NOT_FINITE, UNRESOLVED, Evidence, evidence, with_quadrature
from .diagnosis import ConvergenceWarning, report
from .newton import MAX_STEPS, Newton
from .problem import Coordinates, QuadraticModel, implicit_point, reach_of, stationary_value
from .solution import Solution

# Default number of random starts, and most tries for a start at which S is finite.
_STARTS, _TRIES = 8, 16
# Standard deviations of starts, in turn, to reach points of symmetry and edges, too.
_SCALES = (1.0, 0.03, 3.0)
# Two points count as one if no coordinate differs by more than this.
_SAME = 1e-5
# Tolerance of Newton's method on the gradient, relative to the requested tolerance, and
# on the remaining step, relative to the largest coordinate.
_FINER, _NEAR = 1e-4, 1e-9
# A Newton step from the start needs no fixed-point map if it is at most this long,
# relative to the largest coordinate.
_NEARBY = 0.1
# A failed solve may be on its way to an edge if a coordinate is larger than this.
_NEXT_TO_EDGE = 10.0
# Attempts of a solve: from the end of an earlier one, from the start, from the end of the
# fixed-point map, on an edge, or none.
_FROM_KNOWN, _FROM_START, _FROM_MAP, _FROM_EDGE, _NOT = range(5)
# Rows of starts are filled up to a multiple of this number.
_ROWS = 32
# Solve at most so many starts again with more nodes, of all unknown ends and of each known
# end, in at most so many steps.
_AGAIN, _STEPS_AGAIN = 8, 200
_BEST = np.array(-1)


def minimise(
    action: Action,
    values: Values = MappingProxyType({}),
    *,
    initial: Values | None = None,
    solver: optx.AbstractMinimiser | None = None,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
    throw: bool = False,
) -> Solution:
    """Minimise an action at given values of its parameters.

    Args:
        action: The action to minimise.
        values: Values of the parameters, by name or symbol.
        initial: Values of the order parameters at the start. By default, the lowest
            minimum from eight fixed pseudorandom points is returned. `search` returns
            all minima.
        solver: Any Optimistix minimiser, whose result Newton steps polish. The default
            is Newton's method with exact curvature in a trust region.
        tolerance: Largest gradient norm per scale of a solution.
        max_steps: Largest number of steps of each attempt, at most 200 once averages
            get more nodes.
        throw: Raise an error if the solve fails, instead of a `ConvergenceWarning`.

    Returns:
        The end point. It is a minimum if its `result` is a success (see `Solution`).

    Raises:
        ValueError: If a value is missing or invalid, or if the action is not finite at
            `initial`.
        RuntimeError: If the solve fails and `throw` is set.

    Example:
        >>> from sympy import cosh, log, symbols
        >>> from theorykit import enable_float64, saddle
        >>> enable_float64()
        >>> m, beta = symbols("m beta", real=True)
        >>> S = beta * m**2 / 2 - log(2 * cosh(beta * m))
        >>> action = saddle.Action(S, {m: saddle.Real()}, [beta])
        >>> solution = saddle.minimise(action, {beta: 1.5}, initial={m: 1.0})
        >>> round(float(solution[m]), 6)
        0.85856
    """
    return _reported(*_solve(action, values, initial, 0, tolerance, max_steps, solver=solver), throw)


def stationary(
    action: Action,
    values: Values = MappingProxyType({}),
    *,
    index: int,
    initial: Values | None = None,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
    throw: bool = False,
) -> Solution:
    """Find a stationary point whose Hessian has `index` negative eigenvalues.

    Examples are the min-max points of replica theories and of Lagrange multipliers. See
    `minimise` for the other arguments and the errors. Without `initial`, random starts may
    lead to several points, of which the lowest is returned; `search` returns all.

    Returns:
        The end point. It has this index if its `result` is a success (see `Solution`).
    """
    return _reported(*_solve(action, values, initial, index, tolerance, max_steps), throw)


def search(
    action: Action,
    values: Values = MappingProxyType({}),
    *,
    index: int = 0,
    starts: int = 32,
    seed: int = 0,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> list[Solution]:
    """Find all different stationary points of an index that are reached from random starts.

    Args:
        action, values, tolerance, max_steps: As in `minimise`.
        index: Number of negative eigenvalues of the Hessian: 0 for minima.
        starts: Number of random starts, of which eight are solved again with more nodes in
            averages, if needed.
        seed: Seed of the random starts.

    Returns:
        The solutions in order of increasing action. Points count as one if no coordinate
        differs by more than 1e-5. `stats["reached"]` counts the starts that ended there.
        If none did, a `ConvergenceWarning` describes the end of the best start.

    Raises:
        ValueError: If a value is missing or invalid.

    Example:
        >>> from sympy import symbols
        >>> from theorykit import enable_float64, saddle
        >>> enable_float64()
        >>> m, h = symbols("m h", real=True)
        >>> S = m**4 / 4 - m**2 / 2 - h * m
        >>> found = saddle.search(saddle.Action(S, {m: saddle.Real()}, [h]), {h: 0.1})
        >>> [round(float(each[m]), 4) for each in found]
        [1.0467, -0.9456]
    """
    run, ends = _solve(action, values, None, index, tolerance, max_steps, starts, seed)
    (solved,) = np.nonzero(np.asarray(ends.evidence.is_solved))
    actions = np.sum(np.asarray(ends.evidence.terms), axis=1)[solved]
    groups = distinct(actions, np.asarray(ends.coordinates)[solved], _SAME)
    found = [(_solution(run, ends, solved[group[0]]), len(group)) for group in groups]
    if not found:
        best = f"no start ended in one; the best: {_solution(run, ends).diagnosis}"
        warnings.warn(best, ConvergenceWarning, stacklevel=2)
    parameters = run.bound.values_of_parameters
    return [replace(at, stats={**at.stats, "reached": count}, parameters=parameters) for at, count in found]


class _Run(NamedTuple):
    """Arguments of a solve from any start. Newton's method polishes the result of another `solver`."""

    action: Action
    bound: BoundAction
    solver: optx.AbstractMinimiser | None
    max_steps: int
    newton: Newton
    newton_steps: Array
    tolerance: Array


class _End(eqx.Module):
    """End point of a solve, the coordinates that are not fixed at edges, how it ended, and its cost."""

    coordinates: Coordinates
    free: Float[Array, " coordinates"]
    result: optx.RESULTS
    evidence: Evidence
    evaluations: Int[Array, ""]


def _solve(
    action: Action,
    values: Values,
    initial: Values | None,
    index: int,
    tolerance: float,
    max_steps: int,
    starts: int = _STARTS,
    seed: int = 0,
    solver: optx.AbstractMinimiser | None = None,
) -> tuple[_Run, _End]:
    """Return the end points of solves from `initial`, or from random starts, as a batch."""
    checked_instance("action", action, Action)
    checked_instance("solver", solver, (optx.AbstractMinimiser, type(None)))
    for name, value in (("max_steps", max_steps), ("starts", starts)):
        checked_whole_number(name, value, least=1)
    bound = bind(action, values, initial)
    checked_whole_number("index, a number of coordinates,", index, least=0, most=len(bound.free))
    tolerance = jnp.array(on_host(checked_number("tolerance", tolerance, above=0.0)))
    newton = eqx.tree_at(lambda newton: newton.atol, Newton(index=index, near=_NEAR), _FINER * tolerance)
    run = _Run(action, bound, solver, max_steps if solver else 0, newton, jnp.array(np.array(max_steps)), tolerance)
    if initial is None:
        rng = np.random.default_rng(checked_whole_number("seed", seed, least=0))
        begin = rng.standard_normal((starts, _TRIES, len(bound.free)))
        begin[:, 0] *= np.resize(_SCALES, (starts, 1))
    else:
        begin = jnp.broadcast_to(initial_coordinates(bound, initial), (1, _TRIES, len(bound.free)))
    first = np.full(len(begin), _FROM_START)
    if action.is_of_numbers and jax.default_backend() == "cpu" and not is_traced(bound, begin):
        # One program serves any number of starts.
        idle = -len(begin) % _ROWS
        begin, first = np.pad(begin, ((0, idle), (0, 0), (0, 0))), np.pad(first, (0, idle), constant_values=_NOT)
    ends = _searched(run, begin, begin[:, 0], np.ones((len(begin), len(bound.free))), first)
    known, pending, xp = ends.evidence, ends.evidence.needs_nodes, array_module(ends)
    if action.finest is not action and (is_traced(pending) or np.any(pending)):
        # Derivatives of the solution need as many nodes as the solution.
        most = jnp.minimum(run.newton_steps, _STEPS_AGAIN)
        run = run._replace(bound=replace(bound, of=action.finest), newton_steps=most)
        near = known.is_solved | ((known.verdict == UNRESOLVED) & (known.quadrature <= COARSE))
        apart = xp.max(xp.abs(ends.coordinates[:, None] - ends.coordinates), axis=2)
        same = (apart <= _SAME) & pending[:, None] & pending
        number = xp.where(near, xp.sum(xp.tril(same, -1), axis=1), xp.cumsum(pending & ~near) - 1)
        again = pending & (number < _AGAIN)
        first = xp.where(again, xp.where(near, _FROM_KNOWN, _FROM_START), _NOT)
        finer = _searched(run, begin, ends.coordinates, ends.free, first)
        # Other starts that ended at the same point share the result.
        shared = same & again
        taken, renewed = xp.where(again, xp.arange(len(again)), xp.argmax(shared, axis=1)), again | shared.any(axis=1)
        ends = jax.tree.map(lambda new, old: xp.where(renewed, new[taken].T, old.T).T, finer, ends)
    return run, ends


@partial(jit, of_numbers=lambda run, *_: run.bound.of.is_of_few_numbers)
def _searched(run: _Run, starts: Array, known: Array, free: Array, first: Array) -> _End:
    """Return the end points of rows of `starts` (rows, tries, coordinates), without derivatives.

    `first` is the first kind of attempt of each row, where `known` and `free` (rows,
    coordinates) are the end of an earlier solve.

    On a CPU, a batch would take as many steps as its hardest member, and batching saves
    no time.
    """

    def end_from(arrays, row) -> _End:
        run, (tries, *_, first) = eqx.combine(arrays, others), row
        outside = lambda i: (i < len(tries) - 1) & ~jnp.isfinite(run.bound.action(tries[i]))  # noqa: E731
        found = lambda: jax.lax.while_loop(outside, lambda i: i + 1, 0)  # noqa: E731
        return _end_from(run, tries[jax.lax.cond(first == _NOT, lambda: 0, found)], *row[1:])

    arrays, others = eqx.partition(run, eqx.is_array)
    arrays, rows = jax.lax.stop_gradient((arrays, (starts, known, free, first)))
    if jax.default_backend() == "cpu":
        end_from = jax.custom_batching.sequential_vmap(end_from)
        return jax.lax.map(lambda row: end_from(arrays, row), rows)
    return jax.vmap(end_from, in_axes=(None, 0))(arrays, rows)


def _end_from(run: _Run, start: Coordinates, known: Coordinates, free: Coordinates, first: Int[Array, ""]) -> _End:
    """Return the first of several attempts that ends in a solution, or that from `start` if all fail.

    Attempts start at `known`, at `start`, and at the end of the fixed-point map, which
    comes before `start` for a min-max point. If an attempt went towards an edge of a
    domain, the next starts there.
    """
    bound, kinds = run.bound, [_FROM_START]
    if bound.of.fixed_point is not None:
        kinds = [_FROM_MAP, _FROM_START] if run.newton.index else [_FROM_START, _FROM_MAP]
    if bound.has_edges.any():
        kinds = [each for kind in kinds for each in (kind, _FROM_EDGE)]
    kinds = [_FROM_KNOWN, *kinds]
    # The attempt is traced once.
    attempt = eqx.filter_closure_convert(partial(_attempt, run), start, bound.free)

    def mapped():
        if bound.of.fixed_point is None:
            return start
        length = QuadraticModel.of(bound.expansion(start)).newton_length()
        return jax.lax.cond(length <= _NEARBY * reach_of(start), lambda: start, lambda: bound.fixed_point(start))

    def next_attempt(state):
        number, failed, last = state
        kind = jnp.array(kinds)[number]
        beside = bound.edges(last.coordinates, _NEXT_TO_EDGE, finite=True) & (kind == _FROM_EDGE)
        on_edge = jnp.where(beside, BEYOND * jnp.sign(last.coordinates), last.coordinates)
        by_map = jax.lax.cond(kind == _FROM_MAP, mapped, lambda: start)
        begin = jnp.stack([known, start, by_map, on_edge])[kind]
        useful = (kind != _FROM_EDGE) | jnp.any(beside)
        kept = jnp.where(beside, 0.0, jnp.where(kind == _FROM_KNOWN, free, bound.free))
        ended = jax.lax.cond(useful, lambda: attempt(begin, kept), lambda: last)
        return number + 1, jax.tree.map(partial(jnp.where, number <= 1), ended, failed), ended

    def unfinished(state):
        number, _, last = state
        return (number < len(kinds)) & ~last.evidence.is_solved

    def judged():
        return with_quadrature(replace(bound, free=end.free), end.evidence, end.coordinates, run.tolerance)

    def unsolved(leaf):
        like = jnp.result_type(leaf)
        return jnp.full(np.shape(leaf), {"b": False, "i": NOT_FINITE, "f": jnp.inf}[like.kind], like)

    nothing = jax.tree.map(unsolved, eqx.filter_eval_shape(attempt, start, bound.free))
    begin_at = jnp.array([0, 1, 1, 1, len(kinds)])[first]
    _, failed, last = jax.lax.while_loop(unfinished, next_attempt, (begin_at, nothing, nothing))
    end = jax.tree.map(partial(jnp.where, last.evidence.is_solved), last, failed)
    return replace(end, evidence=jax.lax.cond(first == _NOT, lambda: end.evidence, judged))


def _attempt(run: _Run, begin: Coordinates, free: Coordinates) -> _End:
    """Solve once from `begin`, and judge the end point, apart from errors of averages."""
    bound, taken = replace(run.bound, free=free), 0
    minimised = partial(optx.minimise, lambda at, problem: problem.action(at), throw=False)
    if run.solver is not None:
        found = minimised(run.solver, begin, bound, max_steps=run.max_steps)
        begin, taken = found.value, found.stats["num_steps"]
    found = minimised(run.newton, begin, bound, max_steps=None, options={MAX_STEPS: run.newton_steps})
    known = evidence(bound, found.value, run.newton.index, run.tolerance)
    return _End(found.value, free, found.result, known, found.stats["evaluations"] + taken)


@partial(jit, of_numbers=lambda run, *_: run.bound.of.is_of_few_numbers)
def _solution(run: _Run, ends: _End, at: Array = _BEST) -> Solution:
    """Return the differentiable solution at an end point, by default at the best.

    That is the solution of lowest action, or the point of smallest gradient if there is none.
    """
    solved = ends.evidence.is_solved
    actions = jnp.where(solved, jnp.sum(ends.evidence.terms, axis=1), jnp.inf)
    norms = jnp.nan_to_num(ends.evidence.gradient_norm, nan=jnp.inf)
    best = jnp.where(jnp.any(solved), jnp.argmin(actions), jnp.argmin(norms))
    at = jnp.where(at == _BEST, best, at)
    end = jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf)[at], ends)
    bound, known, codes = replace(run.bound, free=end.free), end.evidence, optx.RESULTS
    model, scale = known.local.model, jax.lax.stop_gradient(bound.scale)
    stopped = codes.where(end.result == codes.successful, codes.nonlinear_divergence, end.result)
    failure = codes.where(known.verdict == NOT_FINITE, codes.nonfinite, stopped)
    point = implicit_point(bound, end.coordinates, True, known.is_solved & known.is_regular & jnp.all(end.free > 0))
    return Solution(
        order_parameters=bound.values_on_edges(point),
        action=stationary_value(jnp.sum(known.terms), BoundAction.action, bound, point),
        action_error=known.action_error,
        error=known.error,
        gradient_norm=known.gradient_norm,
        hessian_eigenvalues=model.curvatures / scale,
        quadrature_error=known.quadrature,
        result=codes.where(known.is_solved, codes.successful, failure),
        stats={
            "evaluations": end.evaluations,
            "tolerance": run.tolerance,
            "asked": jnp.asarray(run.newton.index),
            "verdict": known.verdict,
            "at_edge": end.free == 0,
            "coordinates": end.coordinates,
            "softest": model.directions[:, jnp.argmin(jnp.abs(model.curvatures))],
            "lowest": model.directions[:, 0],
        },
        of=run.action,
        owners=bound.owners,
    )


def distinct(actions: Any, points: Any, apart: float) -> list[list[int]]:
    """Group the indices of points that agree within `apart` in every coordinate, by increasing action."""
    groups: list[list[int]] = []
    for at in map(int, np.argsort(np.asarray(actions), kind="stable")):
        known = (group for group in groups if np.max(np.abs(np.subtract(points[at], points[group[0]]))) <= apart)
        if group := next(known, None):
            group.append(at)
        else:
            groups.append([at])
    return groups


def _reported(run: _Run, ends: _End, throw: bool) -> Solution:
    solution = _solution(run, ends)
    if not is_traced(solution):
        solution = replace(solution, parameters=run.bound.values_of_parameters)
    return report(solution, throw, stacklevel=3)
