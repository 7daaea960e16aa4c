"""Long work says what it costs before it begins, moves while it compiles, and writes plain lines into files."""

import sys
import threading

import jax
import pytest

from theorykit import progress
from theorykit.progress import Progress


class Clock:
    """Time that passes when a test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        pass


@pytest.fixture
def clock(monkeypatch):
    """A clock, without the thread that refreshes reports."""
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "_start_thread", lambda: None)
    return clock


def refresh(clock: Clock, seconds: float, doing: str = "") -> None:
    """Let time pass, refreshing every report as the thread does."""
    for _ in range(round(seconds / progress._REFRESH)):
        clock.now += progress._REFRESH
        for report in progress._open:
            report._refresh(doing)


def test_short_and_silent_work_says_nothing(clock, capsys):
    with Progress("work", 2, "piece", cost="much") as report:
        refresh(clock, 0.5)
        report.update(2)
    with Progress("work", 2, "piece", cost="much", shown=False) as report:
        refresh(clock, 100.0)
        report.update(2)
    assert capsys.readouterr() == ("", "")


def test_a_file_has_the_cost_first_then_plain_lines_far_apart(clock, capsys):
    with Progress("work", 4, "piece", cost="4 pieces of much work") as report:
        refresh(clock, 62.0, doing="compiling")
        for _ in range(3):
            refresh(clock, 20.0)
            report.update(note="good")
        refresh(clock, 3.0)
        report.update()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "work: 4 pieces of much work",
        "work, 0 of 4 pieces, 01:00, compiling",
        "work, 2 of 4 pieces, 02:01, about 00:21 left, good",
        "work: done, 4 of 4 pieces, 02:05",
    ]


def test_pieces_of_a_former_run_do_not_count_in_the_time_that_is_left(clock):
    with Progress("work", 10, "piece", initial=2) as report:
        report.update(3)
        refresh(clock, 10.0)
        report.update()
        assert report._left() == "about 00:40 left"


def test_the_time_that_is_left_falls_while_a_piece_runs_and_is_unknown_if_it_takes_longer(clock):
    with Progress("work", 3, "piece") as report, Progress("work", 3, "piece", alike=False) as different:
        refresh(clock, 10.0)
        report.update()
        different.update()
        left = []
        for _ in range(5):
            left.append(report._left())
            refresh(clock, 5.0)
            assert different._left() == ""
    assert left == ["about 00:20 left", "about 00:15 left", "about 00:10 left", "about 00:05 left", ""]


def test_work_in_other_work_writes_no_lines_but_its_cost_once(clock, capsys):
    with Progress("outer", 2, "piece") as outer:
        for _ in range(2):
            with Progress("inner", 1, "step", cost="a step") as inner:
                refresh(clock, 100.0)
                inner.update()
            outer.update()
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("inner: a step") == 1 and not any(line.startswith("inner,") for line in lines)
    assert lines[-1] == "outer: done, 2 of 2 pieces, 03:20"


def test_work_that_fails_is_not_called_done(clock, capsys):
    with pytest.raises(ValueError), Progress("work", 2, "piece"):
        refresh(clock, 5.0)
        raise ValueError
    assert capsys.readouterr().err == "work: stopped, 0 of 2 pieces, 00:05\n"


def test_a_terminal_has_a_bar_that_moves_while_it_compiles(clock, capsys, monkeypatch):
    monkeypatch.setattr(progress, "_has_bars", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    with Progress("work", 4, "piece"):
        refresh(clock, 3.0, doing="compiling")
        shown = capsys.readouterr().err
        assert "0/4" in shown and "compiling" in shown
    assert not progress._open


def test_compiling_is_seen_where_it_happens():
    found = []

    def traced(x):
        found.append(progress.activity_of(sys._getframe()))
        thread = threading.Thread(target=lambda: found.append(progress.activity()))
        thread.start()
        thread.join()
        return x

    jax.jit(traced)(1.0)
    assert found == ["compiling", "compiling"]
    assert progress.activity_of(sys._getframe()) == ""
