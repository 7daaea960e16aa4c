"""Compute kernels of tokens under nonlinear embeddings, which are covariances of hidden units after each function."""

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sympy import Expr, Symbol

from ...checks import is_traced
from ...codegen import compile_expressions
from ..specification.activations import CORRELATION, OTHER, OWN, Activation
from . import pair_averages
from .pair_averages import REFUSED, WARNED, Rule, rule_over

# Smallest variance of a hidden unit, for tokens of zeros. Its square does not underflow.
_LEAST = 1e-150
# Largest rounding error of a correlation. The correlation of a token and its copy is one.
_ROUNDING = 8 * np.finfo(np.float64).eps

Rules = tuple[Rule | None, ...]
"""How to compute the kernel after each function. None stands for the closed form."""


class KernelWarning(UserWarning):
    """The kernel of a function without a closed form is not computed to full precision."""


class Units(NamedTuple):
    """The variance, coefficients and mean square of each token's unit, which the kernel after one function needs."""

    variance: Float[Array, " tokens"]
    coefficients: Float[Array, "tokens terms"]
    mean_square: Float[Array, " tokens"]


def rules_for(
    activations: Sequence[Activation],
    variances: Float[Array, " above"],
    tokens: Float[Array, "examples tokens features"],
) -> Rules:
    """Choose how to compute the kernel after each function for the hidden units of these tokens.

    Errors are relative to the root of the product of both mean squares. A warning is issued if an error estimate is
    above 1e-10. Raises `ValueError` if it is above 1e-3.
    """
    if is_traced(tokens, variances):
        return tuple(rule_over(activation, None)[0] for activation in activations)
    rules: Rules = ()
    own = np.sum(np.asarray(tokens) ** 2, axis=-1).ravel()
    for layer, activation in enumerate(activations):
        if layer:
            below = jax.jit(partial(token_units, activations[:layer], rules))
            squares = below(jnp.asarray(variances[: layer - 1]), tokens.reshape(-1, tokens.shape[-1]))[-1].mean_square
            own = np.asarray(squares) * float(variances[layer - 1])
        rule, error = rule_over(activation, own)
        if not error <= WARNED:
            message = (
                f"the kernel of the function {activation.name}, at variances of hidden units of {np.min(own):.3g} to "
                f"{np.max(own):.3g}, has a relative error of up to {error:.2g}. The function oscillates too fast, has "
                "too many kinks, or is not finite or not square integrable at these variances"
            )
            if not error <= REFUSED:
                raise ValueError(message)
            warnings.warn(message, KernelWarning, stacklevel=4)
        rules = (*rules, rule)
    return rules


def token_units(
    activations: Sequence[Activation],
    rules: Rules,
    variances: Float[Array, " above"],
    tokens: Float[Array, "tokens features"],
) -> tuple[Units, ...]:
    """Return the units of each layer, starting with the embedding. `variances` belong to the dense layers above it.

    Tokens are scaled so that their inner products are the covariance of the embedding's hidden units.
    """
    own, found = jnp.sum(tokens**2, axis=1), []
    for activation, rule, variance in zip(activations, rules, [1.0, *variances], strict=True):
        own = jnp.maximum(variance * own, _LEAST)
        if rule is None:
            coefficients, squares = jnp.zeros((len(own), 1)), _closed(activation)[1](own, own)
        else:
            coefficients, squares = pair_averages.coefficients(rule, own), pair_averages.moment(rule, own, 2)
        found.append(Units(own, coefficients, squares))
        own = squares
    return tuple(found)


def token_kernel(
    activations: Sequence[Activation],
    rules: Rules,
    variances: Float[Array, " above"],
    one: tuple[Float[Array, "tokens features"], tuple[Units, ...]],
    other: tuple[Float[Array, "others features"], tuple[Units, ...]],
) -> Float[Array, "tokens others"]:
    """Return the kernel between tokens, divided by the `variances` of the dense layers that it passes.

    `one` and `other` are tokens with their units, as `token_units` returns them.
    """
    between = one[0] @ other[0].T
    layers = zip(activations, rules, [1.0, *variances], one[1], other[1], strict=True)
    for activation, rule, variance, here, there in layers:
        own, between, others = here.variance[:, None], variance * between, there.variance[None, :]
        if activation.is_linear:
            continue
        # Set correlations to +-1 if they differ from it only by rounding.
        correlation = between / (jnp.sqrt(own) * jnp.sqrt(others))
        ends = jnp.abs(correlation) > 1 - _ROUNDING
        signs = jax.lax.stop_gradient(jnp.sign(correlation))
        correlation = jnp.where(ends, signs, jnp.where(ends, 0.0, correlation))
        if rule is None:
            # For parallel tokens the formula in terms of the correlation has no derivative.
            inner, parallel, opposite = _closed(activation)
            ends = jnp.abs(correlation) == 1
            at_ends = jnp.where(correlation > 0, parallel(own, others), opposite(own, others))
            between = jnp.where(ends, at_ends, inner(own, jnp.where(ends, 0.0, correlation), others))
        else:
            between = pair_averages.pair_averages(rule, here, there, correlation)
    return between / jnp.prod(variances)


def token_means(
    activation: Activation, rule: Rule | None, tokens: Float[Array, "tokens features"]
) -> Float[Array, " tokens"]:
    """Return the mean of each token's hidden units after the function of the embedding."""
    own = jnp.maximum(jnp.sum(tokens**2, axis=1), _LEAST)
    return _of_arrays(activation.mean, OWN)(own) if rule is None else pair_averages.moment(rule, own, 1)


@lru_cache
def _closed(activation: Activation) -> tuple[Callable[..., Array], ...]:
    """Return the closed-form kernel as functions of (c_xx, rho, c_yy), and of (c_xx, c_yy) at rho = 1 and -1."""
    kernel = activation.kernel_of_correlation
    between = _of_arrays(kernel, OWN, CORRELATION, OTHER)
    return between, *(_of_arrays(kernel.subs(CORRELATION, sign), OWN, OTHER) for sign in (1, -1))


def _of_arrays(kernel: Expr, *symbols: Symbol) -> Callable[..., Array]:
    compiled = compile_expressions("kernel", {"kernel": kernel}, symbols)

    def of_numbers(*numbers):
        return jnp.asarray(compiled.call_from(dict(zip(symbols, numbers, strict=True)))["kernel"], dtype=jnp.float64)

    def of_arrays(*arrays):
        arrays = jnp.broadcast_arrays(*arrays)
        return jax.vmap(of_numbers)(*(array.ravel() for array in arrays)).reshape(arrays[0].shape)

    return of_arrays
