"""Tests of the commands: run from any folder, in separate processes, and error messages."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import xarray as xr

import papers
from papers.cli import COMMANDS, main
from tests.cli.test_damaged_runs import Kept, assert_damaged_files_are_refused, killed
from tests.clusters import environment, pair, run_by_one_core
from theorykit import store

from .terminal import refused, run

PAPERS = Path(papers.__file__).parent
TINY = ("--widths", "50", "--seeds", "1", "--test-examples", "10", "--training-examples", "6", "--output", "out")
HIDDEN = "hidden-markov"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_line_of_the_documentation(name):
    module, _, function = COMMANDS[name].function.partition(":")
    assert getattr(import_module(module), function).__doc__.splitlines()[0] == COMMANDS[name].summary


def test_help_is_given_from_any_folder_and_imports_no_library_that_computes(tmp_path):
    command = [sys.executable, "-X", "importtime", PAPERS, "--help"]
    options = {"cwd": tmp_path, "env": environment(), "timeout": 100}
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
def test_workers_find_this_package_from_any_folder(tmp_path):
    """Local processes find the package by the path; a cluster has no such path, so the package is sent."""

    def found(name: str, *options: str) -> xr.Dataset:
        folder = tmp_path / name
        folder.mkdir()
        finished = run_by_one_core(folder, str(PAPERS), HIDDEN, *TINY, *options)
        assert finished.returncode == 0, finished.stderr
        return store.read(folder / "out" / "hidden-markov.nc")["default"].to_dataset().drop_vars("seconds")

    alone = found("alone")
    xr.testing.assert_identical(found("processes", "--workers", "2"), alone)
    with pair(tmp_path) as (_, address):
        xr.testing.assert_identical(found("cluster", "--scheduler", address), alone)


@pytest.mark.slow
def test_damaged_files_of_a_run_are_refused_by_name_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = Kept((HIDDEN, *TINY), "out/partial", ())
    killed(command, monkeypatch, main)
    assert_damaged_files_are_refused(command, monkeypatch, main)
    assert "Traceback" not in capsys.readouterr().err
