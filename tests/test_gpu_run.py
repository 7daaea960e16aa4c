"""The one call for a machine with a GPU: what it measures is right, and nothing that fails stops the rest."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu
from benchmarks.gpu_run.run import Part, read_json, read_tests, run

from .scripts import run_script

RUN = Path(__file__).parents[1] / "benchmarks" / "gpu_run" / "run.py"


@pytest.mark.slow
def test_factorisations_agree_and_too_large_ones_are_left_out(tmp_path):
    skipped = ("solves", "orbits", "diagrams", "tests", "batch_tests", "published")
    run_script(RUN, str(tmp_path), "--limit", "0.5", "--minutes", "3", "--skip", *skipped)
    part = json.loads((tmp_path / "results.json").read_text())["parts"]["factorisations"]
    assert part["returncode"] == 0 and not part["time_was_over"]
    by_size: dict = {}
    for row in part["found"]["rows"]:
        by_size.setdefault(row["size"], []).append(row)
    for row in by_size[16]:
        # a logarithm of a determinant, by three ways
        np.testing.assert_allclose(row["number"], by_size[16][0]["number"], rtol=1e-12)
        assert row["run_s"] > 0 and row["planned_bytes"] >= 8 * 16**2
    assert len(by_size[16]) == 3 and all("left_out" in row for row in by_size[20_000])


def test_a_case_that_ends_its_process_is_named_and_the_next_one_is_measured(monkeypatch):
    cases = list(gpu.factorisations())

    def told(part, name, limit, first):
        for number in range(first, len(cases)):
            if number in (2, 5):
                yield {"part": part, "platform": name, "error": "exit -11: "}
                return
            yield {"part": part, "platform": name, "name": cases[number].name, "size": cases[number].size, "run_s": 1.0}

    monkeypatch.setattr(gpu, "told", told)
    rows = list(gpu.told_of_all("factorisations", "cpu", 1.0))
    assert [(row["name"], row["size"]) for row in rows] == [(case.name, case.size) for case in cases]
    assert [number for number, row in enumerate(rows) if "error" in row] == [2, 5]

    def nothing(part, name, limit, first):
        yield {"part": part, "platform": name, "error": "exit 1: no such platform"}

    monkeypatch.setattr(gpu, "told", nothing)
    assert len(list(gpu.told_of_all("factorisations", "cuda", 1.0))) == 1


def outcome(code: str, folder: Path, seconds: float, read=read_json) -> dict:
    part = Part("this", 1.0, ["-c", code], folder / "written", read)
    return run(part, seconds, {**os.environ}, folder / "this.log")


@pytest.mark.slow
def test_a_part_that_fails_or_takes_too_long_leaves_what_it_has_written(tmp_path):
    wrote = f"import pathlib; pathlib.Path({str(tmp_path / 'written')!r}).write_text('[1, 2]');"
    failed = outcome(f"{wrote} raise OverflowError('too much')", tmp_path, 30)
    assert failed["returncode"] == 1 and failed["found"] == [1, 2] and "OverflowError: too much" in failed["said"]
    late = outcome(f"{wrote} import time; time.sleep(60)", tmp_path, 5)
    assert late["time_was_over"] and late["returncode"] != 0 and late["found"] == [1, 2]
    (tmp_path / "written").unlink()
    assert outcome("", tmp_path, 30)["unread"].startswith("FileNotFoundError")


@pytest.mark.slow
def test_failures_of_tests_are_told_with_their_text(tmp_path):
    test = tmp_path / "test_two.py"
    test.write_text("def test_right():\n    assert True\n\n\ndef test_wrong():\n    assert 1 + 1 == 3\n")
    command = ["-m", "pytest", str(test), "-p", "no:cacheprovider", f"--junitxml={tmp_path / 'written'}"]
    found = run(Part("tests", 1.0, command, tmp_path / "written", read_tests), 60, {**os.environ}, tmp_path / "log")
    assert (found["found"]["tests"], found["found"]["failures"]) == (2, 1)
    ((name, text),) = found["found"]["failed"].items()
    assert name.endswith("::test_wrong") and "assert (1 + 1) == 3" in text


@pytest.mark.slow
def test_the_saddle_point_is_the_one_that_a_gpu_has_found():
    case = next(gpu.solves())
    kept = read_json(Path(gpu.__file__).parent / "results" / "gpu.json")["rows"]
    numbers = [row["number"] for row in kept if (row["name"], row["size"]) == (case.name, case.size)]
    assert len(numbers) == 2
    np.testing.assert_allclose(numbers, case.number(case.program(*case.arguments())), rtol=1e-12)
