"""A network as a labelled dataset, to be kept in a file, and the way back."""

import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from ... import bpkr
from ...checks import checked_instance, finite_array


def label_network(network: bpkr.Network) -> xr.Dataset:
    """Every weight by name: `embedding`, `values_l` and `readout`, and `query_l` and `key_l` of each layer with heads.

    Where heads have biases, these are `query_bias_l` and `key_bias_l`.
    The heads must be `bpkr.ProjectionHeads`; the numbers of the layers' kinds are those of the architecture, and stay
    out.
    """
    checked_instance("network", network, bpkr.Network)
    if not isinstance(network.heads, bpkr.ProjectionHeads):
        raise ValueError(f"the heads must have queries and keys, got {type(network.heads).__name__}")
    arrays = {
        "embedding": (("unit_1", "feature"), network.embedding),
        "readout": (("output", f"unit_{len(network.weights) + 1}"), network.readout_weights),
    }
    for layer, weights in enumerate(network.weights, 1):
        arrays[f"values_{layer}"] = ((f"unit_{layer + 1}", f"head_unit_{layer}"), weights)
    for name, layers in _parameters(network.heads).items():
        for layer, values in enumerate(layers or (), 1):
            dimensions = (f"head_{layer}", f"head_feature_{layer}", "feature")
            arrays[f"{name}_{layer}"] = dimensions[: values.ndim], values
    labelled = {name: (dimensions, np.asarray(values)) for name, (dimensions, values) in arrays.items()}
    return xr.Dataset(labelled, attrs={"readout": network.readout})


def _parameters(heads: bpkr.ProjectionHeads) -> dict[str, tuple[Array, ...] | None]:
    """What `bpkr.heads` makes them of, by its names."""
    return {"query": heads.queries, "key": heads.keys, "query_bias": heads.query_biases, "key_bias": heads.key_biases}


def network_from(architecture: bpkr.Architecture, weights: xr.Dataset) -> bpkr.Network:
    """The network that `label_network` made `weights` of; its layers' kinds and variances are the architecture's.

    Raises `ValueError` where a weight is missing, or has another shape than the architecture's.
    """
    checked_instance("architecture", architecture, bpkr.Architecture)
    checked_instance("weights", weights, xr.Dataset, "as label_network makes them")
    if "readout" not in weights.attrs:
        raise ValueError("weights do not say which token is read: they have no attribute readout")
    with_heads = range(1, 1 + sum(heads > 0 for heads in architecture.heads))
    names = ["embedding", *(f"values_{layer}" for layer in range(1, architecture.depth + 1)), "readout"]
    needed = [*names, *(f"{kind}_{layer}" for layer in with_heads for kind in ("query", "key"))]
    if missing := [name for name in needed if name not in weights]:
        raise ValueError(
            f"in weights there is no {missing[0]}, which an architecture of {architecture.depth} layers needs"
        )

    def array(name: str) -> Float[Array, "..."]:
        return finite_array(name, weights[name].values)

    given = ["query", "key", *(name for name in ("query_bias", "key_bias") if f"{name}_1" in weights)]
    kept = bpkr.heads(**{name: [array(f"{name}_{layer}") for layer in with_heads] for name in given})
    counts = tuple(heads for heads in architecture.heads if heads)
    if kept.counts != counts:
        raise ValueError(f"in weights, heads of {kept.counts} do not fit an architecture with {counts}")
    found = [array(name) for name in names]
    return bpkr.network_of_weights(architecture, found, kept, readout=weights.attrs["readout"])
