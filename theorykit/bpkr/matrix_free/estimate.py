"""The energy where neither the P x P kernel nor the D x D Gram matrix fits in memory: estimated, with its error.

Takes the place of `evaluate` in `Architecture -> ... -> compiled function -> solve`: the generated product (K + T I) V
is all that is used of the kernel. The misfit is solved for by conjugate gradients; the log-determinant and its gradient
are means over random probes z, from Lanczos runs on the whitened kernel M = P^{-1/2} (K + T I) P^{-1/2}:

    logdet(K + T I) = logdet P + E[ z^T log(M) z ]
    d logdet(K + T I) = E[ x^T dK x ],  x = P^{-1/2} M^{-1/2} z

tr M and tr(P^{-1} dK), known exactly, serve as control variates. Every error is stated: the standard error over probes,
and a bound of what unfinished iterations leave out.

Source: J. Wenger, G. Pleiss, P. Hennig, J. Cunningham, J. Gardner, "Preconditioning for scalable Gaussian process
hyperparameter optimization" (arXiv 2107.00243), for the trace of a logarithm split by a preconditioner.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...checks import checked_flag, checked_instance, checked_key, checked_number, checked_whole_number, is_traced
from ...compilation import jit
from ...saddle.solvers.lanczos import run_lanczos
from ...sharding import of_this_process, outside_meshes, replicate, shard_like, sharding_of
from ..data.reading import refuse_kernels
from ..evaluation.bound_action import BoundAction
from ..evaluation.problem import Problem, as_problem
from ..order_parameters.order_parameters import HasOrderParameters, OrderParameters
from .whitened_kernel import Design, Kernel, WhitenedKernel, path_gram, whiten_kernel


class MatrixFreeWarning(UserWarning):
    """A limit on the work leaves a bias as large as the standard error; it is stated with the result."""


class MatrixFree(eqx.Module):
    """The solver that uses products with the kernel alone, and how much work it may do.

    Give it to `bpkr.solve` or `bpkr.estimate_energy`. Memory beyond the features: rows x (block x order + rank +
    probes) numbers.

    Args:
        key: a JAX random key, from which the probes are drawn.
        probes: random vectors, four or more; standard errors fall as one over their square root.
        rank: rank of the preconditioner; a larger one needs fewer products and makes smaller standard errors. If it
            exceeds the rank of the kernel, the estimate is exact.
        order: order of the first Lanczos runs; doubled until their bias is below half the standard error.
        max_order: most products per vector, in conjugate gradients and in a Lanczos run.
        tolerance: relative residual of conjugate gradients.
        block: vectors at a time.
        repeats: saddle points that `solve` averages, three or more.
        progress: show a bar of the solver's steps.
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
        # a standard error with a control variate needs four probes, scatter three repeats
        for name, least in {"probes": 4, "rank": 1, "order": 1, "max_order": 1, "block": 1, "repeats": 3}.items():
            checked_whole_number(name, getattr(self, name), least=least)
        checked_number("tolerance", self.tolerance, above=0.0, below=1.0)
        checked_flag("progress", self.progress)


class Slopes(eqx.Module):
    """The gradient of the energy in U_1, `logdet_gradient - minus_misfit_gradient`, estimated; all matrices n_1 x n_1.

    `logdet_gradient` is the gradient of the log-determinant and `minus_misfit_gradient` minus that of the misfit.
    `logdet_gradient_error` is the standard error of each entry over probes; `logdet_gradient_bias` and
    `minus_misfit_gradient_bias` bound what unfinished iterations leave out of each.
    """

    logdet_gradient: Float[Array, "paths paths"]
    logdet_gradient_error: Float[Array, "paths paths"]
    logdet_gradient_bias: Float[Array, "paths paths"]
    minus_misfit_gradient: Float[Array, "paths paths"]
    minus_misfit_gradient_bias: Float[Array, "paths paths"]

    @property
    def gradient(self) -> Float[Array, "paths paths"]:
        """The estimate of the gradient of the energy."""
        return self.logdet_gradient - self.minus_misfit_gradient


class EnergyEstimate(eqx.Module):
    """The energy E (Eq. 12), undivided, with its error, and its gradient in U_1 with its own.

    - `value`: the estimate, `log_determinant` plus `misfit`. Given the key it is a function of U_1 without noise.
    - `standard_error`: of `value`, over the probes.
    - `bias`: a bound of what unfinished iterations leave out, rigorous up to rounding: |value - E| is within `bias` of
      what the probes alone would make it.
    - `slopes`: the gradient, from the same probes: an estimate of that of E, not the derivative of `value`.
    - `stats`: `order` of the Lanczos runs, `steps` of conjugate gradients, and `condition`, an estimate of the
      condition number of the whitened kernel.
    """

    value: Float[Array, ""]
    standard_error: Float[Array, ""]
    bias: Float[Array, ""]
    log_determinant: Float[Array, ""]
    misfit: Float[Array, ""]
    slopes: Slopes
    stats: Mapping[str, Any]

    def error(self, deviations: float = 3.0) -> Float[Array, ""]:
        """The stated error: `deviations` standard errors, plus the bias.

        Few probes make heavy tails: Student's t with probes - 2 degrees of freedom.
        """
        return checked_number("deviations", deviations, least=0.0) * self.standard_error + self.bias


def estimate_energy(
    problem: Problem, order_parameters: OrderParameters | HasOrderParameters, solver: MatrixFree
) -> EnergyEstimate:
    """Estimate E = logdet(K + T I) + y^T (K + T I)^{-1} y (Eq. 12) and its gradient, from products with the kernel.

    Features that are sharded over examples stay on their devices. The order of the Lanczos runs grows until their bias
    is below half the standard error; a `MatrixFreeWarning` says if `solver.max_order` comes first.

    Raises:
        ValueError: the temperature is zero. All bounds are in units of the smallest eigenvalue of K + T I that is known
            beforehand, which is T.
    """
    problem = as_problem(problem)
    checked_instance("solver", solver, MatrixFree, "such as bpkr.MatrixFree(jax.random.key(0))")
    with outside_meshes():
        operands = operands_of(problem)
        first = problem.point(order_parameters).first
        probes = random_probes(solver.key, solver.probes, operands.rows, operands.sharding)
        return estimate_at(operands, first, probes, solver.key, solver)


class Operands(eqx.Module):
    """What does not change with U_1: the features as an operator, the labels as a column, the gradient of tr K."""

    bound: BoundAction
    design: Design
    labels: Float[Array, "rows one"]
    path_gram: Float[Array, "paths paths"]

    @property
    def rows(self) -> int:
        """Rows of the kernel: examples times outputs."""
        return self.design.shape[0]

    @property
    def sharding(self) -> NamedSharding | None:
        """How the rows are sharded, if they are."""
        return self.design.sharding


def operands_of(problem: Problem) -> Operands:
    """Return the operands of a problem, refused unless it has training arrays and a temperature."""
    architecture, data = problem.architecture, problem.data
    refuse_kernels(data.features, "the matrix-free form")
    if is_traced(problem):
        raise ValueError("matrix-free estimates choose their order as they go: they cannot run inside jit or vmap")
    if data.labels is None:
        raise ValueError("the matrix-free form needs training features and labels, bpkr.Data(features, labels)")
    if not architecture.temperature > 0:
        raise ValueError(
            "temperature=0 leaves no lower bound of the kernel's eigenvalues, and so no bound of the errors; use a "
            "positive temperature, or the dense form"
        )
    sharding, outputs = sharding_of(data.features), architecture.outputs
    gram = path_gram(data.features, outputs, sharding)
    return Operands(problem.bound, Design(data.features, outputs, sharding), data.labels.reshape(-1, 1), gram)


def random_probes(
    key: PRNGKeyArray, count: int, rows: int, sharding: NamedSharding | None = None
) -> Float[Array, "count rows"]:
    """Random signs: of all probes with independent entries, those of least variance; on the devices of their rows."""
    key = jax.random.fold_in(key, 0)
    if sharding is None:
        return jax.random.rademacher(key, (count, rows), dtype=jnp.float64)
    return _sharded_probes(key, count, rows, NamedSharding(sharding.mesh, PartitionSpec(None, sharding.spec[0])))


@jit
def _sharded_probes(key, count, rows, sharding):
    return shard_like(jax.random.rademacher(key, (count, rows), dtype=jnp.float64), sharding)


def estimate_at(
    data: Operands,
    first: Float[Array, "paths paths"],
    probes: Float[Array, "probes rows"],
    key: PRNGKeyArray,
    options: MatrixFree,
    order: int | None = None,
) -> EnergyEstimate:
    """`estimate_energy` for probes at hand, of any kind for which the mean of z^T B z is tr B; from `order` on."""
    solver = lx.CG(rtol=0.0, atol=options.tolerance, norm=jnp.linalg.norm, max_steps=options.max_order)
    rank = min(options.rank, data.rows)
    preconditioner, of_labels = _of_labels(data, first, jax.random.fold_in(key, 1), rank, solver)
    whitened = WhitenedKernel(Kernel(data.bound, data.design, first), *preconditioner)
    if not whitened.floor > 0.5:
        raise ValueError(
            f"temperature={float(data.bound.architecture.temperature):.3g} is lost in the rounding of a kernel of "
            f"{data.rows} rows whose largest eigenvalue is about {float(jnp.max(whitened.eigenvalues)):.3g}; use a "
            "larger temperature"
        )
    limit = min(options.max_order, data.rows)
    order = min(order or options.order, limit)
    estimate, is_finished = _with_probes(whitened, data.path_gram, of_labels, probes, order, options.block)
    while order < limit and not is_finished:
        order = min(limit, 2 * order)
        estimate, is_finished = _with_probes(whitened, data.path_gram, of_labels, probes, order, options.block)
    estimate = of_this_process(estimate, data.sharding)
    _report(estimate, options)
    return estimate


def _report(estimate: EnergyEstimate, options: MatrixFree) -> None:
    """Warn where the bias exceeds the standard error because `max_order` was reached."""
    bias, error, stats = float(estimate.bias), float(estimate.standard_error), estimate.stats
    if bias > error and max(stats["order"], int(stats["steps"])) >= options.max_order:
        warnings.warn(
            f"after {options.max_order} products a vector the bias may still be {bias:.3g}, beside a standard error of "
            f"{error:.3g}: the whitened kernel has a condition number of about {float(stats['condition']):.3g}. Raise "
            "max_order or rank, or the temperature",
            MatrixFreeWarning,
            stacklevel=4,
        )


class _OfLabels(eqx.Module):
    """The misfit y^T (K + T I)^{-1} y and minus its gradient."""

    misfit: Float[Array, ""]
    bias: Float[Array, ""]
    minus_misfit_gradient: Float[Array, "paths paths"]
    minus_misfit_gradient_bias: Float[Array, "paths paths"]
    steps: Any


@jit
def _of_labels(data, first, key, rank, solver):
    kernel = Kernel(data.bound, data.design, first)
    whitened = whiten_kernel(kernel, key, rank)
    right = whitened.whiten(data.labels)
    solution, steps = _conjugate_gradients(whitened, right, solver)
    residual = right - whitened.product(solution)
    # b^T M^{-1} b = 2 b^T s - s^T M s + r^T M^{-1} r, the last between 0 and |r|^2 / floor
    unsolved = jnp.sum(residual**2) / whitened.floor
    misfit = jnp.sum(solution * (right + residual)) + unsolved / 2
    rounding = whitened.rounding * jnp.sum(solution**2)
    representer = whitened.whiten(solution)
    minus_misfit_gradient = kernel.slope(representer, representer)
    size, missed = jnp.sqrt(jnp.sum(minus_misfit_gradient * first)), jnp.sqrt(unsolved + rounding)
    minus_misfit_gradient_bias = _per_entry(first, missed * (2 * size + missed))
    of_labels = _OfLabels(misfit, unsolved / 2 + rounding, minus_misfit_gradient, minus_misfit_gradient_bias, steps)
    # without the kernel: what comes out of a compiled function is a copy, and the features are large
    return (whitened.basis, whitened.eigenvalues, whitened.floor), of_labels


def _conjugate_gradients(whitened, right, solver):
    """M^{-1} b for the column b, and the number of steps."""
    structure = jax.ShapeDtypeStruct(right.shape, right.dtype)
    operator = lx.FunctionLinearOperator(whitened.product, structure, lx.positive_semidefinite_tag)
    scale = jnp.linalg.norm(right)
    solution = lx.linear_solve(operator, right / jnp.where(scale > 0, scale, 1.0), solver, throw=False)
    return scale * solution.value, solution.stats["num_steps"]


@jit
def _with_probes(whitened, path_gram, of_labels, probes, order, block) -> tuple[EnergyEstimate, Bool[Array, ""]]:
    """The estimate by Lanczos runs of this `order`, and whether their bias is below half the standard errors."""
    kernel = whitened.kernel
    runs = run_lanczos(lambda vector: whitened.product(vector[:, None])[:, 0], probes, whitened.floor, order, block)
    of_trace = whitened.slope_of_trace(path_gram)
    trace = jnp.sum(of_trace * kernel.first) + kernel.temperature * whitened.trace_of_inverse()
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
    log_determinant = whitened.log_det_of_preconditioner() + log_det
    estimate = EnergyEstimate(
        value=log_determinant + of_labels.misfit,
        standard_error=error,
        bias=bias + of_labels.bias,
        log_determinant=log_determinant,
        misfit=of_labels.misfit,
        slopes=Slopes(
            logdet_gradient,
            logdet_gradient_error,
            _per_entry(kernel.first, logdet_gradient_bias),
            of_labels.minus_misfit_gradient,
            of_labels.minus_misfit_gradient_bias,
        ),
        stats={"order": order, "steps": of_labels.steps, "condition": runs.largest / whitened.floor},
    )
    return replicate((estimate, is_finished), kernel.design.sharding)


def _per_entry(first, bound):
    """Bounds of the entries of X, given |U^{1/2} X U^{1/2}| <= bound with U = `first`.

    Errors are bounded in that norm: K is no more than A, so |(U^{1/2} (x) I) Phi^T x|^2 <= x^T A x.
    """
    factor = jnp.linalg.cholesky(first)
    roots = jnp.linalg.norm(jax.scipy.linalg.solve_triangular(factor, jnp.eye(len(first)), lower=True), axis=0)
    return bound * jnp.outer(roots, roots)


def _controlled_mean(samples, controls, expected, metric):
    """The mean of `samples` (axis 0) with control variates `controls` of known mean `expected`; its standard error.

    And the norm of that error, |U^{1/2} X U^{1/2}| for matrices, `metric` being U. The coefficient of the control
    variates is one number, by least squares over all samples and entries.
    """
    count = len(samples)
    deviations, control_deviations = samples - jnp.mean(samples, axis=0), controls - jnp.mean(controls, axis=0)

    def inner(left, right):
        return jnp.sum(left * right) if metric.ndim == 0 else jnp.einsum("jab,bc,jcd,da->", left, metric, right, metric)

    variation = inner(control_deviations, control_deviations)
    # controls that do not vary, as those of basis vectors may not, explain nothing
    is_control = variation > 0
    divisor = jnp.where(is_control, variation, 1.0)
    coefficient = jnp.where(is_control, inner(deviations, control_deviations) / divisor, 0.0)
    offset = jnp.mean(controls, axis=0) - expected
    residuals = deviations - coefficient * control_deviations
    # variance of the mean, and of the coefficient times the controls' offset
    share = (1 / count + inner(offset[None], offset[None]) / divisor) / (count - 2)
    error = jnp.sqrt(jnp.sum(residuals**2, axis=0) * share)
    return jnp.mean(samples, axis=0) - coefficient * offset, error, jnp.sqrt(inner(residuals, residuals) * share)
