"""The action of an architecture and data, with the interface that solvers need.

Part of stage 4 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`.
"""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...saddle.problem import AbstractSaddleProblem, Coordinates, Expansion, Point, Tangent
from ..evaluation.bound_action import BoundAction
from ..evaluation.contractions import pairs
from ..evaluation.energies import AbstractEnergy, EnergyPoint
from ..evaluation.majorisation import BoundedEnergy
from ..evaluation.rounding import MACHINE, MARGIN, entropy_rounding
from ..order_parameters.coordinates import (
    PriorRoots,
    factors_after,
    factors_at,
    from_order_parameters,
    moved,
    of_factors,
    roots_of,
    to_order_parameters,
)
from ..order_parameters.metric import dimension, displaced, gradient_length, largest_width, metric
from ..order_parameters.order_parameters import OrderParameters
from ..specification.architecture import Architecture

# Fraction of the misfit that the surrogate Hessian bounds. This value is the fastest for 64 and 256 paths.
_MODEL_SHARE = 0.3


class Evaluated(eqx.Module):
    """Details of a `Point`.

    - `factors`: [C_1, ..., C_{L+1}], with U_l = C_l C_l^T.
    - `entropy`, `energy`: the two parts of the action, undivided.
    """

    factors: list[Float[Array, "_ _"]]
    order_parameters: OrderParameters
    entropy: Float[Array, ""]
    energy: EnergyPoint


class SaddleProblem(AbstractSaddleProblem):
    """The action of an architecture and data, with any implementation of the energy."""

    energy: AbstractEnergy
    roots: PriorRoots

    def __init__(self, energy: AbstractEnergy):
        self.energy, self.roots = energy, roots_of(energy.architecture)

    @property
    def bound(self) -> BoundAction:
        """The bound action of the energy."""
        return self.energy.bound

    @property
    def architecture(self) -> Architecture:
        """The architecture of the energy."""
        return self.energy.architecture

    @property
    def scale(self):
        return largest_width(self.architecture)

    @property
    def has_sweeps(self):
        return bool(self.bound.compiled.minima)

    def order_parameters(self, coordinates: Coordinates) -> OrderParameters:
        """Return the order parameters at `coordinates`."""
        return to_order_parameters(self.roots, coordinates)

    def moved(self, coordinates, step):
        return moved(self.roots, coordinates, step)

    def parts(self, coordinates: Coordinates) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return entropy and energy, undivided."""
        order_parameters = to_order_parameters(self.roots, coordinates)
        return self.bound.entropy(order_parameters), self.energy.value(order_parameters.first)

    def action(self, coordinates):
        return sum(self.parts(coordinates))

    def at(self, coordinates):
        factors = factors_at(self.roots, coordinates)
        order_parameters = of_factors(factors)
        energy = self.energy.at(order_parameters.first)
        entropy, slopes = jax.value_and_grad(self.bound.entropy)(order_parameters)
        norm = gradient_length(self.architecture, factors, _add_to_u1(slopes, energy.slope)) / self.scale
        details = Evaluated(factors, order_parameters, entropy, energy)
        return Point(coordinates, entropy + energy.value, energy.magnitude, norm, details)

    def expansion(self, point):
        energy, factors = point.details.energy, point.details.factors
        no_step, slope = jnp.zeros(len(point.coordinates)), jax.lax.stop_gradient(energy.slope)

        def after(step: Coordinates) -> tuple[OrderParameters, list[Float[Array, "_ _"]]]:
            moved = factors_after(self.roots, point.coordinates, step)
            return of_factors(moved), moved

        def gradient(step: Coordinates) -> tuple[Coordinates, list[Float[Array, "_ _"]]]:
            order_parameters, pull_back, moved = jax.vjp(after, step, has_aux=True)
            (of_action,) = pull_back(_add_to_u1(jax.grad(self.bound.entropy)(order_parameters), slope))
            return of_action, moved

        (of_action, _), push = jax.linearize(gradient, no_step)
        bend, changes = jax.vmap(push)(jnp.eye(len(no_step)))
        rows, columns = pairs(len(energy.u1))
        half = changes[0] @ factors[0].T
        entries = (half + half.swapaxes(1, 2))[:, rows, columns]
        hessian = bend + entries @ self.energy.curvature(energy) @ entries.T
        return Expansion(of_action, hessian, metric(self.architecture, factors, changes))

    def majorise_minimise(self, point, share):
        swept = _bounded_energy(point, share).minimise(self.bound, point.details.order_parameters)
        return from_order_parameters(self.roots, swept)

    def action_on_tangent(self, point) -> tuple[Callable[[Tangent], Float[Array, ""]], int]:
        here = point.details.order_parameters

        def action(tangent: Tangent) -> Float[Array, ""]:
            there = displaced(self.architecture, here, tangent)
            return self.bound.entropy(there) + self.energy.value(there.first)

        return action, dimension(self.architecture)

    def model_on_tangent(self, point) -> Callable[[Tangent], Float[Array, ""]]:
        here, bounded = point.details.order_parameters, _bounded_energy(point, _MODEL_SHARE)

        def majorised(tangent: Tangent) -> Float[Array, ""]:
            there = displaced(self.architecture, here, tangent)
            return self.bound.entropy(there) + bounded.value(self.bound, there.first)

        return majorised

    def action_error(self, point: Point) -> Mapping[str, Float[Array, ""]]:
        """Estimate the rounding error of S from each source. The total error is the sum."""
        details = point.details
        parts = {
            "order_parameters": entropy_rounding(self.architecture, details.factors),
            **self.energy.rounding(details.energy),
        }
        return {name: MARGIN * MACHINE * part for name, part in parts.items()}


def _bounded_energy(point: Point, share: Array | float) -> BoundedEnergy:
    energy = point.details.energy
    return BoundedEnergy.at(energy.u1, energy.logdet_gradient, energy.minus_misfit_gradient, share)


def _add_to_u1(slopes: OrderParameters, slope: Float[Array, "paths paths"]) -> OrderParameters:
    """Add a gradient with respect to U_1 to gradients with respect to all order parameters."""
    if not slopes.matrices:
        return OrderParameters((), slopes.readout + slope.reshape(slopes.readout.shape))
    u1, *others = slopes.matrices
    return OrderParameters((u1 + slope, *others), slopes.readout)
