"""The README's ways to a figure: the lines, and files for them to read."""

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

README = Path(__file__).parents[1] / "README.md"
FROM_SEQUENCES, FROM_CHECKPOINT = re.findall(r"^```python$(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
FEATURES, EXAMPLES, TOKENS = 8, 30, 6


def safetensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a safetensors file of arrays of floats."""
    header, content = {}, b""
    for name, array in arrays.items():
        piece = np.ascontiguousarray(array).tobytes()
        offsets = [len(content), len(content) + len(piece)]
        kind = f"F{8 * array.dtype.itemsize}"
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        content += piece
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def write_files(folder: Path) -> None:
    """A checkpoint of random weights, and examples."""
    rng = np.random.default_rng(0)
    arrays = {}
    for layer in range(2):
        arrays[f"h.{layer}.attn.c_attn.weight"] = rng.normal(size=(FEATURES, 3 * FEATURES)).astype(np.float32)
        arrays[f"h.{layer}.attn.c_attn.bias"] = rng.normal(size=3 * FEATURES).astype(np.float32)
        arrays |= {f"h.{layer}.ln_1.weight": np.ones(FEATURES), f"h.{layer}.ln_1.bias": np.zeros(FEATURES)}
    (folder / "model.safetensors").write_bytes(safetensors(arrays))
    write_examples(folder, rng.normal(size=(EXAMPLES, TOKENS, FEATURES)))


def write_examples(folder: Path, hidden: np.ndarray) -> None:
    """Hidden states (examples, tokens, features) with lengths and labels."""
    rng = np.random.default_rng(1)
    labels = np.where(hidden[:, 0, 0] > 0, "plus", "minus")
    np.savez(folder / "examples.npz", hidden=hidden, lengths=rng.integers(2, TOKENS + 1, EXAMPLES), labels=labels)
