"""What a solver minimises: the action over unconstrained coordinates, with the structure that a good solver exploits.

Part of stage 4 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function -> solve -> predict`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .architecture import Architecture
from .coordinates import Coordinates, from_order_parameters, moved, to_order_parameters
from .curvature import pairs
from .derive import derive
from .energies import AbstractEnergy, EnergyPoint
from .evaluate import point_arguments
from .geometry import gradient_length, largest_width, metric
from .order_parameters import OrderParameters

# passes over all order parameters for one evaluation of the energy; they cost nothing beside it
_PASSES = 3


class Point(eqx.Module):
    """The action at some order parameters: one evaluation.

    `gradient_norm` is that of `Saddle`: in the affine-invariant metric, per largest width.
    """

    coordinates: Coordinates
    entropy: Float[Array, ""]
    energy: EnergyPoint
    gradient_norm: Float[Array, ""]

    @property
    def action(self) -> Float[Array, ""]:
        return self.entropy + self.energy.value

    @property
    def is_finite(self) -> Array:
        return jnp.isfinite(self.action) & jnp.isfinite(self.gradient_norm)


class Expansion(eqx.Module):
    """The action to second order in steps from a point (see `coordinates.moved`), and the affine-invariant metric."""

    gradient: Coordinates
    hessian: Float[Array, "coordinates coordinates"]
    metric: Float[Array, "coordinates coordinates"]


class SaddleProblem(eqx.Module):
    """The action of an architecture and data, whose energy it takes in whatever form."""

    energy: AbstractEnergy

    @property
    def architecture(self) -> Architecture:
        return self.energy.architecture

    @property
    def has_sweeps(self) -> bool:
        """Whether majorise-minimise sweeps are known in closed form."""
        return bool(derive(self.architecture).compiled_minima)

    def order_parameters(self, coordinates: Coordinates) -> OrderParameters:
        return to_order_parameters(self.architecture, coordinates)

    def action(self, coordinates: Coordinates) -> Float[Array, ""]:
        """S, undivided; differentiable in everything."""
        order_parameters = self.order_parameters(coordinates)
        return entropy(self.architecture, order_parameters) + self.energy.value(order_parameters.matrices[0])

    def at(self, coordinates: Coordinates) -> Point:
        """Evaluate the action and its gradient."""
        order_parameters = self.order_parameters(coordinates)
        energy = self.energy.at(order_parameters.matrices[0])
        of_entropy, slopes = self._slopes(order_parameters, energy.slope)
        norm = gradient_length(self.architecture, order_parameters, slopes) / largest_width(self.architecture)
        return Point(coordinates, of_entropy, energy, norm)

    def _slopes(self, order_parameters: OrderParameters, of_energy: Array) -> tuple[Array, OrderParameters]:
        """The entropy, and the gradient of S in the order parameters, given that of the energy in U_1."""
        of_entropy, slopes = jax.value_and_grad(lambda u: entropy(self.architecture, u))(order_parameters)
        first, *others = slopes.matrices
        return of_entropy, OrderParameters((first + of_energy, *others), slopes.readout)

    def expansion(self, point: Point) -> Expansion:
        """The action to second order about a point: one curvature of the energy."""
        no_step, slope = jnp.zeros(len(point.coordinates)), jax.lax.stop_gradient(point.energy.slope)

        def order_parameters_after(step: Coordinates) -> OrderParameters:
            return self.order_parameters(moved(self.architecture, point.coordinates, step))

        def gradient(step: Coordinates) -> tuple[Coordinates, OrderParameters]:
            order_parameters, pull_back = jax.vjp(order_parameters_after, step)
            _, slopes = self._slopes(order_parameters, slope)
            (of_action,) = pull_back(slopes)
            return of_action, order_parameters

        (of_action, order_parameters), push = jax.linearize(gradient, no_step)
        bend, changes = jax.vmap(push)(jnp.eye(len(no_step)))
        rows, columns = pairs(len(point.energy.first))
        entries = changes.matrices[0][:, rows, columns]
        hessian = bend + entries @ self.energy.curvature(point.energy) @ entries.T
        return Expansion(of_action, hessian, metric(self.architecture, order_parameters, changes))

    def swept(self, point: Point) -> Coordinates:
        """Where majorise-minimise sweeps lead: S is no higher there. No evaluation."""
        start = self.order_parameters(point.coordinates)
        first = start.matrices[0]
        weight = first @ point.energy.pull @ first

        def once(_, order_parameters: OrderParameters) -> OrderParameters:
            return sweep(self.architecture, order_parameters, point.energy.spread, weight)

        return from_order_parameters(self.architecture, jax.lax.fori_loop(0, _PASSES, once, start))


def entropy(architecture: Architecture, order_parameters: OrderParameters) -> Float[Array, ""]:
    """The entropy, undivided, of the compiled action."""
    values = point_arguments(architecture, order_parameters)
    return derive(architecture).compiled_entropy.of(values)["entropy"]


def sweep(
    architecture: Architecture,
    order_parameters: OrderParameters,
    spread: Float[Array, "paths paths"],
    weight: Float[Array, "paths paths"],
) -> OrderParameters:
    """Minimise entropy plus the energy's bound in each order parameter once, from the readout to U_1.

    `spread` is G_+ and `weight` U_0 G_- U_0 of the point U_0 that the bound is taken at; see `bpkr/majorisation.py`.
    """
    action = derive(architecture)
    majoriser, symbols = action.majoriser, action.symbols
    values = {
        **point_arguments(architecture, order_parameters),
        majoriser.spread.name: spread,
        majoriser.weight.name: weight,
    }
    for symbol, minimum in reversed(action.compiled_minima.items()):
        value = minimum.of(values)[symbol.name]
        values[symbol.name] = (value + value.T) / 2 if jnp.ndim(value) else value
    return OrderParameters(tuple(values[symbol.name] for symbol in symbols.matrices), values[symbols.readout.name])
