"""The tree of subcommands: what is said of each before it is imported, and that nothing else is imported then."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module

import pytest

import theorykit
from theorykit.cli.application import COMMANDS, Command, Group


def commands(tree: Mapping[str, Command | Group] = COMMANDS, before: tuple[str, ...] = ()) -> Iterator[tuple]:
    for name, command in tree.items():
        if isinstance(command, Group):
            yield from commands(command.commands, (*before, name))
        else:
            yield (*before, name), command


@pytest.mark.parametrize(
    ("words", "command"), list(commands()), ids=lambda value: "-".join(value) if type(value) is tuple else ""
)
def test_a_summary_is_the_first_line_of_the_documentation(words, command):
    function = getattr(import_module(f"theorykit.cli.{command.module}"), command.function)
    assert function.__doc__.splitlines()[0] == command.summary


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "importtime", "-m", "theorykit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["reproduce", "--help"]], ids=" ".join)
def test_help_and_version_import_no_library_that_computes(arguments):
    imported = {line.split("|")[-1].strip().split(".")[0] for line in said(*arguments).stderr.splitlines()}
    assert "theorykit" in imported and not imported & {"jax", "sympy", "numpy", "xarray", "matplotlib"}


def test_the_version_is_that_of_the_package():
    assert said("--version").stdout == f"theorykit {theorykit.__version__}\n"
