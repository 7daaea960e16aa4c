"""Order parameters: the overlaps of path weights, on which the action depends, and their infinite-width limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Protocol, runtime_checkable

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
from ...saddle.diagnosis import warn_of_failures
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text
from ...symbolic.documents.values import matrix_table, number
from ..specification import layer_functions
from ..specification.architecture import Architecture, check_fits, checked_architecture

# Because of rounding, a block across a skip connection may differ by this fraction of the largest entry.
_CONSISTENCY = 1e-8
# A table of U_1 names the paths if U_1 has at most this many rows.
_LABELLED = 8
# Peak memory in arrays of the size of U_1 while U_1 is made, measured.
_POINT_COPIES = 3


def _readout(value: ArrayLike) -> Array:
    array = float64_array("readout", value)
    if array.ndim not in (0, 2):
        raise ValueError(f"readout must be a number, or a matrix for several outputs or tokens, got {array.shape}")
    return array


def _matrices(values: Iterable[ArrayLike]) -> tuple[Array, ...]:
    matrices = checked_sequence("matrices", values, "matrices U_1, ..., U_L")
    return tuple(float64_array(f"matrices[{i}]", matrix, axes=2) for i, matrix in enumerate(matrices))


class OrderParameters(DisplayMixin, eqx.Module):
    """The order parameters (U_1, ..., U_L) and u = U_{L+1}.

    Functions that take order parameters also take the `Saddle` that a solve returns.

    - `matrices`: U_l (n_l, n_l) from the input side, symmetric positive definite. U_1 mixes pairs of attention paths.
      With several outputs, rows are (path, output), and the output varies fastest. If layer l has a skip connection of
      strength s, the leading block of U_l is s^2 U_{l+1}.
    - `readout`: the number u > 0, or a symmetric positive definite matrix (C, C) for C > 1 outputs. If the readout has
      separate weights per token, rows are (token, output), and the output varies fastest. Without layers, it is U_1.
    """

    matrices: tuple[Float[Array, "_ _"], ...] = eqx.field(converter=_matrices)
    readout: Float[Array, "..."] = eqx.field(converter=_readout)

    def _view(self) -> Iterator[Block]:
        names = ", ".join([*(f"$U_{layer}$" for layer in range(1, len(self.matrices) + 1)), "$u$"])
        yield Text(f"**Order parameters** {names}")
        yield from order_parameter_blocks(self)

    @property
    def first(self) -> Float[Array, "n n"]:
        """U_1, which determines the kernel: from the first layer, or from the readout if there are no layers."""
        return to_overlaps(self)[0]


def order_parameter_blocks(point: OrderParameters, architecture: Architecture | None = None) -> Iterator[Block]:
    """Yield U_1, whose paths an architecture names, and sizes and ranges of the other order parameters or of stacks."""
    rows = []
    for layer, matrix in enumerate(map(np.asarray, (*point.matrices, point.readout)), 1):
        name = f"$U_{layer}$" if layer <= len(point.matrices) else "$u$"
        if matrix.ndim < 2:
            rows.append((name, number(matrix)))
        elif layer == 1 and matrix.ndim == 2:
            labels: list[str] = []
            if architecture is not None and len(matrix) <= _LABELLED:
                outputs = [f",{i + 1}" for i in range(architecture.outputs)] if architecture.outputs > 1 else [""]
                labels = [path + output for path in architecture.path_labels() for output in outputs]
            yield matrix_table(name, matrix, labels)
        else:
            others = matrix[..., ~np.eye(matrix.shape[-1], dtype=bool)]
            diagonal = number(np.diagonal(matrix, axis1=-2, axis2=-1), 4)
            shape = " x ".join(map(str, matrix.shape))
            rows.append((name, f"{shape}, diagonal {diagonal}, off the diagonal {number(others, 4)}"))
    if rows:
        yield Table(tuple(rows))


@runtime_checkable
class HasOrderParameters(Protocol):
    """The result of a solve, such as a `Saddle`, which can be used in place of order parameters."""

    order_parameters: OrderParameters


def to_overlaps(order_parameters: OrderParameters) -> list[Float[Array, "_ _"]]:
    """Return [U_1, ..., U_{L+1}] as matrices for any number of outputs."""
    readout = order_parameters.readout
    return [*order_parameters.matrices, readout.reshape(1, 1) if readout.ndim == 0 else readout]


def from_overlaps(overlaps: Iterable[Float[Array | np.ndarray, "_ _"]]) -> OrderParameters:
    """Make order parameters from the matrices U_1, ..., U_{L+1}; a last matrix of one row becomes a number."""
    *matrices, readout = overlaps
    return OrderParameters(tuple(matrices), readout[0, 0] if len(readout) == 1 else readout)


def gp_limit(architecture: Architecture) -> OrderParameters:
    """Return the order parameters at infinite width: their prior means, which minimise the entropy.

    If all layers are attention, U_l = s_a^2 s_L^2 ... s_l^2 I.

    Example:
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> limit = bpkr.gp_limit(bpkr.Architecture(layers=(2, 2), widths=10, prior_variances=2.0, temperature=0.1))
        >>> [float(matrix[0, 0]) for matrix in limit.matrices]
        [8.0, 4.0]
    """
    require_float64()
    size = checked_architecture(architecture).overlap_sizes[0]
    check_fits(architecture, f"making the order parameter U_1, {size:,} x {size:,}", _POINT_COPIES * size**2)
    readout = on_host(architecture.prior_variances[-1]) * np.eye(architecture.overlap_sizes[-1])
    matrices = layer_functions.prior_means(architecture.forms, architecture.layer_numbers(), readout)
    return from_overlaps((*matrices, readout))


def checked_order_parameters(
    architecture: Architecture, order_parameters: Any, name: str = "order_parameters", *, singular: bool = False
) -> OrderParameters:
    """Return order parameters after checking that they fit the architecture and are positive definite.

    The argument can be the result of a solve; only its sizes are checked, and if the solve failed, there is a warning.
    With `singular`, order parameters can be semidefinite up to rounding, as at widths below the number of paths.
    """
    point = getattr(order_parameters, "order_parameters", order_parameters)
    checked_instance(name, point, OrderParameters, "such as bpkr.gp_limit(architecture), or the result of bpkr.solve")
    sizes = checked_architecture(architecture).overlap_sizes
    if len(point.matrices) != len(sizes) - 1:
        raise ValueError(f"{name} must have {len(sizes) - 1} matrices, one per layer, got {len(point.matrices)}")
    if point is not order_parameters:
        if not is_traced(order_parameters):
            warn_of_failures(order_parameters, stacklevel=4)
        if sizes == (*map(len, point.matrices), len(point.readout) if point.readout.ndim else 1):
            return point
    names = [*(f"{name}: U_{layer}" for layer in range(1, len(sizes))), f"{name}: u"]
    overlaps = to_overlaps(jax.tree.map(on_host, point))
    overlaps = [
        checked_positive_definite(called, matrix, size, singular=singular)
        for called, matrix, size in zip(names, overlaps, sizes, strict=True)
    ]
    numbers = architecture.layer_numbers()
    for i, form in enumerate(architecture.forms):
        if form.has_skip:
            expected, size = layer_functions.gain(form, numbers) ** 2 * overlaps[i + 1], sizes[i + 1]
            difference = jnp.max(jnp.abs(overlaps[i][:size, :size] - expected))
            is_block = on_host(difference <= _CONSISTENCY * jnp.max(jnp.abs(expected)))
            message = (
                f"{names[i]} must have as its leading {size} x {size} block the square of the gain of the skip "
                "connection times the next order parameter"
            )
            got = f"{message}; entries differ by up to {{:.3g}}".format
            overlaps[i] = require(overlaps[i], [Requirement(message, is_block, partial(got, difference))])
    return from_overlaps(overlaps)
