"""The finite network, layer by layer and as a sum over paths; Eqs. (1)-(6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import Count, Key, checked_arguments, checked_sequence, finite_array
from ...precision import require_float64
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ..data.data import checked_features
from ..order_parameters.order_parameters import OrderParameters, from_overlaps
from ..specification import layer_functions
from ..specification.activations import apply_to
from ..specification.architecture import Architecture, nonlinear_layers, require_finite_widths
from ..specification.layers import activation_of
from .attention import Heads, Layout, Mask, array_rows, checked_real_tokens
from .paths import Readout, chosen_readout, over_examples, readout_weights


class Network(DisplayMixin, eqx.Module):
    """A deep network with linear values, whose attention is a function of the bare input in every layer.

    The embedding, and dense layers directly above it, can have nonlinear activation functions.

    - `architecture`: layers, widths and prior variances. Its temperature is not used.
    - `embedding`: V^0 (N_1, N_0).
    - `weights`: V_l (N_{l+1}, blocks N_l) of each layer, the weight blocks side by side, with N_{L+1} = N_a.
    - `readout_weights`: a (outputs, N_a). If every token is read, there is one row per (token, output).
    - `heads`: the attention parameters of all layers that have heads.
    - `readout`: the token that is read.
    """

    architecture: Architecture
    embedding: Float[Array, "_ _"]
    weights: tuple[Float[Array, "_ _"], ...]
    readout_weights: Float[Array, "_ _"]
    heads: Heads
    readout: Readout = eqx.field(static=True)

    @classmethod
    @checked_arguments
    def of_weights(
        cls, architecture: Architecture, weights: Any, heads: Heads, *, readout: Readout | None = None
    ) -> Network:
        """Make a network from given weights.

        Args:
            architecture: layers, widths and prior variances.
            weights: the arrays of the embedding, of every layer, and of the readout, in the shapes of `Network`.
            heads: the attention parameters of all layers that have heads.
            readout: the token that is read, as in `sample_network`.

        Raises:
            ValueError: a shape or the heads do not fit the architecture.
        """
        readout = chosen_readout(architecture, readout, architecture.read_tokens)
        weights = checked_sequence("weights", weights, "arrays: embedding, layers, readout", architecture.depth + 2)
        weights = [finite_array(f"weights[{i}]", value, "rows columns") for i, value in enumerate(weights)]
        embedding, *layers, last = weights
        features, counts = embedding.shape[1], tuple(count for count in architecture.heads if count)
        if heads.counts != counts or (counts and heads.input_features != features):
            raise ValueError(
                f"heads must be {counts} per layer on {features} features, as architecture and weights[0] need, got "
                f"{heads.counts}"
            )
        shapes, needed = tuple(array.shape for array in weights), weight_shapes(architecture, features)
        if shapes != needed:
            raise ValueError(f"weights must have the shapes {needed} of the architecture, got {shapes}")
        return cls(architecture.with_arrays(), embedding, tuple(layers), last, heads, readout)

    def _view(self) -> Iterator[Block]:
        activation, numbers = verbatim(self.architecture.embedding.name), f"{self.parameter_count:,} parameters"
        yield Text(f"**Network** with embedding {activation} and readout {verbatim(self.readout)}, {numbers}")
        rows = [row for row in array_rows(self) if not row[0].startswith("architecture")]
        yield Table(tuple(rows), ("array", "shape", "root mean square"))

    @property
    def widths(self) -> tuple[int, ...]:
        """(N_1, ..., N_L, N_a)."""
        return (len(self.embedding), *(len(weights) for weights in self.weights))

    @property
    def parameter_count(self) -> int:
        """Number of parameters: embedding, all weights, readout, and the heads' queries and keys."""
        parameters = (self.embedding, self.weights, self.readout_weights, self.heads)
        return sum(leaf.size for leaf in jax.tree.leaves(parameters))

    def __call__(
        self,
        inputs: Float[Array, "examples tokens features"],
        mask: Mask | None = None,
        *,
        real_tokens: ArrayLike | None = None,
        layout: Layout | None = None,
    ) -> Float[Array, "examples *outputs"]:
        """Compute the output f(x) of every example, layer by layer.

        Args:
            inputs: (examples, tokens, features).
            mask, real_tokens, layout: as in `bpkr.attention`. Only real tokens are read.

        Returns:
            The outputs (examples,), or (examples, outputs) if there are several.
        """
        inputs = finite_array("inputs", inputs, "examples tokens features")
        examples, tokens, _ = inputs.shape
        needed = self.architecture.read_tokens if self.readout == "all" else tokens
        if inputs.shape[1:] != (needed, self.embedding.shape[1]):
            raise ValueError(
                f"inputs must have shape (examples, {needed}, {self.embedding.shape[1]}), as embedding and readout "
                f"take them, got {inputs.shape}"
            )
        real = None if real_tokens is None else checked_real_tokens("real_tokens", real_tokens, examples, tokens)
        attention = self.heads(inputs, mask, real_tokens=real, layout=layout)
        return self.unchecked(inputs, attention, readout_weights(self.readout, tokens, real))

    def unchecked(
        self,
        inputs: Float[Array, "examples tokens features"],
        attention: Sequence[Float[Array, "examples _ keys queries"]],
        read: Float[Array, "... tokens read"],
    ) -> Float[Array, "examples *outputs"]:
        """Compute the output without checks, for compiled loops. `read` is from `readout_weights`."""
        architecture = self.architecture
        numbers = architecture.layer_numbers()

        def of_example(tokens, mixings, read):
            hidden = apply_to(architecture.embedding, self.embedding @ tokens.T / jnp.sqrt(tokens.shape[1]))  # Eq. (1)
            for kind, form, weights in zip(architecture.layers, architecture.forms, self.weights, strict=True):
                hidden = layer_functions.forward(form, numbers, hidden, weights, mixings.get(form.symbols.index))
                hidden = apply_to(activation_of(kind), hidden)
            by_token = self.readout_weights.reshape(read.shape[1], architecture.outputs, -1)
            scale = jnp.sqrt(len(hidden)) * architecture.root_power
            return jnp.einsum("tcn,nt->c", by_token, hidden @ read) / scale  # Eq. (4)

        outputs = over_examples(of_example, architecture, inputs, attention, read)
        return outputs[:, 0] if architecture.outputs == 1 else outputs

    def path_outputs(self, features: ArrayLike) -> Float[Array, "examples paths *outputs"]:
        """Return the contribution of each path to the output, the terms of the sum in Eq. (5), given path features."""
        architecture = self.architecture
        if not architecture.is_linear:
            raise ValueError("the network has nonlinear hidden units, so its output is not a sum over path features")
        features = checked_features(architecture, features)
        if features.shape[2] != self.embedding.shape[1]:
            raise ValueError(f"features must have {self.embedding.shape[1]} columns, got shape {features.shape}")
        embedding = self.embedding / jnp.sqrt(architecture.prior_variances[0])
        readings = _path_readings(path_weights(self)[0], embedding, features.shape[1])
        outputs = jnp.einsum("epi,pci->epc", features, readings) / architecture.root_power
        return outputs[..., 0] if architecture.outputs == 1 else outputs


@checked_arguments
def sample_network(
    architecture: Architecture, heads: Heads, *, input_features: Count, readout: Readout | None = None, key: Key
) -> Network:
    """Draw the weights of a network from their Gaussian prior, except for the queries and keys, which are given.

    Args:
        architecture: layers, widths and prior variances.
        heads: the attention parameters of all layers that have heads.
        input_features: number of features of a token.
        readout: the token that is read; by default the last, or every token if the architecture reads several.
        key: JAX random key.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> heads = bpkr.heads(key_query=[np.random.default_rng(0).normal(size=(2, 3, 3))])
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> network = bpkr.sample_network(arch, heads, input_features=3, key=jax.random.key(0))
        >>> network.embedding.shape, network.weights[0].shape  # (width, features), (width, heads x width below)
        ((10, 3), (10, 20))
    """
    require_float64()
    shapes = weight_shapes(architecture, input_features)
    keys = jax.random.split(key, len(shapes))
    white = [jax.random.normal(one, shape) for one, shape in zip(keys, shapes, strict=True)]
    return network_of_whitened(architecture, white, heads, readout=readout)


def network_of_whitened(
    architecture: Architecture, white: Sequence[Float[Array, "_ _"]], heads: Heads, *, readout: Readout | None = None
) -> Network:
    """Make the network with whitened weights `white`, which have the shapes of `weight_shapes`.

    Independent standard normal numbers give a network drawn from the prior.
    """
    first, *_, last = map(jnp.sqrt, architecture.prior_variances)
    embedding, *layers, readout_weights = white
    weights = (first * embedding, *colour_layers(architecture, layers), last * readout_weights)
    return Network.of_weights(architecture, weights, heads, readout=readout)


def weight_shapes(architecture: Architecture, input_features: int) -> tuple[tuple[int, int], ...]:
    """Return the shapes of embedding, weights of every layer, and readout."""
    widths, counts = checked_whole_widths(architecture), architecture.head_counts()
    layers = zip(architecture.forms, widths[1:], widths[:-1], strict=True)
    blocks = [(after, layer_functions.count(form.blocks, counts) * before) for form, after, before in layers]
    return (widths[0], input_features), *blocks, (architecture.overlap_sizes[-1], widths[-1])


def colour_layers(architecture: Architecture, layers: Sequence[Float[Array, "_ _"]]) -> tuple[Float[Array, "_ _"], ...]:
    """Return V_1, ..., V_L with their prior covariance, given uncorrelated weight blocks of unit variance."""
    numbers, coloured = architecture.layer_numbers(), []
    for form, white in zip(architecture.forms, layers, strict=True):
        root = layer_functions.covariance_root(form, numbers)
        blocks = white.reshape(len(white), len(root), -1)
        coloured.append(jnp.einsum("ab,mbn->man", root, blocks).reshape(white.shape))
    return tuple(coloured)


def checked_whole_widths(architecture: Architecture) -> tuple[int, ...]:
    """Return (N_1, ..., N_L, N_a) as integers; raise `ValueError` if one is not a whole number of hidden units."""
    require_finite_widths(architecture, "a network")
    widths = tuple(int(width) for width in architecture.widths)
    if any(width != given for width, given in zip(widths, architecture.widths, strict=True)):
        raise ValueError(f"widths of a network must be whole numbers of hidden units, got widths={architecture.widths}")
    return widths


@checked_arguments
def path_weights(network: Network) -> tuple[Float[Array, "_ _"], ...]:
    """Return (w^(1), ..., w^(L+1)), Eq. (6): the effective weights (n_l, N_l) of the partial paths, the readout last.

    With several outputs, a row is a (partial path, output) pair, and the output varies fastest.

    Raises:
        ValueError: a dense layer is nonlinear, so path weights through it are not defined.
    """
    architecture = network.architecture
    if nonlinear_layers(architecture.layers):
        raise ValueError("the network has a nonlinear dense layer, and path weights through it are not defined")
    numbers = architecture.layer_numbers()
    return layer_functions.all_path_weights(architecture.forms, numbers, network.weights, network.readout_weights)


def read_paths(
    first: Float[Array, "rows width"],
    embedding: Float[Array, "width features"],
    features: Float[Array, "examples paths features"],
) -> Float[Array, "examples outputs"]:
    """Compute the output from w^(1), V^0 at unit variance, and path features, Eq. (5)."""
    # Apply the embedding to the path weights and not to every example, so that the features need one product.
    weights = _path_readings(first, embedding, features.shape[1])
    flat = weights.transpose(0, 2, 1).reshape(-1, weights.shape[1])
    return features.reshape(len(features), -1) @ flat  # Eq. (5)


def _path_readings(first, embedding, paths: int) -> Float[Array, "paths outputs features"]:
    return (first @ embedding / jnp.sqrt(len(embedding))).reshape(paths, -1, embedding.shape[1])


def empirical_order_parameters(network: Network) -> OrderParameters:
    """Compute the order parameters of given weights, sampled or trained: U_l = w^(l) w^(l)T / N_l, Eq. (13).

    If a layer has fewer hidden units than partial paths, its order parameter is singular and `evaluate` raises an
    error.
    """
    return overlaps(path_weights(network))


def overlaps(weights: Sequence[Float[Array, "_ _"]]) -> OrderParameters:
    """Return the order parameters of the path weights (w^(1), ..., w^(L+1)), Eq. (13)."""
    return from_overlaps(weight @ weight.T / weight.shape[1] for weight in weights)  # Eq. (13)
