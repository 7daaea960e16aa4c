"""The exact law of the order parameters at finite width, singular or not, in Bartlett coordinates.

Given U_{l+1} = C_{l+1} C_{l+1}^T, the columns of the new rows of w^(l) are N_l independent Gaussians W_l Z, with
W_l = chol(covariance) (x) C_{l+1} and independent standard normal entries of Z. Then C_l = W_l B / sqrt(N_l) with the
LQ factor B of Z. B is lower trapezoidal, with as many columns as the smaller dimension of Z, and

    B_ii^2 ~ chi^2 of N_l - i + 1 degrees (i = 1, 2, ...),   B_ij ~ N(0, 1) below the diagonal.

Across a skip connection, as many columns of Z as C_{l+1} has are along the rows of w^(l+1). They form R, with standard
normal entries, and B is the factor of the others. A layer with fewer units than partial paths has a singular U_l.

The coordinates are those of `coordinates`, except on the diagonal, where B_ii = log(1 + exp(t)).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...checks import checked_key, is_traced
from ...precision import require_float64
from ...saddle.problem import Coordinates
from ...settings import usual_settings
from ..specification.architecture import Architecture, check_fits, checked_architecture, require_finite_widths
from .coordinates import Level, count, factors_of, levels_of, of_factors, parts_of
from .order_parameters import OrderParameters


class FiniteWidthLaw(eqx.Module):
    """The law of (U_1, ..., U_L, u) under the prior of the weights; `finite_width_law` makes it."""

    architecture: Architecture
    levels: tuple[Level, ...] = eqx.field(static=True)  # from the readout to U_1

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return count(self.levels)

    @property
    def is_regular(self) -> bool:
        """Whether every order parameter is invertible, because every layer has enough hidden units."""
        return all(level.columns == level.rows for level in self.levels)

    @property
    def is_singular(self) -> bool:
        """Whether U_1 is singular, because some layer has too few hidden units."""
        return self.levels[-1].rank < self.architecture.overlap_sizes[0]

    @property
    def diagonal(self) -> np.ndarray:
        """Places of the diagonal entries of all B among the coordinates."""
        starts = np.cumsum([0, *(level.coordinates for level in self.levels[:-1])])
        return np.concatenate([start + level.diagonal for start, level in zip(starts, self.levels, strict=True)])

    @usual_settings()
    def log_prior(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return the normalised log density of the coordinates."""
        coordinates, degrees = self._checked(coordinates), self._degrees()
        t = coordinates[self.diagonal]
        diagonal = jax.nn.softplus(t)
        chi = (degrees - 1) * jnp.log(diagonal) - diagonal**2 / 2 - (degrees / 2 - 1) * np.log(2.0)
        chi += jax.nn.log_sigmoid(t) - jax.scipy.special.gammaln(degrees / 2)  # dB/dt
        normal = jnp.delete(coordinates, self.diagonal, assume_unique_indices=True)
        return jnp.sum(chi) - jnp.sum(normal**2 + np.log(2 * np.pi)) / 2

    @usual_settings()
    def sample(self, key: PRNGKeyArray) -> Coordinates:
        """Draw coordinates from the prior."""
        require_float64()
        chi_key, normal_key = jax.random.split(checked_key("key", key))
        diagonal = jnp.sqrt(2 * jax.random.gamma(chi_key, self._degrees() / 2))
        normal = jax.random.normal(normal_key, (self.dimension,))
        return normal.at[self.diagonal].set(from_positive(diagonal))

    @usual_settings()
    def order_parameters(self, coordinates: Coordinates) -> OrderParameters:
        """Return the order parameters at `coordinates`; singular if a layer has fewer units than partial paths."""
        coordinates = self._checked(coordinates)
        # `parts_of` expects logarithms on the diagonal.
        logarithms = jnp.log(jax.nn.softplus(coordinates[self.diagonal]))
        parts = parts_of(self.levels, coordinates.at[self.diagonal].set(logarithms))
        pairs = zip(parts, map(jnp.sqrt, reversed(self.architecture.widths)), strict=True)
        return of_factors(factors_of(self.architecture, [(b / root, r / root) for (b, r), root in pairs]))

    def _checked(self, coordinates: Coordinates) -> Coordinates:
        require_float64()
        if jnp.shape(coordinates) != (self.dimension,):
            raise ValueError(f"coordinates must have shape {(self.dimension,)}, got {jnp.shape(coordinates)}")
        return jnp.asarray(coordinates)

    def _degrees(self) -> Float[Array, " diagonal"]:
        """Return the degrees of freedom of the squared diagonal entries of all B."""
        widths = zip(reversed(self.architecture.widths), self.levels, strict=True)
        return jnp.concatenate([width - level.crossing - np.arange(level.columns) for width, level in widths])


def finite_width_law(architecture: Architecture) -> FiniteWidthLaw:
    """Return the exact law of the order parameters at the widths of `architecture`.

    A layer can have any real width of at least its number of partial paths. Smaller widths must be whole numbers.

    Raises:
        ValueError: a width is smaller than the number of partial paths and not a whole number, or is traced.
    """
    require_finite_widths(checked_architecture(architecture), "the law of the order parameters")
    if is_traced(architecture.widths):
        raise ValueError("widths must not be traced: they determine whether an order parameter is singular")
    widths = tuple(map(float, architecture.widths))
    levels = levels_of(architecture, widths)
    for level, width in zip(levels, reversed(widths), strict=True):
        if level.columns < level.rows and not width.is_integer():
            raise ValueError(f"widths below the number of partial paths must be whole numbers, got {width}")
    check_fits(architecture, "one set of coordinates", count(levels))
    return FiniteWidthLaw(architecture, levels)


def from_positive(diagonal: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the coordinate t of a diagonal entry B_ii = log(1 + exp(t))."""
    return diagonal + jnp.log(-jnp.expm1(-diagonal))
