"""Unconstrained coordinates of the order parameters: whitened Cholesky factors, layer by layer from the readout.

u = s_a^2 exp(2 theta_a) and U_l = C_l C_l^T with C_l = s_l (I (x) C_{l+1}) B_l, where B_l is lower triangular with
diagonal exp(theta). Every real vector is a set of positive definite order parameters; zero is the Gaussian-process
limit; and the curvature of the entropy there is the same whatever the prior variances are.
"""

import itertools

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from .architecture import Architecture
from .order_parameters import OrderParameters

Coordinates = Float[Array, " coordinates"]


def to_order_parameters(architecture: Architecture, coordinates: Coordinates) -> OrderParameters:
    """The order parameters at `coordinates`: first theta_a, then B_L, ..., B_1, each lower triangle by rows."""
    log_root, *triangles = _split(architecture, coordinates)
    outer = jnp.sqrt(architecture.prior_variances[-1]) * jnp.exp(log_root[:, None])
    readout, matrices = outer[0, 0] ** 2, []
    for heads, variance, triangle in _from_the_readout(architecture, triangles):
        outer = _whitening(heads, variance, outer) @ _triangular(triangle, heads * len(outer))
        matrices.append(outer @ outer.T)
    return OrderParameters(tuple(reversed(matrices)), readout)


def from_order_parameters(architecture: Architecture, order_parameters: OrderParameters) -> Coordinates:
    """The coordinates of `order_parameters`; the inverse of `to_order_parameters`."""
    outer = jnp.sqrt(order_parameters.readout)[None, None]
    pieces = [jnp.log(outer[0]) - jnp.log(architecture.prior_variances[-1]) / 2]
    for heads, variance, matrix in _from_the_readout(architecture, order_parameters.matrices[::-1]):
        factor = jnp.linalg.cholesky(matrix)
        pieces.append(_triangle(solve_triangular(_whitening(heads, variance, outer), factor, lower=True)))
        outer = factor
    return jnp.concatenate(pieces)


def gp_coordinates(architecture: Architecture) -> Coordinates:
    """The Gaussian-process limit: the origin."""
    return jnp.zeros(sum(_lengths(architecture)))


def _lengths(architecture):
    return [1, *(size * (size + 1) // 2 for size in reversed(architecture.order_parameter_sizes))]


def _split(architecture, coordinates):
    ends = list(itertools.accumulate(_lengths(architecture)))
    return jnp.split(coordinates, ends[:-1])


def _from_the_readout(architecture, values):
    return zip(reversed(architecture.heads), reversed(architecture.prior_variances[1:-1]), values, strict=True)


def _whitening(heads, variance, outer):
    return jnp.sqrt(variance) * jnp.kron(jnp.eye(heads), outer)


def _triangular(triangle, size):
    lower = jnp.zeros((size, size)).at[jnp.tril_indices(size)].set(triangle)
    return jnp.tril(lower, -1) + jnp.diag(jnp.exp(jnp.diagonal(lower)))


def _triangle(lower):
    logarithmic = jnp.tril(lower, -1) + jnp.diag(jnp.log(jnp.diagonal(lower)))
    return logarithmic[jnp.tril_indices(len(lower))]
