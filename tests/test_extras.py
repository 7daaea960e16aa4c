"""The package works with what it requires alone, and a feature whose library is missing names the extra that has it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from theorykit.extras import _EXTRAS, Lazy, MissingLibrary, needed

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]

CORE = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in blocked else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
import numpy as np
import theorykit
from theorykit import bpkr, dmft

theorykit.enable_float64()
architecture = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
assert bpkr.derive(architecture).derivation.steps
rng = np.random.default_rng(0)
features, labels = rng.normal(size=(8, 2, 5)), rng.choice([-1.0, 1.0], size=8)
problem = bpkr.Problem(architecture, bpkr.Data(features, labels))
saddle = bpkr.solve(problem)
assert saddle.converged
assert np.isfinite(bpkr.predict(problem, saddle, features[:3]).mean).all()
"""
# what a user calls, by the library that is missing then
FEATURES = {
    "matplotlib": "from theorykit import plots; plots.draw_comparison",
    "arviz_stats": "sampling.sample_weights_by_gibbs(architecture, data, **short)",
    "numpyro": "sampling.sample_order_parameters(architecture, data, **short)",
    "optax": "training.gradient_descent.optax.adam(0.1)",
    "h5netcdf": "store.write(xr.Dataset(), Path('a.nc'))",
    "safetensors": (
        "from theorykit import checkpoints; Path('a.safetensors').touch(); "
        "checkpoints.read_heads('a.safetensors', layer=0, heads=2)"
    ),
    "distributed": "workers.open_executor(None, 'tcp://127.0.0.1:1').__enter__()",
    "hypothesis": "from theorykit.testing import strategies; strategies.seeds",
    "zarr": "bpkr.Data.of_files(['a.zarr'], progress=False)",
}
USED = """
import os, tempfile
from pathlib import Path
import jax, xarray as xr
from theorykit import store, workers
from theorykit.bpkr import sampling, training

os.chdir(tempfile.mkdtemp())
Path("a.zarr").mkdir()
data = bpkr.Data(features, labels)
short = {"key": jax.random.key(0), "schedule": sampling.Schedule(chains=1, warmup=2, draws=2), "progress": False}
for library, code in FEATURES.items():
    # what stands before has imported its libraries: each is tried before the first that needs it
    blocked.clear()
    blocked.update({library})
    try:
        exec(code)
    except ImportError as error:
        print(library, "|", error)
    else:
        print(library, "|", "nothing was missing")
sys.argv = ["theorykit", "derive"]
blocked.update({"tyro"})
from theorykit import cli
try:
    cli.main()
except SystemExit as end:
    print("tyro |", end)
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_derives_solves_and_predicts_and_each_missing_library_is_named():
    code = f"blocked = {set(_EXTRAS)!r}\n" + CORE + USED.replace("FEATURES", repr(FEATURES))
    said = dict(line.split(" | ") for line in run(code).splitlines())
    assert set(said) == {*FEATURES, "tyro"}
    for library, message in said.items():
        package = library.replace("_", "-")
        wanted = rf"needs {package}, which is not installed: in a clone of theorykit, run pip install -e '\.\[(\w+)\]'"
        found = re.search(wanted, message)
        assert found and found[1] == _EXTRAS[library], message


def names(lines: list[str]) -> set[str]:
    """Of packages that lines of requirements bring, those of extras of this package too."""
    found = set()
    for line in lines:
        own = re.fullmatch(r"theorykit\[(.*)\]", line)
        found |= names([each for extra in own[1].split(",") for each in OPTIONAL[extra]] if own else []) or {
            re.match(r"[\w-]+", line)[0]
        }
    return found


def test_the_extra_that_an_error_names_has_the_library_and_the_core_has_not():
    for library, extra in _EXTRAS.items():
        package = library.replace("_", "-")
        assert package in names(OPTIONAL[extra]) and package not in names(PROJECT["dependencies"])
        assert package in names(OPTIONAL["all"]) <= names(OPTIONAL["test"])


def test_a_library_that_lacks_another_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "zarr.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "zarr", raising=False)
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_there") as raised:
        needed("zarr", "this")
    assert not isinstance(raised.value, MissingLibrary)
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_there"):
        _ = Lazy("zarr", "this").open_group
