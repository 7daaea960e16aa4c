"""Checkpoints written by hand: safetensors as the format is described, and one small checkpoint in every layout."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL"},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
FEATURES, HEADS, LAYERS = 6, 3, 2


def safetensors(arrays: Mapping[str, np.ndarray], kinds: Mapping[str, str] | None = None, **more: Any) -> bytes:
    """The bytes of a safetensors file; `kinds` instead of the arrays' own types, `more` in the header."""
    header, content = dict(more), b""
    for name, array in arrays.items():
        piece = np.ascontiguousarray(array).tobytes()
        kind = (kinds or {}).get(name) or NAMES[array.dtype.name]
        offsets = [len(content), len(content) + len(piece)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        content += piece
    return with_header(json.dumps(header).encode(), content)


def with_header(header: bytes, content: bytes = b"", length: int | None = None) -> bytes:
    """A file of this header, whose length it says to be `length`."""
    return struct.pack("<Q", len(header) if length is None else length) + header + content


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """A file of the arrays, in the format that its ending says."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        path.write_bytes(safetensors(arrays))
    return path


@dataclass(frozen=True)
class Case:
    """The arrays of one layout, and the queries and keys that they were made of, (heads, G, features) of each layer."""

    arrays: Mapping[str, np.ndarray]
    query: np.ndarray
    key: np.ndarray
    query_bias: np.ndarray
    key_bias: np.ndarray
    norm: tuple[np.ndarray, np.ndarray] | None = None
    epsilon: float = 0.0
    causal: bool = False
    options: Mapping[str, Any] | None = None
    layers: int = LAYERS


def case(layout: str, layer: int = 1, seed: int = 0) -> Case:
    """A checkpoint in a layout, and what its layer is."""
    return CASES[layout](layer, np.random.default_rng(seed))


def _parts(rng, count=LAYERS):
    """Random queries, keys, values (rows, features) and biases (rows,) of every layer, and norms."""
    shape = (count, FEATURES, FEATURES)
    q, k, v = (rng.standard_normal(shape) for _ in range(3))
    bq, bk, bv = (rng.standard_normal(shape[:2]) for _ in range(3))
    norm = rng.standard_normal((2, count, FEATURES))
    return q, k, v, bq, bk, bv, norm


def _made(arrays, layer, q, k, bq, bk, **more):
    by_head = (HEADS, -1, FEATURES)
    return Case(
        arrays,
        q[layer].reshape(by_head),
        k[layer].reshape(by_head),
        bq[layer].reshape(HEADS, -1),
        bk[layer].reshape(HEADS, -1),
        **more,
    )


def _torch(layer, rng):
    q, k, v, bq, bk, bv, _ = _parts(rng, 1)
    arrays = {"in_proj_weight": np.concatenate([q[0], k[0], v[0]]), "in_proj_bias": np.concatenate([bq, bk, bv], 1)[0]}
    return _made({**arrays, "out_proj.weight": v[0]}, 0, q, k, bq, bk, layers=1)


def _torch_separate(layer, rng):
    q, k, v, bq, bk, _, _ = _parts(rng, 1)
    arrays = {"attn.q_proj_weight": q[0], "attn.k_proj_weight": k[0], "attn.v_proj_weight": v[0, :, :4]}
    return _made(arrays, 0, q, k, 0 * bq, 0 * bk, layers=1)


def _torch_encoder(layer, rng, norm_first=True):
    q, k, v, bq, bk, bv, norm = _parts(rng)
    arrays = {}
    for i in range(LAYERS):
        stem = f"encoder.layers.{i}."
        arrays[f"{stem}self_attn.in_proj_weight"] = np.concatenate([q[i], k[i], v[i]])
        arrays[f"{stem}self_attn.in_proj_bias"] = np.concatenate([bq[i], bk[i], bv[i]])
        arrays[f"{stem}norm1.weight"], arrays[f"{stem}norm1.bias"] = norm[:, i]
    options = {"norm_first": norm_first}
    found = (norm[0, layer], norm[1, layer]) if norm_first else None
    return _made(arrays, layer, q, k, bq, bk, norm=found, epsilon=1e-5, options=options)


def _gpt2(layer, rng, prefix="transformer."):
    q, k, v, bq, bk, bv, norm = _parts(rng)
    arrays = {f"{prefix}wte.weight": rng.standard_normal((5, FEATURES))}
    for i in range(LAYERS):
        stem = f"{prefix}h.{i}."
        arrays[f"{stem}attn.c_attn.weight"] = np.concatenate([q[i].T, k[i].T, v[i].T], axis=1)
        arrays[f"{stem}attn.c_attn.bias"] = np.concatenate([bq[i], bk[i], bv[i]])
        arrays[f"{stem}ln_1.weight"], arrays[f"{stem}ln_1.bias"] = norm[:, i]
    found = (norm[0, layer], norm[1, layer])
    return _made(arrays, layer, q, k, bq, bk, norm=found, epsilon=1e-5, causal=True)


def _linear(layer, rng, stem, names, norm_name=None, **more):
    q, k, v, bq, bk, bv, norm = _parts(rng)
    arrays = {}
    for i in range(LAYERS):
        for name, weight, bias in zip(names, (q, k, v), (bq, bk, bv), strict=True):
            arrays[f"{stem.format(i)}{name}.weight"], arrays[f"{stem.format(i)}{name}.bias"] = weight[i], bias[i]
        if norm_name:
            arrays[f"{stem.format(i)}{norm_name}.weight"] = norm[0, i]
            arrays[f"{stem.format(i)}{norm_name}.bias"] = norm[1, i]
    found = (norm[0, layer], norm[1, layer]) if norm_name else None
    return _made(arrays, layer, q, k, bq, bk, norm=found, epsilon=1e-12, **more)


def _bert(layer, rng, prefix=""):
    names = [f"attention.self.{name}" for name in ("query", "key", "value")]
    return _linear(layer, rng, prefix + "encoder.layer.{}.", names)


def _vit(layer, rng, prefix="vit."):
    names = [f"attention.attention.{name}" for name in ("query", "key", "value")]
    return _linear(layer, rng, prefix + "encoder.layer.{}.", names, "layernorm_before")


def _vit_state(layer, rng):
    names = [f"attention.{name}_proj" for name in "qkv"]
    return _linear(layer, rng, "layers.{}.", names, "layernorm_before")


def _equinox(layer, rng):
    q, k, v, bq, bk, _, _ = _parts(rng, 1)
    arrays = {"query_proj.weight": q[0], "key_proj.weight": k[0], "value_proj.weight": v[0], "query_proj.bias": bq[0]}
    return _made(arrays, 0, q, k, bq, 0 * bk, layers=1)


def _flax(layer, rng, mark="."):
    q, k, _, bq, bk, _, _ = _parts(rng, 1)
    arrays = {}
    for name, weight, bias in (("query", q, bq), ("key", k, bk)):
        arrays[f"{name}{mark}kernel"] = weight[0].T.reshape(FEATURES, HEADS, -1)
        arrays[f"{name}{mark}bias"] = bias[0].reshape(HEADS, -1)
    return _made(arrays, 0, q, k, bq, bk, layers=1)


def attention_paths(rng, widths=(5, 4, 7), outputs=2, size=2, learned=True):
    """The arrays of the published network, of layers of HEADS heads of `size` rows, in its own names."""
    arrays = {}
    if learned:
        arrays["learned_input_layer.weight"] = rng.standard_normal((widths[0], FEATURES))
    for i, (before, after) in enumerate(pairwise(widths)):
        stem = f"transformer.layers.{i}."
        arrays[f"{stem}to_q.weight"] = rng.standard_normal((HEADS * size, FEATURES))
        arrays[f"{stem}to_k.weight"] = rng.standard_normal((HEADS * size, FEATURES))
        arrays[f"{stem}to_v.weight"] = rng.standard_normal((HEADS * after, before))
    arrays["readout_layer.weight"] = rng.standard_normal((outputs, widths[-1]))
    return arrays


def _attention_paths(layer, rng):
    arrays = attention_paths(rng)
    q, k = (
        np.stack([arrays[f"transformer.layers.{i}.to_{name}.weight"] for i in range(LAYERS)]) for name in ("q", "k")
    )
    return _made(arrays, layer, q, k, np.zeros(q.shape[:2]), np.zeros(k.shape[:2]))


CASES = {
    "torch": _torch,
    "torch, separate": _torch_separate,
    "torch_encoder": _torch_encoder,
    "torch_encoder, norm last": lambda layer, rng: _torch_encoder(layer, rng, False),
    "gpt2": _gpt2,
    "gpt2, bare": lambda layer, rng: _gpt2(layer, rng, ""),
    "bert": _bert,
    "bert, prefixed": lambda layer, rng: _bert(layer, rng, "bert."),
    "vit": _vit,
    "vit, bare": lambda layer, rng: _vit(layer, rng, ""),
    "vit, state": _vit_state,
    "equinox": _equinox,
    "flax": _flax,
    "flax, slashes": lambda layer, rng: _flax(layer, rng, "/"),
    "attention_paths": _attention_paths,
}
