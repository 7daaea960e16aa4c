"""What is handed to theory 1's public callables: of one small network what is right, and what is not."""

import tempfile
from functools import cache
from pathlib import Path

import jax
import numpy as np

from theorykit import bpkr

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)
RNG = np.random.default_rng(0)
EXAMPLES, PATHS, FEATURES, TOKENS = 5, 4, 3, 2
DATA = RNG.normal(size=(EXAMPLES, PATHS, FEATURES))
LABELS = RNG.normal(size=EXAMPLES)
INPUTS = RNG.normal(size=(EXAMPLES, TOKENS, FEATURES))
GRAM = LABELS[:, None] * LABELS
LENGTHS = np.full(EXAMPLES, TOKENS)
KEY_QUERY = [RNG.normal(size=(2, FEATURES, FEATURES)) for _ in range(2)]


@cache
def architecture():
    return bpkr.Architecture((2, 2), 8.0, 1.1, temperature=0.1)


def new_place():
    (FOLDER / "action.json").unlink(missing_ok=True)
    return FOLDER / "action.json"


def files_of_data():
    path = FOLDER / "data.npz"
    np.savez(path, features=DATA, labels=LABELS)
    return [path]


def kept_action():
    bpkr.save_action(bpkr.derive(architecture()), FOLDER / "kept.json", overwrite=True)
    return FOLDER / "kept.json"


@cache
def other_architecture():
    return bpkr.Architecture((3, 2), 8.0, temperature=0.1)


@cache
def deeper_architecture():
    return bpkr.Architecture((2, 2, 1), 8.0, temperature=0.1)


@cache
def limit():
    return bpkr.gp_limit(architecture())


@cache
def statistics():
    return bpkr.Data.of_arrays(DATA, LABELS).moments


@cache
def attention():
    return bpkr.attention(INPUTS, key_query=KEY_QUERY)


@cache
def heads():
    return bpkr.heads(key_query=KEY_QUERY)


@cache
def network():
    return bpkr.sample_network(architecture(), heads(), input_features=FEATURES, key=jax.random.key(0))


def of_another_architecture():
    """What belongs to a network of other heads, or of another depth."""
    return {
        "of other heads": bpkr.gp_limit(other_architecture()),
        "of another depth": bpkr.gp_limit(deeper_architecture()),
        "of several outputs": bpkr.gp_limit(bpkr.Architecture((2, 2), 8.0, temperature=0.1, outputs=2)),
        "a prediction": bpkr.Prediction(LABELS, LABELS),
        "statistics": statistics(),
        "a tuple": (limit().matrices, limit().readout),
        "one matrix": limit().matrices[0],
    }


def with_field(**changed):
    return bpkr.FeatureStatistics(**{**vars(statistics()), **changed})


def other_statistics():
    return {
        "of other paths": bpkr.Data.of_arrays(DATA[:, :3], LABELS).moments,
        "of several outputs": bpkr.Data.of_arrays(DATA, np.stack([LABELS, LABELS], axis=1)).moments,
        "order parameters": limit(),
        "features": DATA,
        **{f"with {field} not finite": with_field(**{field: np.nan}) for field in ("label_square", "examples")},
        "with a NaN in gram": with_field(gram=np.full((12, 12), np.nan)),
        "not symmetric": with_field(gram=np.arange(144.0).reshape(12, 12)),
        "of labels of a negative square": with_field(label_square=-1.0),
        "of no examples": with_field(examples=0.0),
    }


def other_architectures():
    return {"order parameters": limit(), "the layers alone": (2, 2), "a network": network()}


def other_attention():
    first, second = map(np.asarray, attention())
    return {
        "of one layer": [first],
        "of fewer examples": [first[1:], second[1:]],
        "of fewer heads": [first[:, :1], second],
        "of fewer tokens": [first[..., 1:, 1:], second[..., 1:, 1:]],
        "of dates": [np.full(first.shape, np.datetime64("2024-05-24")), second],
        "masked": [np.ma.masked_array(first), second],
        "complex": [first, second + 0j],
        "with a NaN": [first, second * np.nan],
        "one array": first,
    }


def other_heads():
    products = KEY_QUERY[0]
    return {
        "of one layer": bpkr.heads(key_query=KEY_QUERY[:1]),
        "of other numbers": bpkr.heads(key_query=[products[:1], products]),
        "of other features": bpkr.heads(key_query=[np.ones((2, 2, 2))] * 2),
        "a network": network(),
        "arrays": KEY_QUERY,
    }


def other_weights():
    white = [np.asarray(w) for w in (network().embedding, *network().weights, network().readout_weights)]
    return {
        "of one layer less": white[1:],
        "transposed": [w.T for w in white],
        "complex": [w + 0j for w in white],
        "with a NaN": [*white[:-1], white[-1] * np.nan],
        "of text": [w.astype(str) for w in white],
        "masked": [np.ma.masked_array(w) for w in white],
        "of objects": [w.astype(object) for w in white],
    }


def layer_arrays(right):
    """What stands for one array a layer."""
    first, *others = map(np.asarray, right)
    return {
        "complex": [first + 0j, *others],
        "with a NaN": [first * np.nan, *others],
        "of text": [first.astype(str), *others],
        "masked": [np.ma.masked_array(first), *others],
        "of objects": [first.astype(object), *others],
        "of dates": [np.full(first.shape, np.datetime64("2024-05-24")), *others],
        "with one axis more": [first[None], *others],
        "of other features": [first[..., :1], *others],
        "an array": first,
    }


def per_layer(length):
    """What stands for one positive number a layer."""
    return {
        "one too few": [1.0] * (length - 1),
        "one too many": [1.0] * (length + 1),
        "with a zero": [0.0, *[1.0] * (length - 1)],
        "with text": ["1", *[1.0] * (length - 1)],
        "with None": [None, *[1.0] * (length - 1)],
        "complex": np.ones(length) + 0j,
        "masked": np.ma.masked_array(np.ones(length)),
        "with two axes": np.ones((length, 1)),
        "with a number too large": [10**400, *[1.0] * (length - 1)],
    }


def other_masks():
    return {
        "of other examples": LENGTHS[1:],
        "of other tokens": np.ones((1, 1, TOKENS, TOKENS + 1), dtype=bool),
        "of other heads": np.ones((1, len(KEY_QUERY[0]) + 1, 1, 1), dtype=bool),
        "that allows nothing": np.zeros((1, 1, 1, 1), dtype=bool),
        "another word": "casual",
        "a pair with text": ("causal", "text"),
    }
