"""The saddle point where the kernel does not fit in memory, with the error that the random probes leave in it.

Takes the place of `solve` in `Architecture -> ... -> compiled function -> solve -> predict`. For fixed probes the
estimated gradient of the energy is a deterministic function of U_1, and its saddle point is found by majorise-minimise
steps with Anderson acceleration. This is repeated for several independent sets of probes: the mean of the saddle points
is the result, their scatter gives its error.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import stdtrit
from tqdm.auto import tqdm

from ...checks import checked_flag, checked_instance, checked_key, checked_number
from ...compilation import jit
from ...precision import require_float64
from ...saddle.diagnosis import ConvergenceWarning
from ...saddle.solvers.anderson import AndersonMemory
from ...sharding import outside_meshes
from ..evaluation.bound_action import BoundAction
from ..order_parameters.coordinates import Coordinates, from_order_parameters, gp_coordinates, to_order_parameters
from ..order_parameters.metric import largest_width
from ..order_parameters.order_parameters import HasOrderParameters, OrderParameters, checked_order_parameters
from ..saddle.majorisation import BoundedEnergy
from ..specification.architecture import Architecture
from .estimate import (
    Data,
    EnergyEstimate,
    MatrixFreeOptions,
    Slopes,
    checked_for_matrix_free,
    estimate_at,
    random_probes,
)

_INNER = optx.BFGS(rtol=1e-10, atol=1e-10)
_INNER_STEPS = 500
# secants that Anderson acceleration uses
_MEMORY = 12
# growth of a step's change that is no progress but a mistake
_THROWN_OFF = 10


class MatrixFreeSaddle(eqx.Module):
    """The outcome of `solve_matrix_free`.

    - `order_parameters`: every U_l and u, the mean over repeats, in the coordinates of the solver.
    - `errors`: the standard error of each entry of `order_parameters`, from the scatter of the repeats; see `margins`.
    - `action`, `entropy`, `energy`: S (Eq. 32) and its parts there, undivided; the energy by probes of its own.
    - `standard_error`: of `action`, as an estimate of S at `order_parameters`.
    - `excess`: an estimate of how far S at `order_parameters` is above its minimum for their error.
    - `bias`: a bound of what unfinished iterations leave out of the energy.
    - `stats`: `steps` and `residual` (largest change of a coordinate in the last step) of each repeat, and `samples`,
      the solutions of all repeats as coordinates.
    """

    order_parameters: OrderParameters
    errors: OrderParameters
    action: Float[Array, ""]
    entropy: Float[Array, ""]
    energy: Float[Array, ""]
    standard_error: Float[Array, ""]
    excess: Float[Array, ""]
    bias: Float[Array, ""]
    stats: Mapping[str, Any]

    def error(self, deviations: float = 3.0) -> Float[Array, ""]:
        """The stated error of `action` as the minimum of S: `deviations` times standard error and excess, plus bias."""
        return checked_number("deviations", deviations, least=0.0) * (self.standard_error + self.excess) + self.bias

    def margins(self, probability: float = 0.99) -> OrderParameters:
        """How far each entry of the saddle point may be from `order_parameters`, with this probability for each.

        By Student's t for the few repeats that there are.
        """
        require_float64()
        checked_number("probability", probability, above=0.0, below=1.0)
        quantile = float(stdtrit(len(self.stats["samples"]) - 1, (1 + probability) / 2))
        return jax.tree.map(lambda error: quantile * error, self.errors)


def solve_matrix_free(
    architecture: Architecture,
    features: ArrayLike,
    labels: ArrayLike,
    *,
    key: PRNGKeyArray,
    options: MatrixFreeOptions | None = None,
    initial: OrderParameters | HasOrderParameters | None = None,
    tolerance: float = 1e-6,
    progress: bool = True,
) -> MatrixFreeSaddle:
    """The saddle point of S (Eq. 32) from products with the kernel alone, with its error.

    `features` (examples, paths, features) as `path_features` returns them, `labels` (examples,), or (examples, outputs)
    where there are several. Features that are sharded over examples stay on their devices. Starts from `initial`, by
    default the Gaussian-process limit. Solves `options.repeats` times, with probes of its own each time, until no
    coordinate changes by more than `tolerance` in a step; a `ConvergenceWarning` says where `options.max_steps` comes
    first. Raises `ValueError` as `estimate_energy` does.
    """
    checked_key("key", key)
    checked_flag("progress", progress)
    checked_number("tolerance", tolerance, above=0.0)
    options = MatrixFreeOptions() if options is None else checked_instance("options", options, MatrixFreeOptions)
    with outside_meshes():
        data = checked_for_matrix_free(architecture, features, labels)
        return _solve(data, key, options, initial, tolerance, progress)


def _solve(data, key, options, initial, tolerance, progress) -> MatrixFreeSaddle:
    architecture = data.bound.architecture
    start = gp_coordinates(architecture)
    if initial is not None:
        start = from_order_parameters(architecture, checked_order_parameters(architecture, initial, "initial"))
    *keys, last = jax.random.split(key, options.repeats + 1)
    samples = [_SampleAverage(data, repeat, options) for repeat in keys]
    ends, steps, residuals, memory = [], [], [], AndersonMemory.empty(_MEMORY, len(start))
    with tqdm(desc="matrix-free saddle", unit="step", disable=not progress, dynamic_ncols=True) as bar:
        for sample in samples:
            # with other probes the map is another, but its derivative is nearly the same
            start, taken, residual, memory = _fixed_point(sample, start, memory.restarted(), options, tolerance, bar)
            ends.append(start)
            steps.append(taken)
            residuals.append(residual)
    _report(residuals, tolerance, options.max_steps)
    stats = {"steps": tuple(steps), "residual": tuple(residuals), "samples": jnp.stack(ends)}
    return _pool(data, samples, jnp.stack(ends), last, options, stats)


class _SampleAverage:
    """The energy's estimate for one set of probes, as a function of the coordinates."""

    def __init__(self, data: Data, key: PRNGKeyArray, options: MatrixFreeOptions):
        self.data, self.key, self.options, self.order = data, key, options, options.order
        self.probes = random_probes(key, options.probes, data.rows, data.sharding)

    def at(self, order_parameters: OrderParameters) -> EnergyEstimate:
        first = order_parameters.first
        estimate = estimate_at(self.data, first, self.probes, self.key, self.options, self.order)
        # conditions change little from step to step: what sufficed for the last is tried first
        self.order = estimate.stats["order"]
        return estimate

    def step(self, coordinates: Coordinates) -> Coordinates:
        """One majorise-minimise step: the energy replaced by its bound at `coordinates`."""
        bound = self.data.bound
        return _minimise_bound(bound, coordinates, self.at(_order_parameters(bound, coordinates)).slopes)


@jit
def _minimise_bound(bound: BoundAction, coordinates: Coordinates, slopes: Slopes) -> Coordinates:
    """The coordinates that minimise entropy plus the energy's bound at `coordinates`."""
    here = _order_parameters(bound, coordinates)
    bounded = BoundedEnergy.at(here.first, slopes.logdet_gradient, slopes.minus_misfit_gradient)
    if bound.compiled.minima:
        return from_order_parameters(bound.architecture, bounded.minimise(bound, here))

    # a skip connection leaves no closed form
    def above(coordinates, _):
        point = _order_parameters(bound, coordinates)
        return (bound.entropy(point) + bounded.value(bound, point.first)) / largest_width(bound.architecture)

    return optx.minimise(above, _INNER, coordinates, max_steps=_INNER_STEPS, throw=False).value


@jit
def _order_parameters(bound: BoundAction, coordinates: Coordinates) -> OrderParameters:
    return to_order_parameters(bound.architecture, coordinates)


def _fixed_point(sample, start, memory, options, tolerance, bar):
    """The fixed point of `sample.step`, by Anderson acceleration with the secants of `memory` to begin with.

    And the number of steps, the least change of one, and the memory with secants of these steps.
    """
    point, best, lowest, taken = start, start, math.inf, 0
    while taken < options.max_steps and lowest > tolerance:
        taken += 1
        image = sample.step(point)
        change = float(jnp.max(jnp.abs(image - point)))
        bar.update()
        bar.set_postfix(change=f"{change:.1e}")
        if change < lowest:
            best, lowest = image, change
        if change <= _THROWN_OFF * lowest:
            point, memory = memory.next_point(point, image)
        else:
            # on from the best point, without the history that led here
            point, memory = best, AndersonMemory.empty(_MEMORY, len(start))
    return best, taken, lowest, memory


def _report(residuals, tolerance, max_steps):
    worst = max(residuals)
    if not worst <= tolerance:
        warnings.warn(
            f"the solve did not converge: a step still changes a coordinate by {worst:.3g}, more than the tolerance "
            f"{tolerance:.3g}, after {max_steps} steps. Raise max_steps, start from a neighbouring solution "
            "(initial=...), or loosen the tolerance",
            ConvergenceWarning,
            stacklevel=4,
        )


def _pool(data, samples, ends, key, options, stats):
    bound, repeats = data.bound, len(samples)
    centre, point, errors = _mean(bound, ends)
    # S is quadratic about each sample's minimum: half the slope at the centre times the way there
    climbs = [
        _gradient(bound, centre, sample.at(point).slopes.gradient) @ (centre - end) / 2
        for sample, end in zip(samples, ends, strict=True)
    ]
    excess = jnp.maximum(sum(climbs) / repeats, 0.0) / (repeats - 1)
    # by probes of its own: those that the point was made for flatter it
    estimates = [_SampleAverage(data, fresh, options).at(point) for fresh in jax.random.split(key, repeats)]
    energy = sum(estimate.value for estimate in estimates) / repeats
    at_point = bound.entropy(point)
    return MatrixFreeSaddle(
        order_parameters=point,
        errors=errors,
        action=at_point + energy,
        entropy=at_point,
        energy=energy,
        standard_error=jnp.sqrt(sum(estimate.standard_error**2 for estimate in estimates)) / repeats,
        excess=excess,
        bias=sum(estimate.bias for estimate in estimates) / repeats,
        stats=stats,
    )


@jit
def _mean(bound: BoundAction, ends) -> tuple[Coordinates, OrderParameters, OrderParameters]:
    """The mean of the coordinates `ends`, the order parameters there, and the standard errors of these."""
    centre = jnp.mean(ends, axis=0)
    solutions = jax.vmap(lambda end: _order_parameters(bound, end))(ends)
    errors = jax.tree.map(lambda values: jnp.std(values, axis=0, ddof=1) / math.sqrt(len(ends)), solutions)
    return centre, _order_parameters(bound, centre), errors


@jit
def _gradient(bound: BoundAction, coordinates, slope):
    """The gradient of S in the coordinates, from that of the energy in U_1."""

    def linearised(at):
        point = _order_parameters(bound, at)
        return bound.entropy(point) + jnp.sum(slope * point.first)

    return jax.grad(linearised)(coordinates)
