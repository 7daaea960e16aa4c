"""Runs that are killed, or whose disk is full, go on to the very numbers, and leave nothing half-written behind."""

import errno
import os
import random
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.kills import RUNS
from tests.marks import slow

ROOT = Path(__file__).parents[1]
# seconds that a process may take to leave its first file
_PATIENCE = 500


def killed(name: str, folder: Path, seconds: float) -> bool:
    """Whether a process that runs `name` was killed at work, so many seconds after it wrote its first file."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "tests.kills", name, str(folder)]
    before, began = content(folder), time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and content(folder) == before and time.monotonic() < began + _PATIENCE:
            time.sleep(0.002)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
    return process.returncode == -signal.SIGKILL


def content(folder: Path) -> Mapping[str, int]:
    """The files that are there, and when they were written."""
    try:
        return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    except FileNotFoundError:  # replaced while it was looked at
        return {}


def leftovers(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if is_leftover(path)]


def is_leftover(path: Path) -> bool:
    return re.fullmatch(r"\..*\.[0-9a-f]+-[0-9]+-[0-9a-f]+", path.name) is not None


def assert_goes_on(name: str, folder: Path, kills: int, seconds: float) -> int:
    """Numbers are those of a run that was never killed; returns how many kills met it at work."""
    draw = random.Random(name)
    met = sum(killed(name, folder / "killed", draw.uniform(0, seconds)) for _ in range(kills))
    assert_is_whole(name, folder / "killed", folder / "whole")
    return met


def assert_is_whole(name: str, stopped: Path, whole: Path) -> None:
    """A run that was stopped comes to the numbers of one that was not, and has them when it is asked again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resumed, expected, again = (RUNS[name](folder) for folder in (stopped, whole, stopped))
    for found in (resumed, again):
        assert set(found) == set(expected)
        for part, values in expected.items():
            np.testing.assert_array_equal(found[part], values, err_msg=part)
    assert not leftovers(stopped)


@pytest.mark.slow
def test_a_killed_pass_over_data_goes_on_exactly(tmp_path):
    assert assert_goes_on("statistics", tmp_path, kills=1, seconds=0.2) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_killed_again_and_again_goes_on_exactly(name, tmp_path):
    met = assert_goes_on(name, tmp_path, kills=4, seconds=0.5)
    print(f"{name}: {met} of 4 kills met it at work")
    assert met >= 1


@pytest.mark.parametrize("name", [name if name == "statistics" else slow([name])[0] for name in RUNS])
def test_a_run_whose_disk_is_full_says_so_and_goes_on_exactly(name, tmp_path, monkeypatch):
    folder, flush, files = tmp_path / "full", os.fsync, []

    def full(descriptor: int) -> None:
        files.append(content(folder))
        if len(files) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device") as failure:
            RUNS[name](folder)
    assert folder in Path(failure.value.filename).parents
    # what was there when the second file was written, without its hidden beginning
    assert any(is_leftover(Path(path)) for path in files[1])
    kept = {path: time for path, time in files[1].items() if not is_leftover(Path(path))}
    assert kept and content(folder) == kept
    assert_is_whole(name, folder, tmp_path / "whole")
