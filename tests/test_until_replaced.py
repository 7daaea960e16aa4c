"""One plain use of each feature that is to be replaced or dropped: each test goes with its feature."""

import sys
import tomllib

import numpy as np
import pytest

from tests.cli.terminal import run
from tests.readme import FEATURES, safetensors
from theorykit import checkpoints
from theorykit._compat import MissingLibrary, needed

HEADS = 2


def test_heads_of_a_checkpoint_attend_as_its_arrays_say(tmp_path):
    """Against softmax attention with queries, keys and biases of GPT-2's layout, written out."""
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(FEATURES, 3 * FEATURES)), rng.normal(size=3 * FEATURES)
    norm = rng.normal(size=(2, FEATURES))
    arrays = {"h.0.attn.c_attn.weight": weight, "h.0.attn.c_attn.bias": bias}
    arrays |= {"h.0.ln_1.weight": norm[0], "h.0.ln_1.bias": norm[1]}
    (tmp_path / "model.safetensors").write_bytes(safetensors(arrays))
    inputs = rng.normal(size=(3, 4, FEATURES))
    heads = checkpoints.read_heads(tmp_path / "model.safetensors", layer=0, heads=HEADS, layout="gpt2")

    centred = inputs - inputs.mean(-1, keepdims=True)
    hidden = centred / np.sqrt(centred.var(-1, keepdims=True) + 1e-5) * norm[0] + norm[1]
    query, key, _ = np.split(hidden @ weight + bias, 3, axis=-1)
    query, key = (each.reshape(3, 4, HEADS, -1) for each in (query, key))
    scores = np.einsum("ethg,eshg->ehts", query, key) / np.sqrt(FEATURES / HEADS)
    scores[..., ~np.tri(4, dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(heads.attention(inputs), np.swapaxes(expected, -1, -2), atol=1e-13)


def test_init_writes_a_configuration_with_the_roles_of_arrays(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(6, 4, 5))
    np.savez(tmp_path / "mine.npz", inputs=inputs, W1=rng.normal(size=(2, 5, 5)), labels=["cat", "dog"] * 3)
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, "init", "mine.npz")
    written = tomllib.loads((tmp_path / "mine.toml").read_text())
    assert written["architecture"]["layers"] == [2]
    assert [written["data"][role] for role in ("inputs", "key_query", "labels")] == ["inputs", ["W1"], "labels"]


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(MissingLibrary, match=r"sampling needs numpyro: .*\[sampling\]"):
        needed("numpyro", "sampling")
