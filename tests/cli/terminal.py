"""A user at the terminal: configurations, what a command does, and how it refuses."""

import sys
from collections.abc import Callable

import pytest

CONFIG = """
[architecture]
layers = [2, 1]
widths = [20, 15, 10]
temperature = 0.2

[data]
file = "data.npz"
inputs = "x"
key_query = ["W1", "W2"]
readout = "mean"
labels = "y"
test_inputs = "x_test"
test_labels = "y_test"
"""


COMPARE = """
[architecture]
layers = [2]
widths = 6
temperature = 0.2

[data]
file = "data.npz"
inputs = "x"
key_query = ["W1"]
readout = "mean"
labels = "y"
test_inputs = "x_test"
test_labels = "y_test"

[compare]
approaches = ["saddle", "exact", "gibbs"]
chains = 2
draws = 20
warmup = 20
"""


def run(monkeypatch, *arguments: str, main: Callable[[], None] | None = None) -> None:
    # `conftest.py` imports this module before the type checks of `--types` are installed.
    from theorykit import cli

    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    (main or cli.main)()


def refused(monkeypatch, *arguments: str, main: Callable[[], None] | None = None) -> str:
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, *arguments, main=main)
    assert isinstance(leaving.value.code, str)
    return leaving.value.code
