"""The README's first example, and the lines that record a transformer's attention, run as they are written there."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest

import theorykit
from theorykit import bpkr

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
EXAMPLES, TOKENS, FEATURES, HEADS = 30, 6, 8, 4


def code_in(page: Path) -> list[str]:
    """Return the Python programs on a page."""
    return re.findall(r"^```python$(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


FROM_SEQUENCES = code_in(README)[0]


def run(code: str, folder: Path, monkeypatch, **given) -> dict:
    monkeypatch.chdir(folder)
    matplotlib.use("agg")
    exec(compile(code, str(README), "exec"), given)
    return given


@pytest.mark.slow
def test_the_example_draws_accuracy_over_width(tmp_path, monkeypatch):
    found = run(FROM_SEQUENCES, tmp_path, monkeypatch)["found"]
    assert (tmp_path / "accuracy.png").stat().st_size > 5_000
    narrow, wide = (float(found["test_accuracy"].sel(width=width).mean()) for width in (5, float("inf")))
    assert narrow > wide + 0.02


@pytest.mark.slow
@pytest.mark.parametrize("program", ["README", "transformers", "torch"])
def test_maps_of_a_random_transformer_are_recorded_and_fitted(program, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    given = {"torch": torch, "bpkr": bpkr, "theorykit": theorykit, "labels": np.array(["plus", "minus"] * 15)}
    if program == "torch":
        given["hidden"] = torch.randn(EXAMPLES, TOKENS, FEATURES)
        given["attention"] = torch.nn.MultiheadAttention(FEATURES, HEADS, batch_first=True).eval()
    else:
        transformers = pytest.importorskip("transformers")
        sizes = {"hidden_size": FEATURES, "num_attention_heads": HEADS, "num_hidden_layers": 2, "intermediate_size": 16}
        config = transformers.BertConfig(vocab_size=50, attn_implementation="eager", **sizes)
        given["model"] = transformers.BertModel(config).eval()
        given["tokens"] = torch.randint(0, 50, (EXAMPLES, TOKENS))
    page = ROOT / "docs" / "trained-transformers.md"
    code = code_in(README)[1] if program == "README" else code_in(page)[program == "torch"]
    found = run(code, tmp_path, monkeypatch, **given)
    fitted, (maps,) = found["fitted"], found["maps"]
    assert fitted.saddle_.converged and fitted.architecture_.heads == (HEADS,)
    if program == "torch":
        assert 0 <= found["accuracy"] <= 1
    else:
        assert (tmp_path / "heads.png").stat().st_size > 5_000
    inputs, labels = found["inputs"], given["labels"]
    other = bpkr.Model(widths=64, temperature=0.1).fit(inputs, labels, [np.swapaxes(maps, 2, 3)])
    if program != "torch":
        assert other.log_evidence_ == pytest.approx(fitted.log_evidence_, rel=1e-6)
