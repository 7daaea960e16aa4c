"""Unconstrained coordinates of the order parameters: whitened Bartlett factors, layer by layer from the readout.

Every order parameter is U_l = C_l C_l^T. Given C_{l+1}, the weight blocks of layer l have the prior covariance
W_l W_l^T = covariance (x) U_{l+1}, with W_l = chol(covariance) (x) C_{l+1}. The factors are

    readout             C_{L+1} = sigma_a B
    layer               C_l = W_l B_l
    skip connection     C_l = [gain C_{l+1}, 0; W_l R_l, W_l B_l]

B and R are the Bartlett factors of the prior law of U_l at finite width: B is lower trapezoidal with a positive
diagonal, and R is rectangular. The coordinates of a level are the triangle of B, with the logarithm of its diagonal,
then the rows of B below the triangle, then R. Across a skip connection the leading block of U_l is always gain^2
U_{l+1}.

Solvers use square B, so that every real vector gives consistent positive definite order parameters. The zero vector
gives the Gaussian-process limit, at which the curvature of the entropy is the same for every prior. Triangular factors
form a group, and `moved` multiplies by group elements: B -> B T, R -> R + B r. About every point, the affine-invariant
metric is of order one in these steps, which it is not in the coordinates.
"""

import itertools
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ...saddle.domains import entries_of_factor, filled_factor
from ...saddle.problem import Coordinates
from ..specification import layer_functions
from ..specification.architecture import Architecture
from ..specification.layer_form import LayerForm
from .order_parameters import OrderParameters, from_overlaps, to_overlaps

# (B, R) of one order parameter.
Part = tuple[Float[Array, "_ _"], Float[Array, "_ _"]]


class Level(NamedTuple):
    """Sizes of the Bartlett factors of one order parameter.

    - `rows`: number of rows of B and R.
    - `columns`: number of columns of B.
    - `crossing`: number of columns of R, which is the rank of the next order parameter; 0 without a skip connection.
    """

    rows: int
    columns: int
    crossing: int

    @property
    def rank(self) -> int:
        """Number of columns of C_l."""
        return self.crossing + self.columns

    @property
    def triangle(self) -> int:
        """Number of entries of the triangle of B."""
        return self.columns * (self.columns + 1) // 2

    @property
    def coordinates(self) -> int:
        """Number of coordinates."""
        return self.triangle + (self.rows - self.columns) * self.columns + self.rows * self.crossing

    @property
    def diagonal(self) -> np.ndarray:
        """Places of the diagonal of B among the coordinates; `filled_factor` folds the triangle into a square."""
        places = np.arange(self.triangle)
        return np.concatenate([places[self.columns :], places[::-1]])[:: self.columns + 1]


def levels_of(architecture: Architecture) -> tuple[Level, ...]:
    """Return the sizes of square Bartlett factors, for the readout and layers L, ..., 1."""
    return _levels(architecture.forms, architecture.overlap_sizes)


# Functions of arrays need the sizes at every call.
@lru_cache
def _levels(forms: tuple[LayerForm, ...], overlap_sizes: tuple[int, ...]) -> tuple[Level, ...]:
    *sizes, outer = overlap_sizes
    levels = [Level(outer, outer, 0)]
    for form, size in zip(reversed(forms), reversed(sizes), strict=True):
        crossing = outer if form.has_skip else 0
        levels.append(Level(size - crossing, size - crossing, crossing))
        outer = size
    return tuple(levels)


def parts_of(levels: Iterable[Level], coordinates: Coordinates) -> list[Part]:
    """Return (B, R) of the readout and of layers L, ..., 1."""
    start, parts = 0, []
    for level in levels:
        end = start + level.coordinates
        triangle, below, crossing = jnp.split(
            coordinates[start:end],
            [level.triangle, level.coordinates - level.rows * level.crossing],
        )
        blocks = filled_factor(triangle, level.columns)
        if level.rows > level.columns:
            blocks = jnp.concatenate([blocks, below.reshape(level.rows - level.columns, level.columns)])
        parts.append((blocks, crossing.reshape(level.rows, level.crossing)))
        start = end
    return parts


def factors_of(
    architecture: Architecture, parts: Sequence[Part], units: Iterable[Any] | None = None
) -> list[Float[Array, "_ _"]]:
    """Return [C_1, ..., C_{L+1}] from (B, R) of the readout and of layers L, ..., 1.

    B B^T and R R^T are divided by `units`, one number per order parameter, by default 1.
    """
    numbers = architecture.layer_numbers()
    (readout, _), *layers = parts
    first, *others = itertools.repeat(1.0, len(parts)) if units is None else units
    factors = [jnp.sqrt(architecture.prior_variances[-1] / first) * readout]
    for form, (blocks, crossing), unit in zip(reversed(architecture.forms), layers, others, strict=True):
        outer = factors[0]
        whitening = jnp.kron(layer_functions.covariance_root(form, numbers), outer) / jnp.sqrt(unit)
        factor = whitening @ blocks
        if form.has_skip:
            above = jnp.pad(layer_functions.gain(form, numbers) * outer, ((0, 0), (0, blocks.shape[1])))
            factor = jnp.concatenate([above, jnp.hstack([whitening @ crossing, factor])])
        factors.insert(0, factor)
    return factors


def of_factors(factors: Iterable[Float[Array, "_ _"]]) -> OrderParameters:
    """Return the order parameters U_l = C_l C_l^T for [C_1, ..., C_{L+1}]."""
    return from_overlaps(factor @ factor.T for factor in factors)


def factors_at(architecture: Architecture, coordinates: Coordinates) -> list[Float[Array, "_ _"]]:
    """Return the Cholesky factors [C_1, ..., C_{L+1}] of the order parameters at `coordinates`."""
    return factors_of(architecture, parts_of(levels_of(architecture), coordinates))


def factors_after(architecture: Architecture, coordinates: Coordinates, step: Coordinates) -> list[Float[Array, "_ _"]]:
    """Return [C_1, ..., C_{L+1}] after a `step` from `coordinates`; see `moved`."""
    return factors_of(architecture, _parts_after(architecture, coordinates, step))


def _parts_after(architecture: Architecture, coordinates: Coordinates, step: Coordinates) -> list[Part]:
    here, there = (parts_of(levels_of(architecture), each) for each in (coordinates, step))
    pairs = zip(here, there, strict=True)
    return [(blocks @ turn, crossing + blocks @ shift) for (blocks, crossing), (turn, shift) in pairs]


def moved(architecture: Architecture, coordinates: Coordinates, step: Coordinates) -> Coordinates:
    """Return the coordinates after a step from the point at `coordinates`: B becomes B T, R becomes R + B r.

    `step` holds T and r in the layout of B and R. The zero vector leaves the coordinates unchanged.
    """
    parts = _parts_after(architecture, coordinates, step)
    pieces = [(entries_of_factor(blocks), crossing.ravel()) for blocks, crossing in parts]
    return jnp.concatenate([piece for pair in pieces for piece in pair])


def to_order_parameters(architecture: Architecture, coordinates: Coordinates) -> OrderParameters:
    """Return the order parameters at `coordinates`."""
    return of_factors(factors_at(architecture, coordinates))


def from_order_parameters(architecture: Architecture, order_parameters: OrderParameters) -> Coordinates:
    """Return the coordinates of `order_parameters`; the inverse of `to_order_parameters`."""
    numbers = architecture.layer_numbers()
    *matrices, readout = to_overlaps(order_parameters)
    outer = jnp.linalg.cholesky(readout)
    pieces = [entries_of_factor(outer / jnp.sqrt(architecture.prior_variances[-1]))]
    for form, matrix in zip(reversed(architecture.forms), reversed(matrices), strict=True):
        factor, skip = jnp.linalg.cholesky(matrix), len(outer) if form.has_skip else 0
        whitening = jnp.kron(layer_functions.covariance_root(form, numbers), outer)
        white = solve_triangular(whitening, factor[skip:], lower=True)
        pieces += [entries_of_factor(white[:, skip:]), white[:, :skip].ravel()]
        outer = factor
    return jnp.concatenate(pieces)


def log_volume(architecture: Architecture, coordinates: Coordinates) -> Float[Array, ""]:
    """Return log |dU/dtheta| up to a constant; it converts densities of order parameters to densities of coordinates.

    The free entries of U_l are on and above its diagonal, except in a block that is another order parameter.
    """
    parts, total = parts_of(levels_of(architecture), coordinates), jnp.zeros(())
    for (blocks, crossing), factor in zip(parts, reversed(factors_of(architecture, parts)), strict=True):
        rows, nested = crossing.shape
        of_factor, of_blocks = jnp.log(jnp.diagonal(factor)), jnp.log(jnp.diagonal(blocks))
        # diag(C_l) = diag(W_l) diag(B).
        log_whitening = jnp.sum(of_factor[nested:]) - jnp.sum(of_blocks)
        total += jnp.sum((rows + 1 - np.arange(rows)) * of_blocks)  # d(B B^T)
        total += (rows + 1 + nested) * log_whitening + rows * jnp.sum(of_factor[:nested])
    return total


def log_volume_of_steps(architecture: Architecture, coordinates: Coordinates) -> Float[Array, ""]:
    """Return log |dtheta/dstep| at a zero step of `moved`: each free entry in row i of B T, B r has a factor B_ii."""
    total = jnp.zeros(())
    for blocks, crossing in parts_of(levels_of(architecture), coordinates):
        rows, nested = crossing.shape
        total += jnp.sum((np.arange(rows) + nested) * jnp.log(jnp.diagonal(blocks)))
    return total


def gp_coordinates(architecture: Architecture) -> Coordinates:
    """Return the coordinates of the Gaussian-process limit, which are zero."""
    return jnp.zeros(_dimension(architecture.forms, architecture.overlap_sizes))


@lru_cache
def _dimension(forms: tuple[LayerForm, ...], overlap_sizes: tuple[int, ...]) -> int:
    return sum(level.coordinates for level in _levels(forms, overlap_sizes))
