"""Order parameters: the overlaps of path weights, on which the action depends, and their infinite-width limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import (
    Requirement,
    checked_positive_definite,
    checked_sequence,
    finite_array,
    float64_array,
    is_traced,
    on_host,
    require,
    shown,
)
from ...precision import require_float64
from ...saddle.diagnosis import warn_of_failures
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text
from ...symbolic.documents.values import matrix_table, number
from ..specification import layer_functions
from ..specification.architecture import Architecture, check_size, checked_architecture

# Because of rounding, a block across a skip connection may differ by this fraction of the largest entry.
_CONSISTENCY = 1e-8
# A picture of U_1 names the paths if U_1 has at most this many rows.
_LABELLED = 1000


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
    """Yield sizes and entries of order parameters, or of a stack of order parameters, and of U_1."""
    arrays = [np.asarray(each) for each in (*point.matrices, point.readout)]
    first, rows = arrays[0], []
    is_drawn = first.ndim == 2 and len(first) > 1
    if is_drawn:
        labels: Sequence[str] = ()
        if architecture is not None and len(first) <= _LABELLED:
            several = range(1, architecture.outputs + 1) if architecture.outputs > 1 else ()
            paths = architecture.path_labels()
            labels = [f"{path},{output}" for path in paths for output in several] if several else paths
        yield matrix_table("$U_1$", first, labels)
    for layer, matrix in enumerate(arrays, 1):
        name = f"$U_{layer}$" if layer <= len(point.matrices) else "$u$"
        if matrix.ndim < 2:
            rows.append((name, number(matrix)))
        elif layer > 1 or not is_drawn:
            rest = matrix[..., ~np.eye(matrix.shape[-1], dtype=bool)]
            off = f", off the diagonal {number(rest, 4)}" if rest.size else ""
            sizes, diagonal = " x ".join(map(str, matrix.shape)), np.diagonal(matrix, axis1=-2, axis2=-1)
            rows.append((name, f"{sizes}, diagonal {number(diagonal, 4)}{off}"))
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
    check_size(checked_architecture(architecture))
    readout = on_host(architecture.prior_variances[-1]) * np.eye(architecture.overlap_sizes[-1])
    matrices = layer_functions.prior_means(architecture.forms, architecture.layer_numbers(), readout)
    return from_overlaps((*matrices, readout))


def checked_order_parameters(
    architecture: Architecture, order_parameters: Any, name: str = "order_parameters", *, singular: bool = False
) -> OrderParameters:
    """Return order parameters after checking that they fit the architecture and are positive definite.

    The argument can be a saddle point; if its solve failed, there is a warning. With `singular`, order parameters can
    be semidefinite up to rounding, as at widths below the number of paths.
    """
    point = getattr(order_parameters, "order_parameters", order_parameters)
    if not isinstance(point, OrderParameters):
        raise TypeError(
            f"{name} must be OrderParameters, or the Saddle that a solve returns, got {shown(order_parameters)}; "
            "make them with bpkr.solve, bpkr.gp_limit or bpkr.OrderParameters"
        )
    if point is not order_parameters and not is_traced(order_parameters):
        warn_of_failures(order_parameters, stacklevel=4)
        solved = getattr(order_parameters, "architecture", None)
        if solved is not None and solved.forms == architecture.forms and not any(f.has_skip for f in solved.forms):
            return point  # The result of a solve for these layers is trusted.
    (*sizes, _), given = checked_architecture(architecture).overlap_sizes, point.matrices
    if len(given) != len(sizes):
        raise ValueError(
            f"{name}: {len(sizes)} layers need {len(sizes)} matrices U_1, ..., U_{len(sizes)}, got {len(given)}; use "
            "order parameters of this architecture"
        )
    matrices = [
        checked_positive_definite(f"{name}: U_{layer}", matrix, size, singular=singular)
        for layer, (matrix, size) in enumerate(zip(given, sizes, strict=True), 1)
    ]
    called, size = f"{name}: readout order parameter u", architecture.overlap_sizes[-1]
    if size > 1:
        readout = checked_positive_definite(called, point.readout, size, singular=singular)
    else:
        number = on_host(finite_array(called, point.readout, ""))
        got = "" if is_traced(number) else f", got {number}"
        readout = require(jnp.asarray(number), [Requirement(f"{called} must be positive{got}", number > 0)])
    numbers, (_, *outers) = architecture.layer_numbers(), to_overlaps(OrderParameters(given, readout))
    for i, (form, outer) in enumerate(zip(architecture.forms, outers, strict=True)):
        if form.has_skip:
            nested, size = layer_functions.gain(form, numbers) ** 2 * outer, len(outer)
            difference = jnp.max(jnp.abs(matrices[i][:size, :size] - nested))
            is_block = on_host(difference <= _CONSISTENCY * jnp.max(jnp.abs(nested)))
            cause = (
                f"{name}: layer {i + 1} has a skip connection, so the leading {size} x {size} block of U_{i + 1} must "
                f"be the square of its gain times U_{i + 2}"
            )
            known = f"{cause}; entries differ by up to {{:.3g}}".format
            matrices[i] = require(matrices[i], [Requirement(cause, is_block, partial(known, difference))])
    return OrderParameters(tuple(matrices), readout)
