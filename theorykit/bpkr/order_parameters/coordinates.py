"""Unconstrained coordinates of the order parameters: whitened Cholesky factors, layer by layer from the readout.

Every order parameter is U_l = C_l C_l^T with a lower triangular factor C_l. Given C_{l+1}, the weight blocks of layer l
have the prior covariance W_l W_l^T = covariance (x) U_{l+1}, with W_l = chol(covariance) (x) C_{l+1}, and

    readout             C_{L+1} = sigma_a B
    layer               C_l = W_l B_l
    skip connection     C_l = [gain C_{l+1}, 0; W_l R_l, W_l B_l]

where the B are lower triangular with diagonal exp(theta) and the R_l are rectangular: the Bartlett factors of the prior
law of U_l at finite width. The leading block of such a U_l is gain^2 U_{l+1} whatever the coordinates are.
Every real vector is a set of order parameters, positive definite and consistent; zero is the Gaussian-process limit;
and the curvature of the entropy there is the same whatever the prior is.

Triangular factors are a group, and `moved` multiplies by them: B -> B T, R -> R + B r. In such steps the
affine-invariant metric is of order one about every point; in the coordinates themselves it is not.
"""

import itertools
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ...saddle.problem import Coordinates
from ..specification import layer_functions
from ..specification.architecture import Architecture
from .order_parameters import OrderParameters, from_overlaps, to_overlaps


def to_order_parameters(architecture: Architecture, coordinates: Coordinates) -> OrderParameters:
    """The order parameters at `coordinates`: B of the readout, then B_L, R_L, ..., B_1, R_1, each by rows."""
    triangle, *pieces = _split(architecture, coordinates)
    outer = jnp.sqrt(architecture.prior_variances[-1]) * _triangular(triangle, architecture.outputs)
    overlaps = [outer @ outer.T]
    for root, gain in _from_the_readout(architecture):
        whitening = jnp.kron(root, outer)
        blocks = whitening @ _triangular(pieces.pop(0), len(whitening))
        if gain is None:
            outer = blocks
        else:
            crossing = whitening @ pieces.pop(0).reshape(len(whitening), len(outer))
            outer = jnp.block([[gain * outer, jnp.zeros(crossing.T.shape)], [crossing, blocks]])
        overlaps.append(outer @ outer.T)
    return from_overlaps(reversed(overlaps))


def from_order_parameters(architecture: Architecture, order_parameters: OrderParameters) -> Coordinates:
    """The coordinates of `order_parameters`; the inverse of `to_order_parameters`."""
    *matrices, readout = to_overlaps(order_parameters)
    outer = jnp.linalg.cholesky(readout)
    pieces = [_triangle(outer / jnp.sqrt(architecture.prior_variances[-1]))]
    layers = zip(_from_the_readout(architecture), reversed(matrices), strict=True)
    for (root, gain), matrix in layers:
        whitening, factor = jnp.kron(root, outer), jnp.linalg.cholesky(matrix)
        skip = 0 if gain is None else len(outer)
        white = solve_triangular(whitening, factor[skip:], lower=True)
        pieces.append(_triangle(white[:, skip:]))
        if skip:
            pieces.append(white[:, :skip].ravel())
        outer = factor
    return jnp.concatenate(pieces)


def moved(architecture: Architecture, coordinates: Coordinates, step: Coordinates) -> Coordinates:
    """The coordinates after a step from the point at `coordinates`: every B becomes B T, every R becomes R + B r.

    `step` holds T and r as coordinates hold B and R; zero is no step.
    """
    pieces = zip(_split(architecture, coordinates), _split(architecture, step), strict=True)
    outer = architecture.outputs
    there = [_product(*next(pieces), outer)]
    for form, size in zip(reversed(architecture.forms), reversed(architecture.order_parameter_sizes), strict=True):
        blocks = size - outer if form.has_skip else size
        triangle, change = next(pieces)
        there.append(_product(triangle, change, blocks))
        if form.has_skip:
            crossing, change = next(pieces)
            there.append(crossing + (_triangular(triangle, blocks) @ change.reshape(blocks, outer)).ravel())
        outer = size
    return jnp.concatenate(there)


def _product(left: Float[Array, " entries"], right: Float[Array, " entries"], size: int) -> Float[Array, " entries"]:
    return _triangle(_triangular(left, size) @ _triangular(right, size))


def log_volume(architecture: Architecture, coordinates: Coordinates) -> Float[Array, ""]:
    """The logarithm of |dU/dtheta|, up to a constant: densities of the order parameters times it are of coordinates.

    U_l is taken to vary on and above its diagonal, but for a block that is another order parameter.
    """
    triangle, *pieces = _split(architecture, coordinates)
    outer, total = _triangular(triangle, architecture.outputs), _log_volume_of(triangle, architecture.outputs)
    outer = jnp.sqrt(architecture.prior_variances[-1]) * outer
    for root, gain in _from_the_readout(architecture):
        whitening, size = jnp.kron(root, outer), len(outer)
        rows, log_whitening = len(whitening), jnp.sum(jnp.log(jnp.diagonal(whitening)))
        triangle = pieces.pop(0)
        blocks = whitening @ _triangular(triangle, rows)
        total += (rows + 1) * log_whitening + _log_volume_of(triangle, rows)
        if gain is None:
            outer = blocks
        else:
            crossing = whitening @ pieces.pop(0).reshape(rows, size)
            total += size * log_whitening + rows * jnp.sum(jnp.log(jnp.diagonal(outer)))
            outer = jnp.block([[gain * outer, jnp.zeros(crossing.T.shape)], [crossing, blocks]])
    return total


def _log_volume_of(triangle: Float[Array, " entries"], size: int) -> Float[Array, ""]:
    """log |d(B B^T)/dtheta| up to a constant, B being the triangle with diagonal exp(theta)."""
    rows, columns = np.tril_indices(size)
    return jnp.sum((size + 1 - np.arange(size)) * triangle[np.flatnonzero(rows == columns)])


def gp_coordinates(architecture: Architecture) -> Coordinates:
    """The Gaussian-process limit: the origin."""
    return jnp.zeros(sum(_lengths(architecture)))


def _lengths(architecture: Architecture) -> list[int]:
    """How many coordinates each triangle and rectangle has, in their order."""
    outer = architecture.outputs
    lengths = [outer * (outer + 1) // 2]
    for form, size in zip(reversed(architecture.forms), reversed(architecture.order_parameter_sizes), strict=True):
        blocks = size - outer if form.has_skip else size
        lengths.append(blocks * (blocks + 1) // 2)
        if form.has_skip:
            lengths.append(blocks * outer)
        outer = size
    return lengths


def _split(architecture: Architecture, coordinates: Coordinates) -> list[Array]:
    ends = list(itertools.accumulate(_lengths(architecture)))
    return jnp.split(coordinates, ends[:-1])


def _from_the_readout(architecture: Architecture) -> Iterator[tuple[Array, Array | None]]:
    """From the last layer down: the root of the covariance of its weight blocks, and its skip connection's gain."""
    numbers = architecture.layer_numbers()
    for form in reversed(architecture.forms):
        root = layer_functions.covariance_root(form, numbers)
        yield root, layer_functions.gain(form, numbers) if form.has_skip else None


def _triangular(triangle: Float[Array, " entries"], size: int) -> Float[Array, "size size"]:
    # indices are constants: JAX would compute its own anew at every step of a compiled loop
    lower = jnp.zeros((size, size)).at[np.tril_indices(size)].set(triangle, unique_indices=True)
    diagonal = np.eye(size, dtype=bool)
    return jnp.where(diagonal, jnp.exp(jnp.where(diagonal, lower, 0.0)), lower)


def _triangle(lower: Float[Array, "size size"]) -> Float[Array, " entries"]:
    diagonal = np.eye(len(lower), dtype=bool)
    logarithmic = jnp.where(diagonal, jnp.log(jnp.where(diagonal, lower, 1.0)), lower)
    return logarithmic[np.tril_indices(len(lower))]
