"""The manifold of order parameters: gradients and displacements in the affine-invariant metric.

A tangent at U_l = C_l C_l^T is dU_l = C_l dW_l C_l^T with length |dW_l|, which is invariant under U -> M U M^T. If a
skip connection makes U_{l+1} a block of U_l, changes of the block count as changes of U_{l+1} and not of U_l.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ...saddle.problem import Tangent
from ..specification.architecture import Architecture
from .coordinates import levels_of
from .order_parameters import OrderParameters, from_overlaps, to_overlaps


def largest_width(architecture: Architecture) -> Float[Array, ""]:
    """Return the largest width, the unit for gradients and curvatures of the action."""
    return jnp.max(jnp.array(architecture.relative_widths, dtype=jnp.float64))


def gradient_length(
    architecture: Architecture, factors: Sequence[Float[Array, "_ _"]], gradient: OrderParameters
) -> Float[Array, ""]:
    """Return the length |C^T (dS/dU) C| of a gradient, over all U = C C^T of `factors` [C_1, ..., C_{L+1}]."""
    square, from_below = jnp.zeros(()), jnp.zeros(())
    for factor, slope, nested in zip(factors, to_overlaps(gradient), _nested_sizes(architecture), strict=True):
        whitened = factor.T @ slope @ factor + from_below
        # The gradient with respect to the leading block of U_l belongs to U_{l+1}.
        from_below = whitened[:nested, :nested] if nested else jnp.zeros(())
        square += jnp.sum((whitened * _beyond(len(factor), nested)) ** 2)
    return jnp.sqrt(square)


def metric(
    architecture: Architecture, factors: Sequence[Float[Array, "_ _"]], changes: Sequence[Float[Array, "changes _ _"]]
) -> Float[Array, "changes changes"]:
    """Return the inner products of `changes` of the `factors` [C_1, ..., C_{L+1}]; changes are stacked along axis 0."""
    products = 0.0
    for factor, change, nested in zip(factors, changes, _nested_sizes(architecture), strict=True):
        # C^-1 A for every change A, side by side.
        side_by_side = change.swapaxes(0, 1).reshape(len(factor), -1)
        turned = solve_triangular(factor, side_by_side, lower=True).reshape(len(factor), -1, len(factor)).swapaxes(0, 1)
        white = turned + turned.swapaxes(1, 2)
        if nested:
            white *= _beyond(len(factor), nested)
        flat = white.reshape(len(white), -1)
        products = products + flat @ flat.T
    return products


def displaced(architecture: Architecture, order_parameters: OrderParameters, tangent: Tangent) -> OrderParameters:
    """Return C_l (I + dW_l) C_l^T; `tangent` holds the orthonormal components of all dW_l."""
    tangent, inner, moved = jnp.asarray(tangent), None, []
    for point, nested in reversed(list(zip(to_overlaps(order_parameters), _nested_sizes(architecture), strict=True))):
        rows, columns = np.triu_indices(len(point))
        rows, columns = rows[columns >= nested], columns[columns >= nested]
        components, tangent = tangent[: len(rows)], tangent[len(rows) :]
        upper = jnp.zeros(point.shape).at[rows, columns].set(jnp.where(rows == columns, 0.5, 0.5**0.5) * components)
        change = upper + upper.T
        if nested:
            change = change.at[:nested, :nested].set(inner)
        factor = jnp.linalg.cholesky(point)
        moved.append(point + factor @ change @ factor.T)
        inner = change
    return from_overlaps(reversed(moved))


def dimension(architecture: Architecture) -> int:
    """Return the number of components of a tangent."""
    return sum([level.coordinates for level in levels_of(architecture)])


def _nested_sizes(architecture: Architecture) -> list[int]:
    """Return, for each order parameter, the size of its block that is the next order parameter; 0 without a skip."""
    return [level.crossing for level in reversed(levels_of(architecture))]


def _beyond(size: int, nested: int) -> np.ndarray:
    """Return a matrix of ones, with zeros in its leading block of `nested` rows."""
    within = np.arange(size) < nested
    return 1.0 - np.outer(within, within)
