"""Stationary points of an action: found, certified, and differentiable in its parameters."""

import warnings
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int

from ..checks import checked_flag, checked_number, checked_whole_number, is_traced, shown
from ..codegen import average_errors
from ..compilation import jit
from .action import Action
from .bound_action import BEYOND, BoundAction, Values, bind, initial_coordinates
from .diagnosis import ConvergenceWarning
from .implicit import implicit_stationary_point, stationary_value, with_derivative_of
from .problem import Coordinates, Point
from .solution import Solution
from .solvers.index_newton import IndexNewton
from .solvers.minimisers import MAX_STEPS, AbstractSaddleSolver, Newton, chosen
from .solvers.quadratic_model import QuadraticModel
from .verdict import NOT_FINITE, SLOPING, SOLVED, UNKNOWN_AVERAGE, Evidence, evidence, polished, quadrature_error

# random starts where none is given, and how far points may be apart that count as one
_STARTS, _SAME = 8, 1e-5
# the solver's own tolerances, on the gradient of that asked for, and on the Newton step that is left: one step more
_FINER, _NEAR = 1e-4, 1e-9
# the Newton step of a start from which on the fixed-point map is not needed
_NEARBY = 0.1
# coordinates from which on a solve that did not end in a solution may be on its way to an edge
_NEXT_TO_EDGE = 10.0
# of the error of a point, a part that is worth no warning of its own
_KNOWN = 0.1
# attempts of a solve
_FROM_START, _FROM_MAP, _FROM_EDGE = range(3)
# an average is unknown if its error may move the point by so much, of its largest coordinate
UNRESOLVED = 1e-3


class QuadratureWarning(UserWarning):
    """A Gaussian average of the action is not known well enough for the tolerance that was asked for."""


class SeveralSolutionsWarning(UserWarning):
    """Random starts led to several stationary points of the kind that was asked for."""


def minimise(
    action: Action,
    values: Values = MappingProxyType({}),
    *,
    initial: Values | None = None,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
    throw: bool = False,
) -> Solution:
    """The minimum of an action at `values` of its parameters, by name or symbol, from the point `initial`.

    Without `initial`, order parameters start at eight random points, always the same, and the lowest minimum counts;
    `search` returns all that starts lead to. The end point is a solution if the gradient norm is at most `tolerance`
    per scale and every eigenvalue of the Hessian is positive (see `Solution`); otherwise its result says so, with a
    `ConvergenceWarning` that names the likely cause, or an error if `throw`. Raises `ValueError` for values that are
    missing or do not fit, and where the action is not finite at `initial`.

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
    return _solve(action, values, initial, _Request(0, *_checked(tolerance, max_steps, throw)))


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
    """A stationary point whose Hessian has `index` negative eigenvalues: so many directions in which S is maximal.

    Such are the min-max points of replica theories and of Lagrange multipliers. As `minimise` otherwise; where no
    `initial` is given and random starts lead to several points of this index, a `SeveralSolutionsWarning` lists them.
    """
    checked_whole_number("index", index, least=0)
    return _solve(action, values, initial, _Request(index, *_checked(tolerance, max_steps, throw), warns=True))


def search(
    action: Action,
    values: Values = MappingProxyType({}),
    *,
    index: int = 0,
    starts: int = 32,
    seed: int = 0,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> tuple[Solution, ...]:
    """All different stationary points of an index that random starts lead to, by increasing action; none if none do.

    Points count as one if no coordinate differs by more than 1e-5.
    """
    found = end_points(action, values, index=index, starts=starts, seed=seed, tolerance=tolerance, max_steps=max_steps)
    return tuple(_counted(found, at) for at in _distinct(found))


def end_points(
    action: Action,
    values: Values,
    *,
    index: int,
    starts: int,
    seed: int,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> Solution:
    """The end points of solves from random starts, solutions or not, as one batch."""
    checked_whole_number("index", index, least=0)
    checked_whole_number("starts", starts, least=1)
    checked_whole_number("seed", seed, least=0)
    request = _Request(index, *_checked(tolerance, max_steps, throw=False))
    bound = bind(action, values)
    return _solved(bound, _random_starts(bound, starts, seed), request)


class _Request(NamedTuple):
    """What is asked of a solve."""

    index: int
    tolerance: float
    max_steps: int
    throw: bool
    warns: bool = False


def _checked(tolerance, max_steps, throw) -> tuple[float, int, bool]:
    tolerance = checked_number("tolerance", tolerance, above=0.0)
    checked_whole_number("max_steps", max_steps, least=1)
    return tolerance, max_steps, checked_flag("throw", throw)


def _solve(action: Action, values: Values, initial: Values | None, request: _Request) -> Solution:
    bound = bind(action, values, initial)
    if initial is None:
        found = _solved(bound, _random_starts(bound, _STARTS, 0), request)
        if not is_traced(found) and request.warns:
            _warn_of_several(found)
        return _report(bound, _best(found), request)
    start = initial_coordinates(action, bound, initial)
    return _report(bound, one_of(_solved(bound, start[None], request), 0), request)


def _random_starts(bound: BoundAction, starts: int, seed: int) -> Float[Array, "starts coordinates"]:
    shape = (starts, sum(bound.layout.sizes))
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def _solved(bound: BoundAction, starts: Float[Array, "starts coordinates"], request: _Request) -> Solution:
    """The end points of solves from several starts, a batch.

    Adaptive quadrature takes as long to compile as all the rest; outside other programs it is compiled if wanted.
    """
    solver = IndexNewton(index=request.index, near=_NEAR) if request.index else Newton(near=_NEAR)
    limits = jnp.asarray(request.tolerance), jnp.asarray(request.max_steps)
    if is_traced(bound, starts) or not bound.of.has_averages:
        return _end_points(bound, starts, None, solver, *limits)
    found = _coarse_points(bound, starts, solver, *limits)
    if np.any(found.wanting(request.tolerance)):
        found = _fine_points(bound, starts, found, solver, limits[0])
    return _end_points(bound, starts, found, solver, *limits)


@jit
def _end_points(bound: BoundAction, starts, found: "_Found | None", solver, tolerance, max_steps) -> Solution:
    def solve(inputs) -> Solution:
        start, known = inputs
        return _end_point(bound, start, known, solver, tolerance, max_steps)

    return _of_each(solve, (starts, found))


@jit
def _coarse_points(bound: BoundAction, starts, solver, tolerance, max_steps) -> "_Found":
    return _of_each(lambda start: _coarse(bound, start, solver, tolerance, max_steps), starts)


@jit
def _fine_points(bound: BoundAction, starts, found: "_Found", solver, tolerance) -> "_Found":
    return _of_each(lambda inputs: _fine(bound, *inputs, solver, tolerance), (starts, found))


def _of_each(function: Callable, batch: Any) -> Any:
    """`function` of each member of a batch."""
    # one start is not batched: the solver's conditionals stay conditionals
    if len(jax.tree.leaves(batch)[0]) == 1:
        return jax.tree.map(lambda leaf: leaf[None], function(jax.tree.map(lambda leaf: leaf[0], batch)))
    # a processor gains nothing by a batch, and XLA's, on two cores, may wait for ever in one of factorisations
    return jax.lax.map(function, batch) if jax.default_backend() == "cpu" else jax.vmap(function)(batch)


class _Attempt(eqx.Module):
    """An end point of a solve: where it is, which coordinates were held at edges, how it ended, and what it cost."""

    coordinates: Coordinates
    free: Float[Array, " coordinates"]
    result: optx.RESULTS
    evidence: Evidence
    evaluations: Int[Array, ""]
    hessians: Int[Array, ""]


class _Found(eqx.Module):
    """The attempt that counts, and its quadrature error."""

    attempt: _Attempt
    quadrature: Float[Array, ""]

    def wanting(self, tolerance: Array | float) -> Bool[Array, "..."]:
        """Whether quadrature with a fixed number of nodes is not enough."""
        return ~(self.quadrature <= tolerance) | (self.attempt.evidence.verdict != SOLVED)


def _end_point(
    bound: BoundAction, start: Coordinates, end: _Found | None, solver: AbstractSaddleSolver, tolerance, max_steps
) -> Solution:
    fixed, start = jax.lax.stop_gradient((bound, start))
    if end is None:
        end = _one_at_a_time(_found)(fixed, start, solver, tolerance, max_steps)
    found, quadrature = end.attempt, end.quadrature
    fixed = eqx.tree_at(lambda b: b.free, fixed, found.free)
    known, index = found.evidence, getattr(solver, "index", 0)
    solved = (known.verdict == SOLVED) & (quadrature <= UNRESOLVED * Point.reach_of(found.coordinates))
    verdict = jnp.where((known.verdict == SOLVED) & ~solved, UNKNOWN_AVERAGE, known.verdict)
    stopped = optx.RESULTS.where(
        found.result == optx.RESULTS.successful, optx.RESULTS.nonlinear_divergence, found.result
    )
    failure = optx.RESULTS.where(verdict == NOT_FINITE, optx.RESULTS.nonfinite, stopped)
    bound = eqx.tree_at(lambda b: b.free, bound, found.free)
    coordinates = implicit_stationary_point(bound, found.coordinates, solved & jnp.all(found.free > 0))
    values = fixed.layout.at_edges(fixed.layout.values(found.coordinates), found.coordinates, found.free)
    here = (bound, coordinates)
    return Solution(
        order_parameters=with_derivative_of(values, lambda bound, at: bound.layout.values(at), here),
        action=stationary_value(jnp.sum(known.terms), BoundAction.action, *here),
        action_error=known.action_error,
        error=known.error + quadrature,
        gradient_norm=known.gradient_norm,
        hessian_eigenvalues=known.model.curvatures / fixed.scale,
        quadrature_error=quadrature,
        result=optx.RESULTS.where(solved, optx.RESULTS.successful, failure),
        terms=known.terms,
        stats={
            "evaluations": found.evaluations,
            "hessians": found.hessians,
            "tolerance": tolerance,
            "asked": jnp.asarray(index),
            "verdict": verdict,
            "at_edge": found.free == 0,
            "coordinates": found.coordinates,
            "travelled": jnp.linalg.norm(found.coordinates - start),
            "remaining": known.model.newton_length(),
            "softest": known.model.directions[:, jnp.argmin(jnp.abs(known.model.curvatures))],
            "lowest": known.model.directions[:, 0],
        },
        of=bound.of,
        owners=bound.layout.owners,
    )


def _one_at_a_time(function: Callable) -> Callable:
    """`function`, of a batch one after the other on a processor.

    A batch together takes as many steps, and as many attempts, as its hardest member; a processor gains nothing by it,
    and XLA's may wait for ever in a batch of factorisations on two cores.
    """
    if jax.default_backend() != "cpu":
        return function

    def of_operands(*operands):
        arrays, others = eqx.partition(operands, eqx.is_array)
        alone = jax.custom_batching.sequential_vmap(lambda arrays: function(*eqx.combine(arrays, others)))
        return alone(arrays)

    return of_operands


def _found(bound: BoundAction, start: Coordinates, solver, tolerance, max_steps) -> _Found:
    """The end point of a solve, by adaptive quadrature if that of an average is not small beside the tolerance."""
    found = _coarse(bound, start, solver, tolerance, max_steps)
    if not bound.of.has_averages:
        return found
    return jax.lax.cond(found.wanting(tolerance), lambda: _fine(bound, start, found, solver, tolerance), lambda: found)


def _coarse(bound: BoundAction, start: Coordinates, solver, tolerance, max_steps) -> _Found:
    """The end point by the action's own quadrature."""
    attempt = _attempted(bound, start, solver, tolerance, max_steps)
    here = eqx.tree_at(lambda b: b.free, bound, attempt.free)
    known = attempt.evidence
    return _Found(attempt, quadrature_error(here, known.model, known.slope, attempt.coordinates))


def _fine(bound: BoundAction, start: Coordinates, found: _Found, solver, tolerance) -> _Found:
    """The end point by adaptive quadrature: next to that of the action's own, or else from where the map leads."""
    refined, index, last = bound.with_action(bound.of.refined), getattr(solver, "index", 0), found.attempt
    candidates = 2 if _has_map(bound) else 1
    was_solved = last.evidence.verdict == SOLVED

    def attempt(from_map: Array, last: _Attempt) -> _Attempt:
        here = eqx.tree_at(lambda b: b.free, refined, jnp.where(was_solved & ~from_map, last.free, 1.0))
        begin = last.coordinates
        if candidates == 2:
            begin = jax.lax.cond(from_map, lambda: refined.iterated(start), lambda: begin)
        at, local = polished(here, begin)
        known = evidence(here, at, index, tolerance, local)
        return eqx.tree_at(lambda a: (a.coordinates, a.free, a.evidence), last, (at, here.free, known))

    def go_on(state):
        number, attempted = state
        return (number < candidates) & ((number == 0) | (attempted.evidence.verdict != SOLVED))

    def next_attempt(state):
        number, attempted = state
        return number + 1, attempt((number > 0) | ((candidates == 2) & ~was_solved), attempted)

    _, attempted = jax.lax.while_loop(go_on, next_attempt, (jnp.array(0), last))
    here = eqx.tree_at(lambda b: b.free, refined, attempted.free)
    known = attempted.evidence
    return _Found(attempted, quadrature_error(here, known.model, known.slope, attempted.coordinates))


def _has_map(bound: BoundAction) -> bool:
    return bound.of.standard_equations is not None and bound.of.fixed_point is not None


def _attempted(bound: BoundAction, start: Coordinates, solver, tolerance, max_steps) -> _Attempt:
    """The first of several attempts that ends in a solution, or else the first of all.

    From `start`; from where the fixed-point map leads, before that if the point is no minimum; and from where an
    attempt left towards an edge of a domain, on the edge.
    """
    has_map = _has_map(bound)
    index = getattr(solver, "index", 0)
    plain = [_FROM_START, _FROM_MAP] if index == 0 else [_FROM_MAP, _FROM_START]
    kinds = plain if has_map else [_FROM_START]
    if any(domain.has_edges for domain in bound.layout.domains):
        kinds = [each for kind in kinds for each in (kind, _FROM_EDGE)]
    solver = eqx.tree_at(lambda s: s.atol, solver, _FINER * tolerance)

    def attempt(begin: Coordinates, free) -> _Attempt:
        problem = eqx.tree_at(lambda b: b.free, bound, free)
        found = optx.minimise(
            lambda at, problem: problem.action(at),
            solver,
            begin,
            problem,
            throw=False,
            max_steps=None,
            options={MAX_STEPS: max_steps},
        )
        at = found.stats["point"].coordinates
        counts = found.stats["evaluations"], found.stats["curvatures"]
        return _Attempt(at, free, found.result, evidence(problem, at, index, tolerance), *counts)

    def begin(kind, last: _Attempt) -> tuple[Coordinates, Array, Array]:
        """Where an attempt begins, what is free in it, and whether there is anything to try."""
        beside = bound.layout.next_to_edge(last.coordinates, _NEXT_TO_EDGE)
        on_edge = jnp.where(beside, BEYOND * jnp.sign(last.coordinates), last.coordinates)
        by_map = _by_map(bound, start) if has_map else start
        choices = {
            _FROM_START: (start, jnp.ones_like(start), jnp.array(True)),
            _FROM_MAP: (by_map, jnp.ones_like(start), jnp.array(True)),
            _FROM_EDGE: (on_edge, jnp.where(beside, 0.0, 1.0), jnp.any(beside)),
        }
        at, free, useful = zip(*(choices[each] for each in kinds), strict=True)
        return jnp.stack(at)[kind], jnp.stack(free)[kind], jnp.stack(useful)[kind]

    def go_on(state):
        number, _, last = state
        return (number < len(kinds)) & (last.evidence.verdict != SOLVED)

    def next_attempt(state):
        number, first, last = state
        at, free, useful = begin(number, last)
        ended = jax.lax.cond(useful, lambda: attempt(at, free), lambda: last)
        spent = jnp.where(useful, last.evaluations, 0), jnp.where(useful, last.hessians, 0)
        ended = eqx.tree_at(
            lambda a: (a.evaluations, a.hessians), ended, (ended.evaluations + spent[0], ended.hessians + spent[1])
        )
        return number + 1, chosen(number == 0, ended, first), ended

    shapes = eqx.filter_eval_shape(attempt, start, bound.free)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    nothing = eqx.tree_at(
        lambda a: (a.coordinates, a.evidence.verdict, a.result),
        nothing,
        (start, jnp.array(SLOPING), optx.RESULTS.successful),
    )
    _, first, last = jax.lax.while_loop(go_on, next_attempt, (jnp.array(0), nothing, nothing))
    return chosen(last.evidence.verdict == SOLVED, last, first)


def _by_map(bound: BoundAction, start: Coordinates) -> Coordinates:
    """Where the fixed-point map leads, unless a stationary point is near already."""
    model = QuadraticModel.of(bound.expansion(bound.at(start)))
    is_near = model.newton_length() <= _NEARBY * Point.reach_of(start)
    return jax.lax.cond(is_near, lambda: start, lambda: bound.fixed_point(start))


def one_of(batch: Solution, at: Any) -> Solution:
    """One solution of a batch."""
    return jax.tree.map(lambda leaf: leaf[at], batch)


@jit
def _best(batch: Solution) -> Solution:
    """The solution of least action among those that converged; if none did, the one of least gradient."""
    converged = jnp.asarray(batch.converged)
    among = jnp.where(converged, batch.action, jnp.inf)
    norms = jnp.where(jnp.isnan(batch.gradient_norm), jnp.inf, batch.gradient_norm)
    return one_of(batch, jnp.where(jnp.any(converged), jnp.argmin(among), jnp.argmin(norms)))


def _distinct(batch: Solution) -> list[int]:
    """One converged solve of each different end point, by increasing action."""
    actions, points = np.asarray(batch.action), np.asarray(batch.stats["coordinates"])
    kept: list[int] = []
    for at in np.argsort(actions, kind="stable"):
        apart = [np.max(np.abs(points[at] - points[other])) for other in kept]
        if batch.converged[at] and all(distance > _SAME for distance in apart):
            kept.append(int(at))
    return kept


def _counted(batch: Solution, at: int) -> Solution:
    """The solution at an index of the batch, with how many solves `reached` it."""
    points = np.asarray(batch.stats["coordinates"])
    there = np.max(np.abs(points - points[at]), axis=1) <= _SAME
    solution = one_of(batch, at)
    stats = {**solution.stats, "reached": int(np.sum(there & np.asarray(batch.converged)))}
    return eqx.tree_at(lambda s: s.stats, solution, stats)


def _warn_of_several(batch: Solution) -> None:
    kept = _distinct(batch)
    if len(kept) > 1:
        listed = "; ".join(f"S = {float(batch.action[at]):.6g} at {one_of(batch, at).place}" for at in kept[:3])
        more = f"; and {len(kept) - 3} more" if len(kept) > 3 else ""
        warnings.warn(
            f"{len(kept)} stationary points of index {int(batch.stats['asked'][0])} were found: {listed}{more}. The "
            "first is returned; choose by initial=..., or take all from search",
            SeveralSolutionsWarning,
            stacklevel=4,
        )


def _report(bound: BoundAction, solution: Solution, request: _Request) -> Solution:
    """`solution`, with an error or a warning if it is not what was asked for."""
    failed = solution.result != optx.RESULTS.successful
    if request.throw and is_traced(solution):
        return solution.result.error_if(solution, failed)
    if is_traced(solution) or np.ndim(solution.converged):
        return solution
    if not solution.converged:
        message = solution.diagnosis
        if int(solution.stats["verdict"]) == UNKNOWN_AVERAGE:
            message = f"{message}. {_worst_average(bound, solution)}"
        if request.throw:
            raise RuntimeError(message)
        warnings.warn(f"the solve did not converge: {message}", ConvergenceWarning, stacklevel=4)
    elif not solution.quadrature_error <= max(request.tolerance, _KNOWN * float(solution.error)):
        warnings.warn(
            "the quadrature of Gaussian averages may move the solution by "
            f"{float(solution.quadrature_error):.2g} in the metric of the domains, which exceeds the tolerance "
            f"{request.tolerance:.2g}. {_worst_average(bound, solution)}",
            QuadratureWarning,
            stacklevel=4,
        )
    return solution


def _worst_average(bound: BoundAction, solution: Solution) -> str:
    """Which Gaussian average is known least, and how well."""
    values = {**bound.parameters, **dict(bound.sizes), **solution.order_parameters}
    found = average_errors(bound.of.refined.expression, values)
    if not found:
        return "It is the average of a function of a matrix's entries"
    average, (value, error) = max(found.items(), key=lambda item: float(np.max(item[1][1])))
    what = f"The average of {shown(average.integrand)} over {average.variable}"
    if not np.all(np.isfinite(error)):
        return f"{what} is infinite there, or cannot be resolved"
    return f"{what} is {float(np.max(np.abs(value))):.6g}, known to {float(np.max(error)):.1g}"
