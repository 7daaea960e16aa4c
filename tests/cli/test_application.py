"""The commands: what is said of each before it is imported, and that nothing else is imported then."""

import subprocess
import sys
from importlib import import_module

import pytest

import theorykit
from theorykit import cli


@pytest.mark.parametrize("command", cli._COMMANDS.values(), ids=cli._COMMANDS)
def test_a_summary_is_the_first_line_of_the_documentation(command):
    module, _, name = command.function.partition(":")
    assert getattr(import_module(module), name).__doc__.splitlines()[0] == command.summary


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "importtime", "-m", "theorykit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_no_library_that_computes(argument):
    finished = said(argument)
    imported = {line.split("|")[-1].strip().split(".")[0] for line in finished.stderr.splitlines()}
    assert "theorykit" in imported and not imported & {"jax", "sympy", "numpy", "xarray", "matplotlib"}
    if argument == "--version":
        assert finished.stdout == f"theorykit {theorykit.__version__}\n"
