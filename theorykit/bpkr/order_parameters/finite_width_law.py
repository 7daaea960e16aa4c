"""The exact law of the order parameters at finite width, singular or not, in whitened Bartlett coordinates.

Given U_{l+1} = C_{l+1} C_{l+1}^T, the columns of the new rows of w^(l) are N_l independent Gaussians of covariance W_l
W_l^T, with W_l = chol(covariance) (x) C_{l+1}. They are W_l Z, where Z has independent standard normal entries. The LQ
factor B of Z is lower trapezoidal, with as many columns as the smaller dimension of Z, and C_l = W_l B / sqrt(N_l),

    B_ii^2 ~ chi^2 of N_l - i + 1 degrees (i = 1, 2, ...),   B_ij ~ N(0, 1) below the diagonal.

Across a skip connection, r of the N_l columns of Z, where r is the number of columns of C_{l+1}, are along the rows of
w^(l+1). These columns form R, with standard normal entries, and B is the factor of the other N_l - r columns. Then

    C_l = [gain C_{l+1}, 0; W_l R / sqrt(N_l), W_l B / sqrt(N_l)].

If a layer has fewer units than partial paths, C_l has N_l columns and U_l = C_l C_l^T is singular; nothing else
changes. The coordinates are all entries of B and R, layer by layer from the readout, with B_ii = log(1 + exp(t)). We do
not use log B_ii, which has a long tail, because a chi law with few degrees of freedom has density near zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...checks import checked_key, counted
from ...precision import require_float64
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text
from ..specification import layer_functions
from ..specification.architecture import Architecture, check_bytes, checked_architecture, require_finite_widths
from .coordinates import factors, of_factors
from .order_parameters import OrderParameters

Coordinates = Float[Array, " coordinates"]


@dataclass(frozen=True)
class Level:
    """The coordinates of the order parameter of one layer, or of the readout.

    - `rows`: number of rows of the trapezoid B.
    - `columns`: number of columns of B.
    - `crossing`: number of columns of R; 0 without a skip connection.
    """

    rows: int
    columns: int
    crossing: int

    @property
    def rank(self) -> int:
        """Number of columns of the factor C_l."""
        return self.crossing + self.columns

    @property
    def coordinates(self) -> int:
        """Number of coordinates: the B_ii, the entries of B below the diagonal, and the entries of R."""
        return self.columns + self.entries_below + self.rows * self.crossing

    @property
    def entries_below(self) -> int:
        """Number of entries of B below the diagonal, computed without making the matrix."""
        return self.columns * (self.columns - 1) // 2 + (self.rows - self.columns) * self.columns


class FiniteWidthLaw(DisplayMixin, eqx.Module):
    """The law of (U_1, ..., U_L, u) under the prior of the weights, at the widths of an architecture.

    Make one with `finite_width_law`.
    """

    architecture: Architecture
    levels: tuple[Level, ...] = eqx.field(static=True)  # from the readout to U_1

    def _view(self) -> Iterator[Block]:
        kind = "regular" if self.is_regular else "singular: a layer has fewer units than partial paths"
        yield Text(f"**Finite-width law** of the order parameters: {counted(self.dimension, 'coordinate')}, {kind}")
        names = [*(f"$U_{layer}$" for layer in range(1, len(self.levels))), "$u$"]
        rows = zip(names, reversed(self.levels), strict=True)
        rows = [(name, *map(str, (level.rows + level.crossing, level.rank, level.coordinates))) for name, level in rows]
        yield Table(tuple(rows), ("order parameter", "rows", "rank", "coordinates"))

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return sum(level.coordinates for level in self.levels)

    @property
    def is_regular(self) -> bool:
        """Whether every order parameter is invertible, because every layer has enough hidden units."""
        return all(level.columns == level.rows for level in self.levels)

    @property
    def is_singular(self) -> bool:
        """Whether U_1 is singular, because some layer has too few hidden units."""
        return self.levels[-1].rank < self.architecture.overlap_sizes[0]

    @usual_settings()
    def log_prior(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return the normalised log density of the coordinates."""
        total = jnp.zeros(())
        for degrees, (logarithmic, *normals) in zip(self._degrees(), self._split(coordinates), strict=True):
            diagonal, constants = jax.nn.softplus(logarithmic), jax.scipy.special.gammaln(degrees / 2)
            constants += (degrees / 2 - 1) * np.log(2.0)
            total += jnp.sum((degrees - 1) * jnp.log(diagonal) - diagonal**2 / 2 - constants)  # chi
            total += jnp.sum(jax.nn.log_sigmoid(logarithmic))  # dB/dt
            for normal in normals:
                total -= jnp.sum(normal**2) / 2 + normal.size * np.log(2 * np.pi) / 2
        return total

    @usual_settings()
    def sample(self, key: PRNGKeyArray) -> Coordinates:
        """Draw coordinates from the prior."""
        require_float64()
        drawn = []
        checked_key("key", key)
        for level, degrees in zip(self.levels, self._degrees(), strict=True):
            key, chi_key, normal_key = jax.random.split(key, 3)
            drawn.append(from_positive(jnp.sqrt(2 * jax.random.gamma(chi_key, degrees / 2))))
            drawn.append(jax.random.normal(normal_key, (level.coordinates - level.columns,)))
        return jnp.concatenate(drawn)

    @usual_settings()
    def order_parameters(self, coordinates: Coordinates) -> OrderParameters:
        """Return the order parameters at `coordinates`; singular if a layer has fewer units than partial paths."""
        parts = []
        for level, (diagonal, below, crossing) in zip(self.levels, self._split(coordinates), strict=True):
            places = np.arange(level.columns)
            blocks = jnp.zeros((level.rows, level.columns)).at[places, places].set(jax.nn.softplus(diagonal))
            parts.append((blocks.at[np.tril_indices(level.rows, -1, level.columns)].set(below), crossing))
        return of_factors(reversed(factors(self.architecture, parts, reversed(self.architecture.widths))))

    def _degrees(self) -> Iterator[Float[Array, " columns"]]:
        """Yield degrees of freedom of the squared diagonals of B."""
        for level, width in zip(self.levels, reversed(self.architecture.widths), strict=True):
            yield jnp.asarray(width, dtype=jnp.float64) - level.crossing - np.arange(level.columns)

    def _split(self, coordinates: Coordinates) -> Iterator[tuple[Array, Array, Array]]:
        """Yield the diagonal of B, the entries below the diagonal, and R, for each order parameter."""
        require_float64()
        if jnp.shape(coordinates) != (self.dimension,):
            raise ValueError(f"coordinates must have shape {(self.dimension,)}, got {jnp.shape(coordinates)}")
        coordinates, start = jnp.asarray(coordinates), 0
        for level in self.levels:
            piece = coordinates[start : start + level.coordinates]
            diagonal, below, crossing = jnp.split(piece, [level.columns, level.columns + level.entries_below])
            yield diagonal, below, crossing.reshape(level.rows, level.crossing)
            start += level.coordinates


def finite_width_law(architecture: Architecture) -> FiniteWidthLaw:
    """Return the exact law of the order parameters at the widths of `architecture`.

    A layer can have any real width of at least its number of partial paths. Smaller widths must be whole numbers.

    Raises:
        ValueError: a width is smaller than the number of partial paths and not a whole number, or is traced.
    """
    counts = checked_architecture(architecture).head_counts()
    require_finite_widths(architecture, "the law of the order parameters")
    found = [_level(architecture.overlap_sizes[-1], 0, architecture.widths[-1], "N_a")]
    layers = zip(reversed(architecture.forms), reversed(architecture.widths[:-1]), strict=True)
    for form, width in layers:
        rank = found[-1].rank
        rows = layer_functions.count(form.blocks, counts) * rank
        found.append(_level(rows, rank if form.has_skip else 0, width, form.symbols.width.name))
    check_bytes(architecture, "one set of coordinates", 8 * sum(level.coordinates for level in found))
    return FiniteWidthLaw(architecture, tuple(found))


def _level(rows: int, crossing: int, width, name: str) -> Level:
    if isinstance(width, jax.core.Tracer):
        raise ValueError(f"the width {name} must not be traced: it determines whether an order parameter is singular")
    free = float(width) - crossing
    if free < rows and free != int(free):
        raise ValueError(
            f"{name}={float(width)} must be a whole number of units, or at least {rows + crossing}, the number of "
            "partial paths: otherwise no Wishart law exists"
        )
    return Level(rows, min(rows, int(free)), crossing)


def from_positive(diagonal: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the coordinate t of a diagonal entry B_ii = log(1 + exp(t))."""
    return diagonal + jnp.log(-jnp.expm1(-diagonal))
