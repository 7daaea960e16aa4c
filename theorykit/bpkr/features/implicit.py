"""Path features of nonlinear embeddings, which are represented by kernels instead of feature vectors.

The features of a token under an embedding phi(V_0 x) are vectors whose inner products are the kernel E[phi phi'] of the
hidden units. Path pi reads a weighted sum of these vectors from example mu, and the theory needs only

    K^{pi pi'}_{mu nu} = sum_{s s'} q^pi_s(mu) kappa(x^mu_s, x^nu_s') q^pi'_s'(nu).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...checks import counted
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import data_size
from ..specification.activations import Activation
from .pair_averages import joint, rule_over
from .token_kernels import Rules, Units, token_kernel, token_units

# Number of entries of the kernel between tokens in memory at a time, which sets the number of examples per batch.
_HELD = 2**22


class ImplicitFeatures(DisplayMixin, eqx.Module):
    """Path features that are represented by their kernels.

    `path_features` returns them for an architecture with a nonlinear embedding. They replace arrays of path features,
    except in functions that need second moments of features.

    - `tokens` (examples, tokens, features): inputs, scaled so that their inner products are the covariance of the
      embedding's hidden units.
    - `readings` (examples, tokens, paths): the weight with which each path reads each token, Eq. (7).
    - `variances`: prior variances of the dense layers above the embedding, up to the last nonlinear layer.
    - `activations`: the functions phi of the embedding and of these layers.
    - `rules`: how to compute the kernel after each function. The default covers all usual variances.
    """

    tokens: Float[Array, "examples tokens features"]
    readings: Float[Array, "examples tokens paths"]
    variances: Float[Array, " above"]
    activations: tuple[Activation, ...] = eqx.field(static=True)
    rules: Rules = eqx.field(static=True, default=())

    def __post_init__(self):
        if not self.rules:
            self.rules = tuple(rule_over(activation, None)[0] for activation in self.activations)

    def _view(self) -> Iterator[Block]:
        examples, paths, features = self.shape
        yield Text(f"**Path features** by their kernels: {counted(examples, 'example')}, {counted(paths, 'path')}")
        sizes = f"{counted(self.tokens.shape[1], 'token')} x {counted(features, 'feature')}"
        size = 8.0 * (self.tokens.size + self.readings.size)
        functions = ", ".join(verbatim(activation.name) for activation in self.activations)
        yield Table((("inputs", sizes), ("functions", functions), ("memory", data_size(size))))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(examples, paths, input features), as for explicit features."""
        return len(self.tokens), self.readings.shape[2], self.tokens.shape[2]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, examples: Any) -> "ImplicitFeatures":
        """Select some examples with a slice, or with an array of indices or booleans."""
        chosen = jnp.arange(len(self))[examples]
        return replace(self, tokens=self.tokens[chosen], readings=self.readings[chosen])

    def pair_kernels(self) -> Float[Array, "pairs examples examples"]:
        """Return the kernels of the pairs of paths on and above the diagonal, and half of those on the diagonal."""
        rows, columns = np.triu_indices(self.shape[1])
        weight = np.where(rows == columns, 0.5, 1.0)[:, None]
        return self._by_example(self, lambda kernels: weight * kernels[rows, columns]).swapaxes(0, 1)

    def path_kernels(self, outputs: int = 1) -> Float[Array, "n n rows rows"]:
        """Return the kernel of every pair of paths. Kernels are nonzero only between equal outputs."""
        unit, size = jnp.eye(outputs), self.shape[1] * outputs
        found = jnp.einsum("eabv,ci,dj->acbdeivj", self._by_example(self, lambda kernels: kernels), unit, unit)
        return found.reshape(size, size, len(self) * outputs, -1)

    def kernel(self, u1: Float[Array, "n n"], other: "ImplicitFeatures") -> Float[Array, "rows columns"]:
        """Return K between these examples and `other`, Eq. (10)."""
        by_output = self._by_output(u1)
        found = self._by_example(other, lambda kernels: jnp.einsum("abv,acbd->cvd", kernels, by_output))
        return found.reshape(len(self) * by_output.shape[1], -1)

    def kernel_diagonal(self, u1: Float[Array, "n n"]) -> Float[Array, " rows"]:
        """Return the diagonal of K for these examples."""
        by_output = jnp.einsum("acbc->abc", self._by_output(u1))

        def of_example(example):
            tokens, reading, units = example
            between = token_kernel(self.activations, self.rules, self.variances, (tokens, units), (tokens, units))
            return jnp.einsum("sa,st,tb,abc->c", reading, between, reading, by_output)

        return jax.lax.map(of_example, (self.tokens, self.readings, self._units(self.rules))).ravel()

    def _by_output(self, u1: Float[Array, "n n"]) -> Float[Array, "paths outputs paths outputs"]:
        paths = self.shape[1]
        return u1.reshape(paths, len(u1) // paths, paths, -1)

    def _by_example(self, other: "ImplicitFeatures", reduce: Callable[[Array], Array]) -> Array:
        """Apply `reduce` to K^{pi pi'} between each example and all of `other`, of shape (paths, paths, others)."""
        rules = tuple(map(joint, self.rules, other.rules))
        here = self.tokens, self.readings, self._units(rules)
        there = _by_token((other.tokens, other._units(rules)))
        batch = max(1, min(len(self), _HELD // max(1, len(other) * self.tokens.shape[1] ** 2)))
        missing = -len(self) % batch

        # Fill the last batch with copies of the last example, and drop their results.
        def batched(array):
            array = jnp.pad(array, ((0, missing), *((0, 0) for _ in array.shape[1:])), mode="edge")
            return array.reshape(-1, batch, *array.shape[1:])

        def of_batch(part):
            tokens, readings, units = part
            # Do not use vmap over examples, which would evaluate panels for every pair instead of only where needed.
            between = token_kernel(self.activations, rules, self.variances, _by_token((tokens, units)), there)
            between = between.reshape(*tokens.shape[:2], len(other), -1)
            return jax.vmap(reduce)(jnp.einsum("esa,esvt,vtb->eabv", readings, between, other.readings))

        found = jax.lax.map(of_batch, jax.tree.map(batched, here))
        return found.reshape(-1, *found.shape[2:])[: len(self)]

    def _units(self, rules: Rules) -> tuple[Units, ...]:
        units = token_units(self.activations, rules, self.variances, _by_token(self.tokens))
        return jax.tree.map(lambda each: each.reshape(*self.tokens.shape[:2], *each.shape[1:]), units)


PathFeatures = Float[Array, "examples paths features"] | ImplicitFeatures
"""Path features, either explicit or represented by their kernels."""
Features = Array | ImplicitFeatures
"""Path features whose shape is not checked, because axes of several arguments would share names."""


def _by_token(by_example: Any) -> Any:
    """Reshape arrays (examples, tokens, ...) to (examples x tokens, ...)."""
    return jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), by_example)
