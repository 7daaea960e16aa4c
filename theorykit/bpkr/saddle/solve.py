"""The saddle point: order parameters at which the action is stationary and minimal.

Success depends on the gradient norm and the curvature measured there, never on the report of the minimiser.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from ...checks import (
    checked_flag,
    checked_key,
    checked_number,
    checked_whole_number,
    counted,
    is_traced,
    refuse_traced,
)
from ...compilation import jit, jit_and_keep
from ...progress import Progress
from ...saddle.diagnosis import AbstractOutcome, ConvergenceWarning, report
from ...saddle.implicit import implicit_point, stationary_value, with_derivative_of
from ...saddle.problem import Coordinates
from ...saddle.solve import distinct
from ...saddle.solvers import minimisers
from ...saddle.solvers.minimisers import MAX_STEPS, AbstractSaddleSolver
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import number
from ...workers import Workers, check_executor, run_tasks
from ..data.data import Data
from ..evaluation.problem import Problem, as_problem
from ..order_parameters import OrderParameters, gp_coordinates, gp_limit, order_parameter_rows
from ..specification.architecture import Architecture, check_fits
from .solvers import AcceleratedSweeps, Newton, least_curvature

_TOLERANCE = 1e-9
# Tolerance of Newton's method at infinite width, relative to the requested tolerance.
_FINER = 1e-3
# After this many steps of one attempt, another strategy is likely to be faster.
_MOST_STEPS = 150
# Steps and gradient norm of a rough solve, which only has to give a starting point.
_ROUGH_STEPS, _ROUGH = 60, 1e-3
# Retries use Newton's method, which forms the Hessian, up to this number of coordinates.
_NEWTON_SIZE = 500
# Peak memory of a solve in arrays of the size of U_1, and of the size of the kernel, measured.
_ORDER_PARAMETER_COPIES, _KERNEL_COPIES = 120, 16
# Number of evaluations that polish the end of a solver without a certificate.
_POLISHING = 6
# Minima with coordinates closer than this are the same. Solves are much more accurate than this.
_SAME = 1e-4
# Continuation in the richness starts at this fraction of it, and takes this many steps.
_LAZY, _RICHER = 1e-2, 8


class Saddle(DisplayMixin, AbstractOutcome):
    """The result of `solve`. It is differentiable in all inputs of the action, by the implicit function theorem.

    - `order_parameters`: (U_1, ..., U_L) and u.
    - `action`: S (Eq. 32), not divided by the width; `entropy` and `energy` are its parts.
    - `log_evidence`: log probability density of the labels to leading order in the widths, -(S - S_0 + P log 2 pi)/2
      for P labels, where S_0 is the entropy at the prior means; with a richness plus P log(N_1 gamma_0^2)/2.
    - `gradient_norm`: norm of C^T (dS/dU) C with U = C C^T, the gradient in the affine-invariant metric, per largest
      width.
    - `min_hessian_eigenvalue`: smallest Hessian eigenvalue in this metric, per largest width; an upper bound if there
      are too many paths to form the Hessian.
    - `action_error`: rounding error of `action`, from the condition numbers of all factorised matrices.
    - `result`: success if and only if the gradient norm is within the tolerance and the eigenvalue is positive.
    - `stats`: `steps`, `evaluations`, `curvatures` and `attempts` of the solver, and whether it was `content`; the
      `tolerance`; the parts `error_of_order_parameters`, `error_of_kernel` and `error_of_labels` of `action_error`;
      `units_per_path`, the smallest ratio of hidden units to partial paths. The theory holds from one.
    - `architecture`: the network that was solved.
    - `ansatz`: the assumption beyond large widths, or the parameterisation with a richness, in words; else empty.

    At infinite width with a richness, `action`, its parts and `log_evidence` are divided by N_1. Under `vmap` every
    leaf has the axes of the batch. A failed result of `jit` or `vmap` raises a warning when it is used.
    """

    order_parameters: OrderParameters
    action: Float[Array, ""]
    entropy: Float[Array, ""]
    energy: Float[Array, ""]
    log_evidence: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    min_hessian_eigenvalue: Float[Array, ""]
    action_error: Float[Array, ""]
    result: optx.RESULTS
    stats: Mapping[str, Any]
    architecture: Architecture
    ansatz: str = eqx.field(static=True, default="")

    def _view(self) -> Iterator[Block]:
        yield Text(verbatim(self.diagnosis))
        names = ("log_evidence", "action", "entropy", "energy", "action_error")
        unit = " per width" if self.architecture.is_infinite else ""
        rows = ((name.replace("_", " ") + unit, number(getattr(self, name), 8)) for name in names)
        yield Table((*rows, *order_parameter_rows(self.order_parameters)))
        if self.ansatz:
            yield Text(self.ansatz)

    def describe(self) -> str:
        norm, tolerance = float(self.gradient_norm), float(self.stats["tolerance"])
        steps = f"after {counted(int(self.stats['steps']), 'step')}"
        curvature = f"smallest eigenvalue of the Hessian {float(self.min_hessian_eigenvalue):.3g} per width"
        if self.converged:
            return f"converged: gradient norm {norm:.3g}, {curvature}, {steps}"
        if norm <= tolerance:
            return f"stationary but not a minimum: gradient norm {norm:.3g}, {curvature}. Choose another initial="
        reached = f"gradient norm {norm:.3g} exceeds the tolerance {tolerance:.3g} {steps}"
        if self.result == optx.RESULTS.nonlinear_max_steps_reached:
            return f"{reached}, all that max_steps allows"
        if self.stats["content"]:
            return f"{reached}: the solver stopped at its own tolerance (rtol, atol)"
        errors = {name: float(value) for name, value in self.stats.items() if name.startswith("error_of_")}
        cause = max(errors, key=errors.get).removeprefix("error_of_").replace("_", " ")
        rounding = f"its rounding error of about {float(self.action_error):.1g}, mostly from the {cause}"
        return f"{reached}, and no step lowers the action beyond {rounding}"

    @property
    def diagnosis(self) -> str:
        """The result in words."""
        least = float(np.min(self.stats["units_per_path"]))
        narrow = (
            f". The theory of wide layers does not hold: a layer has {least:.2g} hidden units per partial path, so its "
            "order parameter is singular; sampling.sample_order_parameters draws from the exact posterior"
        )
        return super().diagnosis + (narrow if least < 1 else "")


def solve(
    problem: Problem | Architecture,
    data: Data | None = None,
    *,
    solver: optx.AbstractMinimiser | None = None,
    initial: OrderParameters | Saddle | None = None,
    tolerance: float = _TOLERANCE,
    max_steps: int = 1000,
    throw: bool = False,
) -> Saddle:
    """Minimise the action over the order parameters: the saddle point of the posterior, Eq. (32).

    Args:
        problem: the architecture with its data, or the architecture alone.
        data: the data, if `problem` is an architecture.
        solver: by default `Newton`, or `AcceleratedSweeps` if there are too many paths to form the curvature; both are
            retried from other starting points. Any Optimistix minimiser works. A few Newton steps polish its result.
        initial: starting point; by default the Gaussian-process limit.
        tolerance: largest gradient norm (see `Saddle`) of a solution.
        max_steps: largest number of steps, of all attempts.
        throw: raise an error instead of a `ConvergenceWarning` if the solve does not converge.

    Raises:
        ValueError: the data do not fit, or `solver` is not a minimiser: root finders would report success at points
            that are not minima.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> data = bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> bpkr.solve(arch, data).order_parameters.matrices[0].shape
        (2, 2)
    """
    with usual_settings():
        problem = as_problem(problem, data)
        checked_flag("throw", throw)
        checked_whole_number("max_steps", max_steps, least=1)
        checked_number("tolerance", tolerance, above=0.0)
        if solver is not None and not isinstance(solver, optx.AbstractMinimiser):
            raise ValueError(f"solver must be an optimistix.AbstractMinimiser, got {type(solver).__name__}")
        architecture, rows = problem.architecture, problem.rows
        start = gp_coordinates(architecture)
        if initial is not None:
            start = problem.coordinates(problem.point(initial, "initial"))
        if is_traced(problem, start):
            saddle = _attempt(problem.canonical, start, solver, tolerance, max_steps)
        else:
            numbers = _ORDER_PARAMETER_COPIES * architecture.overlap_sizes[0] ** 2 + _KERNEL_COPIES * rows**2
            check_fits(architecture, f"solving with a kernel of {rows:,} rows", numbers)
            saddle = _solved(problem.canonical, start, solver, tolerance, max_steps)
            problem.finite((saddle.action, saddle.gradient_norm))
        return report(replace(saddle, ansatz=problem.ansatz) if problem.ansatz else saddle, throw, stacklevel=2)


def _solved(problem: Problem, start: Coordinates, solver: Any, tolerance: float, max_steps: int) -> Saddle:
    """Solve, and retry the default solver with one strategy after another until one converges."""
    first = _attempt(problem, start, solver, tolerance, min(max_steps, _MOST_STEPS if solver is None else max_steps))
    if solver is not None or first.converged:
        return first
    # All solves count, also the rough ones that only give starting points.
    solves, attempts = [first], [first]
    newton = Newton(atol=tolerance) if len(start) <= _NEWTON_SIZE else None

    def steps_left() -> int:
        return max_steps - sum(int(each.stats["steps"]) for each in solves)

    def solve_from(begin, most, problem=problem, solver=newton, tolerance=tolerance) -> Saddle:
        solves.append(_attempt(problem, begin, solver, tolerance, min(most, steps_left())))
        return solves[-1]

    def end_point(saddle: Saddle, otherwise: Coordinates) -> Coordinates:
        end = problem.coordinates(saddle.order_parameters)
        return end if bool(jnp.all(jnp.isfinite(end))) else otherwise

    def rough_end(problem: Problem, begin: Coordinates) -> Coordinates:
        if steps_left() <= 0:
            return begin
        return end_point(solve_from(begin, _ROUGH_STEPS, problem, None, _ROUGH), begin)

    def distance(saddle: Saddle) -> float:
        return float(np.nan_to_num(saddle.gradient_norm, nan=np.inf))

    def starts() -> Iterator[tuple[Coordinates, int]]:
        if first.result != optx.RESULTS.nonlinear_max_steps_reached:
            # Rounding errors stopped the first solve, probably close to the minimum.
            yield end_point(first, start), _MOST_STEPS
        for begin in problem.strategies(rough_end, start):
            yield begin, _MOST_STEPS
        yield end_point(min(attempts, key=distance), start), max_steps

    for begin, most in starts():
        if steps_left() <= 0:
            break
        attempts.append(solve_from(begin, most))
        if attempts[-1].converged:
            break
    best = attempts[-1] if attempts[-1].converged else min(attempts, key=distance)
    result = best.result
    if not best.converged and np.isfinite(distance(best)):
        # The result of the best attempt may refer to its own small budget.
        codes = optx.RESULTS
        result = codes.nonlinear_max_steps_reached if steps_left() <= 0 else codes.nonlinear_divergence
    counts = ("steps", "evaluations", "curvatures")
    stats = {**best.stats, **{name: sum(each.stats[name] for each in solves) for name in counts}}
    return replace(best, stats={**stats, "attempts": jnp.array(len(attempts))}, result=result)


def _attempt(problem: Problem, start: Coordinates, solver: Any, tolerance: float, max_steps: int) -> Saddle:
    """Minimise once. The default solver depends on the size of the problem."""
    if solver is None:
        if problem.forms_curvature:
            # At infinite width the gradient has no rounding errors of large terms, so another step is worth its time.
            solver = _newton(float(tolerance) * (_FINER if problem.architecture.is_infinite else 1.0))
        elif problem.has_sweeps:
            solver = AcceleratedSweeps(atol=tolerance)
        else:
            solver = optx.LBFGS(rtol=1e-9, atol=1e-9)
    steps = {"max_steps": max_steps}
    if isinstance(solver, AbstractSaddleSolver):
        steps = {"max_steps": None, "options": {MAX_STEPS: jnp.asarray(max_steps)}}
    # Numbers are arrays, so that one compilation serves all values.
    return _minimise(problem, start, solver, jnp.asarray(tolerance), steps)


@lru_cache
def _newton(tolerance: float) -> Newton:
    return Newton(atol=tolerance)


@jit_and_keep
def _minimise(problem: Problem, start: Coordinates, solver, tolerance, steps: Mapping[str, Any]) -> Saddle:
    """Minimise from `start`. `steps` are the keywords of `optimistix.minimise` that limit the number of steps."""
    fixed, start = jax.lax.stop_gradient((problem, start))
    minimise = partial(optx.minimise, lambda at, problem: problem.action(at), throw=False)
    found = minimise(solver, start, fixed, **steps)
    end, forms_curvature = found.stats, isinstance(solver, Newton) or problem.forms_curvature
    if forms_curvature and "model" not in end:
        # Polish the end of a solver that has no tolerance of the gradient, and get the Hessian there.
        newton = eqx.tree_at(lambda newton: newton.atol, minimisers.Newton(), tolerance)
        options = {MAX_STEPS: jnp.array(_POLISHING)}
        polished = minimise(newton, found.value, fixed, max_steps=None, options=options)
        end = {**end, **{name: polished.stats[name] for name in ("point", "model")}}
    point = end["point"] if "point" in end else fixed.at(found.value)
    curvature = end["model"].curvatures[0] / fixed.scale if forms_curvature else least_curvature(fixed, point)
    errors, codes = fixed.rounding(point), optx.RESULTS
    stopped = found.result == codes.successful
    # A minimiser that stops successfully at a point that is not stationary has diverged.
    failure = codes.where(stopped, codes.nonlinear_divergence, found.result)
    failure = codes.where(point.is_finite, failure, codes.nonfinite)
    is_minimum = (point.gradient_norm <= tolerance) & (curvature > 0)
    coordinates = implicit_point(problem, point.coordinates, forms_curvature, None)
    details, there, architecture = point.details, (problem, coordinates), problem.architecture
    parts = details.entropy, details.energy.value
    entropy, energy = with_derivative_of(parts, Problem.parts, there)
    # The action is stationary, so gradients of the action and of the evidence need no solve with the Hessian.
    action = stationary_value(sum(parts), Problem.action, problem, coordinates)
    ratios = jnp.asarray(architecture.widths) / jnp.asarray(architecture.overlap_sizes)
    stats = {
        "steps": found.stats["num_steps"],
        "evaluations": end.get("evaluations", jnp.array(0)),
        "curvatures": end.get("curvatures", jnp.array(0)),
        "tolerance": tolerance,
        "content": stopped,
        "attempts": jnp.array(1),
        "units_per_path": jnp.min(ratios),
        **{f"error_of_{name}": error for name, error in errors.items()},
    }
    return Saddle(
        order_parameters=with_derivative_of(details.order_parameters, Problem.order_parameters, there),
        action=action,
        entropy=entropy,
        energy=energy,
        log_evidence=(problem.bound.entropy(gp_limit(architecture)) - action) / 2 + problem.energy.label_constant,
        gradient_norm=point.gradient_norm,
        min_hessian_eigenvalue=curvature,
        action_error=sum(errors.values()),
        result=codes.where(is_minimum, codes.successful, failure),
        stats=stats,
        architecture=architecture,
    )


@usual_settings()
def gradient_norm(problem: Problem, order_parameters: OrderParameters | Saddle) -> Float[Array, ""]:
    """Return the norm of the gradient of S per largest width, in the affine-invariant metric; see `Saddle`."""
    problem = as_problem(problem)
    return _gradient_norm(problem.canonical, problem.point(order_parameters))


@jit
def _gradient_norm(problem: Problem, order_parameters: OrderParameters):
    return problem.at(problem.coordinates(order_parameters)).gradient_norm


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
    """Search for minima: solve from the Gaussian-process limit, from random points, and by continuation.

    Continuation starts near the Gaussian process: at large widths, or with a richness at a small one. The action is not
    convex, and no proof excludes minima that are not found.

    Args:
        problem, data: as in `solve`.
        key: JAX random key for the random points.
        starts: the number of random points.
        spread: standard deviation of their coordinates (whitened Cholesky factors, logarithmic on the diagonal).
        executor: selects where the solves run; see `bpkr.sweeps.sweep`.
        progress: show a bar.
        options: keywords of `bpkr.solve`.

    Returns:
        The distinct minima, lowest action first. Their `stats` also have `reached`, the number of solves that ended in
        the minimum, and `followed`, whether continuation did.

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
    origin = gp_coordinates(problem.architecture)
    noise = spread * jax.random.normal(key, (starts, len(origin)), dtype=jnp.float64)
    # Begin with the longest task, continuation.
    tasks, solved = [(None,), (origin,), *((coordinates,) for coordinates in noise)], {}
    with Progress("minima", len(tasks), "starting point", shown=progress, cost=problem.description) as bar:
        for task, saddle in run_tasks(executor, _solve_from, tasks, (problem, options)):
            solved[task] = saddle
            bar.update()
    converged = [task for task in range(len(tasks)) if solved[task].converged]
    failed = f"{len(tasks) - len(converged)} of {len(tasks)} solves did not converge"
    if not converged:
        raise ValueError(f"{failed}; the last: {solved[len(tasks) - 1].diagnosis}")
    if len(converged) < len(tasks):
        warnings.warn(failed, ConvergenceWarning, stacklevel=2)
    actions = [float(solved[task].action) for task in converged]
    ends = [np.asarray(problem.coordinates(solved[task].order_parameters)) for task in converged]
    minima = []
    for group in distinct(actions, ends, _SAME):
        first, reached = solved[converged[group[0]]], [converged[i] for i in group]
        counts = {"reached": len(reached), "followed": 0 in reached}
        minima.append(replace(first, stats={**first.stats, **counts}))
    return minima


def _solve_from(problem: Problem, options, coordinates: ArrayLike | None) -> Saddle:
    """Solve from a starting point, or by continuation until a solve does not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if coordinates is not None:
            return solve(problem, initial=problem.order_parameters(coordinates), **options)
        architecture, data = problem.architecture, problem.data
        if architecture.richness is not None:
            name, factors = "richness", np.geomspace(_LAZY, 1.0, _RICHER)
        else:
            examples = data.replaces or len(data.labels)
            highest = max(100.0 * examples / max(map(float, architecture.widths)), 10.0)
            name, factors = "widths", np.geomspace(highest, 1.0, int(np.ceil(np.log2(highest))) + 1)
        saddle = None
        for factor in factors.tolist():
            scaled = jax.tree.map(lambda number, factor=factor: factor * number, getattr(architecture, name))
            there = eqx.tree_at(lambda p, name=name: getattr(p.architecture, name), problem, scaled)
            saddle = solve(there, initial=saddle, **options)
            if not saddle.converged:
                break
    return saddle
