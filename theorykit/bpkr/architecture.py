"""The specification that everything else follows from: a deep attention network with fixed queries and keys.

Stage 0 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function -> solve -> predict`.
"""

import math
import sys
from collections.abc import Sequence
from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


class Architecture(eqx.Module):
    """Heads, widths, prior variances and temperature of a deep attention network; Eqs. (1)-(4) and (8).

    Frozen data and a JAX pytree: `heads` is static, the numbers are leaves, so that one may differentiate or vmap over
    widths, variances and temperature.

    - `heads`: (H_1, ..., H_L), at least one layer.
    - `widths`: (N_1, ..., N_L, N_a), from the input side; one number stands for all.
    - `prior_variances`: (sigma_0^2, sigma_1^2, ..., sigma_L^2, sigma_a^2); one number stands for all.
    - `temperature`: variance T of the labels' noise in Eq. (8). T = 0 (interpolation) is admitted where the kernel
      of the data is invertible, which is checked when the data is there.
    """

    heads: tuple[int, ...] = eqx.field(static=True)
    widths: tuple[Any, ...]
    prior_variances: tuple[Any, ...]
    temperature: Any

    def __init__(
        self,
        heads: Sequence[int],
        widths: ArrayLike | Sequence[ArrayLike],
        prior_variances: ArrayLike | Sequence[ArrayLike] = 1.0,
        *,
        temperature: ArrayLike,
    ):
        self.heads = _checked_heads(heads)
        depth = len(self.heads)
        self.widths = _per_layer("widths", widths, depth + 1, "N_1, ..., N_L, N_a")
        self.prior_variances = _per_layer(
            "prior_variances", prior_variances, depth + 2, "sigma_0^2, sigma_1^2, ..., sigma_L^2, sigma_a^2"
        )
        self.temperature = _checked_number("temperature", temperature, zero_allowed=True)

    @property
    def depth(self) -> int:
        """Number of attention layers L."""
        return len(self.heads)

    @property
    def order_parameter_sizes(self) -> tuple[int, ...]:
        """(n_1, ..., n_L), with n_l = H_l ... H_L the number of partial paths from layer l on."""
        return tuple(math.prod(self.heads[layer:]) for layer in range(self.depth))

    @property
    def paths(self) -> int:
        """Number of attention paths n_1 = H_1 ... H_L."""
        return math.prod(self.heads)

    def path_heads(self) -> tuple[tuple[int, ...], ...]:
        """The heads (h_1, ..., h_L) of each path, counted from 1, in the order of the path axis: h_1 slowest."""
        return tuple(product(*(range(1, heads + 1) for heads in self.heads)))

    def path_labels(self) -> tuple[str, ...]:
        """A short name for each path: "21" passes through head 2 of layer 1 and head 1 of layer 2."""
        separator = "" if max(self.heads) < 10 else "."
        return tuple(separator.join(map(str, heads)) for heads in self.path_heads())


def _checked_heads(heads: Sequence[int]) -> tuple[int, ...]:
    if isinstance(heads, (int, str)) or not hasattr(heads, "__len__") or len(heads) == 0:
        raise ValueError(f"heads must be a sequence (H_1, ..., H_L) with at least one layer, got {heads!r}")
    for head in heads:
        whole = isinstance(head, (int, np.integer)) and not isinstance(head, bool)
        if not whole or head < 1:
            raise ValueError(
                f"every layer needs a positive whole number of heads, got {head!r} in heads={tuple(heads)}"
            )
    return tuple(int(head) for head in heads)


def _per_layer(name: str, values, length: int, meaning: str) -> tuple:
    if isinstance(values, str) or (not isinstance(values, (tuple, list)) and jnp.ndim(values) == 0):
        values = (values,) * length
    if len(values) != length:
        raise ValueError(
            f"{name} must be one number or {length} numbers ({meaning}), one a layer as heads has them; "
            f"got {len(values)}: {tuple(values)}"
        )
    return tuple(_checked_number(f"{name}[{i}]", value) for i, value in enumerate(values))


def _checked_number(name: str, value, *, zero_allowed: bool = False):
    """A finite positive number as it came; a traced one is checked when the compiled function runs."""
    requirement = "finite and not negative" if zero_allowed else "finite and positive"
    if isinstance(value, jax.core.Tracer):
        valid = jnp.isfinite(value) & ((value >= 0) if zero_allowed else (value > 0))
        return eqx.error_if(value, ~valid, f"{name} must be {requirement}")
    if isinstance(value, (bool, str)) or value is None or jnp.ndim(value) != 0:
        raise ValueError(f"{name} must be a number, got {value!r}")
    if value < 0 or (value == 0 and not zero_allowed) or not value <= sys.float_info.max:
        raise ValueError(f"{name} must be {requirement}, got {value!r}")
    return value.item() if isinstance(value, np.generic) else value
