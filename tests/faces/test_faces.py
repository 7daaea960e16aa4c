"""Every public function refuses what cannot be meant, with an error that names the argument; see `engine`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FACES = sorted(path.name.removesuffix("_face.py") for path in HERE.glob("*_face.py"))


def outcome(face, *options):
    """The report on a face by a process of its own: type checks of the test run would hide what users meet."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.faces", face, *options],
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONPATH": str(HERE.parent.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("face", FACES)
def test_every_argument_that_cannot_be_meant_is_refused_by_name(face):
    report = outcome(face)
    assert report["calls"] > 0
    assert not report["failures"], "\n".join([f"{len(report['failures'])} of {report['calls']}", *report["failures"]])


@pytest.mark.parametrize("face", FACES)
def test_single_precision_is_refused_or_not_used(face):
    report = outcome(face, "--single-precision")
    assert not report["failures"], "\n".join(report["failures"])


QUICK = ("evaluate", "gradient_norm", "kernel", "predict", "head_scores")


def test_other_numbers_compile_nothing_anew():
    report = outcome("bpkr", "--other-numbers", *QUICK)
    assert report["calls"] == len(QUICK) and not report["failures"], "\n".join(report["failures"])


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_other_numbers_compile_nothing_anew_in_any_function(face):
    report = outcome(face, "--other-numbers")
    assert not report["failures"], "\n".join(report["failures"])


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_every_example_works(face):
    report = outcome(face, "--examples")
    assert not report["failures"], "\n".join(report["failures"])
