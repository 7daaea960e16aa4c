"""The saddle point: order parameters at which the action is stationary and minimal.

A minimiser finds this point. Success depends on the gradient norm and the curvature measured there, never on the report
of the minimiser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float

from ...checks import checked_flag, checked_number, checked_whole_number, counted, is_traced
from ...compilation import jit, jit_and_keep
from ...saddle.certificate import judged_minimum, least_curvature
from ...saddle.diagnosis import AbstractOutcome, report
from ...saddle.implicit import implicit_point, stationary_value, with_derivative_of
from ...saddle.problem import Coordinates, Point
from ...saddle.solvers.minimisers import MAX_STEPS, AbstractSaddleSolver, AcceleratedSweeps, Newton, end_of
from ...saddle.solvers.quadratic_model import QuadraticModel
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import number
from ..data.data import Data
from ..evaluation.problem import Problem, as_problem
from ..order_parameters.coordinates import from_order_parameters, gp_coordinates
from ..order_parameters.order_parameters import OrderParameters, gp_limit, order_parameter_rows
from ..specification.architecture import Architecture, check_fits

# The likely cause of each part of the rounding error of the action.
_CAUSES = {
    "order_parameters": (
        "the order parameters are nearly singular: widths below the number of paths, variances or labels of extreme "
        "magnitude"
    ),
    "kernel": "the kernel is nearly singular: a tiny temperature, and nearly linearly dependent examples",
    "labels": "the labels are large compared to the part that the kernel and the temperature explain",
}
# The default tolerance. If a smaller gradient norm exceeds a given tolerance, that tolerance is below rounding.
_USUAL_TOLERANCE = 1e-9
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
# Number of Newton steps that polish the end of a solver without a certificate.
_POLISHING = 5


class Saddle(DisplayMixin, AbstractOutcome):
    """The result of `solve`. It is differentiable in all inputs of the action, by the implicit function theorem.

    - `order_parameters`: (U_1, ..., U_L) and u.
    - `action`: S (Eq. 32) at the saddle point, not divided by the width.
    - `entropy`, `energy`: the two parts of `action`.
    - `log_evidence`: log probability density of the labels to leading order in the widths, -(S - S_0 + P log 2 pi)/2
      for P labels. S_0 is the lowest entropy, at the prior means; it replaces constants that S drops. With a richness
      the width multiplies squared labels, and the density has the factor (N_1 gamma_0^2)^(P/2).
    - At infinite width with a richness, `action`, its parts and `log_evidence` are divided by the width N_1.
    - `gradient_norm`: norm of the gradient of S per largest width in the affine-invariant metric, which is the norm of
      C^T (dS/dU) C with U = C C^T. Slopes of a block of U_l that is a multiple of U_{l+1} count in U_{l+1}.
    - `min_hessian_eigenvalue`: smallest Hessian eigenvalue of S in this metric, per largest width. It is positive at a
      minimum. If there are too many paths to form the Hessian, it is an upper bound.
    - `action_error`: rounding error of `action`, from the condition numbers of all factorised matrices.
    - `result`: success if and only if `gradient_norm` is within the tolerance and `min_hessian_eigenvalue` is positive.
    - `stats`: further numbers by name:

        - `steps`, `evaluations`, `curvatures`, `attempts`: work of the solver; zero if the solver does not count it.
        - `tolerance`: largest gradient norm of a solution.
        - `content`: whether the solver reported success.
        - `remaining`: decrease of the action by another Newton step; NaN without a Hessian.
        - `error_of_order_parameters`, `error_of_kernel`, `error_of_labels`: parts of `action_error`.
        - `units_per_path`: smallest ratio of hidden units to partial paths. Below one the order parameters of the
          network are singular, and the saddle point is not valid.

    - `ansatz`: the assumption beyond large widths, or the parameterisation with a richness, in words; else empty.
    - `architecture`: the network that was solved.

    Under `vmap` every leaf has the axes of the batch: `converged` is an array, `failures` counts failed solves, and
    `throw=True` raises an error if any solve failed. A failed batch, or a failed result of `jit`, raises a warning when
    its order parameters are used.
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
    ansatz: str = eqx.field(static=True, default="")
    architecture: Architecture | None = None

    def _view(self) -> Iterator[Block]:
        yield Text(verbatim(self.diagnosis))
        is_infinite = self.architecture is not None and self.architecture.is_infinite
        rounding, tolerance = number(self.action_error, 1), number(self.stats["tolerance"], 3)
        curvature = f"smallest curvature {number(self.min_hessian_eigenvalue, 3)}, both per width"
        rows = [
            (
                "log evidence per width" if is_infinite else "log evidence",
                f"{number(self.log_evidence, 8)}"
                + ("" if is_infinite else ", to leading order in the widths; bpkr.fluctuations adds the next order"),
            ),
            ("action per width" if is_infinite else "action", f"{number(self.action, 8)}, rounding error {rounding}"),
            ("its parts", f"entropy {number(self.entropy, 8)}, energy {number(self.energy, 8)}"),
            ("gradient norm", f"{number(self.gradient_norm, 3)}, tolerance {tolerance}; {curvature}"),
        ]
        if np.ndim(self.action):
            converged = f"{np.sum(self.converged):,} of {counted(np.size(self.action), 'solve')}"
            yield Table((("converged", converged), *rows))
        else:
            yield Table((*rows, *order_parameter_rows(self.order_parameters)))
        if self.ansatz:
            yield Text(self.ansatz)

    def describe(self) -> str:
        norm, tolerance = float(self.gradient_norm), float(self.stats["tolerance"])
        steps, curvature = int(self.stats["steps"]), float(self.min_hessian_eigenvalue)
        if self.converged:
            least = f"smallest eigenvalue of the Hessian {curvature:.3g} per width"
            return f"converged: gradient norm {norm:.3g}, {least}, after {counted(steps, 'step')}"
        if norm <= tolerance:
            return (
                f"stationary (gradient norm {norm:.3g}) but not a minimum: the smallest eigenvalue of the Hessian is "
                f"{curvature:.3g} per width. Start from elsewhere (initial=...)"
            )
        reached = f"gradient norm {norm:.3g} exceeds the tolerance {tolerance:.3g} after {counted(steps, 'step')}"
        if self.result == optx.RESULTS.nonlinear_max_steps_reached:
            # If the rounding error of S exceeds 1, exp(-S/2) is not resolved.
            hopeless = float(self.action_error) > 1
            more = "Raise it, or start from a neighbouring solution (initial=...)"
            return f"{reached}, all that max_steps allows. {_rounding_of(self) if hopeless else more}"
        if self.stats["content"]:
            return f"{reached}: the solver stopped at its own tolerance (rtol, atol). Tighten that, or loosen this"
        return f"{reached}, and no step lowers the action beyond rounding. {_rounding_of(self)}"

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of the order parameters (whitened Cholesky factors, see `order_parameters.coordinates`)."""
        return from_order_parameters(self.architecture, self.order_parameters)

    @property
    def diagnosis(self) -> str:
        """The result in words, with advice if a solve failed or a layer is too narrow."""
        least = float(np.min(self.stats["units_per_path"]))
        if least >= 1:
            return super().diagnosis
        return (
            f"{super().diagnosis}. The theory of wide layers does not hold: a layer has {least:.2g} hidden units per "
            "partial path, so order parameters of the network are singular and can be far from the saddle point; "
            "sampling.sample draws from their exact posterior"
        )


def _rounding_of(saddle: Saddle) -> str:
    remaining = float(saddle.stats["remaining"])
    left = f", and a Newton step would lower it by {remaining:.1g}" if np.isfinite(remaining) else ""
    known = f"The action, {float(saddle.action):.6g}, is known to about {float(saddle.action_error):.1g}{left}"
    if float(saddle.gradient_norm) <= _USUAL_TOLERANCE:
        return f"{known}. Likely cause: the tolerance, which is below the rounding error of the gradient. Loosen it"
    cause = _CAUSES[max(_CAUSES, key=lambda name: float(saddle.stats[f"error_of_{name}"]))]
    return f"{known}. Likely cause: {cause}. Rescale them, or loosen the tolerance"


def solve(
    problem: Problem | Architecture,
    data: Data | None = None,
    *,
    solver: optx.AbstractMinimiser | None = None,
    initial: OrderParameters | AbstractOutcome | None = None,
    tolerance: float = _USUAL_TOLERANCE,
    max_steps: int = 1000,
    throw: bool = False,
) -> Saddle:
    """Minimise the action over the order parameters: the saddle point of the posterior, Eq. (32).

    Args:
        problem: the architecture with its data, or the architecture alone.
        data: the data, if `problem` is an architecture.
        solver: by default `Newton`, or `AcceleratedSweeps` if there are too many paths to form the curvature. Any
            Optimistix minimiser works. A few Newton steps polish its result before it is judged.
        initial: starting point; by default the Gaussian-process limit.
        tolerance: largest gradient norm (see `Saddle`) of a solution.
        max_steps: largest number of steps of the solver.
        throw: raise an error instead of a `ConvergenceWarning` if the solve does not converge.

    Returns:
        A `Saddle`. Its result code is success if the measured gradient norm is within the tolerance and all eigenvalues
        of the Hessian are positive, independently of what the solver reports.

    Raises:
        ValueError: the data do not fit, or `solver` is not a minimiser. Root finders are not allowed, because
            Optimistix would report success at points that are not minima.

    If the default solver fails, `solve` retries from the nearest end point, and by continuation from a higher
    temperature, with `max_steps` steps in total. Memory grows with the square of the number of examples, or of paths
    times features, whichever is smaller.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> data = bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> saddle = bpkr.solve(arch, data)
        >>> bool(saddle.converged)
        True
        >>> saddle.order_parameters.matrices[0].shape
        (2, 2)
    """
    with usual_settings():
        problem = as_problem(problem, data)
        checked_flag("throw", throw)
        checked_whole_number("max_steps", max_steps, least=1)
        checked_number("tolerance", tolerance, above=0.0)
        if solver is not None and not isinstance(solver, optx.AbstractMinimiser):
            raise ValueError(
                f"solver must be an optimistix.AbstractMinimiser such as BFGS, got {type(solver).__name__}; "
                "root finders and least-squares solvers would report success at points that are not minima"
            )
        problem.require_labels()
        architecture = problem.architecture
        start = gp_coordinates(architecture)
        if initial is not None:
            start = problem.coordinates(problem.point(initial, "initial"))
        if is_traced(problem, start):
            saddle = _attempt(problem.canonical, start, solver, tolerance, max_steps)
        else:
            numbers = _ORDER_PARAMETER_COPIES * architecture.overlap_sizes[0] ** 2 + _KERNEL_COPIES * problem.rows**2
            check_fits(architecture, f"solving with a kernel of {problem.rows:,} rows", numbers)
            saddle = _solved(problem.canonical, start, solver, tolerance, max_steps)
            problem.finite((saddle.action, saddle.gradient_norm))
        return report(replace(saddle, ansatz=problem.ansatz) if problem.ansatz else saddle, throw, stacklevel=2)


def _solved(problem: Problem, start: Coordinates, solver: Any, tolerance: float, max_steps: int) -> Saddle:
    """Solve, and retry the default solver with one strategy after another until one converges."""
    if solver is not None:
        return _attempt(problem, start, solver, tolerance, max_steps)
    first = _attempt(problem, start, None, tolerance, min(max_steps, _MOST_STEPS))
    if first.converged:
        return first
    codes, attempts, spent = optx.RESULTS, [first], _work(first)
    newton = Newton(atol=tolerance) if len(start) <= _NEWTON_SIZE else None

    def steps_left() -> int:
        return max_steps - int(spent["steps"])

    def attempted(problem: Problem, start: Coordinates, solver: Any, tolerance: float, most: int) -> Saddle:
        saddle = _attempt(problem, start, solver, tolerance, min(most, steps_left()))
        spent.update({name: spent[name] + count for name, count in _work(saddle).items()})
        return saddle

    def end_of(problem: Problem, begin: Coordinates) -> Coordinates:
        if steps_left() <= 0:
            return begin
        rough = attempted(problem, begin, None, _ROUGH, _ROUGH_STEPS)
        return _end_point(rough, begin)

    def starts() -> Iterator[tuple[Coordinates, int]]:
        if first.result != codes.nonlinear_max_steps_reached:
            # Rounding errors stopped the first solve, probably close to the minimum.
            yield _end_point(first, start), _MOST_STEPS
        for begin in problem.strategies(end_of, start):
            yield begin, _MOST_STEPS
        yield _end_point(min(attempts, key=_distance), start), max_steps

    for begin, most in starts():
        if steps_left() <= 0:
            break
        attempts.append(attempted(problem, begin, newton, tolerance, most))
        if attempts[-1].converged:
            break
    best = attempts[-1] if attempts[-1].converged else min(attempts, key=_distance)
    result = best.result
    if not best.converged and bool(jnp.isfinite(best.gradient_norm)):
        # The result of the best attempt may refer to the small budget of that attempt.
        result = codes.nonlinear_max_steps_reached if steps_left() <= 0 else codes.nonlinear_divergence
    stats = {**best.stats, **spent, "attempts": jnp.array(len(attempts))}
    return eqx.tree_at(lambda saddle: (saddle.stats, saddle.result), best, (stats, result))


def _end_point(saddle: Saddle, otherwise: Coordinates) -> Coordinates:
    """Return the coordinates at which a solve ended, unless rounding made them NaN."""
    is_finite = bool(jnp.all(jnp.isfinite(saddle.coordinates)))
    return saddle.coordinates if is_finite else otherwise


def _work(saddle: Saddle) -> dict[str, Any]:
    return {name: saddle.stats[name] for name in ("steps", "evaluations", "curvatures")}


def _distance(saddle: Saddle) -> float:
    return float(jnp.nan_to_num(saddle.gradient_norm, nan=jnp.inf))


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


@usual_settings()
def gradient_norm(problem: Problem, order_parameters: OrderParameters | AbstractOutcome) -> Float[Array, ""]:
    """Return the norm of the gradient of S per largest width, in the affine-invariant metric; see `Saddle`."""
    problem = as_problem(problem)
    problem.require_labels()
    return _gradient_norm(problem.canonical, problem.point(order_parameters))


@jit
def _gradient_norm(problem: Problem, order_parameters: OrderParameters):
    return problem.at(problem.coordinates(order_parameters)).gradient_norm


@jit_and_keep
def _minimise(problem: Problem, start: Coordinates, solver, tolerance, steps: Mapping[str, Any]) -> Saddle:
    """Minimise from `start`. `steps` are the keywords of `optimistix.minimise` that limit the number of steps."""
    fixed, start = jax.lax.stop_gradient((problem, start))
    found = optx.minimise(lambda at, problem: problem.action(at), solver, start, fixed, throw=False, **steps)
    end, forms_curvature = end_of(fixed, found), isinstance(solver, Newton) or problem.forms_curvature
    point, model = end["point"], end.get("model")
    if forms_curvature and model is None:
        point, model = _polished(fixed, point, tolerance)
    curvature = least_curvature(fixed, point, model)
    known_to = fixed.rounding(point)
    coordinates = implicit_point(problem, point.coordinates, forms_curvature, None)
    found_there, there = point.details, (problem, coordinates)
    parts = found_there.entropy, found_there.energy.value
    of_entropy, of_energy = with_derivative_of(parts, Problem.parts, there)
    # The action is stationary, so gradients of the action and of the evidence need no solve with the Hessian.
    action = stationary_value(sum(parts), Problem.action, problem, coordinates)
    of_prior = problem.bound.entropy(gp_limit(problem.architecture))
    widths, sizes = problem.architecture.widths, problem.architecture.overlap_sizes
    stats = {
        "steps": found.stats["num_steps"],
        "evaluations": end["evaluations"],
        "curvatures": end["curvatures"],
        "tolerance": tolerance,
        "content": found.result == optx.RESULTS.successful,
        "attempts": jnp.array(1),
        "units_per_path": jnp.min(jnp.asarray(widths) / jnp.asarray(sizes)),
        "remaining": jnp.array(jnp.nan) if model is None else model.remaining(),
        **{f"error_of_{name}": part for name, part in known_to.items()},
    }
    return Saddle(
        order_parameters=with_derivative_of(found_there.order_parameters, Problem.order_parameters, there),
        action=action,
        entropy=of_entropy,
        energy=of_energy,
        log_evidence=(of_prior - action) / 2 + problem.energy.label_constant,
        gradient_norm=point.gradient_norm,
        min_hessian_eigenvalue=curvature,
        action_error=sum(known_to.values()),
        result=judged_minimum(found.result, point, curvature, tolerance),
        stats=stats,
        architecture=problem.architecture,
    )


def _polished(problem: Problem, point: Point, tolerance: Array) -> tuple[Point, QuadraticModel]:
    """Take Newton steps from the end of a solver that has no tolerance of the gradient, while they help."""

    def step(state):
        _, count, here, model = state
        there = problem.at(problem.moved(here.coordinates, model.directions @ model.along_newton()))
        is_better = there.is_finite & (there.gradient_norm < here.gradient_norm)
        here = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), there, here)
        return is_better, count + 1, here, QuadraticModel.of(problem.expansion(here))

    def goes_on(state):
        is_better, count, here, model = state
        is_convex = model.curvatures[0] > 0
        return is_better & (count < _POLISHING) & (here.gradient_norm > tolerance) & is_convex

    start = jnp.array(True), 0, point, QuadraticModel.of(problem.expansion(point))
    _, _, point, model = jax.lax.while_loop(goes_on, step, start)
    return point, model
