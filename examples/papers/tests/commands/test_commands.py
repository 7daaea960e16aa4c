"""Tests of the commands: run from any folder, in separate processes, and error messages."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import papers
from papers.cli import COMMANDS, main
from papers.commands import hidden_markov, one_shot, self_attention_dynamics
from tests.cli.test_damaged_runs import Kept, assert_damaged_files_are_refused, killed
from tests.cli.test_mistakes import Computed, outcome, snapshot

from .terminal import refused, run

PAPERS = Path(papers.__file__).parent
TINY = ("--widths", "50", "--seeds", "1", "--test-examples", "10", "--training-examples", "6", "--output", "out")
HIDDEN, ONE, SELF = "hidden-markov", "one-shot", "self-attention-dynamics"
BIG = "99999999999999999999"
REFUSED = [
    *((HIDDEN, f"--{name}", BIG) for name in ("widths", "seeds", "first-seed", "training-examples", "test-examples")),
    *((HIDDEN, "--temperature", value) for value in ("nan", "inf")),
    *((ONE, "--seeds", value) for value in ("0", "-1", BIG)),
    *((ONE, "--variants", *names) for names in ((), ("L2H4", "L2H4"), ("l2h4",))),
    *((SELF, f"--{name}", BIG) for name in ("transient", "recorded", "shown", "exponents", "diagram.values", "seed")),
    *(
        (SELF, f"--{name}", "nan")
        for name in ("betas", "attention", "epsilon", "start", "zoom.lowest", "phases.highest")
    ),
    *(
        (each, "--output", name)
        for each in (HIDDEN, ONE, SELF)
        for name in ("mine.toml", "/dev/null", "data.npz/x", "x" * 300, "/proc/no", "new.nc", "file")
    ),
]
USAGE = [
    *((), ("nosuch",), ("hidden-markof",)),
    *((HIDDEN, "--seeds", value) for value in ("x", "1.5", "")),
    *((ONE, "--preset", "x"), (SELF, "--betas", "x")),
]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_line_of_the_documentation(name):
    module, _, function = COMMANDS[name].function.partition(":")
    assert getattr(import_module(module), function).__doc__.splitlines()[0] == COMMANDS[name].summary


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a user's folder with some files, and stop experiments before they compute."""
    for name in ("mine.toml", "data.npz", "file"):
        (tmp_path / name).write_text("mine")
    monkeypatch.chdir(tmp_path)

    def computed(*args, **kwargs):
        raise Computed

    for command in (hidden_markov, one_shot, self_attention_dynamics):
        monkeypatch.setattr(command.experiment, "run", computed)
    return tmp_path


@pytest.mark.parametrize("arguments", REFUSED, ids=lambda each: " ".join(word[:20] for word in each))
def test_a_mistaken_command_is_refused_in_one_line(arguments, folder, monkeypatch):
    before = snapshot(folder)
    options = {"main": main, "program": "python examples/papers"}
    assert outcome(monkeypatch, *arguments, "--overwrite", **options) is not None
    assert snapshot(folder) == before


@pytest.mark.parametrize("arguments", USAGE, ids=lambda each: " ".join(each) or "nothing")
def test_a_command_that_is_none_shows_its_usage(arguments, folder, monkeypatch, capsys):
    assert outcome(monkeypatch, *arguments, main=main) == "usage"
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert arguments != ("hidden-markof",) or "hidden-markov" in error


def test_help_is_given_from_any_folder_and_imports_no_library_that_computes(tmp_path):
    command = [sys.executable, "-X", "importtime", PAPERS, "--help"]
    environment = {**os.environ, "PYTHONPATH": str(PAPERS.parents[1])}
    options = {"cwd": tmp_path, "env": environment, "timeout": 100}
    finished = subprocess.run(command, capture_output=True, text=True, check=True, **options)
    assert "usage: python examples/papers" in finished.stdout and all(name in finished.stdout for name in COMMANDS)
    imported = {line.split("|")[-1].strip().split(".")[0] for line in finished.stderr.splitlines()}
    assert "theorykit" in imported and not imported & {"jax", "sympy", "numpy", "xarray", "matplotlib"}


@pytest.mark.slow
def test_everything_is_written_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, HIDDEN, *TINY)
    assert "max|U-I|" in capsys.readouterr().out
    assert sorted(path.name for path in Path("out").iterdir()) == ["figure-2.png", "figure-5.png", "hidden-markov.nc"]
    assert "hidden-markov.nc exists" in refused(monkeypatch, HIDDEN, *TINY)


@pytest.mark.slow
def test_damaged_files_of_a_run_are_refused_by_name_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = Kept((HIDDEN, *TINY), "out/partial", ())
    killed(command, monkeypatch, main)
    assert_damaged_files_are_refused(command, monkeypatch, main)
    assert "Traceback" not in capsys.readouterr().err
