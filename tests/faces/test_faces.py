"""Every public function refuses values that cannot be meant, with an error that names the argument; see `engine`."""

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
from tests.marks import slow
from theorykit import bpkr
from theorykit.bpkr import sweeps
from theorykit.bpkr.sweeps.datasets import label_prediction
from theorykit.checks import checked_number, is_traced

from .axes import axes_in_table, named_axes, wrong_axes
from .engine import Face, try_compiled

HERE = Path(__file__).parent
FACES = tuple(sorted(path.name.removesuffix("_face.py") for path in HERE.glob("*_face.py")))
# settings of JAX that other programs in the same process may make
SETTINGS = {
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_debug_infs": True,
    "jax_debug_nans": True,
    "jax_disable_jit": True,
}
every_face = pytest.mark.parametrize("face", FACES)


@functools.cache
def reports(trial, *faces, only=(), setting=()):
    """The reports of a trial, from a separate process: type checks of the test run would hide what users meet."""
    options = [*(("--only", *only) if only else ()), *(("--setting", *setting) if setting else ())]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.faces", trial, *faces, *options],
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONPATH": str(HERE.parent.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def checked_calls(report):
    """The number of calls of a report without failures."""
    assert not report["failures"], "\n".join([f"{len(report['failures'])} of {report['calls']}", *report["failures"]])
    return report["calls"]


@every_face
def test_every_mistaken_argument_is_refused_by_name(face):
    assert checked_calls(reports("mistakes", *FACES)[face]) > 0


@pytest.mark.slow
@every_face
@pytest.mark.parametrize("trial", ["examples", "single-precision", "other-numbers"])
def test_every_example_works_in_double_precision_and_compiles_nothing_for_other_numbers(trial, face):
    checked_calls(reports(trial, *FACES)[face])


@pytest.mark.slow
@every_face
@pytest.mark.parametrize("setting", SETTINGS.items(), ids=SETTINGS)
def test_every_example_works_with_any_settings_of_jax(setting, face):
    name, value = setting
    checked_calls(reports("examples", *FACES, setting=(name, json.dumps(value)))[face])


def test_numbers_are_refused_in_compiled_code_too():
    only = ("Parameters", "Window", "attention_gain")
    assert checked_calls(reports("compiled", "dmft", only=only)["dmft"]) > 60


@pytest.mark.slow
@every_face
def test_numbers_are_refused_in_compiled_code_too_by_any_function(face):
    least = {"saddle": 100, "bpkr": 180, "dmft": 130, "checkpoints": 18}
    assert checked_calls(reports("compiled", *FACES)[face]) >= least.get(face, 0)


def test_other_numbers_compile_nothing_anew():
    only = ("evaluate", "gradient_norm", "kernel", "predict", "head_scores")
    assert checked_calls(reports("other-numbers", "bpkr", only=only)["bpkr"]) == len(only)


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
    report = try_compiled(Face(module, {"width": 1.5}))
    failed = {(words, name) for words in ("jit", "vmap") for name in ("careless", "dropped")}
    assert {(each.split()[0], each.split()[2].partition("(")[0]) for each in report.failures} == failed
    for mistake in ("-1", "NaN", "0"):
        assert sum(f"width={mistake})" in each for each in report.failures) == 4
    # one of the others is compiled, and one cannot be
    assert report.calls > len(report.failures)


QUICK = ("sweeps", "dmft")


@pytest.mark.parametrize("face", [*QUICK, *slow(face for face in FACES if face not in QUICK)])
def test_axes_in_docstrings_are_those_of_results(face):
    calls = checked_calls(reports("axes", *(QUICK if face in QUICK else FACES))[face])
    assert calls or face not in QUICK


def test_axes_that_are_others_are_found():
    """A control."""
    result = xr.Dataset({"exponent": (("orbit", "number"), np.ones((2, 3)))})
    assert not wrong_axes("`exponent` (orbit, number), of each orbit", result)
    assert wrong_axes("`exponent`, `other` (orbit, exponent), of each orbit", result)
    found = named_axes("`a`, `b` (x,\n    y) and `U_l` (path_l)")
    assert found == {"a": ("x", "y"), "b": ("x", "y"), "U_1": ("path_1",)}


def test_the_axes_in_the_page_on_results_are_theirs():
    page = (HERE.parent.parent / "docs" / "results.md").read_text()
    architecture, data = bpkr.Architecture((2,), 12.0, temperature=0.3), random_data(0)
    features, labels = jnp.asarray(data.features), jnp.asarray(data.labels)
    saddle = bpkr.solve(architecture, bpkr.Data(features, labels))
    prediction = bpkr.predict(bpkr.Problem(architecture, bpkr.Data(features, labels)), saddle, features[:3])
    solve = sweeps.label_saddle(architecture, saddle).merge(label_prediction(prediction))
    scores = swept(data).isel(width=0, temperature=0)[["test_accuracy", "test_log_loss", "test_confusion"]]
    result, said = solve.merge(scores, compat="override"), axes_in_table(page)
    there = {name: axes for name, axes in said.items() if name in result.variables}
    assert len(there) >= 14
    assert {name: result[name].dims for name in there} == there
