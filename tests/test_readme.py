"""The README's way from a transformer's file to its heads runs as it is written there."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from tests.checkpoints.files import safetensors

README = Path(__file__).parents[1] / "README.md"
(CODE,) = re.findall(r"^```python$(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
FEATURES, EXAMPLES, TOKENS = 8, 30, 6


def write_examples(folder: Path, hidden: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    labels = np.where(hidden[:, 0, 0] > 0, "plus", "minus")
    np.savez(folder / "examples.npz", hidden=hidden, lengths=rng.integers(2, TOKENS + 1, EXAMPLES), labels=labels)


def run(folder: Path, monkeypatch) -> dict:
    monkeypatch.chdir(folder)
    matplotlib.use("agg")
    found: dict = {}
    exec(compile(CODE, str(README), "exec"), found)
    assert (folder / "heads.png").stat().st_size > 5_000
    assert found["scores"].shape == (4,) and found["saddle"].converged
    return found


def test_twenty_lines_lead_from_a_checkpoint_to_its_heads(tmp_path, monkeypatch):
    assert len(CODE.strip().splitlines()) <= 21
    rng = np.random.default_rng(0)
    arrays = {}
    for layer in range(2):
        arrays[f"h.{layer}.attn.c_attn.weight"] = rng.normal(size=(FEATURES, 3 * FEATURES)).astype(np.float32)
        arrays[f"h.{layer}.attn.c_attn.bias"] = rng.normal(size=3 * FEATURES).astype(np.float32)
        arrays |= {f"h.{layer}.ln_1.weight": np.ones(FEATURES), f"h.{layer}.ln_1.bias": np.zeros(FEATURES)}
    (tmp_path / "model.safetensors").write_bytes(safetensors(arrays))
    write_examples(tmp_path, rng.normal(size=(EXAMPLES, TOKENS, FEATURES)))
    assert run(tmp_path, monkeypatch)["heads"].causal


@pytest.mark.slow
def test_twenty_lines_lead_from_pytorch_to_its_heads(tmp_path, monkeypatch):
    torch, files = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.GPT2Model(transformers.GPT2Config(n_embd=FEATURES, n_head=4, n_layer=2, vocab_size=50)).eval()
    tokens = torch.randint(0, 50, (EXAMPLES, TOKENS))
    with torch.no_grad():
        states = model(tokens, output_hidden_states=True).hidden_states
    files.save_file(model.state_dict(), tmp_path / "model.safetensors")
    write_examples(tmp_path, states[1].double().numpy())
    assert run(tmp_path, monkeypatch)["heads"].layers == 2
