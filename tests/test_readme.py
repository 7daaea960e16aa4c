"""The README's ways from sequences, and from a transformer's file, to figures run as they are written there."""

from pathlib import Path

import matplotlib
import pytest

from .readme import EXAMPLES, FEATURES, FROM_CHECKPOINT, FROM_SEQUENCES, README, TOKENS, write_examples, write_files


def run(code: str, folder: Path, monkeypatch) -> dict:
    assert len(code.strip().splitlines()) <= 16, "fifteen lines, and an empty one"
    monkeypatch.chdir(folder)
    matplotlib.use("agg")
    found: dict = {}
    exec(compile(code, str(README), "exec"), found)
    assert (folder / "accuracy.png").stat().st_size > 5_000
    return found


@pytest.mark.slow
def test_fifteen_lines_lead_from_sequences_to_accuracy_over_width(tmp_path, monkeypatch):
    found = run(FROM_SEQUENCES, tmp_path, monkeypatch)["found"]
    narrow, wide = (float(found["test_accuracy"].sel(width=width).mean()) for width in (5, float("inf")))
    assert narrow > wide + 0.02


def test_fifteen_lines_lead_from_a_checkpoint_to_its_heads(tmp_path, monkeypatch):
    write_files(tmp_path)
    found = run(FROM_CHECKPOINT, tmp_path, monkeypatch)
    assert found["heads"].causal and found["model"].saddle_.converged
    assert (tmp_path / "heads.png").stat().st_size > 5_000


@pytest.mark.slow
def test_fifteen_lines_lead_from_pytorch_to_its_heads(tmp_path, monkeypatch):
    torch, files = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.GPT2Model(transformers.GPT2Config(n_embd=FEATURES, n_head=4, n_layer=2, vocab_size=50)).eval()
    tokens = torch.randint(0, 50, (EXAMPLES, TOKENS))
    with torch.no_grad():
        states = model(tokens, output_hidden_states=True).hidden_states
    files.save_file(model.state_dict(), tmp_path / "model.safetensors")
    write_examples(tmp_path, states[1].double().numpy())
    assert run(FROM_CHECKPOINT, tmp_path, monkeypatch)["heads"].layers == 2
