"""Estimate the energy and the saddle point if neither the P x P kernel nor the D x D Gram matrix fits in memory.

The kernel is used only in the generated product (K + T I) V. Conjugate gradients give the misfit. The log-determinant
and its gradient are means over random probes z, from Lanczos runs on M = P^{-1/2} (K + T I) P^{-1/2}:

    logdet(K + T I) = logdet P + E[ z^T log(M) z ]
    d logdet(K + T I) = E[ x^T dK x ],  x = P^{-1/2} M^{-1/2} z

The control variates have the means tr M and tr(P^{-1} dK), which are known exactly. For fixed probes the estimated
gradient is a deterministic function of U_1. Majorise-minimise steps with Anderson acceleration find the saddle point.
The result is the mean over several sets of probes, and their scatter gives its error.

Source: J. Wenger, G. Pleiss, P. Hennig, J. Cunningham, J. Gardner, "Preconditioning for scalable Gaussian process
hyperparameter optimization" (arXiv 2107.00243), which splits the log-determinant by a preconditioner.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
import scipy
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...checks import checked_flag, checked_instance, checked_key, checked_number, checked_whole_number, is_traced
from ...compilation import jit
from ...precision import require_float64
from ...progress import Progress
from ...saddle.diagnosis import ConvergenceWarning
from ...saddle.solvers.anderson import AndersonMemory
from ...sharding import of_this_process, outside_meshes, replicate, shard_like, sharding_of
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text
from ...symbolic.documents.values import number
from ..data.reading import refuse_kernels
from ..evaluation.bound_action import BoundAction
from ..evaluation.contractions import Number, PathMatrix
from ..evaluation.majorisation import BoundedEnergy
from ..evaluation.observables import head_score_table
from ..evaluation.problem import Problem, as_problem
from ..order_parameters.coordinates import Coordinates, from_order_parameters, to_order_parameters
from ..order_parameters.metric import largest_width
from ..order_parameters.order_parameters import HasOrderParameters, OrderParameters, order_parameter_blocks
from ..specification.architecture import Architecture
from .lanczos import run_lanczos
from .whitened_kernel import Design, Kernel, WhitenedKernel, path_gram, whiten_kernel

# Minimiser of the bound next to a skip connection, which has no closed-form minimum, and its largest number of steps.
_INNER, _INNER_STEPS = optx.BFGS(rtol=1e-10, atol=1e-10), 500
# Number of secants in Anderson acceleration.
_MEMORY = 12
# If a step changes a coordinate by this factor more than the smallest change so far, return to the best point.
_THROWN_OFF = 10


class MatrixFreeWarning(UserWarning):
    """The limit on the number of products was reached, and the bias exceeds the standard error."""


class MatrixFree(eqx.Module):
    """A solver for `bpkr.solve` and `bpkr.estimate_energy` that uses only products with the kernel.

    In addition to the features, the solver stores rows x (block x order + rank + probes) numbers.

    Args:
        key: a JAX random key for the probes.
        probes: number of random vectors, at least four. Standard errors are proportional to one over its square root.
        rank: rank of the preconditioner. A larger rank needs fewer products and gives smaller errors. If it exceeds the
            rank of the kernel, the estimate is exact.
        order: order of the first Lanczos runs. The order doubles until their bias is below half the standard error.
        max_order: largest number of products per vector, in conjugate gradients and in a Lanczos run.
        tolerance: relative residual of conjugate gradients.
        block: number of vectors that are processed at a time.
        repeats: number of saddle points that `solve` averages, at least three.
        progress: whether to show a bar of the solver's steps.

    Example:
        >>> import jax
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> data = bpkr.Data(jax.random.normal(jax.random.key(0), (20, 2, 5)), jax.numpy.array([-1.0, 1.0] * 10))
        >>> problem = bpkr.Problem(bpkr.Architecture(layers=(2,), widths=10, temperature=0.1), data)
        >>> solver = bpkr.MatrixFree(jax.random.key(0), progress=False)
        >>> energy = bpkr.estimate_energy(problem, bpkr.gp_limit(problem.architecture), solver)
        >>> round(float(energy.value), 4), bool(energy.standard_error < 1e-9)  # rank 256 > 20 examples
        (64.2527, True)
    """

    key: PRNGKeyArray
    probes: int = eqx.field(static=True, default=32)
    rank: int = eqx.field(static=True, default=256)
    order: int = eqx.field(static=True, default=32)
    max_order: int = eqx.field(static=True, default=256)
    tolerance: float = eqx.field(static=True, default=1e-6)
    block: int = eqx.field(static=True, default=16)
    repeats: int = eqx.field(static=True, default=8)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        checked_key("key", self.key)
        # Standard errors with a control variate need four probes, and the scatter of saddle points needs three repeats.
        for name, least in {"probes": 4, "rank": 1, "order": 1, "max_order": 1, "block": 1, "repeats": 3}.items():
            checked_whole_number(name, getattr(self, name), least=least)
        checked_number("tolerance", self.tolerance, above=0.0, below=1.0)
        checked_flag("progress", self.progress)


class Slopes(eqx.Module):
    """Gradient of the energy with respect to U_1: `logdet_gradient - minus_misfit_gradient`; see `estimate_energy`."""

    logdet_gradient: PathMatrix
    logdet_gradient_error: PathMatrix
    logdet_gradient_bias: PathMatrix
    minus_misfit_gradient: PathMatrix
    minus_misfit_gradient_bias: PathMatrix

    @property
    def gradient(self) -> PathMatrix:
        """The estimated gradient of the energy."""
        return self.logdet_gradient - self.minus_misfit_gradient


class EnergyEstimate(DisplayMixin, eqx.Module):
    """The energy and its gradient with their errors; see `estimate_energy`."""

    value: Number
    standard_error: Number
    bias: Number
    log_determinant: Number
    misfit: Number
    slopes: Slopes
    stats: Mapping[str, Any]

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Energy** {number(self.value, 8)} +- {number(self.standard_error, 2)}")
        rows = {"bias, at most": self.bias, "log determinant": self.log_determinant, "misfit": self.misfit}
        rows |= {"order of Lanczos runs": self.stats["order"], "steps of conjugate gradients": self.stats["steps"]}
        yield Table(tuple((name, number(value)) for name, value in rows.items()))

    def error(self, deviations: float = 3.0) -> Number:
        """Return `deviations` standard errors (Student's t with probes - 2 degrees of freedom), plus the bias."""
        return checked_number("deviations", deviations, least=0.0) * self.standard_error + self.bias


def estimate_energy(
    problem: Problem, order_parameters: OrderParameters | HasOrderParameters, solver: MatrixFree
) -> EnergyEstimate:
    """Estimate E = logdet(K + T I) + y^T (K + T I)^{-1} y (Eq. 12) and its gradient, from products with the kernel.

    Features that are sharded over examples stay on their devices. A `MatrixFreeWarning` is issued if `solver.max_order`
    is reached and the bias exceeds the standard error.

    Args:
        problem: a problem with training features, labels and a positive temperature.
        order_parameters: the point at which to evaluate the energy.
        solver: the random key and the sizes of the estimate.

    Returns:
        An estimate with these attributes:

        - `value`: E, the sum of `log_determinant` and `misfit`. For a fixed key it is a deterministic function of U_1.
        - `standard_error`: standard error of `value`, from the scatter of the probes.
        - `bias`: bound on the error of `value` from unfinished iterations, rigorous up to rounding.
          `error(deviations)` combines it with the standard error.
        - `slopes`: the `gradient` of E in U_1 (n_1 x n_1), which is `logdet_gradient` minus `minus_misfit_gradient`.
          Each has a bias per entry, and `logdet_gradient_error` is its standard error over probes.
        - `stats`: `order` of the Lanczos runs, `steps` of conjugate gradients, and `condition` number of M.

    Raises:
        ValueError: the problem has no training arrays, its temperature is zero or lost in rounding, or it is traced.
    """
    problem = as_problem(problem)
    checked_instance("solver", solver, MatrixFree, "such as bpkr.MatrixFree(jax.random.key(0))")
    with outside_meshes():
        operands = operands_of(problem)
        first = problem.point(order_parameters).first
        return estimate_at(operands, first, random_probes(solver, operands), solver)


class Operands(eqx.Module):
    """Arrays that do not depend on U_1; `path_gram` is the gradient of tr K."""

    bound: BoundAction
    design: Design
    labels: Float[Array, "rows one"]
    path_gram: PathMatrix


def operands_of(problem: Problem) -> Operands:
    """Return a problem's operands. Raises an error without training arrays or with zero temperature."""
    architecture, data = problem.architecture, problem.data
    refuse_kernels(data.features, "the matrix-free form")
    if architecture.richness is not None:
        raise ValueError("MatrixFree needs the standard parameterisation: leave out richness, or use another solver")
    if is_traced(problem):
        raise ValueError("matrix-free estimates choose their order while they run, so they cannot run in jit or vmap")
    if data.labels is None:
        raise ValueError("the matrix-free form needs training features and labels: pass bpkr.Data(features, labels)")
    if not architecture.temperature > 0:
        raise ValueError(
            "temperature=0 gives no lower bound on the kernel's eigenvalues, and hence no bound on the errors: use a "
            "positive temperature, or the dense form"
        )
    design = Design(data.features, architecture.outputs, sharding_of(data.features))
    return Operands(problem.bound, design, data.labels.reshape(-1, 1), path_gram(design))


@jit
def random_probes(solver: MatrixFree, operands: Operands) -> Float[Array, "probes rows"]:
    """Draw random signs on the devices of their rows. Signs are the independent entries with the smallest variance."""
    sharding, shape = operands.design.sharding, (solver.probes, operands.design.shape[0])
    if sharding is not None:
        sharding = NamedSharding(sharding.mesh, PartitionSpec(None, sharding.spec[0]))
    signs = jax.random.rademacher(jax.random.fold_in(solver.key, 0), shape, dtype=jnp.float64)
    return shard_like(signs, sharding)


def estimate_at(
    data: Operands, first: PathMatrix, probes: Float[Array, "probes rows"], solver: MatrixFree, order: int | None = None
) -> EnergyEstimate:
    """Compute `estimate_energy` with the given probes, for which E[z^T B z] = tr B. The first order is `order`."""
    rows, sharding = data.design.shape[0], data.design.sharding
    gradients = lx.CG(rtol=0.0, atol=solver.tolerance, norm=jnp.linalg.norm, max_steps=solver.max_order)
    sketch = jax.random.fold_in(solver.key, 1)
    preconditioner, of_labels = _of_labels(data, first, sketch, min(solver.rank, rows), gradients)
    whitened = WhitenedKernel(Kernel(data.bound, data.design, first), *preconditioner)
    if not whitened.floor > 0.5:
        raise ValueError(
            f"temperature={float(data.bound.architecture.temperature):.3g} is below the rounding errors of a kernel "
            f"of {rows} rows whose largest eigenvalue is about {float(jnp.max(whitened.eigenvalues)):.3g}; use a "
            "larger temperature"
        )
    limit = min(solver.max_order, rows)
    order = min(order or solver.order, limit)
    estimate, is_finished = _with_probes(whitened, data.path_gram, of_labels, probes, order, solver.block)
    while order < limit and not is_finished:
        order = min(limit, 2 * order)
        estimate, is_finished = _with_probes(whitened, data.path_gram, of_labels, probes, order, solver.block)
    estimate = of_this_process(estimate, sharding)
    bias, error, stats = float(estimate.bias), float(estimate.standard_error), estimate.stats
    if bias > error and max(stats["order"], int(stats["steps"])) >= solver.max_order:
        warnings.warn(
            f"after {solver.max_order} products per vector the bias may be {bias:.3g}, above the standard error "
            f"{error:.3g}: the whitened kernel has condition number {float(stats['condition']):.3g}. Raise max_order "
            "or rank",
            MatrixFreeWarning,
            stacklevel=3,
        )
    return estimate


@jit
def _of_labels(data, first, key, rank, solver):
    """Return the preconditioner, the misfit and minus its gradient with their biases, and the number of steps."""
    kernel = Kernel(data.bound, data.design, first)
    whitened = whiten_kernel(kernel, key, rank)
    right = whitened.whiten(data.labels)
    # M^{-1} P^{-1/2} y, with columns of unit norm.
    structure = jax.ShapeDtypeStruct(right.shape, right.dtype)
    operator = lx.FunctionLinearOperator(whitened.product, structure, lx.positive_semidefinite_tag)
    scale = jnp.linalg.norm(right)
    found = lx.linear_solve(operator, right / jnp.where(scale > 0, scale, 1.0), solver, throw=False)
    solution = scale * found.value
    residual = right - whitened.product(solution)
    # b^T M^{-1} b = 2 b^T s - s^T M s + r^T M^{-1} r, and the last term is between 0 and |r|^2 / floor.
    unsolved = jnp.sum(residual**2) / whitened.floor
    misfit = jnp.sum(solution * (right + residual)) + unsolved / 2
    rounding = whitened.rounding * jnp.sum(solution**2)
    representer = whitened.whiten(solution)
    gradient = kernel.slope(representer, representer)
    size, missed = jnp.sqrt(jnp.sum(gradient * first)), jnp.sqrt(unsolved + rounding)
    gradient_bias = _per_entry(first, missed * (2 * size + missed))
    of_labels = misfit, unsolved / 2 + rounding, gradient, gradient_bias, found.stats["num_steps"]
    # Do not return the kernel: compiled functions return copies, and its features are large.
    return (whitened.basis, whitened.eigenvalues, whitened.floor), of_labels


@jit
def _with_probes(whitened, path_gram, of_labels, probes, order, block) -> tuple[EnergyEstimate, Bool[Array, ""]]:
    """Estimate with Lanczos runs of this `order`, and return whether the bias is below half the standard errors."""
    kernel, (misfit, misfit_bias, minus_misfit_gradient, minus_misfit_gradient_bias, steps) = whitened.kernel, of_labels
    runs = run_lanczos(lambda vector: whitened.product(vector[:, None])[:, 0], probes, whitened.floor, order, block)
    of_trace = whitened.slope_of_trace(path_gram)
    trace = jnp.sum(of_trace * kernel.first) + kernel.temperature * whitened.trace(jnp.reciprocal)
    log_det, error, _ = _controlled_mean(runs.middle, runs.form, trace, jnp.ones(()))
    rounding = kernel.rows * whitened.rounding
    bias = jnp.mean(runs.half_width) + rounding

    def slope(vector):
        column = whitened.whiten(vector[:, None])
        return kernel.slope(column, column)

    batch_size = min(block, len(probes))
    samples = jax.lax.map(slope, runs.roots, batch_size=batch_size)
    controls = jax.lax.map(slope, probes, batch_size=batch_size)
    logdet_gradient, logdet_gradient_error, length = _controlled_mean(samples, controls, of_trace, kernel.first)
    sizes = jnp.sqrt(jnp.maximum(jnp.einsum("jab,ab->j", samples, kernel.first), 0.0))
    missed = runs.root_errors + jnp.sqrt(kernel.rows) * whitened.rounding
    logdet_gradient_bias = jnp.mean(missed * (2 * sizes + missed))
    is_finished = (bias <= jnp.maximum(error / 2, 2 * rounding)) & (
        logdet_gradient_bias <= jnp.maximum(length / 2, 4 * rounding)
    )
    log_determinant = whitened.trace(jnp.log) + log_det
    estimate = EnergyEstimate(
        value=log_determinant + misfit,
        standard_error=error,
        bias=bias + misfit_bias,
        log_determinant=log_determinant,
        misfit=misfit,
        slopes=Slopes(
            logdet_gradient,
            logdet_gradient_error,
            _per_entry(kernel.first, logdet_gradient_bias),
            minus_misfit_gradient,
            minus_misfit_gradient_bias,
        ),
        stats={"order": order, "steps": steps, "condition": runs.largest / whitened.floor},
    )
    return replicate((estimate, is_finished), kernel.design.sharding)


def _per_entry(first, bound):
    """Return bounds on the entries of X, given |U^{1/2} X U^{1/2}| <= bound with U = `first`.

    The errors are bounded in this norm, because K <= A implies |(U^{1/2} (x) I) Phi^T x|^2 <= x^T A x.
    """
    factor = jnp.linalg.cholesky(first)
    roots = jnp.linalg.norm(jax.scipy.linalg.solve_triangular(factor, jnp.eye(len(first)), lower=True), axis=0)
    return bound * jnp.outer(roots, roots)


def _controlled_mean(samples, controls, expected, metric):
    """Return the mean of `samples` over axis 0, its standard error per entry, and the norm of the standard error.

    The control variates `controls` have the known mean `expected`. They share one coefficient, from least squares over
    all samples and entries. The norm of a matrix is |U^{1/2} X U^{1/2}| with U = `metric`.
    """
    count = len(samples)
    deviations, control_deviations = samples - jnp.mean(samples, axis=0), controls - jnp.mean(controls, axis=0)

    def inner(left, right):
        return jnp.sum(left * right) if metric.ndim == 0 else jnp.einsum("jab,bc,jcd,da->", left, metric, right, metric)

    variation = inner(control_deviations, control_deviations)
    # Controls may be constant, for example if the probes are basis vectors, and are then of no use.
    is_control = variation > 0
    divisor = jnp.where(is_control, variation, 1.0)
    coefficient = jnp.where(is_control, inner(deviations, control_deviations) / divisor, 0.0)
    offset = jnp.mean(controls, axis=0) - expected
    residuals = deviations - coefficient * control_deviations
    # The variance of the mean plus the variance of the coefficient times the offset of the controls.
    share = (1 / count + inner(offset[None], offset[None]) / divisor) / (count - 2)
    error = jnp.sqrt(jnp.sum(residuals**2, axis=0) * share)
    return jnp.mean(samples, axis=0) - coefficient * offset, error, jnp.sqrt(inner(residuals, residuals) * share)


class MatrixFreeSaddle(DisplayMixin, eqx.Module):
    """The result of `solve` with the solver `MatrixFree`.

    - `order_parameters`: the mean over repeats, taken in the solver's coordinates.
    - `errors`: the standard error of each entry of `order_parameters`, from the scatter of the repeats.
    - `action`: S at `order_parameters` (Eq. 32, undivided), the sum of `entropy` and `energy`.
    - `entropy`: the entropy at `order_parameters`, which is exact.
    - `energy`: the energy at `order_parameters`, estimated with fresh probes.
    - `standard_error`: standard error of `action`.
    - `excess`: an estimate of `action` minus the minimum of S.
    - `bias`: a bound on the error of `energy` from unfinished iterations.
    - `stats`: `steps` and `residual` of each repeat, and `samples`, the solutions as coordinates. A residual is the
      largest change of a coordinate in the last step.
    - `architecture`: the network that was solved.
    """

    order_parameters: OrderParameters
    errors: OrderParameters
    action: Number
    entropy: Number
    energy: Number
    standard_error: Number
    excess: Number
    bias: Number
    stats: Mapping[str, Any]
    architecture: Architecture | None = None

    def _view(self) -> Iterator[Block]:
        repeats = len(self.stats["samples"])
        yield Text(f"**Saddle point** without a matrix of the kernel: the mean over {repeats} sets of probes")
        last, deviations = number(self.stats["residual"], 2), [np.max(each) for each in jax.tree.leaves(self.errors)]
        rows = (
            ("action", f"{number(self.action, 8)} +- {number(self.standard_error, 2)}"),
            ("its parts", f"entropy {number(self.entropy, 8)}, energy {number(self.energy, 8)}"),
            (
                "above its minimum",
                f"by about {number(self.excess, 2)}; bias of the energy at most {number(self.bias, 2)}",
            ),
            ("steps", f"{number(self.stats['steps'])} per set, the last of a change of {last}"),
            ("standard errors", f"at most {number(max(deviations), 2)} of an entry of an order parameter"),
        )
        yield Table(rows)
        yield from head_score_table(self.architecture, self.order_parameters)
        yield from order_parameter_blocks(self.order_parameters, self.architecture)

    def error(self, deviations: float = 3.0) -> Number:
        """Bound the error of `action` as the minimum of S: `deviations` times (standard error + excess), plus bias."""
        return checked_number("deviations", deviations, least=0.0) * (self.standard_error + self.excess) + self.bias

    def margins(self, probability: float = 0.99) -> OrderParameters:
        """Bound the distance of each order parameter from the saddle point with this probability."""
        require_float64()
        checked_number("probability", probability, above=0.0, below=1.0)
        quantile = float(scipy.special.stdtrit(len(self.stats["samples"]) - 1, (1 + probability) / 2))
        return jax.tree.map(lambda error: quantile * error, self.errors)


class _SampleAverage:
    """The estimated energy for one set of probes, as a function of the order parameters."""

    def __init__(self, data: Operands, solver: MatrixFree, key: PRNGKeyArray):
        self.data, self.solver, self.order = data, replace(solver, key=key), solver.order
        self.probes = random_probes(self.solver, data)

    def at(self, point: OrderParameters) -> EnergyEstimate:
        estimate = estimate_at(self.data, point.first, self.probes, self.solver, self.order)
        # Start with the last order, because condition numbers change little from step to step.
        self.order = estimate.stats["order"]
        return estimate


def solve_matrix_free(
    problem: Problem, solver: MatrixFree, start: Coordinates, tolerance: float, max_steps: int, throw: bool
) -> MatrixFreeSaddle:
    """Solve once per repeat with fresh probes, until a step changes no coordinate by more than `tolerance`."""
    with outside_meshes():
        data, repeats = operands_of(problem), solver.repeats
        bound, (*keys, last) = data.bound, jax.random.split(solver.key, repeats + 1)
        samples = [_SampleAverage(data, solver, key) for key in keys]
        ends, steps, residuals, memory = [], [], [], AndersonMemory.empty(_MEMORY, len(start))
        with Progress("matrix-free saddle", unit="step", shown=solver.progress) as report:
            for sample in samples:
                # New probes change the map, but hardly its derivative, so keep the secants.
                memory, point, best, lowest, taken = memory.restarted(), start, start, math.inf, 0
                # Find the fixed point of a majorise-minimise step.
                while taken < max_steps and lowest > tolerance:
                    taken += 1
                    image = _minimise_bound(bound, point, sample.at(_order_parameters(bound, point)).slopes)
                    change = float(jnp.max(jnp.abs(image - point)))
                    report.update(note=f"change={change:.1e}")
                    if change < lowest:
                        best, lowest = image, change
                    if change <= _THROWN_OFF * lowest:
                        point, memory = memory.next_point(point, image)
                    else:
                        # Restart from the best point without the secants, which led away from it.
                        point, memory = best, AndersonMemory.empty(_MEMORY, len(start))
                start = best
                ends.append(best)
                steps.append(taken)
                residuals.append(lowest)
        if not max(residuals) <= tolerance:
            message = (
                f"the solve did not converge: after {max_steps} steps a step still changes a coordinate by "
                f"{max(residuals):.3g}, more than the tolerance {tolerance:.3g}. Raise max_steps or the tolerance"
            )
            if throw:
                raise RuntimeError(message)
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        ends = jnp.stack(ends)
        centre, point, errors = _mean(bound, ends)
        # Near its minimum each sample's S is quadratic, so the rise to the mean is half the slope there times the
        # distance.
        climbs = [
            _gradient(bound, centre, sample.at(point).slopes.gradient) @ (centre - end) / 2
            for sample, end in zip(samples, ends, strict=True)
        ]
        # Estimate the energy with fresh probes, because the old ones are biased.
        estimates = [_SampleAverage(data, solver, key).at(point) for key in jax.random.split(last, repeats)]
        entropy, energy = bound.entropy(point), sum(estimate.value for estimate in estimates) / repeats
        return MatrixFreeSaddle(
            order_parameters=point,
            errors=errors,
            action=entropy + energy,
            entropy=entropy,
            energy=energy,
            standard_error=jnp.sqrt(sum(estimate.standard_error**2 for estimate in estimates)) / repeats,
            excess=jnp.maximum(sum(climbs) / repeats, 0.0) / (repeats - 1),
            bias=sum(estimate.bias for estimate in estimates) / repeats,
            stats={"steps": tuple(steps), "residual": tuple(residuals), "samples": ends},
            architecture=bound.architecture,
        )


@jit
def _minimise_bound(bound: BoundAction, coordinates: Coordinates, slopes: Slopes) -> Coordinates:
    here = _order_parameters(bound, coordinates)
    bounded = BoundedEnergy.at(here.first, slopes.logdet_gradient, slopes.minus_misfit_gradient)
    if bound.compiled.minima:
        return from_order_parameters(bound.architecture, bounded.minimise(bound, here))

    # Next to a skip connection there is no closed form.
    def above(coordinates, _):
        point = _order_parameters(bound, coordinates)
        return (bound.entropy(point) + bounded.value(bound, point.first)) / largest_width(bound.architecture)

    return optx.minimise(above, _INNER, coordinates, max_steps=_INNER_STEPS, throw=False).value


@jit
def _order_parameters(bound: BoundAction, coordinates: Coordinates) -> OrderParameters:
    return to_order_parameters(bound.architecture, coordinates)


@jit
def _mean(bound: BoundAction, ends) -> tuple[Coordinates, OrderParameters, OrderParameters]:
    centre = jnp.mean(ends, axis=0)
    solutions = jax.vmap(lambda end: _order_parameters(bound, end))(ends)
    errors = jax.tree.map(lambda values: jnp.std(values, axis=0, ddof=1) / math.sqrt(len(ends)), solutions)
    return centre, _order_parameters(bound, centre), errors


@jit
def _gradient(bound: BoundAction, coordinates, slope):

    def linearised(at):
        point = _order_parameters(bound, at)
        return bound.entropy(point) + jnp.sum(slope * point.first)

    return jax.grad(linearised)(coordinates)
