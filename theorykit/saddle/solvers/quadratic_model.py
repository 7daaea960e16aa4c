"""The action to second order about a point: for the steps of Newton's method, and to certify its end point."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..problem import Coordinates, Expansion

# of the largest curvature, below which another is rounding
_FLAT = 1e-15
# halvings of the interval of the shift's logarithm
_BISECTIONS = 16


class QuadraticModel(eqx.Module):
    """The action to second order about a point, in directions of unit length that diagonalise its Hessian.

    Lengths are those of the affine-invariant metric at the point. `directions` are the columns, steps as
    `AbstractSaddleProblem.moved` takes them.
    """

    slopes: Float[Array, " directions"]
    curvatures: Float[Array, " directions"]
    directions: Float[Array, "coordinates directions"]

    @classmethod
    def of(cls, expansion: Expansion) -> "QuadraticModel":
        """The model of an expansion, by the eigenvectors of its Hessian in its metric."""
        factor = jnp.linalg.cholesky(expansion.metric)
        half = solve_triangular(factor, expansion.hessian, lower=True)
        curvatures, vectors = jnp.linalg.eigh(solve_triangular(factor, half.T, lower=True))
        directions = solve_triangular(factor, vectors, lower=True, trans=1)
        return cls(directions.T @ expansion.gradient, curvatures, directions)

    def least_within(self, radius: Float[Array, ""]) -> tuple[Coordinates, Float[Array, ""], Float[Array, ""]]:
        """The step that lowers the model most among those no longer than `radius`; its length; by how much it does."""
        floor = jnp.maximum(-self.curvatures[0], 0.0) + _FLAT * jnp.max(jnp.abs(self.curvatures))
        along = self._shifted(self.curvatures[0] > 0, floor, radius)
        lowered = -(self.slopes @ along + along @ (self.curvatures * along) / 2)
        return self.directions @ along, jnp.linalg.norm(along), lowered

    def _shifted(self, is_regular: Array, low: Array, radius: Array) -> Float[Array, " directions"]:
        """The step after a shift of all curvatures that makes it no longer than `radius`, by bisection in its log."""

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
        """The step within `radius` up along the `index` lowest curvatures, down along the others; and its length.

        In components along the `directions`. With the right signature it is Newton's step, if that is short enough.
        """
        sizes = jnp.abs(self.curvatures)
        slopes = jnp.where(jnp.arange(len(sizes)) < index, -self.slopes, self.slopes)
        floor = _FLAT * jnp.max(sizes)
        along = QuadraticModel(slopes, sizes, self.directions)._shifted(jnp.min(sizes) > floor, floor, radius)
        return along, jnp.linalg.norm(along)

    def remaining(self) -> Float[Array, ""]:
        """By how much a Newton step would lower the model; of a negative curvature its size counts."""
        return jnp.sum(self.slopes**2 / jnp.abs(self.curvatures)) / 2

    def newton_length(self) -> Float[Array, ""]:
        """Length of the Newton step towards the model's stationary point."""
        return jnp.linalg.norm(self.along_newton())

    def along_newton(self) -> Float[Array, " directions"]:
        """The Newton step in components along the directions; zero along a direction without slope."""
        flat = self.slopes == 0
        return jnp.where(flat, 0.0, -self.slopes / jnp.where(flat, 1.0, self.curvatures))
