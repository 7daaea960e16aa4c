"""The examples run, and draw the figures that are shown beside them."""

import shutil
from pathlib import Path

import pytest

from .scripts import run_script

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
# these compile a dozen solvers each, follow many branches, or do over what the tests of the papers do
LONG = (
    "choose_by_evidence",
    "find_my_mistake",
    "hidden_markov_chains",
    "in_context_learning",
    "lazy_to_rich",
    "phase_diagrams",
    "recorded_attention",
    "ridge_replicas",
    "own_layer",
    "self_attention_bifurcations",
    "self_attention_fluctuations",
    "skip_and_dense",
    "special_cases",
    "transformer_block",
    "where_to_look",
)


def marked(example):
    return pytest.param(example, id=example.stem, marks=[pytest.mark.slow] if example.stem in LONG else [])


@pytest.mark.quick("derive_three_layers")
@pytest.mark.parametrize("example", [marked(example) for example in EXAMPLES])
def test_example_runs_and_draws_the_figures_it_promises(example, tmp_path):
    shutil.copytree(example.parent / "vit_digits", tmp_path / "vit_digits")
    copy = Path(shutil.copy(example, tmp_path))
    assert run_script(copy)
    if "save(figure" in example.read_text():
        assert copy.with_suffix(".png").stat().st_size > 10_000
        assert example.with_suffix(".png").exists(), "the repository shows the figure beside the example"
