"""The README's way from a transformer's file to its heads runs as it is written there."""

from pathlib import Path

import matplotlib
import pytest

from .readme import CODE, EXAMPLES, FEATURES, README, TOKENS, write_examples, write_files


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
    write_files(tmp_path)
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
