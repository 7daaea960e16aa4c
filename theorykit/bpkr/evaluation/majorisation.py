"""Minimise the entropy plus a cheap bound on the energy, exactly in one order parameter at a time.

See `Majoriser` for the bound.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..features.kernels import PathMatrix
from ..order_parameters.order_parameters import OrderParameters, from_overlaps
from .formulas import BoundAction
from .rounding import Number

# Stop when the relative change in a pass over all order parameters falls below this fraction of the first change.
_SETTLED = 0.03
# Stop after this many passes. A pass is cheap compared to an evaluation of the energy.
_PASSES = 30


class BoundedEnergy(eqx.Module):
    """The bound tr(G_+ U_1) + tr(W U_1^{-1}) of the energy, up to a constant, with W = U_0 G_- U_0.

    - `logdet_gradient`: G_+ (n_1 x n_1).
    - `weight`: W (n_1 x n_1).
    """

    logdet_gradient: PathMatrix
    weight: PathMatrix

    @classmethod
    def at(
        cls, u1: PathMatrix, logdet_gradient: PathMatrix, minus_misfit_gradient: PathMatrix, share: Array | float = 1.0
    ) -> "BoundedEnergy":
        """Make the bound from the gradient at U_0 = `u1`. Bound a `share` of the misfit, and linearise the rest."""
        linear = logdet_gradient - (1 - share) * minus_misfit_gradient
        return cls(linear, share * u1 @ minus_misfit_gradient @ u1)

    def value(self, bound: BoundAction, u1: PathMatrix) -> Number:
        """Compute the bound at U_1 = `u1`, up to a constant."""
        values = bound.numbers() | self._values(bound) | {bound.symbols.first: u1}
        return bound.compiled.majorised_energy.call_from(values)["bound"]

    def minimise(self, bound: BoundAction, start: OrderParameters, most: int = _PASSES) -> OrderParameters:
        """Minimise entropy plus bound in each order parameter in turn, until the changes are small."""
        fixed, symbols = bound.numbers() | self._values(bound), bound.symbols

        def goes_on(state):
            passes, first, change, _ = state
            return (passes < most) & ((passes < 2) | (change > _SETTLED * first))

        def once_more(state):
            passes, first, _, here = state
            values = fixed | bound.point(here)
            # From the readout to U_1.
            for symbol, minimum in reversed(bound.compiled.minima.items()):
                value = minimum.call_from(values)[symbol.name]
                values[symbol] = (value + value.T) / 2
            there = from_overlaps([values[symbols.first]])
            if symbols.matrices:
                there = OrderParameters(tuple(values[symbol] for symbol in symbols.matrices), values[symbols.readout])
            changes = jax.tree.map(lambda new, old: jnp.max(jnp.abs(new - old)) / jnp.max(jnp.abs(old)), there, here)
            largest = jnp.max(jnp.stack(jax.tree.leaves(changes)))
            return passes + 1, jnp.where(passes == 0, largest, first), largest, there

        *_, swept = jax.lax.while_loop(goes_on, once_more, (jnp.array(0), jnp.array(0.0), jnp.array(0.0), start))
        return swept

    def _values(self, bound: BoundAction) -> dict:
        majoriser = bound.action.majoriser
        return {majoriser.logdet_gradient: self.logdet_gradient, majoriser.weight: self.weight}
