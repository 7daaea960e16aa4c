"""Tests of the commands: their summaries and their help."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import papers
from papers.cli import COMMANDS

PAPERS = Path(papers.__file__).parent


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_line_of_the_documentation(name):
    module, _, function = COMMANDS[name].function.partition(":")
    assert getattr(import_module(module), function).__doc__.splitlines()[0] == COMMANDS[name].summary


def test_help_is_given_from_any_folder_and_imports_no_library_that_computes(tmp_path):
    command = [sys.executable, "-X", "importtime", PAPERS, "--help"]
    environment = {**os.environ, "PYTHONPATH": str(PAPERS.parents[1])}
    options = {"cwd": tmp_path, "env": environment, "timeout": 100}
    finished = subprocess.run(command, capture_output=True, text=True, check=True, **options)
    assert "usage: python examples/papers" in finished.stdout and all(name in finished.stdout for name in COMMANDS)
    imported = {line.split("|")[-1].strip().split(".")[0] for line in finished.stderr.splitlines()}
    assert "theorykit" in imported and not imported & {"jax", "sympy", "numpy", "xarray", "matplotlib"}
