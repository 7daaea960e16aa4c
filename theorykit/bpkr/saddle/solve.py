"""The saddle point: order parameters of least action, judged by gradient and curvature."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from ..._jit import jit_and_keep, usual_settings
from ...checks import checked_instance, checked_number, checked_whole_number, counted, is_in_traced_code
from ...saddle import newton as minimisers
from ...saddle.diagnosis import AbstractOutcome, report
from ...saddle.newton import MAX_STEPS, AbstractSaddleSolver
from ...saddle.problem import Coordinates, implicit_point, stationary_value, with_derivative_of
from ...symbolic.documents import DisplayMixin, Table, Text, number, verbatim
from ..data.data import Data
from ..evaluation.problem import Problem, as_problem
from ..order_parameters import Number, OrderParameters, gp_limit, order_parameter_rows
from ..specification.architecture import Architecture, ansatz_of, check_fits
from .solvers import AcceleratedSweeps, Newton, least_curvature

# Tolerance relative to the requested one at infinite width, where rounding errors
# are smaller.
_FINER = 1e-3
# Steps after which another strategy is faster.
_MOST_STEPS = 150
# Steps and gradient norm of solves that give a starting point.
_ROUGH_STEPS, _ROUGH = 60, 1e-3
# Retries form the Hessian up to this number of coordinates.
_NEWTON_SIZE = 500
# Peak memory of a solve in copies of U_1 and of the kernel, measured.
_COPIES, _KERNELS = 120, 16
# Newton steps that polish the end of a solver without a certificate.
_POLISHING = 6


class Saddle(DisplayMixin, AbstractOutcome):
    """The result of `solve`. To `jax.grad`, fields after `log_evidence` are constants.

    - `order_parameters`: (U_1, ..., U_L) and u.
    - `action`: S (Eq. 32), the sum of `entropy` and `energy`.
    - `log_evidence`: log density of P labels to leading order in the widths,
      -(S - S_0 + P log 2 pi)/2 with the entropy S_0 at the prior means; with a
      richness plus P log(N_1 gamma_0^2)/2.
    - `gradient_norm`: norm of C^T (dS/dU) C with U = C C^T, per largest width.
    - `min_hessian_eigenvalue`: in these units; an upper bound for a large Hessian.
    - `action_error`: rounding error of `action`.
    - `stats`: `steps`, `evaluations`, `curvatures`, `attempts`, `tolerance`; whether
      the solver was `content`; `units_per_path`, the smallest ratio of hidden units
      to partial paths times outputs. The theory holds from one.
    """

    order_parameters: OrderParameters
    action: Number
    entropy: Number
    energy: Number
    log_evidence: Number
    gradient_norm: Number
    min_hessian_eigenvalue: Number
    action_error: Number
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
        norm = float(self.gradient_norm)
        tolerance = float(self.stats["tolerance"])
        steps = counted(int(self.stats["steps"]), "step")
        codes = optx.RESULTS
        least = float(self.min_hessian_eigenvalue)
        curvature = f"smallest eigenvalue of the Hessian {least:.3g} per width"
        if self.converged:
            return f"converged: gradient norm {norm:.3g}, {curvature}, after {steps}"
        if norm <= tolerance:
            return f"stationary but not a minimum: gradient norm {norm:.3g}, {curvature}"
        reached = f"gradient norm {norm:.3g} exceeds the tolerance {tolerance:.3g} after {steps}"
        if self.result == codes.nonlinear_max_steps_reached:
            return f"{reached}, all that max_steps allows"
        if self.stats["content"]:
            return f"{reached}: the solver stopped at its own tolerance"
        return f"{reached}; the rounding error of the action is {float(self.action_error):.1g}"

    @property
    def diagnosis(self) -> str:
        found = super().diagnosis
        least = float(np.min(self.stats["units_per_path"]))
        narrow = f"The theory does not hold: a layer has {least:.2g} hidden units per partial path and output"
        return found if least >= 1 else f"{found}. {narrow}"


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
        solver: an Optimistix minimiser, whose result is polished; by default `Newton`,
            or `AcceleratedSweeps` if the Hessian is too large, with retries. These
            polish too, except without a Hessian and with a skip connection.
        initial: starting point, by default the Gaussian-process limit.
        tolerance: largest `gradient_norm` of a solution.
        max_steps: largest number of steps in all attempts.
        throw: raise an error instead of a `ConvergenceWarning` on failure.
    """
    with usual_settings():
        problem = as_problem(problem, data)
        checked_whole_number("max_steps", max_steps, least=1)
        tolerance = checked_number("tolerance", tolerance, above=0.0)
        checked_instance("throw", throw, bool)
        if solver is not None:
            checked_instance("solver", solver, optx.AbstractMinimiser)
        architecture = problem.architecture
        rows = problem.rows
        # The coordinates of the Gaussian-process limit are zero.
        start = np.zeros(problem.dimension)
        if initial is not None:
            start = problem.coordinates(problem.point(initial, "initial"))
        given = problem.canonical, start, solver, tolerance, max_steps
        if is_in_traced_code(problem, start):
            saddle = _attempt(*given)
        else:
            numbers = _COPIES * architecture.overlap_sizes[0] ** 2 + _KERNELS * rows**2
            check_fits(architecture, f"solving with a kernel of {rows:,} rows", numbers)
            saddle = _solved(*given)
            problem.finite((saddle.action, saddle.gradient_norm))
        return report(saddle, throw, stacklevel=2)


def _solved(problem: Problem, start: Coordinates, solver, tolerance, max_steps) -> Saddle:
    most = max_steps if solver is not None else min(max_steps, _MOST_STEPS)
    first = _attempt(problem, start, solver, tolerance, most)
    if solver is not None or first.converged:
        return first
    newton = Newton(atol=tolerance) if len(start) <= _NEWTON_SIZE else None
    # Solves that only give starting points are no attempts.
    solves = [first]
    attempts = 1
    best = first
    codes = optx.RESULTS

    def steps_left() -> int:
        return max_steps - sum(int(each.stats["steps"]) for each in solves)

    def end_of(saddle: Saddle, otherwise: Coordinates) -> Coordinates:
        end = problem.coordinates(saddle.order_parameters)
        return end if bool(jnp.all(jnp.isfinite(end))) else otherwise

    def starts() -> Iterator[tuple[Coordinates, int]]:
        if first.result != codes.nonlinear_max_steps_reached:
            # Rounding stopped the first solve, probably close to the minimum.
            yield end_of(first, start), _MOST_STEPS
        # If T is tiny compared to the labels, the minimum lies in a narrow curved
        # valley, where steps are short. Follow it from a high temperature.
        at = start
        for temperature in problem.temperatures():
            if (left := steps_left()) > 0:
                place = lambda each: each.architecture.temperature  # noqa: E731
                hot = eqx.tree_at(place, problem, np.asarray(temperature))
                solves.append(_attempt(hot, at, None, _ROUGH, min(_ROUGH_STEPS, left)))
                at = end_of(solves[-1], at)
        yield at, _MOST_STEPS
        yield end_of(best, start), max_steps

    def rank(saddle: Saddle) -> tuple[bool, float]:
        return not saddle.converged, float(np.nan_to_num(saddle.gradient_norm, nan=np.inf))

    for begin, most in starts():
        if best.converged or (left := steps_left()) <= 0:
            break
        solves.append(_attempt(problem, begin, newton, tolerance, min(most, left)))
        attempts += 1
        best = min(best, solves[-1], key=rank)
    result = best.result
    stats = {**best.stats, "attempts": jnp.array(attempts)}
    if not best.converged and np.isfinite(best.gradient_norm):
        # That of the best attempt may refer to its own budget.
        ended = steps_left() <= 0
        result = codes.nonlinear_max_steps_reached if ended else codes.nonlinear_divergence
    for name in ("steps", "evaluations", "curvatures"):
        stats[name] = sum(each.stats[name] for each in solves)
    return replace(best, stats=stats, result=result)


def _attempt(problem: Problem, start: Coordinates, solver, tolerance, max_steps) -> Saddle:
    if solver is None:
        if problem.forms_curvature:
            finer = _FINER if problem.architecture.is_infinite else 1.0
            solver = _newton(float(tolerance) * finer)
        elif problem.has_sweeps:
            solver = AcceleratedSweeps(atol=tolerance)
        else:
            solver = optx.LBFGS(rtol=1e-9, atol=1e-9)
    steps = {"max_steps": max_steps}
    if isinstance(solver, AbstractSaddleSolver):
        steps = {"max_steps": None, "options": {MAX_STEPS: np.asarray(max_steps)}}
    # Numbers are arrays, so that one compilation serves all values.
    return _minimise(problem, start, solver, np.asarray(tolerance), steps)


_newton = lru_cache(lambda tolerance: Newton(atol=tolerance))


@jit_and_keep
def _minimise(problem: Problem, start: Coordinates, solver, tolerance, steps) -> Saddle:
    fixed, start = jax.lax.stop_gradient((problem, start))
    minimise = partial(optx.minimise, lambda at, problem: problem.action(at), throw=False)
    found = minimise(solver, start, fixed, **steps)
    end = found.stats
    forms_curvature = isinstance(solver, Newton) or problem.forms_curvature
    needed, polish, most = "point", AcceleratedSweeps(), _MOST_STEPS
    if forms_curvature:
        needed, polish, most = "model", minimisers.Newton(), _POLISHING
    if needed not in end and (forms_curvature or problem.has_sweeps):
        polish = eqx.tree_at(lambda solver: solver.atol, polish, tolerance)
        polished = minimise(polish, found.value, fixed, max_steps=None, options={MAX_STEPS: jnp.array(most)})
        end = {**end, "point": polished.stats["point"], needed: polished.stats[needed]}
    point = end["point"] if "point" in end else fixed.at(found.value)
    curvature = end["model"].curvatures[0] / fixed.scale if forms_curvature else least_curvature(fixed, point)
    codes = optx.RESULTS
    stopped = found.result == optx.RESULTS.successful
    # To stop where the action is not stationary is to diverge.
    failure = codes.where(stopped, codes.nonlinear_divergence, found.result)
    failure = codes.where(point.is_finite, failure, codes.nonfinite)
    is_minimum = (point.gradient_norm <= tolerance) & (curvature > 0)
    coordinates = implicit_point(problem, point.coordinates, forms_curvature, None)
    there = (problem, coordinates)
    details = point.details
    architecture = problem.architecture
    parts = details.entropy, details.energy.value
    entropy, energy = with_derivative_of(parts, Problem.parts, there)
    # A stationary action needs no solve with the Hessian.
    action = stationary_value(sum(parts), Problem.action, problem, coordinates)
    of_prior = problem.bound.entropy(gp_limit(architecture))
    ratios = jnp.asarray(architecture.widths) / jnp.asarray(architecture.overlap_sizes)
    stats = {name: end.get(name, jnp.array(0)) for name in ("evaluations", "curvatures")}
    stats |= {"steps": found.stats["num_steps"], "attempts": jnp.array(1), "content": stopped}
    stats |= {"tolerance": tolerance, "units_per_path": jnp.min(ratios)}
    return Saddle(
        order_parameters=with_derivative_of(details.order_parameters, Problem.order_parameters, there),
        action=action,
        entropy=entropy,
        energy=energy,
        log_evidence=(of_prior - action) / 2 + problem.energy.label_constant,
        gradient_norm=point.gradient_norm,
        min_hessian_eigenvalue=curvature,
        action_error=fixed.rounding(point),
        result=codes.where(is_minimum, codes.successful, failure),
        stats=stats,
        architecture=architecture,
    )
