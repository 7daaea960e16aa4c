"""Tests of the commands: their summaries, and help without libraries that compute."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import papers
from papers.cli import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_line_of_the_documentation(name):
    module, _, function = COMMANDS[name].function.partition(":")
    assert getattr(import_module(module), function).__doc__.splitlines()[0] == COMMANDS[name].summary


def test_help_is_given_from_any_folder_and_imports_no_library_that_computes(tmp_path):
    command = [sys.executable, "-X", "importtime", Path(papers.__file__).parent, "--help"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=100)
    assert "usage: python examples/papers" in finished.stdout and all(name in finished.stdout for name in COMMANDS)
    imported = {line.split("|")[-1].strip().split(".")[0] for line in finished.stderr.splitlines()}
    assert "theorykit" in imported and not imported & {"jax", "sympy", "numpy", "xarray", "matplotlib"}
