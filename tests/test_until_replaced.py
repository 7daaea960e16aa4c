"""One plain use of each feature that is to be replaced or dropped: each test goes with its feature."""

import sys

import pytest

from theorykit import progress
from theorykit._compat import MissingLibrary, needed


def test_progress_in_a_file_is_the_cost_and_the_end(monkeypatch, capsys):
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "_start_thread", lambda: None)
    with progress.Progress("work", 2, "piece", cost="2 pieces of much work") as report:
        clock.now = 5.0
        report._refresh("")
        report.update(2)
    assert capsys.readouterr().err.splitlines() == ["work: 2 pieces of much work", "work: done, 2 of 2 pieces, 00:05"]


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(MissingLibrary, match=r"sampling needs numpyro: .*\[sampling\]"):
        needed("numpyro", "sampling")
