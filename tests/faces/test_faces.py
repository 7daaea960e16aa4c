"""Every public function refuses what cannot be meant, with an error that names the argument; see `engine`."""

import functools
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from tests.bpkr.sweeps.problems import random_data, swept
from theorykit import bpkr
from theorykit.bpkr import sweeps
from theorykit.checks import checked_number, is_traced

from .axes import axes_in_table, named_axes, wrong_axes
from .engine import Face, try_compiled
from .values import number

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


COMPILED = ("Parameters", "Window", "attention_gain")


def test_numbers_are_refused_in_compiled_code_too():
    report = reports("dmft", "--compiled", *COMPILED)["dmft"]
    assert_without_failures(report)
    assert report["calls"] > 60


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_numbers_are_refused_in_compiled_code_too_by_any_function(face):
    report = reports(face, "--compiled")[face]
    assert_without_failures(report)
    assert report["calls"] >= {"saddle": 100, "bpkr": 180, "dmft": 130, "checkpoints": 18}.get(face, 0)


def test_a_check_that_is_skipped_in_compiled_code_is_found():
    """A control: of two functions that refuse eagerly, the one that does not look at traced numbers."""

    def careless(width):
        return jnp.asarray(width if is_traced(width) else checked_number("width", width, above=0.0))

    def careful(width):
        return jnp.asarray(checked_number("width", width, above=0.0))

    def dropped(width):
        checked_number("width", width, above=0.0)
        return jnp.asarray(width)

    def host(width):
        return jnp.asarray(float(checked_number("width", width, above=0.0)))

    module = types.ModuleType("tried")
    module.__all__ = ["careless", "careful", "dropped", "host"]
    for function in (careless, careful, dropped, host):
        setattr(module, function.__name__, function)
    report = try_compiled(Face(module, {"width": number(1.5, above=0.0)}))
    failed = {(words, name) for words in ("jit", "vmap") for name in ("careless", "dropped")}
    assert {(each.split()[0], each.split()[2].partition("(")[0]) for each in report.failures} == failed
    for mistake in ("-1", "NaN", "0"):
        assert sum(f"width={mistake})" in each for each in report.failures) == 4
    # one of the others is compiled, and one cannot be
    assert report.calls > len(report.failures)


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


QUICK_FACES = ("sweeps", "dmft")


@pytest.mark.parametrize(
    "face", [face if face in QUICK_FACES else pytest.param(face, marks=pytest.mark.slow) for face in FACES]
)
def test_axes_in_docstrings_are_those_of_results(face):
    report = reports(*(QUICK_FACES if face in QUICK_FACES else FACES), "--axes")[face]
    assert_without_failures(report)
    assert report["calls"] or face not in QUICK_FACES


def test_axes_that_are_others_are_found():
    """A control."""
    result = xr.Dataset({"exponent": (("orbit", "number"), np.ones((2, 3)))})
    assert not wrong_axes("`exponent` (orbit, number), of each orbit", result)
    assert wrong_axes("`exponent`, `other` (orbit, exponent), of each orbit", result)
    assert named_axes("`a`, `b` (x,\n    y) and `U_l` (path_l)") == {
        "a": ("x", "y"),
        "b": ("x", "y"),
        "U_1": ("path_1",),
    }


def test_the_axes_in_the_page_on_results_are_theirs():
    page = (HERE.parent.parent / "docs" / "results.md").read_text()
    architecture, data = bpkr.Architecture((2,), 12.0, temperature=0.3), random_data(0)
    features, labels = jnp.asarray(data.features), jnp.asarray(data.labels)
    saddle = bpkr.solve(architecture, bpkr.Data(features, labels))
    prediction = bpkr.predict(bpkr.Problem(architecture, bpkr.Data(features, labels)), saddle, features[:3])
    solve = sweeps.label_saddle(architecture, saddle).merge(sweeps.label_prediction(prediction))
    scores = swept(data).isel(width=0, temperature=0)[["test_accuracy", "test_log_loss", "test_confusion"]]
    result, said = solve.merge(scores, compat="override"), axes_in_table(page)
    there = {name: axes for name, axes in said.items() if name in result.variables}
    assert len(there) >= 14
    assert {name: result[name].dims for name in there} == there


# what other programs in the same process may set
SETTINGS = {
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_debug_infs": True,
    "jax_debug_nans": True,
    "jax_disable_jit": True,
}


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("face", FACES)
def test_every_example_works_whatever_other_programs_set(face, setting):
    assert_without_failures(reports(face, "--setting", setting, json.dumps(SETTINGS[setting]))[face])
