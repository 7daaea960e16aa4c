"""Unconstrained coordinates of the order parameters: whitened Cholesky factors, layer by layer from the readout.

Every order parameter is U_l = C_l C_l^T with a lower triangular factor C_l. Given C_{l+1}, the weight blocks of layer l
have the prior covariance W_l W_l^T = covariance (x) U_{l+1}, with W_l = chol(covariance) (x) C_{l+1}. The factors are

    readout             C_{L+1} = sigma_a B
    layer               C_l = W_l B_l
    skip connection     C_l = [gain C_{l+1}, 0; W_l R_l, W_l B_l]

The B are lower triangular with diagonal exp(theta), and the R_l are rectangular. B and R are Bartlett factors of the
prior law of U_l at finite width. Across a skip connection the leading block of U_l is always gain^2 U_{l+1}. Every real
vector gives consistent positive definite order parameters. The zero vector gives the Gaussian-process limit, at which
the curvature of the entropy is the same for every prior.

Triangular factors form a group, and `moved` multiplies by group elements: B -> B T, R -> R + B r. About every point,
the affine-invariant metric is of order one in these steps, which it is not in the coordinates.
"""

import itertools
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import equinox as eqx
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


class PriorRoots(eqx.Module):
    """Factors of the prior, which do not depend on the coordinates. Compute them once with `roots_of` for many steps.

    - `readout`: sigma_a.
    - `layers`: for layers L, ..., 1, chol(covariance), and the gain of the skip connection or None.
    """

    forms: tuple[LayerForm, ...] = eqx.field(static=True)
    overlap_sizes: tuple[int, ...] = eqx.field(static=True)
    readout: Float[Array, ""]
    layers: tuple[tuple[Float[Array, "_ _"], Array | None], ...]


def roots_of(architecture: Architecture | PriorRoots) -> PriorRoots:
    """Return the factors of the prior of an architecture; return given `PriorRoots` unchanged."""
    if isinstance(architecture, PriorRoots):
        return architecture
    numbers, layers = architecture.layer_numbers(), []
    for form in reversed(architecture.forms):
        root = layer_functions.covariance_root(form, numbers)
        layers.append((root, jnp.asarray(layer_functions.gain(form, numbers)) if form.has_skip else None))
    readout = jnp.sqrt(architecture.prior_variances[-1])
    return PriorRoots(architecture.forms, architecture.overlap_sizes, readout, tuple(layers))


def to_order_parameters(roots: Architecture | PriorRoots, coordinates: Coordinates) -> OrderParameters:
    """Return the order parameters at `coordinates`: B of the readout, then B_L, R_L, ..., B_1, R_1."""
    return of_factors(factors_at(roots, coordinates))


def of_factors(factors: Iterable[Float[Array, "_ _"]]) -> OrderParameters:
    """Return the order parameters U_l = C_l C_l^T for [C_1, ..., C_{L+1}]."""
    return from_overlaps(factor @ factor.T for factor in factors)


def factors_at(roots: Architecture | PriorRoots, coordinates: Coordinates) -> list[Float[Array, "_ _"]]:
    """Return the Cholesky factors [C_1, ..., C_{L+1}] of the order parameters at `coordinates`."""
    return factors(roots, _parts(roots, coordinates))[::-1]


def factors_after(
    roots: Architecture | PriorRoots, coordinates: Coordinates, step: Coordinates
) -> list[Float[Array, "_ _"]]:
    """Return [C_1, ..., C_{L+1}] after a `step` from `coordinates`; see `moved`."""
    return factors(roots, _parts_after(roots, coordinates, step))[::-1]


def _parts(roots: Architecture | PriorRoots, coordinates: Coordinates) -> list[Part]:
    """Return (B, R) of the readout and of layers L, ..., 1."""
    start, parts = 0, []
    for rows, nested in _shapes(roots.forms, roots.overlap_sizes):
        middle = start + rows * (rows + 1) // 2
        end = middle + rows * nested
        parts.append((filled_factor(coordinates[start:middle], rows), coordinates[middle:end].reshape(rows, nested)))
        start = end
    return parts


def _parts_after(roots: Architecture | PriorRoots, coordinates: Coordinates, step: Coordinates) -> list[Part]:
    steps = zip(_parts(roots, coordinates), _parts(roots, step), strict=True)
    return [(blocks @ turn, crossing + blocks @ shift) for (blocks, crossing), (turn, shift) in steps]


def factors(
    roots: Architecture | PriorRoots, parts: Iterable[Part], units: Iterable[Any] | None = None
) -> list[Float[Array, "_ _"]]:
    """Return [C_{L+1}, ..., C_1] from the Bartlett factors (B, R) of the readout and of layers L, ..., 1.

    B B^T and R R^T are divided by `units`, one number per order parameter, by default 1. Without a skip connection, R
    has no columns.
    """
    roots = roots_of(roots)
    (readout, unit), *layers = zip(parts, units or itertools.repeat(1.0), strict=False)
    found = [roots.readout / jnp.sqrt(unit) * readout[0]]
    for (root, gain), ((blocks, crossing), unit) in zip(roots.layers, layers, strict=True):
        outer = found[-1]
        whitening = jnp.kron(root, outer) / jnp.sqrt(unit)
        factor = whitening @ blocks
        if gain is not None:
            nothing = jnp.zeros((len(outer), blocks.shape[1]))
            factor = jnp.block([[gain * outer, nothing], [whitening @ crossing, factor]])
        found.append(factor)
    return found


def from_order_parameters(roots: Architecture | PriorRoots, order_parameters: OrderParameters) -> Coordinates:
    """Return the coordinates of `order_parameters`; the inverse of `to_order_parameters`."""
    *matrices, readout = to_overlaps(order_parameters)
    roots, outer = roots_of(roots), jnp.linalg.cholesky(readout)
    pieces = [entries_of_factor(outer / roots.readout)]
    for (root, gain), matrix in zip(roots.layers, reversed(matrices), strict=True):
        whitening, factor = jnp.kron(root, outer), jnp.linalg.cholesky(matrix)
        skip = 0 if gain is None else len(outer)
        white = solve_triangular(whitening, factor[skip:], lower=True)
        pieces += [entries_of_factor(white[:, skip:]), white[:, :skip].ravel()]
        outer = factor
    return jnp.concatenate(pieces)


def moved(roots: Architecture | PriorRoots, coordinates: Coordinates, step: Coordinates) -> Coordinates:
    """Return the coordinates after a step from the point at `coordinates`: B becomes B T, R becomes R + B r.

    `step` holds T and r in the layout of B and R. The zero vector leaves the coordinates unchanged.
    """
    there = _parts_after(roots, coordinates, step)
    pieces = ((entries_of_factor(blocks), crossing.ravel()) for blocks, crossing in there)
    return jnp.concatenate([piece for pair in pieces for piece in pair])


def log_volume(roots: Architecture | PriorRoots, coordinates: Coordinates) -> Float[Array, ""]:
    """Return log |dU/dtheta| up to a constant; it converts densities of order parameters to densities of coordinates.

    The free entries of U_l are on and above its diagonal, except in a block that is another order parameter.
    """
    total, parts = jnp.zeros(()), _parts(roots, coordinates)
    for (blocks, crossing), factor in zip(parts, factors(roots, parts), strict=True):
        rows, nested = crossing.shape
        logarithms, of_blocks = jnp.log(jnp.diagonal(factor)), jnp.log(jnp.diagonal(blocks))
        # diag(C_l) = diag(W_l) diag(B).
        log_whitening = jnp.sum(logarithms[nested:]) - jnp.sum(of_blocks)
        total += jnp.sum((rows + 1 - np.arange(rows)) * of_blocks)  # d(B B^T)
        total += (rows + 1 + nested) * log_whitening + rows * jnp.sum(logarithms[:nested])
    return total


def log_volume_of_steps(roots: Architecture | PriorRoots, coordinates: Coordinates) -> Float[Array, ""]:
    """Return log |dtheta/dstep| at a zero step of `moved`: each free entry in row i of B T, B r has a factor B_ii."""
    total = jnp.zeros(())
    for blocks, crossing in _parts(roots, coordinates):
        rows, nested = crossing.shape
        total += jnp.sum((np.arange(rows) + nested) * jnp.log(jnp.diagonal(blocks)))
    return total


def gp_coordinates(architecture: Architecture) -> Coordinates:
    """Return the coordinates of the Gaussian-process limit, which are zero."""
    shapes = _shapes(architecture.forms, architecture.overlap_sizes)
    return jnp.zeros(sum([rows * (rows + 1) // 2 + rows * nested for rows, nested in shapes]))


@lru_cache
def _shapes(forms: tuple[LayerForm, ...], overlap_sizes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the shape of R, which has as many rows as B, for the readout and layers L, ..., 1."""
    *sizes, outer = overlap_sizes
    shapes = [(outer, 0)]
    for form, size in zip(reversed(forms), reversed(sizes), strict=True):
        nested = outer if form.has_skip else 0
        shapes.append((size - nested, nested))
        outer = size
    return tuple(shapes)
