"""Every public function refuses values that cannot be meant, with an error that names the argument; see `engine`."""

import functools
import json
import os
import re
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
from theorykit.bpkr.sweeps.datasets import label_prediction
from theorykit.checks import checked_number, is_traced

from .engine import TRIALS, Face, named_axes, try_compiled, wrong_axes

ROOT = Path(__file__).parents[2]
FACES = tuple(sorted(path.name.removesuffix("_face.py") for path in Path(__file__).parent.glob("*_face.py")))
# settings of JAX that other programs in the same process may make
SETTINGS = {
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_debug_infs": True,
    "jax_debug_nans": True,
    "jax_disable_jit": True,
    "jax_check_tracer_leaks": True,
}
every_face = pytest.mark.parametrize("face", FACES)


# together, in one process
QUICK = (
    *("mistakes", *FACES, "axes", "sweeps", "dmft", "compiled", "dmft:Parameters,Window,attention_gain"),
    *("other-numbers", "bpkr:evaluate,gradient_norm,kernel,predict,head_scores"),
    # of instances alone, for no function is called so
    *("display", *(f"{face}:nothing" for face in FACES)),
)


@functools.cache
def reports(*words, setting=()):
    """The reports of trials, from a separate process: type checks of the test run would hide what users meet."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.faces", *words, *(("--setting", *setting) if setting else ())],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def checked_calls(report):
    """The number of calls of a report without failures."""
    calls, failures = report
    assert not failures, "\n".join([f"{len(failures)} of {calls}", *failures])
    return calls


@every_face
def test_every_mistaken_argument_is_refused_by_name(face):
    assert checked_calls(reports(*QUICK)[f"mistakes {face}"]) > 0


@every_face
def test_every_instance_shows_itself(face):
    checked_calls(reports(*QUICK)[f"display {face}"])


@pytest.mark.parametrize("face", ["sweeps", "dmft"])
def test_axes_in_docstrings_are_those_of_results(face):
    assert checked_calls(reports(*QUICK)[f"axes {face}"]) > 0


def test_numbers_are_refused_in_compiled_code_too():
    assert checked_calls(reports(*QUICK)["compiled dmft"]) > 60


def test_other_numbers_compile_nothing_anew():
    assert checked_calls(reports(*QUICK)["other-numbers bpkr"]) == 5


@pytest.mark.slow
@every_face
@pytest.mark.parametrize("trial", [trial for trial in TRIALS if trial != "mistakes"])
def test_every_trial_of_every_package(trial, face):
    """Double precision, axes as documented, nothing compiled for other numbers anew, and checks in compiled code."""
    calls = checked_calls(reports(trial, *FACES)[f"{trial} {face}"])
    least = {"saddle": 100, "bpkr": 180, "dmft": 130, "checkpoints": 18}
    assert trial != "compiled" or calls >= least.get(face, 0)


@pytest.mark.slow
@every_face
@pytest.mark.parametrize("setting", SETTINGS.items(), ids=SETTINGS)
def test_every_example_works_with_any_settings_of_jax(setting, face):
    name, value = setting
    checked_calls(reports("examples", *FACES, setting=(name, json.dumps(value)))[f"examples {face}"])


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


def test_axes_that_are_others_are_found():
    """A control."""
    result = xr.Dataset({"exponent": (("orbit", "number"), np.ones((2, 3)))})
    assert not wrong_axes("`exponent` (orbit, number), of each orbit", result)
    assert wrong_axes("`exponent`, `other` (orbit, exponent), of each orbit", result)
    found = named_axes("`a`, `b` (x,\n    y) and `U_l` (path_l)")
    assert found == {"a": ("x", "y"), "b": ("x", "y"), "U_1": ("path_1",)}


def axes_in_table(page):
    """The axes that the rows of a page's tables name, by variable: the names, then the axes."""
    found = {}
    for names, axes in re.findall(r"^\| (`[^|]*) \| ([^|]*)\|", page, flags=re.MULTILINE):
        dims = tuple(re.sub(r"_l$", "_1", axis) for axis in re.findall(r"`(\w+)`", axes.partition(", and ")[0]))
        none = axes.startswith("none") or not axes.strip()
        found.update({name: () if none else dims for name in re.findall(r"`(\w+)`", names)})
    return found


@pytest.mark.slow
def test_the_axes_in_the_page_on_results_are_theirs():
    page = (ROOT / "docs" / "sweeps.md").read_text()
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
