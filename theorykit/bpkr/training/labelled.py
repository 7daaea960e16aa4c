"""Convert a network to a labelled dataset, which can be saved to a file, and a dataset to a network."""

import numpy as np
import xarray as xr

from ... import bpkr
from ...checks import checked_arguments, finite_array


@checked_arguments
def label_network(network: bpkr.Network) -> xr.Dataset:
    """Label every weight: `embedding`, `values_l` and `readout`, and `query_l` and `key_l` of each layer with heads.

    Biases of heads are `query_bias_l` and `key_bias_l`. The heads must be `bpkr.ProjectionHeads`. Parameters of layers
    are left out, because they belong to the architecture.
    """
    heads = network.heads
    if not isinstance(heads, bpkr.ProjectionHeads):
        raise ValueError(f"the heads of network must have queries and keys, got {type(heads).__name__}")
    arrays = {
        "embedding": (("unit_1", "feature"), network.embedding),
        "readout": (("output", f"unit_{len(network.weights) + 1}"), network.readout_weights),
    }
    for layer, weights in enumerate(network.weights, 1):
        arrays[f"values_{layer}"] = ((f"unit_{layer + 1}", f"head_unit_{layer}"), weights)
    of_heads = {"query": heads.query, "key": heads.key}
    of_heads |= {"query_bias": heads.query_bias, "key_bias": heads.key_bias}
    for name, layers in of_heads.items():
        for layer, values in enumerate(layers or (), 1):
            dimensions = (f"head_{layer}", f"head_feature_{layer}", "feature")
            arrays[f"{name}_{layer}"] = dimensions[: values.ndim], values
    labelled = {name: (dimensions, np.asarray(values)) for name, (dimensions, values) in arrays.items()}
    return xr.Dataset(labelled, attrs={"readout": network.readout})


@checked_arguments
def network_from(architecture: bpkr.Architecture, weights: xr.Dataset) -> bpkr.Network:
    """Return the network that `label_network` labelled. Layers and variances are from `architecture`."""
    if "readout" not in weights.attrs:
        raise ValueError("weights have no attribute readout, the token that is read")
    counts = tuple(heads for heads in architecture.heads if heads)
    with_heads = range(1, 1 + len(counts))
    names = ["embedding", *(f"values_{layer}" for layer in range(1, architecture.depth + 1)), "readout"]
    needed = [*names, *(f"{kind}_{layer}" for layer in with_heads for kind in ("query", "key"))]
    if missing := [name for name in needed if name not in weights]:
        raise ValueError(f"weights have no {missing[0]}, which an architecture of {architecture.depth} layers needs")
    given = ["query", "key", *(name for name in ("query_bias", "key_bias") if f"{name}_1" in weights)]
    found = {
        name: finite_array(name, weights[name].values)
        for name in [*names, *(f"{name}_{layer}" for name in given for layer in with_heads)]
    }
    kept = bpkr.heads(**{name: [found[f"{name}_{layer}"] for layer in with_heads] for name in given})
    if kept.counts != counts:
        raise ValueError(f"weights have {kept.counts} heads per layer, but the architecture has {counts}")
    readout = weights.attrs["readout"]
    return bpkr.Network.of_weights(architecture, [found[name] for name in names], kept, readout=readout)
