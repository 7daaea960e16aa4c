"""Anderson acceleration of a fixed-point iteration x -> g(x).

Source: H. F. Walker, P. Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numer. Anal. 49 (2011) 1715.
"""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...compilation import jit
from ..problem import Coordinates


class AndersonMemory(eqx.Module):
    """Secants of an iteration, newest first.

    - `steps` (memory, coordinates): differences of successive points. Unused rows are zero.
    - `turns` (memory, coordinates): differences of the changes g(x) - x at these points.
    - `point`, `change` (coordinates,): the last point, and the change there.
    - `has_last`: whether there is a last point since `restarted`.
    """

    steps: Float[Array, "memory coordinates"]
    turns: Float[Array, "memory coordinates"]
    point: Coordinates
    change: Coordinates
    has_last: Bool[Array, ""]

    @classmethod
    def empty(cls, memory: int, coordinates: int) -> "AndersonMemory":
        """Make an empty memory for this many secants. With 0, the iteration is not accelerated."""
        rows, last = jnp.zeros((memory, coordinates)), jnp.zeros(coordinates)
        return cls(rows, rows, last, last, jnp.array(False))

    def restarted(self) -> "AndersonMemory":
        """Keep the secants for another, similar iteration, but forget the last point."""
        return replace(self, has_last=jnp.array(False))

    @jit
    def next_point(self, point: Coordinates, image: Coordinates) -> tuple[Coordinates, "AndersonMemory"]:
        """Return the next point, and the memory with `point` and its `image` g(`point`) added.

        The next point minimises g(x) - x under the assumption that g is linear along the secants.
        """
        change = image - point
        steps, turns = (
            jnp.where(self.has_last, jnp.roll(rows, 1, axis=0).at[:1].set(newest), rows)
            for rows, newest in ((self.steps, point - self.point), (self.turns, change - self.change))
        )
        weights, *_ = jnp.linalg.lstsq(turns.T, change, rcond=1e-10)
        ahead = image - weights @ (steps + turns)
        return ahead, AndersonMemory(steps, turns, point, change, jnp.array(True))
