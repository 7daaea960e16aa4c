"""The parameters of checkpoints."""

import numpy as np

from tests.checkpoints.files import HEADS, attention_paths, case, write
from theorykit import checkpoints

from .engine import Face
from .values import FOLDER, NONE, Kind, of, whole_number

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
        "path": FOLDER / "model.safetensors",
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
        "name": of(NORM),
        "layer": whole_number(0, least=0, most=1),
        "read_heads.layout": "torch_encoder",
        "prefix": "encoder.",
        "heads": HEADS,
        "norm_first": True,
        "inputs": of(INPUTS, of_other_features=INPUTS[..., :5]),
        "mask": of(
            Kind(lambda: PRESENT),
            admits=NONE,
            of_other_tokens=PRESENT[:, :3],
            of_other_examples=PRESENT[:1],
            of_halves=PRESENT / 2,
            without_a_token=0 * PRESENT,
        ),
    },
    instances={
        "Checkpoint": checkpoints.read_checkpoint(SAVED),
        "CheckpointHeads": READ,
        "LayerNorm": READ.norm,
    },
    made="Checkpoint CheckpointHeads LayerNorm",
    given={"read_heads": ("heads", "norm_first"), "read_network_weights": ("heads",)},
)
