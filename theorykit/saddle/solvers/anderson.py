"""Anderson acceleration of an iteration x -> g(x) towards its fixed point.

Source: H. F. Walker, P. Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numer. Anal. 49 (2011) 1715.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..problem import Coordinates


class AndersonMemory(eqx.Module):
    """The last points of an iteration, the newest first, and g(x) - x at each; only the first `filled` rows count."""

    points: Float[Array, "memory coordinates"]
    changes: Float[Array, "memory coordinates"]
    filled: Int[Array, ""]

    @classmethod
    def empty(cls, memory: int, coordinates: int) -> "AndersonMemory":
        """For so many points; with none the iteration is not accelerated."""
        return cls(jnp.zeros((memory, coordinates)), jnp.zeros((memory, coordinates)), jnp.array(0))

    @eqx.filter_jit
    def next_point(self, point: Coordinates, image: Coordinates) -> tuple[Coordinates, "AndersonMemory"]:
        """The combination of g(x) over `point`, where it is `image`, and all points before, whose changes, combined
        likewise, are least; and the memory with `point` in it.
        """
        change = image - point
        used = (jnp.arange(len(self.points)) < self.filled)[:, None]
        of_changes = jnp.where(used, change - self.changes, 0.0)
        of_points = jnp.where(used, point - self.points, 0.0)
        weights, *_ = jnp.linalg.lstsq(of_changes.T, change, rcond=1e-10)
        points = jnp.roll(self.points, 1, axis=0).at[:1].set(point)
        changes = jnp.roll(self.changes, 1, axis=0).at[:1].set(change)
        filled = jnp.minimum(self.filled + 1, len(self.points))
        return image - weights @ (of_points + of_changes), AndersonMemory(points, changes, filled)
