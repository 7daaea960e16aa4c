"""A network as a labelled dataset, to be kept in a file, and the way back."""

import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from ... import bpkr
from ...arguments import checked_instance
from ..data.checks import finite_array


def label_network(network: bpkr.Network) -> xr.Dataset:
    """Every weight by name: `embedding`, `values_l` and `readout`, and `query_l` and `key_l` of each layer with heads.

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
    for layer, (query, key) in enumerate(zip(network.heads.queries, network.heads.keys, strict=True), 1):
        dimensions = (f"head_{layer}", f"head_feature_{layer}", "feature")
        arrays |= {f"query_{layer}": (dimensions, query), f"key_{layer}": (dimensions, key)}
    labelled = {name: (dimensions, np.asarray(values)) for name, (dimensions, values) in arrays.items()}
    return xr.Dataset(labelled, attrs={"readout": network.readout})


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

    kept = bpkr.heads(
        query=[array(f"query_{layer}") for layer in with_heads], key=[array(f"key_{layer}") for layer in with_heads]
    )
    counts = tuple(heads for heads in architecture.heads if heads)
    if kept.counts != counts:
        raise ValueError(f"in weights, heads of {kept.counts} do not fit an architecture with {counts}")
    found = [array(name) for name in names]
    return bpkr.network_of_weights(architecture, found, kept, readout=weights.attrs["readout"])
