"""The parameters of checkpoints."""

import tempfile
from pathlib import Path

import numpy as np

from tests.checkpoints.files import HEADS, attention_paths, case, write
from theorykit import checkpoints

from .engine import Face
from .values import Kind, of, whole_number

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)
(FOLDER / "empty").mkdir()
INPUTS = np.random.default_rng(0).standard_normal((2, 4, 6))
PRESENT = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
ARRAYS = case("torch_encoder").arrays
SAVED = write(FOLDER / "model.safetensors", ARRAYS)
READ = checkpoints.read_heads(ARRAYS, layer=0, heads=HEADS, norm_first=True)
WEIGHT, NORM = "encoder.layers.0.self_attn.in_proj_weight", "encoder.layers.0.norm1.weight"

FACE = Face(
    checkpoints,
    {
        "path": Path(SAVED),
        "checkpoint": of(
            ARRAYS,
            admits=("text",),
            of_names_that_are_numbers={**ARRAYS, 1: np.ones(2)},
            without_a_norm={name: value for name, value in ARRAYS.items() if name != NORM},
            of_integers={**ARRAYS, WEIGHT: np.ones((18, 6), int)},
            of_text={**ARRAYS, WEIGHT: "text"},
            with_nan={**ARRAYS, WEIGHT: np.full((18, 6), np.nan)},
            folder_without_a_checkpoint=FOLDER / "empty",
        ),
        "read_network_weights.checkpoint": of(attention_paths(np.random.default_rng(0)), admits=("text",)),
        "name": of(NORM, another="norm1"),
        "layer": whole_number(0, least=0, most=1),
        "layout": "torch_encoder",
        "prefix": "encoder.",
        "heads": HEADS,
        "epsilon": 1e-5,
        "causal norm_first": True,
        "normalised": of(False, admits=("None",)),
        "inputs": of(INPUTS, of_other_features=INPUTS[..., :5]),
        "mask": of(
            Kind(lambda: PRESENT),
            admits=("None",),
            of_other_tokens=PRESENT[:, :3],
            of_other_examples=PRESENT[:1],
            of_halves=PRESENT / 2,
            without_a_token=0 * PRESENT,
        ),
        "isolated": "self",
        "CheckpointHeads.attention.layout": of("keys-first", admits=("None",)),
    },
    instances={
        "Checkpoint": checkpoints.read_checkpoint(SAVED),
        "CheckpointHeads": READ,
        "LayerNorm": READ.norm,
    },
    records={"Checkpoint": "read_checkpoint makes it", "CheckpointHeads LayerNorm": "read_heads makes it"},
    given={"read_heads": ("heads", "norm_first"), "read_network_weights": ("heads",)},
)
