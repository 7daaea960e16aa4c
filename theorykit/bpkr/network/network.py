"""The finite network, by layers and as a sum over paths, Eqs. (1)-(6), and its pruning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from ... import checks
from ..._compat import require_float64
from ...checks import checked_array, checked_instance, finite_array
from ..data.data import checked_features
from ..order_parameters import OrderParameters, from_overlaps
from ..specification import layers as of_layers
from ..specification.activations import apply_to
from ..specification.architecture import (
    Architecture,
    checked_architecture,
    nonlinear_layers,
    require_finite_widths,
)
from ..specification.layers import Attention, Skip
from . import attention as of_attention
from .attention import Heads, Mask, Readout

Weights = Float[Array, "_ _"]


class Network(eqx.Module):
    """A deep network whose attention depends on the bare input alone.

    - `embedding`: V^0 (N_1, N_0).
    - `weights`: V_l (N_{l+1}, blocks N_l) of each layer.
    - `readout_weights`: a (outputs, N_a). If all tokens are read, rows are (token, output).
    - `readout`: the token that is read.
    """

    architecture: Architecture
    embedding: Weights
    weights: tuple[Weights, ...]
    readout_weights: Weights
    heads: Heads
    readout: Readout = eqx.field(static=True)

    @classmethod
    def of_weights(
        cls, architecture: Architecture, weights: Any, heads: Heads, *, readout: Readout | None = None
    ) -> Network:
        """Make a network from the `weights` of embedding, layers and readout."""
        checked_architecture(architecture)
        checked_instance("heads", heads, Heads)
        readout = of_attention.chosen_readout(architecture, readout, architecture.read_tokens)
        given = checks.checked_sequence("weights", weights, "arrays", architecture.depth + 2)
        weights = [finite_array(f"weights[{i}]", each, "rows columns") for i, each in enumerate(given)]
        features = weights[0].shape[1]
        counts = tuple(filter(None, architecture.heads))
        if heads.counts != counts or (counts and heads.input_features != features):
            wanted = f"{counts} per layer on {features} features"
            raise ValueError(f"heads must be {wanted}, got {heads.counts}")
        shapes = tuple(each.shape for each in weights)
        needed = weight_shapes(architecture, features)
        if shapes != needed:
            raise ValueError(f"weights must have the shapes {needed}, got {shapes}")
        embedding, *layers, last = weights
        return cls(architecture.with_arrays(), embedding, tuple(layers), last, heads, readout)

    @property
    def widths(self) -> tuple[int, ...]:
        """(N_1, ..., N_L, N_a)."""
        return (len(self.embedding), *map(len, self.weights))

    @property
    def parameter_count(self) -> int:
        """Number of weights, with queries and keys."""
        parameters = (self.embedding, self.weights, self.readout_weights, self.heads)
        return sum(leaf.size for leaf in jax.tree.leaves(parameters))

    def __call__(
        self, inputs: ArrayLike, mask: Mask | None = None, *, real_tokens=None, layout=None
    ) -> Float[Array, "examples *outputs"]:
        """Compute outputs, with arguments as in `bpkr.attention`."""
        inputs = finite_array("inputs", inputs, "examples tokens features")
        examples, tokens, _ = inputs.shape
        of_attention.chosen_readout(self.architecture, self.readout, tokens)
        self._check_features(inputs, "inputs")
        attention = self.heads(inputs, mask, real_tokens=real_tokens, layout=layout)
        real = of_attention.checked_real_tokens(real_tokens, examples, tokens)
        read = of_attention.readout_weights(self.readout, tokens, real)
        return self.unchecked(inputs, attention, read)

    def _check_features(self, array: Array, name: str) -> None:
        wanted = self.embedding.shape[1]
        if array.shape[2] != wanted:
            raise ValueError(f"{name} must have {wanted} features, got shape {array.shape}")

    def unchecked(self, inputs: Array, attention: Sequence[Array], read: Array) -> Array:
        """Compute outputs; `read` is from `readout_weights`."""
        architecture = self.architecture
        numbers = architecture.layer_numbers()
        layers = list(zip(architecture.layers, architecture.forms, self.weights, strict=True))

        def of_example(tokens, mixings, read):
            hidden = self.embedding @ tokens.T / jnp.sqrt(tokens.shape[1])  # Eq. (1)
            hidden = apply_to(architecture.embedding, hidden)
            for kind, form, weights in layers:
                symbols = form.symbols
                arrays = {form.weights: weights, symbols.hidden: hidden}
                arrays[symbols.attention] = mixings.get(symbols.index)
                hidden = of_layers.evaluate_form(form.forward, numbers, arrays)
                hidden = apply_to(of_layers.activation_of(kind), hidden)
            by_token = self.readout_weights.reshape(read.shape[1], architecture.outputs, -1)
            scale = jnp.sqrt(len(hidden)) * architecture.root_power
            return jnp.einsum("tcn,nt->c", by_token, hidden @ read) / scale  # Eq. (4)

        outputs = of_attention.over_examples(of_example, architecture, inputs, attention, read)
        return outputs[:, 0] if architecture.outputs == 1 else outputs

    def path_outputs(self, features: ArrayLike) -> Float[Array, "examples paths *outputs"]:
        """Return the term of each path in the output, Eq. (5)."""
        architecture = self.architecture
        if not architecture.is_linear:
            raise ValueError("outputs of nonlinear units are not a sum over paths")
        features = checked_features(architecture, features)
        self._check_features(features, "features")
        embedding = self.embedding / jnp.sqrt(architecture.prior_variances[0])
        readings = _path_readings(path_weights(self)[0], embedding, features.shape[1])
        outputs = jnp.einsum("epi,pci->epc", features, readings) / architecture.root_power
        return outputs[..., 0] if architecture.outputs == 1 else outputs

    def without_heads(self, removed: Iterable[Head]) -> Network:
        """Return a smaller network with the output for zero weights of `removed` heads.

        A layer that keeps H' of H heads divides by sqrt(H'), so its blocks are multiplied
        by sqrt(H' / H). Source: Sec. 4.2 of arXiv 2405.15926.

        Raises:
            ValueError: a head is unknown or repeated, or its layer loses all or is custom.
        """
        architecture = self.architecture
        removed = list(removed)
        for i, head in enumerate(removed):
            layer, number = head
            known = 0 < layer <= len(architecture.heads) and 0 < number <= architecture.heads[layer - 1]
            if not known or head in removed[:i]:
                which = f"repeated or not one of the {architecture.heads} heads"
                raise ValueError(f"removed has {head!r}, which is {which}")
        layers, weights, kept = list(architecture.layers), list(self.weights), []
        for i, (layer, count) in enumerate(zip(architecture.layers, architecture.heads, strict=True)):
            keep = np.array([Head(i + 1, head) not in removed for head in range(1, count + 1)], dtype=bool)
            kept += [keep] * bool(count)
            if np.all(keep):
                continue
            inner, left = layer.layer if isinstance(layer, Skip) else layer, int(np.sum(keep))
            if type(inner) is not Attention or not left:
                which = f"{count - left} of {count} heads of layer {i + 1}"
                raise ValueError(f"removed has {which}: only Attention can lose heads, and it must keep one")
            layers[i] = Attention(left) if inner is layer else Skip(Attention(left), layer.gain)
            weights[i] = np.sqrt(left / count) * weights[i][:, np.repeat(keep, weights[i].shape[1] // count)]
        parameters = {
            name: arrays and tuple(array[keep] for array, keep in zip(arrays, kept, strict=True))
            for name, arrays in self.heads.parameters().items()
        }
        smaller = dataclasses.replace(architecture, layers=layers)
        weights = (self.embedding, *weights, self.readout_weights)
        return Network.of_weights(smaller, weights, Heads(**parameters, kind=self.heads.kind), readout=self.readout)


def sample_network(
    architecture: Architecture,
    heads: Heads,
    *,
    input_features: int,
    readout: Readout | None = None,
    key: PRNGKeyArray,
) -> Network:
    """Draw all weights, except queries and keys, from their Gaussian prior.

    Args:
        input_features: number of features of a token.
        readout: as in `bpkr.path_features`.
        key: JAX random key.
    """
    require_float64()
    checks.checked_whole_number("input_features", input_features, least=1)
    shapes = weight_shapes(checked_architecture(architecture), input_features)
    keys = jax.random.split(key, len(shapes))
    white = [jax.random.normal(one, shape) for one, shape in zip(keys, shapes, strict=True)]
    return network_of_whitened(architecture, white, heads, readout=readout)


def network_of_whitened(
    architecture: Architecture, white: Sequence[Weights], heads: Heads, *, readout: Readout | None = None
) -> Network:
    """Make a network from weights that are standard normal under the prior."""
    first, *_, last = map(jnp.sqrt, architecture.prior_variances)
    embedding, *layers, readout_weights = white
    weights = (first * embedding, *colour_layers(architecture, layers), last * readout_weights)
    return Network.of_weights(architecture, weights, heads, readout=readout)


def weight_shapes(architecture: Architecture, input_features: int):
    widths = checked_whole_widths(architecture)
    counts = architecture.head_counts()
    shapes = [(widths[0], input_features)]
    for form, (before, after) in zip(architecture.forms, pairwise(widths), strict=True):
        shapes.append((after, of_layers.size_of(form.blocks, counts) * before))
    return *shapes, (architecture.overlap_sizes[-1], widths[-1])


def colour_layers(architecture: Architecture, layers: Sequence[Weights]) -> tuple[Weights, ...]:
    """Return V_1, ..., V_L with their prior covariance, given standard normal numbers."""
    numbers, coloured = architecture.layer_numbers(), []
    for form, white in zip(architecture.forms, layers, strict=True):
        root = of_layers.covariance_root(form, numbers)
        blocks = white.reshape(len(white), len(root), -1)
        coloured.append(jnp.einsum("ab,mbn->man", root, blocks).reshape(white.shape))
    return tuple(coloured)


def checked_whole_widths(architecture: Architecture) -> tuple[int, ...]:
    """Return (N_1, ..., N_L, N_a), which must be whole numbers."""
    require_finite_widths(architecture, "a network")
    widths = tuple(map(int, architecture.widths))
    if widths != tuple(map(float, architecture.widths)):
        raise ValueError(f"a network needs whole numbers as widths, got widths={architecture.widths}")
    return widths


def path_weights(network: Network) -> tuple[Weights, ...]:
    """Return (w^(1), ..., w^(L+1)): weights (n_l, N_l) of partial paths, and the readout; Eq. (6).

    With several outputs, rows are (partial path, output), the output fastest.
    """
    architecture = checked_instance("network", network, Network).architecture
    if nonlinear_layers(architecture.layers):
        raise ValueError("paths through a nonlinear dense layer have no weights")
    forms, numbers = architecture.forms, architecture.layer_numbers()
    return of_layers.all_path_weights(forms, numbers, network.weights, network.readout_weights)


def read_paths(first: Weights, embedding: Weights, features: Array) -> Float[Array, "examples outputs"]:
    """Return outputs, given w^(1), V^0 of unit variance, and path features; Eq. (5)."""
    weights = _path_readings(first, embedding, features.shape[1])
    flat = weights.transpose(0, 2, 1).reshape(-1, weights.shape[1])
    return features.reshape(len(features), -1) @ flat  # Eq. (5)


def _path_readings(first, embedding, paths: int) -> Float[Array, "paths outputs features"]:
    return (first @ embedding / jnp.sqrt(len(embedding))).reshape(paths, -1, embedding.shape[1])


def empirical_order_parameters(network: Network) -> OrderParameters:
    """Return U_l = w^(l) w^(l)T / N_l of sampled or trained weights, Eq. (13)."""
    return overlaps(path_weights(network))


def overlaps(weights: Sequence[Weights]) -> OrderParameters:
    return from_overlaps(weight @ weight.T / weight.shape[1] for weight in weights)  # Eq. (13)


class Head(NamedTuple):
    """An attention head: its layer, and its number there, from 1."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"layer {self.layer}, head {self.head}"


def removable_heads(scores: Sequence[ArrayLike]) -> list[Head]:
    """Rank the heads that can be removed such that every layer keeps one.

    Args:
        scores: the importance of the heads of each layer, arrays (H_l,), such as
            those of `head_scores` or `HeadCosts.log_evidence`.

    Returns:
        The heads, the least important first.
    """
    ranked = []
    for layer, values in enumerate(scores, 1):
        if np.size(values):
            values = checked_array(f"scores[{layer - 1}]", values, "heads")
        ranked += [(score, Head(layer, head)) for head, score in enumerate(values, 1)]
    heads = [head for _, head in sorted(ranked)]
    # The most important head of each layer stays.
    last = {head.layer: head for head in heads}
    return [head for head in heads if last[head.layer] != head]
