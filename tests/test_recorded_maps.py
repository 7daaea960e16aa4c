"""The lines on the page that record a transformer's attention run as they are written there."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest

import theorykit
from theorykit import bpkr

PAGE = Path(__file__).parents[1] / "docs" / "trained-transformers.md"
EXAMPLES, TOKENS, FEATURES, HEADS = 30, 6, 8, 4


@pytest.mark.slow
@pytest.mark.parametrize("program", ["transformers", "torch"])
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
    programs = re.findall(r"^```python$(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    exec(compile(programs[program == "torch"], str(PAGE), "exec"), found := given)
    fitted = found["fitted"]
    assert fitted.saddle_.converged and fitted.problem_.architecture.heads == (HEADS,)
    if program == "torch":
        assert 0 <= found["accuracy"] <= 1
    else:
        assert (tmp_path / "heads.png").stat().st_size > 5_000
