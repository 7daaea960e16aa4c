"""Find, certify and differentiate stationary points of an action."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int

from .._jit import jit
from ..checks import Count, Index, checked_arguments, checked_number, is_traced, on_host, shown
from ..codegen import average_errors
from ..runs import stage
from .action import Action
from .bound_action import BEYOND, BoundAction, Values, bind, initial_coordinates
from .certificate import (
    NOT_FINITE,
    SLOPING,
    SOLVED,
    UNRESOLVED,
    Evidence,
    LocalModel,
    evidence,
    local_model,
    quadrature_errors,
)
from .diagnosis import report
from .implicit import implicit_point, stationary_value, with_derivative_of
from .problem import Coordinates, reach_of
from .solution import Solution, Solutions
from .solvers.minimisers import MAX_STEPS, AbstractSaddleSolver, IndexNewton, Newton, chosen
from .solvers.quadratic_model import QuadraticModel

PositiveNumber = Annotated[float | int, partial(checked_number, above=0.0)]
"""Number above zero, known or traced."""

# Default number of random starts.
_STARTS = 8
# Two points count as one if no coordinate differs by more than this.
_SAME = 1e-5
# Tolerance of the solver on the gradient, relative to the requested tolerance.
_FINER = 1e-4
# Tolerance of the solver on the remaining Newton step, relative to the largest coordinate.
_NEAR = 1e-9
# Skip the fixed-point map if the Newton step at the start is shorter than this, relative to the largest coordinate.
_NEARBY = 0.1
# A failed solve may be on its way to an edge if a coordinate is larger than this.
_NEXT_TO_EDGE = 10.0
# Do not warn of a quadrature error below this fraction of a point's total error.
_KNOWN = 0.1
# Kinds of attempts in a solve: from the given start, from the end of the fixed-point map, or on an edge.
_FROM_START, _FROM_MAP, _FROM_EDGE = range(3)
# Number of Newton steps that polish a point.
_POLISHING_STEPS = 30
# An average is unresolved if its error may move the point by more than this fraction of the largest coordinate.
_UNRESOLVED = 1e-3
# A solution stores at most this many eigenvalues of its Hessian. A matrix of 100 rows has 5050 coordinates.
_EIGENVALUES = 48


class QuadratureWarning(UserWarning):
    """A Gaussian average of the action is not accurate enough for the requested tolerance."""


class SeveralSolutionsWarning(UserWarning):
    """Random starts led to several stationary points of the requested kind."""


@checked_arguments
def minimise(
    action: Action,
    values: Values = MappingProxyType({}),
    *,
    initial: Values | None = None,
    solver: optx.AbstractMinimiser | None = None,
    tolerance: PositiveNumber = 1e-9,
    max_steps: Count = 1000,
    throw: bool = False,
) -> Solution:
    """Minimise an action at given values of its parameters.

    Args:
        action: The action to minimise.
        values: Values of the parameters of the action, by name or symbol.
        initial: Values of the order parameters at the start, by name or symbol. By default, the solve starts at eight
            fixed pseudorandom points, and the lowest minimum is returned. `search` returns all minima.
        solver: Any Optimistix minimiser. Newton steps polish its result before it is judged. The default is Newton's
            method with exact curvature in a trust region.
        tolerance: Largest gradient norm per scale of a solution.
        max_steps: Largest number of steps.
        throw: Raise an error if the solve fails. By default, a `ConvergenceWarning` reports the likely cause.

    Returns:
        The end point. It is a minimum if the gradient norm is at most `tolerance` and every eigenvalue of the Hessian
        is positive (see `Solution`). Otherwise its `result` reports the failure.

    Raises:
        ValueError: If a value is missing or invalid, or if the action is not finite at `initial`.
        RuntimeError: If the solve fails and `throw` is set.

    Example:
        >>> import theorykit
        >>> from sympy import cosh, log, symbols
        >>> from theorykit.saddle import Action, Real, minimise
        >>> theorykit.enable_float64()
        >>> m, beta = symbols("m beta", real=True)
        >>> curie_weiss = Action(beta * m**2 / 2 - log(2 * cosh(beta * m)), {m: Real()}, [beta])
        >>> solution = minimise(curie_weiss, {beta: 1.5}, initial={m: 1.0})
        >>> round(float(solution[m]), 6)
        0.85856
    """
    bound, found = _solve(action, values, initial, 0, tolerance, max_steps, solver=solver)
    return _reported(bound, _best(found), throw)


@checked_arguments
def stationary(
    action: Action,
    values: Values = MappingProxyType({}),
    *,
    index: Index,
    initial: Values | None = None,
    tolerance: PositiveNumber = 1e-9,
    max_steps: Count = 1000,
    throw: bool = False,
) -> Solution:
    """Find a stationary point whose Hessian has `index` negative eigenvalues: S is maximal along `index` directions.

    Examples are the min-max points of replica theories and of Lagrange multipliers. All other arguments, and the errors
    raised, are documented in `minimise`. If no `initial` is given and random starts lead to several points, a
    `SeveralSolutionsWarning` lists the points.
    """
    bound, found = _solve(action, values, initial, index, tolerance, max_steps)
    if initial is None and not is_traced(found) and len(kept := _distinct_solutions(found)) > 1:
        listed = "; ".join(f"S = {float(each.action):.6g} at {each.place}" for each in kept[:3])
        more = f"; and {len(kept) - 3} more" if len(kept) > 3 else ""
        warnings.warn(
            f"{len(kept)} stationary points of index {index} were found: {listed}{more}. The first is returned; choose "
            "another with initial=..., or get all with search",
            SeveralSolutionsWarning,
            stacklevel=3,
        )
    return _reported(bound, _best(found), throw)


@checked_arguments
def search(
    action: Action,
    values: Values = MappingProxyType({}),
    *,
    index: Index = 0,
    starts: Count = 32,
    seed: Index = 0,
    tolerance: PositiveNumber = 1e-9,
    max_steps: Count = 1000,
    progress: bool = True,
) -> Solutions:
    """Find all different stationary points of an index that are reached from random starts.

    Args:
        action: The action to search.
        values: Values of the parameters of the action, by name or symbol.
        index: Number of negative eigenvalues of the Hessian: 0 for minima.
        starts: Number of random starts.
        seed: Seed of the random starts.
        tolerance: Largest gradient norm per scale of a solution.
        max_steps: Largest number of steps of each solve.
        progress: Report progress if the search takes longer than a second.

    Returns:
        A tuple of solutions, in order of increasing action. Points count as one if no coordinate differs by more than
        1e-5. If the tuple is empty, its `reason` describes the end of the best start.
    """
    with stage(f"search from {starts} starts", shown=progress):
        ends = end_points(action, values, index, starts, seed, tolerance, max_steps)
    known, found = bind(action, values).values_of_parameters, _distinct_solutions(ends)
    reason = "" if found else f"The best of {starts} starts, by its gradient, ended as follows: {_best(ends).diagnosis}"
    return Solutions((replace(each, parameters=known) for each in found), reason)


def end_points(
    action: Action,
    values: Values,
    index: int,
    starts: int,
    seed: int,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> Solution:
    """Return the end points of solves from random starts, converged or not, as one batch."""
    return _solve(action, values, None, index, tolerance, max_steps, starts, seed)[1]


class _Run(NamedTuple):
    """Arguments of a solve from each of `starts`."""

    bound: BoundAction
    starts: Float[Array, "starts coordinates"]
    solver: optx.AbstractMinimiser
    tolerance: Array
    max_steps: Array | int


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
) -> tuple[BoundAction, Solution]:
    """Return the bound action and its solutions from `initial`, or from random starts, as a batch.

    The composite rule of averages takes as long to compile as everything else. Inside other compiled functions it is
    part of the solve. Otherwise it is used only if the error of the action's own quadrature requires it.
    """
    bound = bind(action, values, initial)
    if initial is None:
        begin = jnp.array(np.random.default_rng(seed).standard_normal((starts, len(bound.free))))
    else:
        begin = initial_coordinates(bound, initial)[None]
    # Minimisers of Optimistix are compiled again for another number of steps.
    steps = max_steps if solver is not None else jnp.array(np.array(max_steps))
    solver = solver or (IndexNewton(index=index, near=_NEAR) if index else Newton(near=_NEAR))
    run = _Run(bound, begin, solver, jnp.array(on_host(tolerance)), steps)
    refines = is_traced(bound, begin, tolerance)
    found, ends = _solved(run, refines)
    if bound.of.can_refine and not refines:
        resolved = _are_resolved(found.quadrature_error, found.action_error, found.terms, run.tolerance)
        if not np.all(resolved & found.converged):
            found, _ = _solved(run, True, ends)
    return bound, found


def _are_resolved(moved: Array, action_error: Array, terms: Array, tolerance: Array) -> Bool[Array, "..."]:
    """Return whether errors of averages move neither the point nor S by more than the tolerance."""
    return (moved <= tolerance) & (action_error <= tolerance * jnp.maximum(jnp.sum(jnp.abs(terms), axis=-1), 1.0))


class _End(eqx.Module):
    """End point: its position, the coordinates fixed at edges, how the solve ended, and its cost."""

    coordinates: Coordinates
    free: Float[Array, " coordinates"]
    result: optx.RESULTS
    evidence: Evidence
    evaluations: Int[Array, ""]
    hessians: Int[Array, ""]
    quadrature: Float[Array, ""]
    action_error: Float[Array, ""]

    @property
    def is_solution(self) -> Bool[Array, ""]:
        return self.evidence.verdict == SOLVED

    def with_quadrature_errors(self, bound: BoundAction) -> _End:
        moved, off = quadrature_errors(replace(bound, free=self.free), self.evidence, self.coordinates)
        return replace(self, quadrature=moved, action_error=self.evidence.action_error + off)


@partial(jit, of_numbers=lambda run, *others: run.bound.of.is_of_numbers)
def _solved(run: _Run, refines: bool, ends: _End | None = None) -> tuple[Solution, _End]:
    """Return the solutions and end points from all starts, or from `ends` with the composite rule, as a batch."""

    def end_from(start: Coordinates, end: _End | None, run: _Run) -> _End:
        end = _searched(run, start) if end is None else end
        if not (refines and run.bound.of.can_refine):
            return end
        is_resolved = _are_resolved(end.quadrature, end.action_error, end.evidence.terms, run.tolerance)
        return jax.lax.cond(is_resolved & end.is_solution, lambda: end, lambda: _refined(run, start, end))

    def solve(inputs) -> tuple[Solution, _End]:
        start, end = inputs
        bound, start = jax.lax.stop_gradient((run.bound, start))
        fixed = run._replace(bound=bound, starts=None)
        arrays, others = eqx.partition((start, end, fixed), eqx.is_array)
        alone = lambda arrays: end_from(*eqx.combine(arrays, others))  # noqa: E731
        if jax.default_backend() == "cpu":
            # Solve one by one on a CPU. A batch takes as many steps and attempts as its hardest member, and batching
            # saves no time there.
            alone = jax.custom_batching.sequential_vmap(alone)
        end = alone(arrays)
        return _solution(run, bound, start, end), end

    if len(run.starts) == 1:
        # A single start is not batched, so that the solver's conditionals stay conditionals.
        one = solve(jax.tree.map(lambda leaf: leaf[0], (run.starts, ends)))
        return jax.tree.map(lambda leaf: leaf[None], one)
    # XLA's batched factorisations may deadlock on two cores.
    on_cpu = jax.default_backend() == "cpu"
    return jax.lax.map(solve, (run.starts, ends)) if on_cpu else jax.vmap(solve)((run.starts, ends))


@eqx.filter_jit
def _attempt(bound: BoundAction, run: _Run, begin: Coordinates) -> _End:
    """Solve once, and judge the end point."""
    if is_ours := isinstance(run.solver, AbstractSaddleSolver):
        steps = {"max_steps": None, "options": {MAX_STEPS: run.max_steps}}
    else:
        steps = {"max_steps": run.max_steps}
    found = optx.minimise(lambda at, problem: problem.action(at), run.solver, begin, bound, throw=False, **steps)
    if is_ours:
        at, counts = found.stats["point"].coordinates, (found.stats["evaluations"], found.stats["curvatures"])
        local = local_model(bound, at)
    else:
        counts = jnp.asarray(found.stats["num_steps"]), jnp.array(0)
        at, local = _polished(bound, found.value)
    known = evidence(bound, at, local, _index(run), run.tolerance)
    return _End(at, bound.free, found.result, known, *counts, jnp.array(jnp.inf), jnp.array(jnp.inf))


def _index(run: _Run) -> int:
    return getattr(run.solver, "index", 0)


def _has_map(bound: BoundAction) -> bool:
    return bound.of.standard_equations is not None and bound.of.fixed_point is not None


def _searched(run: _Run, start: Coordinates) -> _End:
    """Return the first of several attempts that ends in a solution, or the first attempt if all fail.

    Attempts start at `start` and at the end of the fixed-point map, which comes first for a min-max point. If an
    attempt went towards an edge of a domain, another attempt starts on that edge.
    """
    bound, has_map = run.bound, _has_map(run.bound)
    if isinstance(run.solver, AbstractSaddleSolver):
        run = run._replace(solver=eqx.tree_at(lambda s: s.atol, run.solver, _FINER * run.tolerance))
    kinds = [_FROM_MAP, _FROM_START] if _index(run) else [_FROM_START, _FROM_MAP]
    kinds = kinds if has_map else [_FROM_START]
    if any(domain.has_edges for domain in bound.domains.values()):
        kinds = [each for kind in kinds for each in (kind, _FROM_EDGE)]
    by_map = start
    if has_map:
        # The map is not needed if a stationary point is near.
        length = QuadraticModel.of(bound.expansion(start)).newton_length()
        by_map = jax.lax.cond(length <= _NEARBY * reach_of(start), lambda: start, lambda: bound.fixed_point(start))

    def next_attempt(state):
        number, first, last = state
        kind = jnp.array(kinds)[number]
        beside = bound.edges(last.coordinates, _NEXT_TO_EDGE, finite=True) & (kind == _FROM_EDGE)
        on_edge = jnp.where(beside, BEYOND * jnp.sign(last.coordinates), last.coordinates)
        begin = jnp.stack([start, by_map, on_edge])[kind]
        useful = (kind != _FROM_EDGE) | jnp.any(beside)
        here = replace(bound, free=jnp.where(beside, 0.0, bound.free))
        ended = jax.lax.cond(useful, lambda: _attempt(here, run, begin), lambda: last)
        evaluations = ended.evaluations + jnp.where(useful, last.evaluations, 0)
        hessians = ended.hessians + jnp.where(useful, last.hessians, 0)
        ended = replace(ended, evaluations=evaluations, hessians=hessians)
        return number + 1, chosen(number == 0, ended, first), ended

    shapes = eqx.filter_eval_shape(_attempt, bound, run, start)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    unsolved = replace(nothing.evidence, verdict=jnp.array(SLOPING))
    nothing = replace(nothing, coordinates=start, evidence=unsolved, result=optx.RESULTS.successful)
    unfinished = lambda state: (state[0] < len(kinds)) & ~state[2].is_solution  # noqa: E731
    _, first, last = jax.lax.while_loop(unfinished, next_attempt, (jnp.array(0), nothing, nothing))
    return chosen(last.is_solution, last, first).with_quadrature_errors(bound)


def _refined(run: _Run, start: Coordinates, last: _End) -> _End:
    """Find the end point with the composite rule, next to `last` or from the end of the fixed-point map."""
    finer, was_solution, has_map = replace(run.bound, of=run.bound.of.refined), last.is_solution, _has_map(run.bound)

    def next_attempt(state):
        number, end = state
        from_map = (number > 0) | (has_map & ~was_solution)
        here = replace(finer, free=jnp.where(was_solution & ~from_map, last.free, 1.0))
        begin = end.coordinates
        if has_map:
            begin = jax.lax.cond(from_map, lambda: finer.iterated(start), lambda: begin)
        at, local = _polished(here, begin)
        known = evidence(here, at, local, _index(run), run.tolerance)
        return number + 1, replace(end, coordinates=at, free=here.free, evidence=known)

    unfinished = lambda state: (state[0] < 1 + has_map) & ((state[0] == 0) | ~state[1].is_solution)  # noqa: E731
    _, end = jax.lax.while_loop(unfinished, next_attempt, (jnp.array(0), last))
    return end.with_quadrature_errors(finer)


def _polished(bound: BoundAction, at: Coordinates) -> tuple[Coordinates, LocalModel]:
    """Return the stationary point next to `at`, by Newton steps while they get shorter, and the model there."""

    def step(state):
        at, length, local, _, count = state
        by = local.model.directions @ local.model.along_newton() * bound.free
        ahead = jnp.linalg.norm(by)
        goes = (ahead < length / 2) & jnp.all(jnp.isfinite(by)) & (count > 0)
        at = jnp.where(goes, bound.moved(at, by), at)
        return at, jnp.where(goes, ahead, length), local_model(bound, at), goes | (count == 0), count + 1

    shapes = jax.eval_shape(lambda: local_model(bound, at))
    nothing = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), shapes)
    begin = (at, jnp.array(jnp.inf), nothing, jnp.array(True), jnp.array(0))
    at, _, local, *_ = jax.lax.while_loop(lambda s: s[3] & (s[4] < _POLISHING_STEPS), step, begin)
    return at, local


def _solution(run: _Run, fixed: BoundAction, start: Coordinates, end: _End) -> Solution:
    """Return the differentiable solution at an end point; `fixed` is the bound action without derivatives."""
    known, quadrature, codes = end.evidence, end.quadrature, optx.RESULTS
    solved = end.is_solution & (quadrature <= _UNRESOLVED * reach_of(end.coordinates))
    verdict = jnp.where(end.is_solution & ~solved, UNRESOLVED, known.verdict)
    stopped = codes.where(end.result == codes.successful, codes.nonlinear_divergence, end.result)
    failure = codes.where(verdict == NOT_FINITE, codes.nonfinite, stopped)
    fixed, here = replace(fixed, free=end.free), replace(run.bound, free=end.free)
    there = here, implicit_point(here, end.coordinates, True, solved & jnp.all(end.free > 0))
    return Solution(
        order_parameters=with_derivative_of(fixed.values_on_edges(end.coordinates), BoundAction.values, there),
        action=stationary_value(jnp.sum(known.terms), BoundAction.action, *there),
        action_error=end.action_error,
        error=known.error + quadrature,
        gradient_norm=known.gradient_norm,
        hessian_eigenvalues=_extreme(known.model.curvatures) / fixed.scale,
        quadrature_error=quadrature,
        result=codes.where(solved, codes.successful, failure),
        terms=known.terms,
        stats={
            "evaluations": end.evaluations,
            "hessians": end.hessians,
            "tolerance": run.tolerance,
            "asked": jnp.asarray(_index(run)),
            "verdict": verdict,
            "at_edge": end.free == 0,
            "coordinates": end.coordinates,
            "gradient": known.slope / fixed.scale,
            "travelled": jnp.linalg.norm(end.coordinates - start),
            "remaining": known.model.newton_length(),
            "negative": jnp.sum(known.model.curvatures < 0),
            "softest": known.model.directions[:, jnp.argmin(jnp.abs(known.model.curvatures))],
            "lowest": known.model.directions[:, 0],
        },
        of=run.bound.of,
        owners=run.bound.owners,
    )


def _extreme(curvatures: Float[Array, " coordinates"]) -> Float[Array, " kept"]:
    """Return at most `_EIGENVALUES` of the sorted curvatures: the lowest, the highest, and those nearest to zero."""
    place = jnp.arange(len(curvatures))
    softness = jnp.argsort(jnp.argsort(jnp.abs(curvatures)))
    rank = jnp.minimum(jnp.minimum(place, place[::-1]), softness)
    return curvatures[jnp.sort(jnp.argsort(rank)[:_EIGENVALUES])] if len(place) > _EIGENVALUES else curvatures


def one_of(batch: Solution, at: Any) -> Solution:
    """Return one solution of a batch."""
    return jax.tree.map(lambda leaf: leaf[at], batch)


@jit
def _best(batch: Solution) -> Solution:
    """Return the converged solution of lowest action, or the end point of smallest gradient if none converged."""
    converged = jnp.asarray(batch.converged)
    among = jnp.where(converged, batch.action, jnp.inf)
    norms = jnp.where(jnp.isnan(batch.gradient_norm), jnp.inf, batch.gradient_norm)
    return one_of(batch, jnp.where(jnp.any(converged), jnp.argmin(among), jnp.argmin(norms)))


def distinct(actions: Any, points: Any, apart: float) -> list[list[int]]:
    """Group the indices of end points that agree within `apart` in every coordinate, by increasing action."""
    groups: list[list[int]] = []
    for at in map(int, np.argsort(np.asarray(actions), kind="stable")):
        for group in groups:
            if np.max(np.abs(np.asarray(points[at]) - np.asarray(points[group[0]]))) <= apart:
                group.append(at)
                break
        else:
            groups.append([at])
    return groups


def _distinct_solutions(batch: Solution) -> list[Solution]:
    """Return one converged solution per end point, by increasing action, and set how many starts `reached` it."""
    (converged,) = np.nonzero(np.asarray(batch.converged))
    actions, points = np.asarray(batch.action)[converged], np.asarray(batch.stats["coordinates"])[converged]
    found = []
    for group in distinct(actions, points, _SAME):
        one = one_of(batch, int(converged[group[0]]))
        found.append(replace(one, stats={**one.stats, "reached": len(group)}))
    return found


def _reported(bound: BoundAction, solution: Solution, throw: bool) -> Solution:
    """Return `solution`, with an error or a warning if it is not as requested."""
    if is_traced(solution):
        return report(solution, throw, stacklevel=4)
    solution = replace(solution, parameters=bound.values_of_parameters)
    more, tolerance = "", float(solution.stats["tolerance"])
    if float(solution.quadrature_error) > _UNRESOLVED:
        more = f". {_worst_average(bound, solution)}"
    if solution.converged and not float(solution.quadrature_error) <= max(tolerance, _KNOWN * float(solution.error)):
        warnings.warn(
            f"the quadrature of Gaussian averages may move the solution by {float(solution.quadrature_error):.2g} in "
            f"the metric of the domains, which exceeds the tolerance {tolerance:.2g}. "
            f"{_worst_average(bound, solution)}",
            QuadratureWarning,
            stacklevel=4,
        )
    return report(solution, throw, stacklevel=4, more=more)


def _worst_average(bound: BoundAction, solution: Solution) -> str:
    """Describe the least accurate Gaussian average and its error."""
    if fixed := bound.of.refined.fixed_averages:
        nodes = max(average.nodes for average in fixed)
        return f"Averages of averages have a fixed number of nodes, here {nodes}. Give them more by `with_nodes`"
    values = {**bound.parameters, **dict(bound.sizes), **solution.order_parameters}
    found = average_errors(bound.of.refined.expression, values)
    if not found:
        return "It is the average of a function of a matrix's entries"
    average, (value, error) = max(found.items(), key=lambda item: float(np.max(item[1][1])))
    what = f"The average of {shown(average.integrand)} over {average.variable}"
    if not np.all(np.isfinite(error)):
        return f"{what} is infinite there, or cannot be resolved. If it is finite, more nodes by `with_nodes` may help"
    return f"{what} is {float(np.max(np.abs(value))):.6g}, with an error of up to {float(np.max(error)):.1g}"
