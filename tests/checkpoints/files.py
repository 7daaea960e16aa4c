"""Checkpoints written by hand: safetensors as the format is described, and one small checkpoint in every layout."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

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


class Parts(NamedTuple):
    """Queries, keys, values (rows, features) and biases (rows,) of one layer, and the weight and bias of its norm."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    bq: np.ndarray
    bk: np.ndarray
    bv: np.ndarray
    norm: np.ndarray


def _made(arrays_of, layers=LAYERS, query_bias=1, key_bias=1, normed=False, **more):
    """A case of the arrays that `arrays_of(layer, parts)` makes of each layer; biases are there, or zero."""

    def make(layer, rng):
        matrices = rng.standard_normal((layers, 3, FEATURES, FEATURES))
        vectors = rng.standard_normal((layers, 5, FEATURES)) * [[query_bias], [key_bias], [1], [1], [1]]
        # weights of norms are not near zero, where half precision loses what a norm has made
        vectors[:, 3] = 1 + vectors[:, 3] / 5
        parts = [Parts(*m, *v[:3], v[3:]) for m, v in zip(matrices, vectors, strict=True)]
        arrays = {name: array for i, each in enumerate(parts) for name, array in arrays_of(i, each).items()}
        one = parts[layer if layers > 1 else 0]
        by_head = [one.q.reshape(HEADS, -1, FEATURES), one.k.reshape(HEADS, -1, FEATURES)]
        biases = [one.bq.reshape(HEADS, -1), one.bk.reshape(HEADS, -1)]
        return Case(arrays, *by_head, *biases, norm=tuple(one.norm) if normed else None, layers=layers, **more)

    return make


def _stacked(parts):
    return np.concatenate(parts[:3]), np.concatenate(parts[3:6])


def _norm(stem, parts):
    return {f"{stem}.weight": parts.norm[0], f"{stem}.bias": parts.norm[1]}


def _linear(stem, names, norm=None):
    def arrays(i, p):
        found = {}
        for name, weight, bias in zip(names, p[:3], p[3:6], strict=True):
            found |= {f"{stem.format(i)}{name}.weight": weight, f"{stem.format(i)}{name}.bias": bias}
        return found | (_norm(f"{stem.format(i)}{norm}", p) if norm else {})

    return arrays


def _torch(i, p):
    weight, bias = _stacked(p)
    return {"in_proj_weight": weight, "in_proj_bias": bias, "out_proj.weight": p.v}


def _torch_encoder(norm_first):
    def arrays(i, p):
        stem, (weight, bias) = f"encoder.layers.{i}.", _stacked(p)
        names = {f"{stem}self_attn.in_proj_weight": weight, f"{stem}self_attn.in_proj_bias": bias}
        return names | _norm(f"{stem}norm1", p)

    return _made(arrays, normed=norm_first, epsilon=1e-5, options={"norm_first": norm_first})


def _gpt2(prefix):
    def arrays(i, p):
        stem, (weight, bias) = f"{prefix}h.{i}.", _stacked(p)
        names = {f"{stem}attn.c_attn.weight": weight.T, f"{stem}attn.c_attn.bias": bias, f"{prefix}wte.weight": p.v}
        return names | _norm(f"{stem}ln_1", p)

    return _made(arrays, normed=True, epsilon=1e-5, causal=True)


def _flax(mark):
    def arrays(i, p):
        found = {}
        for name, weight, bias in (("query", p.q, p.bq), ("key", p.k, p.bk)):
            found[f"{name}{mark}kernel"] = weight.T.reshape(FEATURES, HEADS, -1)
            found[f"{name}{mark}bias"] = bias.reshape(HEADS, -1)
        return found

    return _made(arrays, 1)


def _vit(stem, names):
    return _made(_linear(stem, names, "layernorm_before"), normed=True, epsilon=1e-12)


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


def _of_paths(layer, rng):
    arrays = attention_paths(rng)
    query, key = (
        arrays[f"transformer.layers.{layer}.to_{name}.weight"].reshape(HEADS, -1, FEATURES) for name in ("q", "k")
    )
    return Case(arrays, query, key, 0 * query[:, :, 0], 0 * key[:, :, 0])


BERT, VIT = ([f"attention.{part}.{name}" for name in ("query", "key", "value")] for part in ("self", "attention"))
CASES = {
    "torch": _made(_torch, 1),
    "torch, separate": _made(
        lambda i, p: {"attn.q_proj_weight": p.q, "attn.k_proj_weight": p.k, "attn.v_proj_weight": p.v[:, :4]}, 1, 0, 0
    ),
    "torch_encoder": _torch_encoder(True),
    "torch_encoder, norm last": _torch_encoder(False),
    "gpt2": _gpt2("transformer."),
    "gpt2, bare": _gpt2(""),
    "bert": _made(_linear("encoder.layer.{}.", BERT), epsilon=1e-12),
    "bert, prefixed": _made(_linear("bert.encoder.layer.{}.", BERT), epsilon=1e-12),
    "vit": _vit("vit.encoder.layer.{}.", VIT),
    "vit, bare": _vit("encoder.layer.{}.", VIT),
    "vit, state": _vit("layers.{}.", [f"attention.{name}_proj" for name in "qkv"]),
    "equinox": _made(
        lambda i, p: {"query_proj.weight": p.q, "key_proj.weight": p.k, "query_proj.bias": p.bq}, 1, key_bias=0
    ),
    "flax": _flax("."),
    "flax, slashes": _flax("/"),
    "attention_paths": _of_paths,
}
