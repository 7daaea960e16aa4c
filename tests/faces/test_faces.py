"""Every public function refuses what cannot be meant, with an error that names the argument; see `engine`."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FACES = sorted(path.name.removesuffix("_face.py") for path in HERE.glob("*_face.py"))


@functools.cache
def tried(*arguments):
    """A process that tries the faces named: type checks of the test run would hide what users meet."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.faces", *arguments],
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONPATH": str(HERE.parent.parent)},
        capture_output=True,
        text=True,
    )


def reports(*arguments):
    """The report on every face named."""
    done = tried(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_without_failures(report):
    assert not report["failures"], "\n".join([f"{len(report['failures'])} of {report['calls']}", *report["failures"]])


@pytest.mark.parametrize("face", FACES)
def test_every_argument_that_cannot_be_meant_is_refused_by_name(face):
    report = reports(*FACES)[face]
    assert report["calls"] > 0
    assert_without_failures(report)


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_single_precision_is_refused_or_not_used(face):
    assert_without_failures(reports(*FACES, "--single-precision")[face])


QUICK = ("evaluate", "gradient_norm", "kernel", "predict", "head_scores")


def test_other_numbers_compile_nothing_anew():
    report = reports("bpkr", "--other-numbers", *QUICK)["bpkr"]
    assert_without_failures(report)
    assert report["calls"] == len(QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_other_numbers_compile_nothing_anew_in_any_function(face):
    assert_without_failures(reports(*FACES, "--other-numbers")[face])


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_every_example_works(face):
    assert_without_failures(reports(*FACES, "--examples")[face])
