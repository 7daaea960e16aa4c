"""The rules of a network's kernels for the data at hand, refused or warned of where they are not exact."""

import warnings
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...checks import is_traced
from ..specification.activations import Activation
from .kernel_rules import REFUSED, WARNED, rule_over
from .token_kernels import Rules, token_units


class KernelWarning(UserWarning):
    """The kernel of a function without a closed form is not computed to full precision."""


def rules_for(
    activations: Sequence[Activation],
    variances: Float[Array, " above"],
    tokens: Float[Array, "examples tokens features"],
    stacklevel: int = 4,
) -> Rules:
    """How the kernel after each function is computed over the hidden units of these tokens.

    Warns of a kernel whose stated error is above 1e-10 of the root of both mean squares. Raises `ValueError` for one
    above 1e-3, and for a function whose square has no mean over hidden units as large as those of the data.
    """
    if is_traced(tokens, variances):
        return tuple(rule_over(activation, None)[0] for activation in activations)
    rules: Rules = ()
    own = np.sum(np.asarray(tokens) ** 2, axis=-1).ravel()
    for layer, activation in enumerate(activations):
        if layer:
            units = _units(activations[:layer], rules, variances[: layer - 1], tokens.reshape(-1, tokens.shape[-1]))
            own = np.asarray(units[-1].mean_square) * float(variances[layer - 1])
        rule, error = rule_over(activation, own)
        variance = f"variances of hidden units of {np.min(own):.3g} to {np.max(own):.3g}"
        where = f"the function {activation.name}, at {variance}"
        if not error <= REFUSED:
            raise ValueError(
                f"the kernel of {where}, is not resolved: its relative error is up to {error:.2g}. The function "
                "oscillates too fast, has too many kinks, or is not bounded; give smaller inputs or prior variances, "
                "or another function"
            )
        if error > WARNED:
            warning = f"the kernel of {where}, has a relative error of up to {error:.2g}"
            warnings.warn(warning, KernelWarning, stacklevel=stacklevel)
        rules = (*rules, rule)
    return rules


@partial(jax.jit, static_argnums=(0, 1))
def _units(activations, rules, variances, tokens):
    return token_units(activations, rules, jnp.asarray(variances), tokens)
