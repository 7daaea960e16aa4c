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
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import stdtrit
from tqdm.auto import tqdm

from ...checks import checked_number
from ...compilation import jit
from ...precision import require_float64
from ...saddle.diagnosis import ConvergenceWarning
from ...saddle.solvers.anderson import AndersonMemory
from ...sharding import outside_meshes
from ..evaluation.bound_action import BoundAction
from ..evaluation.majorisation import BoundedEnergy
from ..evaluation.problem import Problem
from ..order_parameters.coordinates import Coordinates, from_order_parameters, to_order_parameters
from ..order_parameters.metric import largest_width
from ..order_parameters.order_parameters import OrderParameters
from .estimate import (
    EnergyEstimate,
    MatrixFree,
    Operands,
    Slopes,
    estimate_at,
    operands_of,
    random_probes,
)

_INNER = optx.BFGS(rtol=1e-10, atol=1e-10)
_INNER_STEPS = 500
# secants that Anderson acceleration uses
_MEMORY = 12
# growth of a step's change that is no progress but a mistake
_THROWN_OFF = 10


class MatrixFreeSaddle(eqx.Module):
    """The outcome of `solve` with the solver `MatrixFree`.

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
    problem: Problem, options: MatrixFree, start: Coordinates, tolerance: float, max_steps: int, throw: bool
) -> MatrixFreeSaddle:
    """Find the saddle point of S (Eq. 32) from products with the kernel alone, with its error.

    Solves `options.repeats` times with fresh probes, until no coordinate changes by more than `tolerance` in a step.
    """
    with outside_meshes():
        return _solve(operands_of(problem), options, start, tolerance, max_steps, throw)


def _solve(data: Operands, options: MatrixFree, start, tolerance, max_steps, throw) -> MatrixFreeSaddle:
    *keys, last = jax.random.split(options.key, options.repeats + 1)
    samples = [_SampleAverage(data, repeat, options) for repeat in keys]
    ends, steps, residuals, memory = [], [], [], AndersonMemory.empty(_MEMORY, len(start))
    with tqdm(desc="matrix-free saddle", unit="step", disable=not options.progress, dynamic_ncols=True) as bar:
        for sample in samples:
            # with other probes the map is another, but its derivative is nearly the same
            start, taken, residual, memory = _fixed_point(sample, start, memory.restarted(), max_steps, tolerance, bar)
            ends.append(start)
            steps.append(taken)
            residuals.append(residual)
    _report(residuals, tolerance, max_steps, throw)
    stats = {"steps": tuple(steps), "residual": tuple(residuals), "samples": jnp.stack(ends)}
    return _pool(data, samples, jnp.stack(ends), last, options, stats)


class _SampleAverage:
    """The energy's estimate for one set of probes, as a function of the coordinates."""

    def __init__(self, data: Operands, key: PRNGKeyArray, options: MatrixFree):
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


def _fixed_point(sample, start, memory, max_steps, tolerance, bar):
    """The fixed point of `sample.step`, by Anderson acceleration with the secants of `memory` to begin with.

    And the number of steps, the least change of one, and the memory with secants of these steps.
    """
    point, best, lowest, taken = start, start, math.inf, 0
    while taken < max_steps and lowest > tolerance:
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


def _report(residuals, tolerance, max_steps, throw):
    worst = max(residuals)
    if not worst <= tolerance:
        message = (
            f"the solve did not converge: a step still changes a coordinate by {worst:.3g}, more than the tolerance "
            f"{tolerance:.3g}, after {max_steps} steps. Raise max_steps, start from a neighbouring solution "
            "(initial=...), or loosen the tolerance"
        )
        if throw:
            raise RuntimeError(message)
        warnings.warn(message, ConvergenceWarning, stacklevel=5)


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
