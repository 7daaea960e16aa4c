"""Order parameters: the overlaps of path weights that the action is a function of, and the Gaussian-process limit."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..precision import require_float64
from .architecture import Architecture
from .checks import checked_positive_definite, finite_array, is_traced


def _float64(value: ArrayLike) -> Array:
    require_float64()
    return jnp.asarray(value, dtype=jnp.float64)


class OrderParameters(eqx.Module):
    """(U_1, ..., U_L) and u = U_{L+1}.

    - `matrices`: U_l, symmetric positive definite, n_l x n_l, from the input side; U_1 mixes pairs of attention paths.
    - `readout`: u > 0.
    """

    matrices: tuple[Float[Array, "_ _"], ...] = eqx.field(converter=lambda matrices: tuple(map(_float64, matrices)))
    readout: Float[Array, ""] = eqx.field(converter=lambda readout: _float64(readout))


def gp_limit(architecture: Architecture) -> OrderParameters:
    """The order parameters of infinite width, U_l = s_a^2 s_L^2 ... s_l^2 I: the minimum of the entropy."""
    scale = jnp.asarray(architecture.prior_variances[-1], dtype=jnp.float64)
    readout, matrices = scale, []
    for size, variance in zip(
        reversed(architecture.order_parameter_sizes), reversed(architecture.prior_variances[1:-1]), strict=True
    ):
        scale = scale * variance
        matrices.append(scale * jnp.eye(size))
    return OrderParameters(tuple(reversed(matrices)), readout)


def checked_order_parameters(architecture: Architecture, order_parameters: OrderParameters) -> OrderParameters:
    """`order_parameters` as float64 arrays, refused unless they fit the architecture and are positive definite."""
    sizes, given = architecture.order_parameter_sizes, order_parameters.matrices
    if len(given) != len(sizes):
        raise ValueError(f"{len(sizes)} layers need {len(sizes)} matrices U_1, ..., U_{len(sizes)}, got {len(given)}")
    matrices = tuple(
        checked_positive_definite(f"U_{layer}", matrix, size)
        for layer, (matrix, size) in enumerate(zip(given, sizes, strict=True), 1)
    )
    given_readout = order_parameters.readout
    readout = finite_array("readout order parameter u", given_readout, "")
    if is_traced(given_readout):
        readout = eqx.error_if(readout, readout <= 0, "the readout order parameter u must be positive")
    elif np.asarray(given_readout) <= 0:
        raise ValueError(f"the readout order parameter u must be positive, got {given_readout}")
    return OrderParameters(matrices, readout)
