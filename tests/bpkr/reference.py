"""Numbers of the paper's published program: cases by name, their arrays and architectures. See manifest.json there."""

import functools
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import bind

DATA = Path(__file__).parents[1] / "data" / "bpkr"
CASES = {entry["name"]: entry for entry in json.loads((DATA / "manifest.json").read_text())}
READOUTS = {"average_pooling": "mean", "first_token": "first", "last_token": "last"}


@functools.cache
def arrays(name):
    with np.load(DATA / f"{name}.npz") as archive:
        return dict(archive)


def architecture_of(name):
    heads, widths, variances, temperature = map(CASES[name].get, ("heads", "widths", "prior_variances", "temperature"))
    return bpkr.Architecture(heads, widths, variances, temperature=temperature)


def path_features(name, inputs):
    """Path features from tokens, in our layout; the file has (examples, features, tokens)."""
    inputs = arrays(name)[inputs].transpose(0, 2, 1)
    key_query = [arrays(name)[f"qk_{layer}"] for layer in range(1, CASES[name]["depth"] + 1)]
    attention = bpkr.attention(inputs, key_query=key_query)
    return bpkr.path_features(inputs, attention, architecture_of(name), READOUTS[CASES[name]["readout"]])


def order_parameters_of(name):
    matrices = [arrays(name)[f"U_{layer}"] for layer in range(1, CASES[name]["depth"] + 1)]
    return bpkr.OrderParameters(matrices, optimal_readout(architecture_of(name), matrices[-1]))


def optimal_readout(architecture, last):
    """The readout at which the action is stationary, given U_L."""
    bound = bind(architecture)
    u = bound.action.closed_forms[bound.symbols.readout]
    return bound({bound.symbols.matrices[-1]: jnp.asarray(last)}, u=u)["u"]


def stored_features(name):
    return arrays(name)["attentioned_input"].transpose(0, 2, 1)
