"""What the parameters of the checkpoints' public callables are."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from tests.checkpoints.files import HEADS, attention_paths, case, write
from theorykit import checkpoints

from .engine import Face
from .values import Kind, array, flag, number, path, text, whole_number

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)
EMPTY = FOLDER / "empty"
EMPTY.mkdir()
INPUTS = np.random.default_rng(0).standard_normal((2, 4, 6))
PRESENT = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]])


@cache
def arrays():
    return case("torch_encoder").arrays


@cache
def saved():
    return write(FOLDER / "model.safetensors", arrays())


def heads():
    return checkpoints.read_heads(arrays(), layer=0, heads=HEADS, norm_first=True)


def published():
    return attention_paths(np.random.default_rng(0))


def without(name):
    return {other: value for other, value in arrays().items() if other != name}


def misfits():
    """Checkpoints in which something is missing or another."""
    weight = "encoder.layers.0.self_attn.in_proj_weight"
    return {
        "of names that are numbers": {**arrays(), 1: np.ones(2)},
        "without a norm": without("encoder.layers.0.norm1.weight"),
        "of integers": {**arrays(), weight: np.ones((18, 6), int)},
        "of text": {**arrays(), weight: "text"},
        "with a NaN": {**arrays(), weight: np.full((18, 6), np.nan)},
        "a folder without a checkpoint": EMPTY,
    }


NAMES_FILE = {"text": "a name of a file"}

FACE = Face(
    checkpoints,
    {
        "path": path(saved),
        "checkpoint": Kind(arrays, NAMES_FILE, misfits),
        "read_network_weights.checkpoint": Kind(published, NAMES_FILE),
        "name": Kind(lambda: "encoder.layers.0.norm1.weight", also=lambda: {"another": "norm1"}),
        "layer": whole_number(0, least=0, most=1),
        "layout": text("torch_encoder"),
        "prefix": text("encoder."),
        "heads": whole_number(HEADS, least=1),
        "epsilon": number(1e-5, above=0.0),
        "causal": flag(True),
        "norm_first": flag(True),
        "normalised": Kind(
            lambda: False, {"None": "inputs from before the norm", "True": "inputs from after the norm"}
        ),
        "inputs": array(lambda: INPUTS, also=lambda: {"of other features": INPUTS[..., :5]}),
        "mask": Kind(
            lambda: PRESENT,
            {"None": "no mask"},
            lambda: {
                "of other tokens": PRESENT[:, :3],
                "of other examples": PRESENT[:1],
                "of halves": PRESENT / 2,
                "without a token": 0 * PRESENT,
            },
        ),
        "isolated": text("self"),
        "CheckpointHeads.attention.layout": Kind(lambda: "keys-first", {"None": "keys come first"}),
    },
    instances={
        "Checkpoint": lambda: checkpoints.read_checkpoint(saved()),
        "CheckpointHeads": heads,
        "LayerNorm": lambda: heads().norm,
    },
    records={
        "Checkpoint": "read_checkpoint makes it",
        "CheckpointHeads": "read_heads makes it",
        "LayerNorm": "read_heads makes it",
    },
    given={"read_heads": ("heads", "norm_first"), "read_network_weights": ("heads",)},
)
