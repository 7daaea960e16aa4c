"""Stationary points of an action: found, certified, and differentiable in its parameters."""

import warnings
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float

from ..arguments import checked_flag, checked_number, checked_whole_number, is_traced
from ..compilation import jit
from .action import Action
from .bound_action import BoundAction, Values, bind, initial_coordinates
from .diagnosis import ConvergenceWarning
from .implicit import implicit_stationary_point, stationary_value, with_derivative_of
from .problem import Coordinates, Point
from .solution import FLAT, NEAR, Solution
from .solvers.index_newton import IndexNewton
from .solvers.minimisers import MAX_STEPS, AbstractSaddleSolver, Newton
from .solvers.quadratic_model import QuadraticModel

# random starts where none is given, and how far points may be apart that count as one
_STARTS, _SAME = 8, 1e-5
# the solver's own tolerance, of that asked for: Newton's method gets there in one step more
_FINER = 1e-4


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
    return _solve(action, values, initial, _Request(index, *_checked(tolerance, max_steps, throw)))


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


def _checked(tolerance, max_steps, throw) -> tuple[float, int, bool]:
    tolerance = checked_number("tolerance", tolerance, above=0.0)
    checked_whole_number("max_steps", max_steps, least=1)
    return tolerance, max_steps, checked_flag("throw", throw)


def _solve(action: Action, values: Values, initial: Values | None, request: _Request) -> Solution:
    bound = bind(action, values, initial)
    if initial is None:
        found = _solved(bound, _random_starts(bound, _STARTS, 0), request)
        if not is_traced(found) and request.index > 0:
            _warn_of_several(found)
        return _report(_best(found), request)
    start = initial_coordinates(action, bound, initial)
    return _report(one_of(_solved(bound, start[None], request), 0), request)


def _random_starts(bound: BoundAction, starts: int, seed: int) -> Float[Array, "starts coordinates"]:
    shape = (starts, sum(bound.layout.sizes))
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def _solved(bound: BoundAction, starts: Float[Array, "starts coordinates"], request: _Request):
    """The end points of solves from several starts, a batch."""
    solver = IndexNewton(index=request.index) if request.index else Newton()
    return _end_points(bound, starts, solver, jnp.asarray(request.tolerance), jnp.asarray(request.max_steps))


@jit
def _end_points(bound: BoundAction, starts, solver, tolerance, max_steps) -> Solution:
    solve = lambda start: _end_point(bound, start, solver, tolerance, max_steps)  # noqa: E731
    # one start is not batched: the solver's conditionals stay conditionals
    if len(starts) == 1:
        return jax.tree.map(lambda leaf: leaf[None], solve(starts[0]))
    # a processor gains nothing by a batch, and XLA's, on two cores, may wait for ever in one of factorisations
    return jax.lax.map(solve, starts) if jax.default_backend() == "cpu" else jax.vmap(solve)(starts)


def _end_point(bound: BoundAction, start: Coordinates, solver: AbstractSaddleSolver, tolerance, max_steps) -> Solution:
    index = getattr(solver, "index", 0)
    solver = eqx.tree_at(lambda s: s.atol, solver, _FINER * tolerance)
    fixed, start = jax.lax.stop_gradient((bound, start))
    found = optx.minimise(
        lambda at, problem: problem.action(at),
        solver,
        start,
        fixed,
        throw=False,
        max_steps=None,
        options={MAX_STEPS: max_steps},
    )
    point: Point = found.stats["point"]
    model = QuadraticModel.of(fixed.expansion(point))
    coordinates = implicit_stationary_point(bound, point.coordinates)
    values = fixed.layout.values(point.coordinates)
    here = (bound, coordinates)
    return Solution(
        order_parameters=with_derivative_of(values, lambda bound, at: bound.layout.values(at), here),
        action=stationary_value(point.action, BoundAction.action, *here),
        gradient_norm=point.gradient_norm,
        hessian_eigenvalues=model.curvatures / fixed.scale,
        quadrature_error=_quadrature_error(fixed, model, point),
        result=_judge(found.result, point, model, index, tolerance),
        terms=fixed.terms(point.coordinates),
        stats={
            "evaluations": found.stats["evaluations"],
            "hessians": found.stats["curvatures"],
            "tolerance": tolerance,
            "asked": jnp.asarray(index),
            "coordinates": point.coordinates,
            "travelled": jnp.linalg.norm(point.coordinates - start),
            "remaining": model.newton_length(),
            "softest": model.directions[:, 0],
        },
        of=bound.of,
        owners=bound.layout.owners,
    )


def _quadrature_error(bound: BoundAction, model: QuadraticModel, point: Point) -> Float[Array, ""]:
    """Length of the Newton step that the gradient by twice the nodes asks for, or by one node more."""
    if not bound.of.has_averages:
        return jnp.array(0.0)

    def step(finer: Action) -> Float[Array, ""]:
        problem = BoundAction(finer, bound.layout, bound.parameters, bound.sizes)
        slope = problem.slope_after(point.coordinates, jnp.zeros_like(point.coordinates))
        return jnp.linalg.norm(model.directions.T @ (slope - point.details) / model.curvatures)

    return jnp.max(jnp.stack([step(finer) for finer in bound.of.finer]))


def _judge(result: optx.RESULTS, point: Point, model: QuadraticModel, index: int, tolerance: Array) -> optx.RESULTS:
    stopped = optx.RESULTS.nonlinear_divergence
    failure = optx.RESULTS.where(result == optx.RESULTS.successful, stopped, result)
    failure = optx.RESULTS.where(point.is_finite, failure, optx.RESULTS.nonfinite)
    sizes = jnp.abs(model.curvatures)
    certain = (jnp.min(sizes) > FLAT * jnp.max(sizes)) & (model.newton_length() <= NEAR)
    wanted = (point.gradient_norm <= tolerance) & (jnp.sum(model.curvatures < 0) == index) & certain
    return optx.RESULTS.where(wanted, optx.RESULTS.successful, failure)


def one_of(batch: Solution, at: Any) -> Solution:
    """One solution of a batch."""
    return jax.tree.map(lambda leaf: leaf[at], batch)


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


def _report(solution: Solution, request: _Request) -> Solution:
    """`solution`, with an error or a warning if it is not what was asked for."""
    failed = solution.result != optx.RESULTS.successful
    if request.throw and is_traced(solution):
        return solution.result.error_if(solution, failed)
    if is_traced(solution) or np.ndim(solution.converged) or solution.converged:
        return solution
    if request.throw:
        raise RuntimeError(solution.diagnosis)
    warnings.warn(f"the solve did not converge: {solution.diagnosis}", ConvergenceWarning, stacklevel=4)
    return solution
