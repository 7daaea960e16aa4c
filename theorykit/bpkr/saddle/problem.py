"""The action of an architecture and data as a solver takes it.

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
from ..evaluation.rounding import MACHINE, MARGIN, entropy_rounding
from ..order_parameters.coordinates import (
    factors_after,
    factors_at,
    from_order_parameters,
    moved,
    of_factors,
    to_order_parameters,
)
from ..order_parameters.metric import dimension, displaced, gradient_length, largest_width, metric
from ..order_parameters.order_parameters import OrderParameters, from_overlaps
from ..specification.architecture import Architecture

# passes over all order parameters for one evaluation of the energy, beside which they cost little: until one changes
# them by less than this part of the first, and so many at the most
_SETTLED, _PASSES = 0.03, 30


class Evaluated(eqx.Module):
    """The two parts of the action at a point, undivided, and the factors of the order parameters: a `Point`'s details.

    `factors` are [C_1, ..., C_{L+1}], with U_l = C_l C_l^T.
    """

    factors: list[Float[Array, "_ _"]]
    order_parameters: OrderParameters
    entropy: Float[Array, ""]
    energy: EnergyPoint


class SaddleProblem(AbstractSaddleProblem):
    """The action of an architecture and data, whose energy it takes in whatever form."""

    energy: AbstractEnergy

    @property
    def bound(self) -> BoundAction:
        """The action that the energy is of."""
        return self.energy.bound

    @property
    def architecture(self) -> Architecture:
        """The architecture that the action is of."""
        return self.energy.architecture

    @property
    def scale(self):
        return largest_width(self.architecture)

    @property
    def has_sweeps(self):
        return bool(self.bound.compiled.minima)

    def order_parameters(self, coordinates: Coordinates) -> OrderParameters:
        """The order parameters at `coordinates`."""
        return to_order_parameters(self.architecture, coordinates)

    def moved(self, coordinates, step):
        return moved(self.architecture, coordinates, step)

    def parts(self, coordinates: Coordinates) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Entropy and energy, undivided."""
        order_parameters = self.order_parameters(coordinates)
        return self.bound.entropy(order_parameters), self.energy.value(order_parameters.first)

    def action(self, coordinates):
        return sum(self.parts(coordinates))

    def at(self, coordinates):
        factors = factors_at(self.architecture, coordinates)
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
            moved = factors_after(self.architecture, point.coordinates, step)
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

    def swept(self, point, share):
        energy, start = point.details.energy, point.details.order_parameters
        weight = share * energy.u1 @ energy.minus_misfit_gradient @ energy.u1
        slope = energy.logdet_gradient - (1 - share) * energy.minus_misfit_gradient

        def goes_on(state):
            passes, first, change, _ = state
            return (passes < _PASSES) & ((passes < 2) | (change > _SETTLED * first))

        def once_more(state):
            passes, first, _, here = state
            there = sweep(self.bound, here, slope, weight)
            changes = jax.tree.map(lambda new, old: jnp.max(jnp.abs(new - old)) / jnp.max(jnp.abs(old)), there, here)
            largest = jnp.max(jnp.stack(jax.tree.leaves(changes)))
            return passes + 1, jnp.where(passes == 0, largest, first), largest, there

        *_, swept = jax.lax.while_loop(goes_on, once_more, (jnp.array(0), jnp.array(0.0), jnp.array(0.0), start))
        return from_order_parameters(self.architecture, swept)

    def along(self, coordinates) -> tuple[Callable[[Tangent], Float[Array, ""]], int]:
        here = self.order_parameters(coordinates)

        def action(tangent: Tangent) -> Float[Array, ""]:
            there = displaced(self.architecture, here, tangent)
            return self.bound.entropy(there) + self.energy.value(there.first)

        return action, dimension(self.architecture)

    def action_error(self, point: Point) -> Mapping[str, Float[Array, ""]]:
        """How well double precision knows S, by where the uncertainty comes from; the error is their sum."""
        details = point.details
        parts = {
            "order_parameters": entropy_rounding(self.architecture, details.factors),
            **self.energy.rounding(details.energy),
        }
        return {name: MARGIN * MACHINE * part for name, part in parts.items()}


def _add_to_u1(slopes: OrderParameters, slope: Float[Array, "paths paths"]) -> OrderParameters:
    """Gradients in the order parameters, with another in U_1 added."""
    if not slopes.matrices:
        return OrderParameters((), slopes.readout + slope.reshape(slopes.readout.shape))
    u1, *others = slopes.matrices
    return OrderParameters((u1 + slope, *others), slopes.readout)


def sweep(
    bound: BoundAction,
    order_parameters: OrderParameters,
    logdet_gradient: Float[Array, "paths paths"],
    weight: Float[Array, "paths paths"],
) -> OrderParameters:
    """Minimise entropy plus the energy's bound in each order parameter once, from the readout to U_1.

    `logdet_gradient` is G_+ and `weight` U_0 G_- U_0 of the point U_0 that the bound is taken at; see `Majoriser`.
    """
    majoriser, symbols = bound.action.majoriser, bound.symbols
    values = bound.numbers() | bound.point(order_parameters)
    values |= {majoriser.logdet_gradient: logdet_gradient, majoriser.weight: weight}
    for symbol, minimum in reversed(bound.compiled.minima.items()):
        value = minimum.call_from(values)[symbol.name]
        values[symbol] = (value + value.T) / 2
    if not symbols.matrices:
        return from_overlaps([values[symbols.first]])
    return OrderParameters(tuple(values[symbol] for symbol in symbols.matrices), values[symbols.readout])
