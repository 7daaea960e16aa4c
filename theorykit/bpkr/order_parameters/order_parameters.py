"""Order parameters, which are overlaps of path weights, and their infinite-width limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import (
    Requirement,
    checked_instance,
    checked_positive_definite,
    checked_sequence,
    float64_array,
    is_traced,
    on_host,
    require,
)
from ...precision import require_float64
from ...saddle.diagnosis import AbstractOutcome, warn_of_failures
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Table
from ...symbolic.documents.values import brief
from ..specification import layer_form
from ..specification.architecture import Architecture, check_fits, checked_architecture

# A block across a skip connection may differ by this fraction, because of rounding.
_CONSISTENCY = 1e-8


def _matrices(values: Iterable[ArrayLike]) -> tuple[Array, ...]:
    matrices = checked_sequence("matrices", values, "matrices U_1, ..., U_L")
    return tuple(float64_array(f"matrices[{i}]", matrix, axes=2) for i, matrix in enumerate(matrices))


def _readout(value: ArrayLike) -> Array:
    array = float64_array("readout", value)
    if array.ndim not in (0, 2):
        raise ValueError(f"readout must be a number or a matrix, got shape {array.shape}")
    return array


class OrderParameters(DisplayMixin, eqx.Module):
    """The order parameters (U_1, ..., U_L) and u = U_{L+1}.

    Functions that take order parameters also take the `Saddle` that a solve returns.

    - `matrices`: U_l (n_l, n_l) from the input side, positive definite. Rows are (path, output), and the output varies
      fastest. If layer l has a skip connection of strength s, U_l begins with the block s^2 U_{l+1}.
    - `readout`: the number u > 0, or a positive definite matrix (C, C) for C > 1 outputs. If the readout has separate
      weights per token, rows are (token, output). Without layers, it is U_1.
    """

    matrices: tuple[Float[Array, "_ _"], ...] = eqx.field(converter=_matrices)
    readout: Float[Array, "..."] = eqx.field(converter=_readout)

    def _view(self):
        yield Table(tuple(order_parameter_rows(self)))

    @property
    def first(self) -> Float[Array, "n n"]:
        """U_1, which determines the kernel. Without layers it is the readout."""
        return to_overlaps(self)[0]


def order_parameter_rows(point: OrderParameters) -> Iterator[tuple[str, str]]:
    """Yield the name of each order parameter, and its entries or their range."""
    names = *(f"$U_{layer}$" for layer in range(1, len(point.matrices) + 1)), "$u$"
    yield from zip(names, map(brief, jax.tree.leaves(point)), strict=True)


PointLike = OrderParameters | AbstractOutcome
"""Order parameters, or the result of a solve."""


def to_overlaps(order_parameters: OrderParameters) -> list[Float[Array, "_ _"]]:
    """Return [U_1, ..., U_{L+1}], all as matrices."""
    readout = order_parameters.readout
    return [*order_parameters.matrices, readout.reshape(1, 1) if readout.ndim == 0 else readout]


def from_overlaps(overlaps: Iterable[Float[Array | np.ndarray, "_ _"]]) -> OrderParameters:
    """Return the order parameters of [U_1, ..., U_{L+1}]; a last matrix of one row becomes a number."""
    *matrices, readout = overlaps
    return OrderParameters(tuple(matrices), readout[0, 0] if len(readout) == 1 else readout)


def gp_limit(architecture: Architecture) -> OrderParameters:
    """Return the prior means of the order parameters, which are their values at infinite width.

    If all layers are attention, U_l = sigma_a^2 sigma_L^2 ... sigma_l^2 I.
    """
    require_float64()
    size = checked_architecture(architecture).overlap_sizes[0]
    # Three copies of U_1 are in memory while it is made, measured.
    check_fits(architecture, f"making the order parameter U_1, {size:,} x {size:,}", 3 * size**2)
    readout = on_host(architecture.prior_variances[-1]) * np.eye(architecture.overlap_sizes[-1])
    matrices = layer_form.prior_means(architecture.forms, architecture.layer_numbers(), readout)
    return from_overlaps((*matrices, readout))


def checked_order_parameters(
    architecture: Architecture, point: Any, name: str = "order_parameters", *, singular: bool = False
) -> OrderParameters:
    """Return order parameters that fit and are positive definite, or semidefinite if `singular`.

    The result of a solve is not checked again. If it failed, there is a warning.
    """
    is_solution = isinstance(point, AbstractOutcome)
    given = point.order_parameters if is_solution else point
    checked_instance(name, given, OrderParameters, "such as bpkr.gp_limit(architecture), or the result of bpkr.solve")
    if is_solution:
        if not is_traced(point):
            warn_of_failures(point, stacklevel=4)
        return given
    sizes = checked_architecture(architecture).overlap_sizes
    if len(point.matrices) != len(sizes) - 1:
        raise ValueError(f"{name} must have {len(sizes) - 1} matrices, one per layer, got {len(point.matrices)}")
    names = [*(f"{name}: U_{layer}" for layer in range(1, len(sizes))), f"{name}: u"]
    overlaps = [
        checked_positive_definite(called, matrix, size, singular=singular)
        for called, matrix, size in zip(names, to_overlaps(jax.tree.map(on_host, point)), sizes, strict=True)
    ]
    numbers = architecture.layer_numbers()
    for i, form in enumerate(architecture.forms):
        if form.has_skip:
            expected, size = layer_form.evaluate(form.gain, numbers) ** 2 * overlaps[i + 1], sizes[i + 1]
            difference = jnp.max(jnp.abs(overlaps[i][:size, :size] - expected))
            is_block = on_host(difference <= _CONSISTENCY * jnp.max(jnp.abs(expected)))
            message = f"{names[i]} must begin with U_{i + 2} times the squared gain of the skip connection"
            overlaps[i] = require(overlaps[i], [Requirement(message, is_block)])
    return from_overlaps(overlaps)
