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
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

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

# (B, R) of a level
Part = tuple[Float[Array, "_ _"], Float[Array, "_ _"]]


def to_order_parameters(architecture: Architecture, coordinates: Coordinates) -> OrderParameters:
    """The order parameters at `coordinates`: B of the readout, then B_L, R_L, ..., B_1, R_1."""
    return of_factors(factors_at(architecture, coordinates))


def of_factors(factors: Iterable[Float[Array, "_ _"]]) -> OrderParameters:
    """The order parameters U_l = C_l C_l^T of [C_1, ..., C_{L+1}]."""
    return from_overlaps(factor @ factor.T for factor in factors)


def factors_at(architecture: Architecture, coordinates: Coordinates) -> list[Float[Array, "_ _"]]:
    """[C_1, ..., C_{L+1}] at `coordinates`: the Cholesky factors of the order parameters."""
    return _factors_of(architecture, _parts(architecture, coordinates))


def factors_after(architecture: Architecture, coordinates: Coordinates, step: Coordinates) -> list[Float[Array, "_ _"]]:
    """[C_1, ..., C_{L+1}] after a `step`, see `moved`, from the point at `coordinates`."""
    return _factors_of(architecture, _parts_after(architecture, coordinates, step))


def _factors_of(architecture: Architecture, parts: list[Part]) -> list[Float[Array, "_ _"]]:
    return factors(architecture, parts, [1.0] * len(parts))[::-1]


def _parts(architecture: Architecture, coordinates: Coordinates) -> list[Part]:
    """(B, R) of the readout and of layers L, ..., 1."""
    return [(filled_factor(triangle, len(rest)), rest) for triangle, rest in _split(architecture, coordinates)]


def _parts_after(architecture: Architecture, coordinates: Coordinates, step: Coordinates) -> list[Part]:
    steps = zip(_parts(architecture, coordinates), _parts(architecture, step), strict=True)
    return [(blocks @ turn, crossing + blocks @ shift) for (blocks, crossing), (turn, shift) in steps]


def factors(
    architecture: Architecture,
    parts: Iterable[Part],
    units: Iterable[Any],
) -> list[Float[Array, "_ _"]]:
    """[C_{L+1}, ..., C_1] from the Bartlett factors (B, R) of the readout and of layers L, ..., 1.

    B B^T and R R^T are taken in these `units`, one a level. R is of no columns where there is no skip connection.
    """
    (readout, unit), *layers = zip(parts, units, strict=True)
    found = [jnp.sqrt(architecture.prior_variances[-1] / unit) * readout[0]]
    for (root, gain), ((blocks, crossing), unit) in zip(_from_the_readout(architecture), layers, strict=True):
        outer = found[-1]
        whitening = jnp.kron(root, outer) / jnp.sqrt(unit)
        factor = whitening @ blocks
        if gain is not None:
            nothing = jnp.zeros((len(outer), blocks.shape[1]))
            factor = jnp.block([[gain * outer, nothing], [whitening @ crossing, factor]])
        found.append(factor)
    return found


def from_order_parameters(architecture: Architecture, order_parameters: OrderParameters) -> Coordinates:
    """The coordinates of `order_parameters`; the inverse of `to_order_parameters`."""
    *matrices, readout = to_overlaps(order_parameters)
    outer = jnp.linalg.cholesky(readout)
    pieces = [entries_of_factor(outer / jnp.sqrt(architecture.prior_variances[-1]))]
    layers = zip(_from_the_readout(architecture), reversed(matrices), strict=True)
    for (root, gain), matrix in layers:
        whitening, factor = jnp.kron(root, outer), jnp.linalg.cholesky(matrix)
        skip = 0 if gain is None else len(outer)
        white = solve_triangular(whitening, factor[skip:], lower=True)
        pieces += [entries_of_factor(white[:, skip:]), white[:, :skip].ravel()]
        outer = factor
    return jnp.concatenate(pieces)


def moved(architecture: Architecture, coordinates: Coordinates, step: Coordinates) -> Coordinates:
    """The coordinates after a step from the point at `coordinates`: every B becomes B T, every R becomes R + B r.

    `step` holds T and r as coordinates hold B and R; zero is no step.
    """
    there = _parts_after(architecture, coordinates, step)
    pieces = ((entries_of_factor(blocks), crossing.ravel()) for blocks, crossing in there)
    return jnp.concatenate([piece for pair in pieces for piece in pair])


def log_volume(architecture: Architecture, coordinates: Coordinates) -> Float[Array, ""]:
    """The logarithm of |dU/dtheta|, up to a constant: densities of the order parameters times it are of coordinates.

    U_l is taken to vary on and above its diagonal, but for a block that is another order parameter.
    """
    total = jnp.zeros(())
    parts = _parts(architecture, coordinates)
    for (blocks, crossing), factor in zip(parts, reversed(_factors_of(architecture, parts)), strict=True):
        rows, nested = crossing.shape
        logarithms, of_blocks = jnp.log(jnp.diagonal(factor)), jnp.log(jnp.diagonal(blocks))
        # the diagonal of C_l is that of W_l times that of B
        log_whitening = jnp.sum(logarithms[nested:]) - jnp.sum(of_blocks)
        total += jnp.sum((rows + 1 - np.arange(rows)) * of_blocks)  # d(B B^T)
        total += (rows + 1 + nested) * log_whitening + rows * jnp.sum(logarithms[:nested])
    return total


def gp_coordinates(architecture: Architecture) -> Coordinates:
    """The Gaussian-process limit: the origin."""
    return jnp.zeros(sum([length for length, _ in _lengths(architecture.forms, architecture.overlap_sizes)]))


@lru_cache
def _lengths(forms: tuple[LayerForm, ...], overlap_sizes: tuple[int, ...]) -> tuple[tuple[int, tuple[int, int]], ...]:
    """How many coordinates the readout and layers L, ..., 1 have, and the shape of each R: as many rows as B has."""
    *sizes, outer = overlap_sizes
    shapes = [(outer, 0)]
    for form, size in zip(reversed(forms), reversed(sizes), strict=True):
        nested = outer if form.has_skip else 0
        shapes.append((size - nested, nested))
        outer = size
    return tuple((rows * (rows + 1) // 2 + rows * nested, (rows, nested)) for rows, nested in shapes)


def _split(
    architecture: Architecture, coordinates: Coordinates
) -> list[tuple[Float[Array, " _"], Float[Array, "_ _"]]]:
    """The entries of every B, and every R (rows of B x columns)."""
    lengths, shapes = zip(*_lengths(architecture.forms, architecture.overlap_sizes), strict=True)
    pieces = jnp.split(coordinates, list(itertools.accumulate(lengths))[:-1])
    halves = (jnp.split(piece, [len(piece) - math.prod(shape)]) for piece, shape in zip(pieces, shapes, strict=True))
    return [(triangle, rest.reshape(shape)) for (triangle, rest), shape in zip(halves, shapes, strict=True)]


def _from_the_readout(architecture: Architecture) -> Iterator[tuple[Array, Array | None]]:
    """From the last layer down: the root of the covariance of its weight blocks, and its skip connection's gain."""
    numbers = architecture.layer_numbers()
    for form in reversed(architecture.forms):
        root = layer_functions.covariance_root(form, numbers)
        yield root, layer_functions.gain(form, numbers) if form.has_skip else None
