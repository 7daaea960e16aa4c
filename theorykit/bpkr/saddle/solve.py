"""The saddle point: order parameters at which the action is stationary and minimal.

Success depends on the gradient and the curvature measured there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float

from ... import checks
from ..._jit import jit_and_keep, usual_settings
from ...checks import Index, Key, checked_arguments, is_traced
from ...saddle import newton as minimisers
from ...saddle.diagnosis import AbstractOutcome, report
from ...saddle.newton import MAX_STEPS, AbstractSaddleSolver
from ...saddle.problem import Coordinates, implicit_point, stationary_value, with_derivative_of
from ...saddle.solve import distinct
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Table, Text, verbatim
from ...symbolic.documents.values import number
from ..data.data import Data
from ..evaluation.problem import Problem, as_problem
from ..order_parameters import OrderParameters, gp_limit, order_parameter_rows
from ..specification.architecture import Architecture, ansatz_of, check_fits
from .solvers import AcceleratedSweeps, Newton, least_curvature

# Tolerance at infinite width relative to the requested one: the gradient has
# no rounding errors of large terms, so another step is worth its time.
_FINER = 1e-3
# After this many steps, another strategy is likely to be faster.
_MOST_STEPS = 150
# Steps and gradient norm of a rough solve, which gives a starting point.
_ROUGH_STEPS, _ROUGH = 60, 1e-3
# Retries form the Hessian up to this number of coordinates.
_NEWTON_SIZE = 500
# Peak memory of a solve in arrays of the size of U_1, and of the kernel, measured.
_ORDER_PARAMETER_COPIES, _KERNEL_COPIES = 120, 16
# Evaluations that polish the end of a solver without a certificate.
_POLISHING = 6
# Minima with coordinates closer than this are the same.
_SAME = 1e-4


class Saddle(DisplayMixin, AbstractOutcome):
    """The result of `solve`, differentiable in all inputs by the implicit function theorem.

    - `order_parameters`: (U_1, ..., U_L) and u.
    - `action`: S (Eq. 32), with the parts `entropy` and `energy`.
    - `log_evidence`: log density of P labels to leading order in the widths,
      -(S - S_0 + P log 2 pi)/2 with the entropy S_0 at the prior means; with a
      richness plus P log(N_1 gamma_0^2)/2.
    - `gradient_norm`: norm of C^T (dS/dU) C with U = C C^T, the gradient in the
      affine-invariant metric, per largest width.
    - `min_hessian_eigenvalue`: smallest Hessian eigenvalue in the same units; an
      upper bound if the Hessian is too large to form.
    - `action_error`: rounding error of `action`.
    - `stats`: `steps`, `evaluations`, `curvatures` and `attempts`; whether the
      solver was `content`; the `tolerance`; `units_per_path`, the smallest ratio
      of hidden units to partial paths. The theory holds from one.

    At infinite width with a richness, action and evidence are per N_1.
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

    def _view(self):
        yield Text(verbatim(self.diagnosis))
        names = ("log_evidence", "action", "entropy", "energy", "action_error")
        unit = " per width" if self.architecture.is_infinite else ""
        rows = ((name.replace("_", " ") + unit, number(getattr(self, name), 8)) for name in names)
        yield Table((*rows, *order_parameter_rows(self.order_parameters)))
        if ansatz := ansatz_of(self.architecture):
            yield Text(ansatz)

    def describe(self) -> str:
        norm, tolerance = float(self.gradient_norm), float(self.stats["tolerance"])
        steps = f"after {checks.counted(int(self.stats['steps']), 'step')}"
        curvature = f"smallest eigenvalue of the Hessian {float(self.min_hessian_eigenvalue):.3g} per width"
        if self.converged:
            return f"converged: gradient norm {norm:.3g}, {curvature}, {steps}"
        if norm <= tolerance:
            return f"stationary but not a minimum: gradient norm {norm:.3g}, {curvature}"
        reached = f"gradient norm {norm:.3g} exceeds the tolerance {tolerance:.3g} {steps}"
        if self.result == optx.RESULTS.nonlinear_max_steps_reached:
            return f"{reached}, all that max_steps allows"
        if self.stats["content"]:
            return f"{reached}: the solver stopped at its own tolerance"
        return f"{reached}; the rounding error of the action is about {float(self.action_error):.1g}"

    @property
    def diagnosis(self) -> str:
        least = float(np.min(self.stats["units_per_path"]))
        narrow = f"The theory of wide layers does not hold: a layer has {least:.2g} hidden units per partial path"
        return super().diagnosis + (f". {narrow}" if least < 1 else "")


def solve(
    problem: Problem | Architecture,
    data: Data | None = None,
    *,
    solver: optx.AbstractMinimiser | None = None,
    initial: OrderParameters | Saddle | None = None,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
    throw: bool = False,
) -> Saddle:
    """Minimise the action over the order parameters, Eq. (32).

    Args:
        problem: the architecture with its data, or the architecture alone.
        data: the data, if `problem` is an architecture.
        solver: an Optimistix minimiser, whose result Newton steps polish; by
            default `Newton`, or `AcceleratedSweeps` if the Hessian is too large,
            retried from other starting points.
        initial: starting point; by default the Gaussian-process limit.
        tolerance: largest gradient norm (see `Saddle`) of a solution.
        max_steps: largest number of steps, of all attempts.
        throw: raise an error instead of a `ConvergenceWarning` on failure.

    Raises:
        ValueError: the data do not fit, or `solver` is not a minimiser.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> data = bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> bpkr.solve(arch, data).converged
        True
    """
    with usual_settings():
        problem = as_problem(problem, data)
        checks.checked_flag("throw", throw)
        checks.checked_whole_number("max_steps", max_steps, least=1)
        checks.checked_number("tolerance", tolerance, above=0.0)
        if solver is not None and not isinstance(solver, optx.AbstractMinimiser):
            raise ValueError(f"solver must be an optimistix.AbstractMinimiser, got {type(solver).__name__}")
        architecture, rows = problem.architecture, problem.rows
        # The coordinates of the Gaussian-process limit are zero.
        start = jnp.zeros(problem.dimension)
        if initial is not None:
            start = problem.coordinates(problem.point(initial, "initial"))
        if is_traced(problem, start):
            saddle = _attempt(problem.canonical, start, solver, tolerance, max_steps)
        else:
            numbers = _ORDER_PARAMETER_COPIES * architecture.overlap_sizes[0] ** 2 + _KERNEL_COPIES * rows**2
            check_fits(architecture, f"solving with a kernel of {rows:,} rows", numbers)
            saddle = _solved(problem.canonical, start, solver, tolerance, max_steps)
            problem.finite((saddle.action, saddle.gradient_norm))
        return report(saddle, throw, stacklevel=2)


def _solved(problem: Problem, start: Coordinates, solver, tolerance, max_steps) -> Saddle:
    """Solve, and retry the default solver by one strategy after another."""
    first = _attempt(problem, start, solver, tolerance, min(max_steps, _MOST_STEPS if solver is None else max_steps))
    if solver is not None or first.converged:
        return first
    # Rough solves, which only give starting points, are no attempts.
    solves, attempts, codes = [first], [first], optx.RESULTS
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

    def starts() -> Iterator[tuple[Coordinates, int]]:
        if first.result != codes.nonlinear_max_steps_reached:
            # Rounding stopped the first solve, probably close to the minimum.
            yield end_point(first, start), _MOST_STEPS
        for begin in problem.strategies(rough_end, start):
            yield begin, _MOST_STEPS
        yield end_point(best, start), max_steps

    best = first
    for begin, most in starts():
        if steps_left() <= 0:
            break
        attempts.append(solve_from(begin, most))
        best = min(best, attempts[-1], key=_rank)
        if best.converged:
            break
    result = best.result
    if not best.converged and np.isfinite(best.gradient_norm):
        # The result of the best attempt may refer to its own small budget.
        result = codes.nonlinear_max_steps_reached if steps_left() <= 0 else codes.nonlinear_divergence
    counts = ("steps", "evaluations", "curvatures")
    stats = {**best.stats, **{name: sum(each.stats[name] for each in solves) for name in counts}}
    return replace(best, stats={**stats, "attempts": jnp.array(len(attempts))}, result=result)


def _rank(saddle: Saddle) -> tuple[bool, float]:
    return not saddle.converged, float(np.nan_to_num(saddle.gradient_norm, nan=np.inf))


def _attempt(problem: Problem, start: Coordinates, solver, tolerance, max_steps) -> Saddle:
    """Minimise once. The default solver depends on the size of the problem."""
    if solver is None:
        if problem.forms_curvature:
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


_newton = lru_cache(lambda tolerance: Newton(atol=tolerance))


@jit_and_keep
def _minimise(problem: Problem, start: Coordinates, solver, tolerance, steps) -> Saddle:
    """Minimise from `start`, with the keywords `steps` of `optimistix.minimise`."""
    fixed, start = jax.lax.stop_gradient((problem, start))
    minimise = partial(optx.minimise, lambda at, problem: problem.action(at), throw=False)
    found = minimise(solver, start, fixed, **steps)
    end, forms_curvature = found.stats, isinstance(solver, Newton) or problem.forms_curvature
    if forms_curvature and "model" not in end:
        # The solver has no tolerance of the gradient, and no Hessian.
        newton = eqx.tree_at(lambda newton: newton.atol, minimisers.Newton(), tolerance)
        options = {MAX_STEPS: jnp.array(_POLISHING)}
        polished = minimise(newton, found.value, fixed, max_steps=None, options=options)
        end = {**end, **{name: polished.stats[name] for name in ("point", "model")}}
    point = end["point"] if "point" in end else fixed.at(found.value)
    curvature = end["model"].curvatures[0] / fixed.scale if forms_curvature else least_curvature(fixed, point)
    codes, stopped = optx.RESULTS, found.result == optx.RESULTS.successful
    # A minimiser that stops where the action is not stationary has diverged.
    failure = codes.where(stopped, codes.nonlinear_divergence, found.result)
    failure = codes.where(point.is_finite, failure, codes.nonfinite)
    is_minimum = (point.gradient_norm <= tolerance) & (curvature > 0)
    coordinates = implicit_point(problem, point.coordinates, forms_curvature, None)
    details, there, architecture = point.details, (problem, coordinates), problem.architecture
    parts = details.entropy, details.energy.value
    entropy, energy = with_derivative_of(parts, Problem.parts, there)
    # The action is stationary: its gradient needs no solve with the Hessian.
    action = stationary_value(sum(parts), Problem.action, problem, coordinates)
    ratios = jnp.asarray(architecture.widths) / jnp.asarray(architecture.overlap_sizes)
    stats = {name: end.get(name, jnp.array(0)) for name in ("evaluations", "curvatures")}
    stats |= {"steps": found.stats["num_steps"], "attempts": jnp.array(1), "content": stopped}
    stats |= {"tolerance": tolerance, "units_per_path": jnp.min(ratios)}
    return Saddle(
        order_parameters=with_derivative_of(details.order_parameters, Problem.order_parameters, there),
        action=action,
        entropy=entropy,
        energy=energy,
        log_evidence=(problem.bound.entropy(gp_limit(architecture)) - action) / 2 + problem.energy.label_constant,
        gradient_norm=point.gradient_norm,
        min_hessian_eigenvalue=curvature,
        action_error=sum(fixed.rounding(point).values()),
        result=codes.where(is_minimum, codes.successful, failure),
        stats=stats,
        architecture=architecture,
    )


@checked_arguments
def search(
    problem: Problem | Architecture, data: Data | None = None, *, key: Key, starts: Index = 16, **options: Any
) -> list[Saddle]:
    """Solve from the Gaussian-process limit and from random points.

    The action is not convex, and no proof excludes minima that are not found.

    Args:
        problem, data, options: as in `solve`.
        key: JAX random key.
        starts: number of random points, at standard normal coordinates.

    Returns:
        The distinct minima, lowest action first; `stats["reached"]` counts the
        solves that ended there.
    """
    checks.refuse_traced("search", problem, data, key)
    problem = as_problem(problem, data)
    shape = starts, problem.dimension
    draws = map(problem.order_parameters, jax.random.normal(key, shape, dtype=jnp.float64))
    found = [solve(problem, initial=draw, **options) for draw in (None, *draws)]
    found = [saddle for saddle in found if saddle.converged]
    ends = [np.asarray(problem.coordinates(saddle.order_parameters)) for saddle in found]
    groups = distinct([float(saddle.action) for saddle in found], ends, _SAME)
    lowest = [(found[group[0]], {"reached": len(group)}) for group in groups]
    return [replace(saddle, stats={**saddle.stats, **counts}) for saddle, counts in lowest]
