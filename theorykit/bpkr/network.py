"""The finite network itself, layer by layer, and its rewriting as a sum over paths; Eqs. (1)-(6)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..precision import require_float64
from .architecture import Architecture
from .attention import AbstractHeads
from .order_parameters import OrderParameters
from .paths import Readout, readout_weights


class Network(eqx.Module):
    """A deep attention network with linear values; attention acts on the bare input in every layer.

    - `embedding`: V^0 (N_1, N_0).
    - `values`: per layer V^l (heads, N_{l+1}, N_l), with N_{L+1} = N_a.
    - `readout_vector`: a (N_a,).
    - `heads`: the attention parameters of all layers.
    - `readout`: the token that is read.
    """

    embedding: Float[Array, "_ _"]
    values: tuple[Float[Array, "_ _ _"], ...]
    readout_vector: Float[Array, " _"]
    heads: AbstractHeads
    readout: Readout = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, "examples tokens features"]) -> Float[Array, " examples"]:
        """The output f(x) of every example, layer by layer."""
        hidden = inputs @ self.embedding.T / jnp.sqrt(inputs.shape[-1])  # Eq. (1)
        for value, attention in zip(self.values, self.heads(inputs), strict=True):
            count, _, width = value.shape
            attended = jnp.einsum("phst,psn->phtn", attention, hidden)
            hidden = jnp.einsum("hmn,phtn->ptm", value, attended) / jnp.sqrt(count * width)  # Eq. (2)
        read = jnp.einsum("t,ptm->pm", readout_weights(self.readout, inputs.shape[1]), hidden)
        return read @ self.readout_vector / jnp.sqrt(len(self.readout_vector))  # Eq. (4)


def sample_network(
    architecture: Architecture,
    heads: AbstractHeads,
    *,
    input_features: int,
    readout: Readout = "last",
    key: PRNGKeyArray,
) -> Network:
    """A network with every weight but the queries and keys drawn from its Gaussian prior."""
    require_float64()
    if heads.counts != architecture.heads:
        raise ValueError(f"heads of {heads.counts} do not fit an architecture with heads={architecture.heads}")
    if heads.input_features != input_features:
        raise ValueError(f"heads for {heads.input_features} features do not fit input_features={input_features}")
    widths = [int(width) for width in architecture.widths]
    if any(width != given for width, given in zip(widths, architecture.widths, strict=True)):
        raise ValueError(f"a network needs whole numbers of hidden units, got widths={architecture.widths}")
    deviations = [jnp.sqrt(variance) for variance in architecture.prior_variances]
    first, last, *middle = jax.random.split(key, architecture.depth + 2)
    shapes = zip(architecture.heads, widths[1:], widths[:-1], strict=True)
    return Network(
        embedding=deviations[0] * jax.random.normal(first, (widths[0], input_features)),
        values=tuple(
            deviation * jax.random.normal(layer_key, shape)
            for deviation, layer_key, shape in zip(deviations[1:-1], middle, shapes, strict=True)
        ),
        readout_vector=deviations[-1] * jax.random.normal(last, (widths[-1],)),
        heads=heads,
        readout=readout,
    )


def path_weights(network: Network) -> tuple[Float[Array, "_ _"], ...]:
    """(w^(1), ..., w^(L+1)), Eq. (6): the effective weights (n_l, N_l) of the partial paths; the readout last."""
    weights = [network.readout_vector[None, :]]
    for value in reversed(network.values):
        outer = weights[-1]
        inner = jnp.einsum("pm,hmn->hpn", outer, value) / jnp.sqrt(value.shape[1])  # Eq. (6)
        weights.append(inner.reshape(-1, value.shape[2]))
    return tuple(reversed(weights))


def sum_over_paths(
    network: Network, architecture: Architecture, features: Float[Array, "examples paths features"]
) -> Float[Array, " examples"]:
    """The network's output from its path features, Eq. (5); equals `network(inputs)`."""
    first = path_weights(network)[0]
    embedding = network.embedding / jnp.sqrt(architecture.prior_variances[0])
    return jnp.einsum("kn,ni,pki->p", first, embedding, features) / jnp.sqrt(first.shape[1])  # Eq. (5)


def empirical_order_parameters(network: Network) -> OrderParameters:
    """The order parameters of given weights, sampled or trained: U_l = w^(l) w^(l)T / N_l, Eq. (13).

    Singular, and not accepted by `evaluate`, where a layer has fewer hidden units than partial paths.
    """
    *inner, readout = (weight @ weight.T / weight.shape[1] for weight in path_weights(network))  # Eq. (13)
    return OrderParameters(tuple(inner), readout[0, 0])
