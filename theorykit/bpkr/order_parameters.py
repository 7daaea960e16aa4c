"""Order parameters: the overlaps of path weights that the action is a function of, and the Gaussian-process limit."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..arguments import is_traced
from ..precision import require_float64
from . import layer_numbers
from .architecture import Architecture
from .checks import checked_positive_definite, finite_array

# largest departure, relative to the largest entry, of a block from what a straight branch makes it, that is rounding
_CONSISTENCY = 1e-8


def _float64(value: ArrayLike) -> Array:
    require_float64()
    return jnp.asarray(value, dtype=jnp.float64)


class OrderParameters(eqx.Module):
    """(U_1, ..., U_L) and u = U_{L+1}.

    - `matrices`: U_l, symmetric positive definite, n_l x n_l, from the input side; U_1 mixes pairs of attention paths.
      Rows of several outputs: (path, output), the output fastest. Where layer l has a straight branch of strength s,
      the leading block of U_l is s^2 U_{l+1}.
    - `readout`: u > 0; of C > 1 outputs a symmetric positive definite matrix C x C.
    """

    matrices: tuple[Float[Array, "_ _"], ...] = eqx.field(converter=lambda matrices: tuple(map(_float64, matrices)))
    readout: Float[Array, "..."] = eqx.field(converter=lambda readout: _float64(readout))


def readout_matrix(readout: Float[Array, "..."]) -> Float[Array, "outputs outputs"]:
    """The readout order parameter as the matrix U_{L+1}, whatever the number of outputs."""
    return readout.reshape(1, 1) if readout.ndim == 0 else readout


def readout_order_parameter(matrix: Float[Array, "outputs outputs"]) -> Float[Array, "..."]:
    """The matrix U_{L+1} as `OrderParameters` holds it: a number for one output."""
    return matrix[0, 0] if len(matrix) == 1 else matrix


def gp_limit(architecture: Architecture) -> OrderParameters:
    """The order parameters of infinite width, layer by layer their mean over the prior: the minimum of the entropy.

    For layers of attention alone, U_l = s_a^2 s_L^2 ... s_l^2 I.
    """
    require_float64()
    readout = architecture.prior_variances[-1] * jnp.eye(architecture.outputs, dtype=jnp.float64)
    matrices = layer_numbers.prior_means(architecture.forms, architecture.layer_numbers(), readout)
    return OrderParameters(matrices, readout_order_parameter(readout))


def checked_order_parameters(architecture: Architecture, order_parameters: OrderParameters) -> OrderParameters:
    """`order_parameters` as float64 arrays, refused unless they fit the architecture and are positive definite."""
    sizes, given = architecture.order_parameter_sizes, order_parameters.matrices
    if len(given) != len(sizes):
        raise ValueError(f"{len(sizes)} layers need {len(sizes)} matrices U_1, ..., U_{len(sizes)}, got {len(given)}")
    matrices = [
        checked_positive_definite(f"U_{layer}", matrix, size)
        for layer, (matrix, size) in enumerate(zip(given, sizes, strict=True), 1)
    ]
    readout = _checked_readout(architecture, order_parameters.readout)
    numbers, outers = architecture.layer_numbers(), (*given[1:], readout_matrix(readout))
    for i, (form, outer) in enumerate(zip(architecture.forms, outers, strict=True)):
        if form.is_straight:
            contained = layer_numbers.gain(form, numbers) ** 2 * outer
            matrices[i] = _with_leading_block(i + 1, matrices[i], contained)
    return OrderParameters(tuple(matrices), readout)


def _checked_readout(architecture: Architecture, given: ArrayLike) -> Array:
    name, outputs = "readout order parameter u", architecture.outputs
    if outputs > 1:
        return checked_positive_definite(name, given, outputs)
    readout = finite_array(name, given, "")
    if is_traced(given):
        return eqx.error_if(readout, readout <= 0, "the readout order parameter u must be positive")
    if np.asarray(given) <= 0:
        raise ValueError(f"the readout order parameter u must be positive, got {given}")
    return readout


def _with_leading_block(layer: int, matrix: Array, contained: Array) -> Array:
    """`matrix`, refused unless `contained` is its leading block."""
    size = len(contained)
    cause = (
        f"layer {layer} has a straight branch: the leading {size} x {size} block of U_{layer} must be the square of "
        f"its gain times U_{layer + 1}"
    )
    difference = jnp.max(jnp.abs(matrix[:size, :size] - contained))
    different = difference > _CONSISTENCY * jnp.max(jnp.abs(contained))
    if is_traced(matrix, contained):
        return eqx.error_if(matrix, different, cause)
    if different:
        raise ValueError(f"{cause}; entries differ by up to {difference:.3g}")
    return matrix
