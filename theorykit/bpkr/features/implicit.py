"""Path features of nonlinear embeddings, represented by kernels instead of vectors.

Features of tokens under an embedding phi(V_0 x) have the kernel kappa = E[phi phi'] of the
hidden units as inner products. Path pi reads their sum with weights q^pi, so that

    K^{pi pi'}_{mu nu} = sum_{s s'} q^pi_s(mu) kappa(x^mu_s, x^nu_s') q^pi'_s'(nu).
"""

import abc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...checks import is_traced
from ..specification.activations import CORRELATION, OTHER, OWN, Activation, of_arrays
from . import pair_averages
from .pair_averages import RANGE, REFUSED, WARNED, Rule, joint, rule_over

# Smallest variance of a hidden unit: its square does not underflow.
_LEAST = 1e-150
# Largest rounding error of a correlation.
_ROUNDING = 8 * np.finfo(np.float64).eps
# Entries of the kernel between tokens in memory at a time.
HELD = 2**22

# For each function; None for the closed form.
Rules = tuple[Rule | None, ...]


class KernelWarning(UserWarning):
    """The kernel of a function without a closed form is not computed to full precision."""


class ImplicitFeatures(eqx.Module):
    """Kernels of path features, the result of `path_features` for nonlinear units."""

    @property
    @abc.abstractmethod
    def of_examples(self) -> tuple:
        """The arrays with an entry for each example."""

    @abc.abstractmethod
    def with_examples(self, arrays: tuple) -> "ImplicitFeatures":
        """Return features with these arrays `of_examples`."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Numbers of examples, of rows of kernels, and of features of a token."""

    @abc.abstractmethod
    def by_example(self, other: "ImplicitFeatures", reduce: Callable[[Array], Array]) -> Array:
        """Apply `reduce` to K (rows, rows, others) of each example with all of `other`."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, examples: Any) -> "ImplicitFeatures":
        # JAX takes no lists, and moves numbers that are out of range.
        chosen = examples if is_traced(examples) else np.atleast_1d(np.arange(len(self))[examples])
        return self.with_examples(jax.tree.map(lambda array: array[chosen], self.of_examples))

    def __array__(self, *_, **__):
        raise TypeError("features are kernels, not an array")

    def pair_kernels(self) -> Float[Array, "pairs examples examples"]:
        rows, columns = np.triu_indices(self.shape[1])
        weight = np.where(rows == columns, 0.5, 1.0)[:, None]
        pairs = self.by_example(self, lambda kernels: weight * kernels[rows, columns])
        return pairs.swapaxes(0, 1)

    def own_kernels(self) -> Float[Array, "examples rows rows"]:
        def of_example(arrays):
            alone = self.with_examples(jax.tree.map(lambda array: array[None], arrays))
            return alone.by_example(alone, lambda kernels: kernels[:, :, 0])[0]

        return jax.lax.map(of_example, self.of_examples)


class TokenFeatures(ImplicitFeatures):
    """Features of nonlinear units below all attention.

    - `tokens`: inputs, scaled so that their inner products are the covariance of the
      embedding's hidden units.
    - `readings`: weights of tokens in paths, Eq. (7).
    - `variances`: of the dense layers up to the last nonlinear one.
    - `activations`, `rules`: functions phi, and how to compute their kernels.
    """

    tokens: Float[Array, "examples tokens features"]
    readings: Float[Array, "examples tokens paths"]
    variances: Float[Array, " above"]
    activations: tuple[Activation, ...] = eqx.field(static=True)
    rules: Rules = eqx.field(static=True)

    @property
    def of_examples(self):
        return self.tokens, self.readings

    def with_examples(self, arrays):
        return replace(self, tokens=arrays[0], readings=arrays[1])

    @property
    def shape(self):
        return len(self.tokens), self.readings.shape[2], self.tokens.shape[2]

    def by_example(self, other, reduce):
        examples, count, width = self.tokens.shape
        rules = tuple(map(joint, self.rules, other.rules))
        functions = self.activations, rules, self.variances
        flat = (each.tokens.reshape(-1, width) for each in (self, other))
        here, there = ((tokens, token_units(*functions, tokens)) for tokens in flat)
        batch = max(1, min(examples, HELD // (len(other) * count**2)))

        # With vmap over examples, Mehler's sums would not fit in the cache.
        def of_batch(chosen):
            rows = (chosen[:, None] * count + np.arange(count)).ravel()
            one = jax.tree.map(lambda each: each[rows], here)
            between = token_kernel(*functions, one, there).reshape(batch, count, len(other), -1)
            one, all_others = self.readings[chosen], other.readings
            return jax.vmap(reduce)(jnp.einsum("esa,esvt,vtb->eabv", one, between, all_others))

        chosen = jnp.minimum(jnp.arange(-(-examples // batch) * batch), examples - 1)
        found = jax.lax.map(of_batch, chosen.reshape(-1, batch))
        return found.reshape(-1, *found.shape[2:])[:examples]


PathFeatures = Float[Array | np.ndarray, "examples paths features"] | ImplicitFeatures
# For several arguments, whose axes would share names.
Features = Array | np.ndarray | ImplicitFeatures


class Units(NamedTuple):
    variance: Float[Array, " tokens"]
    coefficients: Float[Array, "tokens terms"]
    mean_square: Float[Array, " tokens"]


Tokens = tuple[Float[Array, "_ features"], tuple[Units, ...]]


def rules_for(activations: Sequence[Activation], variances: Array, tokens: Array) -> Rules:
    rules, own = [], jnp.sum(jnp.asarray(tokens) ** 2, axis=-1).ravel()
    for layer, activation in enumerate(activations):
        if layer:
            own = variances[layer - 1] * _mean_square(activations[layer - 1], rules[-1], own)
        rules.append(choose_rule(activation, own))
    return tuple(rules)


def choose_rule(activation: Activation, variances: Array) -> Rule | None:
    """Choose a rule; warn of relative errors above 1e-10, refuse above 1e-3."""
    if is_traced(variances):
        return rule_over(activation, RANGE)[0]
    own = np.asarray(variances).ravel()
    rule, error = rule_over(activation, own)
    if not error <= WARNED:
        where = f"at variances from {np.min(own):.3g} to {np.max(own):.3g}"
        which = f"the kernel of the function {activation.name}"
        message = f"{which} has a relative error of up to {error:.2g} {where}"
        if not error <= REFUSED:
            raise ValueError(message)
        warnings.warn(message, KernelWarning, stacklevel=5)
    return rule


def _mean_square(activation: Activation, rule: Rule | None, own: Array) -> Array:
    own = jnp.maximum(own, _LEAST)
    if rule is None:
        return _closed(activation)[1](own, own)
    return pair_averages.mean_square(rule, own)


def token_units(activations, rules: Rules, variances, tokens: Array) -> tuple[Units, ...]:
    own, found = jnp.sum(tokens**2, axis=1), []
    for activation, rule, variance in zip(activations, rules, [1.0, *variances], strict=True):
        found.append(units_of(activation, rule, variance * own))
        own = found[-1].mean_square
    return tuple(found)


def units_of(activation: Activation, rule: Rule | None, variances: Array) -> Units:
    own = jnp.maximum(variances, _LEAST)
    squares, terms = _mean_square(activation, rule, own), jnp.zeros((len(own), 1))
    if rule is not None:
        terms = pair_averages.coefficients(rule, own)
        terms = pair_averages.with_remainder(terms, squares)
    return Units(own, terms, squares)


def slopes_of(activation: Activation, rule: Rule | None, units: Units) -> Array:
    """Return E[phi'] for each token."""
    if rule is None:
        return of_arrays(activation.slope, OWN)(units.variance)
    return units.coefficients[:, 1] / jnp.sqrt(units.variance)


def token_kernel(activations, rules: Rules, variances, one: Tokens, other: Tokens) -> Array:
    """Return the kernel between tokens, divided by the `variances` of dense layers."""
    between = one[0] @ other[0].T
    layers = zip(activations, rules, [1.0, *variances], one[1], other[1], strict=True)
    for activation, rule, variance, here, there in layers:
        between = kernel_after(activation, rule, here, there, variance * between)
    return between / jnp.prod(variances)


def kernel_after(activation, rule: Rule | None, one: Units, other: Units, between: Array) -> Array:
    """Return the kernel after the function, given the covariance `between` units."""
    if activation.is_linear:
        return between
    own, others = one.variance[:, None], other.variance[None, :]
    correlation = between / (jnp.sqrt(own) * jnp.sqrt(others))
    ends = jnp.abs(correlation) > 1 - _ROUNDING
    signs = jax.lax.stop_gradient(jnp.sign(correlation))
    between = jnp.where(ends, 0.0, correlation)
    if rule is not None:
        correlation = jnp.where(ends, signs, between)
        return pair_averages.mehler_sum(one.coefficients, other.coefficients, correlation)
    # The formula has no derivative at the ends.
    inner, parallel, opposite = _closed(activation)
    at_ends = jnp.where(signs > 0, parallel(own, others), opposite(own, others))
    return jnp.where(ends, at_ends, inner(own, between, others))


def token_means(activation: Activation, rule: Rule | None, tokens: Array) -> Array:
    own = jnp.maximum(jnp.sum(tokens**2, axis=1), _LEAST)
    if rule is None:
        return of_arrays(activation.mean, OWN)(own)
    return pair_averages.coefficients(rule, own)[:, 0]


@lru_cache
def _closed(activation: Activation) -> tuple[Callable[..., Array], ...]:
    """Return the closed form, and its limits of (c_xx, c_yy) at rho = 1 and -1."""
    kernel = activation.kernel_of_correlation
    between = of_arrays(kernel, OWN, CORRELATION, OTHER)
    return between, *(of_arrays(kernel.subs(CORRELATION, sign), OWN, OTHER) for sign in (1, -1))
