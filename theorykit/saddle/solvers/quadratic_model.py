"""Action to second order about a point, for the steps of Newton's method and the certificate of its end point."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..problem import Coordinates, Expansion

# Curvatures below this fraction of the largest are rounding.
_FLAT = 1e-15
# Number of bisections of the shift's logarithm.
_BISECTIONS = 16


class QuadraticModel(eqx.Module):
    """Action to second order about a point, in directions of unit length that diagonalise its Hessian.

    Lengths are in the affine-invariant metric at the point.

    - `slopes`, `curvatures` (directions,): first and second derivative of S along each direction.
    - `directions` (coordinates, directions): the columns are steps for `AbstractSaddleProblem.moved`.
    """

    slopes: Float[Array, " directions"]
    curvatures: Float[Array, " directions"]
    directions: Float[Array, "coordinates directions"]

    @classmethod
    def of(cls, expansion: Expansion) -> "QuadraticModel":
        """Diagonalise the Hessian of an expansion in its metric."""
        factor = jnp.linalg.cholesky(expansion.metric)
        half = solve_triangular(factor, expansion.hessian, lower=True)
        curvatures, vectors = jnp.linalg.eigh(solve_triangular(factor, half.T, lower=True))
        directions = solve_triangular(factor, vectors, lower=True, trans=1)
        return cls(directions.T @ expansion.gradient, curvatures, directions)

    def least_within(self, radius: Float[Array, ""]) -> tuple[Coordinates, Float[Array, ""], Float[Array, ""]]:
        """Return the step no longer than `radius` that lowers the model most, its length, and the decrease."""
        floor = jnp.maximum(-self.curvatures[0], 0.0) + _FLAT * jnp.max(jnp.abs(self.curvatures))
        along = self._shifted(self.curvatures[0] > 0, floor, radius)
        lowered = -(self.slopes @ along + along @ (self.curvatures * along) / 2)
        return self.directions @ along, jnp.linalg.norm(along), lowered

    def _shifted(self, is_regular: Array, low: Array, radius: Array) -> Float[Array, " directions"]:
        """Shift all curvatures so that the step has length `radius`, by bisection in the logarithm of the shift."""

        def step(shift):
            return -self.slopes / (self.curvatures + shift)

        def halved(_, bounds):
            low, high = bounds
            middle = jnp.sqrt(low * high)
            too_long = jnp.linalg.norm(step(middle)) > radius
            return jnp.where(too_long, middle, low), jnp.where(too_long, high, middle)

        high = low + jnp.linalg.norm(self.slopes) / radius
        inside = is_regular & (jnp.linalg.norm(step(0.0)) <= radius)
        bisected = lambda: jax.lax.fori_loop(0, _BISECTIONS, halved, (low, high))[1]  # noqa: E731
        return step(jax.lax.cond(inside, lambda: 0.0, bisected))

    def towards_index(
        self, index: int, radius: Float[Array, ""]
    ) -> tuple[Float[Array, " directions"], Float[Array, ""]]:
        """Return a step of at most `radius` in components along the `directions`, and its length.

        The step goes up along the `index` lowest curvatures, and down along all others. If exactly `index` curvatures
        are negative, it is the Newton step, provided that this is short enough.
        """
        sizes = jnp.abs(self.curvatures)
        slopes = jnp.where(jnp.arange(len(sizes)) < index, -self.slopes, self.slopes)
        floor = _FLAT * jnp.max(sizes)
        along = QuadraticModel(slopes, sizes, self.directions)._shifted(jnp.min(sizes) > floor, floor, radius)
        return along, jnp.linalg.norm(along)

    def newton_length(self) -> Float[Array, ""]:
        """Return the length of the Newton step towards the model's stationary point."""
        return jnp.linalg.norm(self.along_newton())

    def along_newton(self) -> Float[Array, " directions"]:
        """Return the components of the Newton step along the directions. They are zero where the slope is zero."""
        flat = self.slopes == 0
        return jnp.where(flat, 0.0, -self.slopes / jnp.where(flat, 1.0, self.curvatures))
