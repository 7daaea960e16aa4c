"""Test session: double precision, reproducible property tests, compiled code forgotten between modules but on disk."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis
import jax
import pytest
from beartype import BeartypeConf
from beartype.claw import beartype_packages
from jaxtyping import TypeCheckError, install_import_hook

# every function is held to its annotations. Only those of modules with arrays are looked at by jaxtyping, too: it takes
# longer than what the functions of symbolic modules do
_ROOT = Path(__file__).parent
_TEXTS = {
    path.relative_to(folder).with_suffix(""): path.read_text()
    for folder, package in ((_ROOT, "theorykit"), (_ROOT / "examples", "papers"))
    for path in (folder / package).rglob("*.py")
    if "tests" not in path.relative_to(folder).parts
}
_WITH_ARRAYS = {".".join(path.parts): "jaxtyping" in text for path, text in _TEXTS.items() if path.name != "__init__"}
_SYMBOLIC = tuple(name for name, has_arrays in _WITH_ARRAYS.items() if not has_arrays)
beartype_packages(_SYMBOLIC, conf=BeartypeConf(violation_type=TypeCheckError))
install_import_hook([name for name, has_arrays in _WITH_ARRAYS.items() if has_arrays], "beartype.beartype")

jax.config.update("jax_enable_x64", True)
# fusions as one kernel each, by the older of XLA's two ways: a third of the time to compile; and on one thread
_FLAG = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"


def _takes(flags: str) -> bool:
    """Whether this version of XLA knows these flags: it ends the process over one that it does not."""
    tried = [sys.executable, "-c", "import jax; jax.numpy.zeros(1)"]
    return subprocess.run(tried, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True).returncode == 0


_FLAGS = os.environ.get("XLA_FLAGS", "")
if _FLAG not in _FLAGS and _takes(f"{_FLAGS} {_FLAG}"):
    os.environ["XLA_FLAGS"] = f"{_FLAGS} {_FLAG}"

# nobody reads where in a test an operation was traced
jax.config.update("jax_traceback_in_locations_limit", 0)

# tracing makes many small objects that live long
gc.freeze()
gc.set_threshold(50_000, 20, 100)

# compiled once for all workers, modules and subprocesses; the first process to come here makes the folder
_MAKES_THE_CACHE = "JAX_COMPILATION_CACHE_DIR" not in os.environ
if _MAKES_THE_CACHE:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="theorykit-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

# what a user keeps is no business of the tests, nor of processes that they start
os.environ["THEORYKIT_CACHE"] = "off"

_MOST_MAPS = 8_000

hypothesis.settings.register_profile("default", deadline=None, max_examples=10, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("default")


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """Compiled functions hold memory maps, of which a process may have only so many (65530 on Linux)."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_text().count("\n") > _MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def compiled_as_by_workers():
    """Nothing is left that tests before compiled with other options than processes that this test starts will."""
    jax.clear_caches()


def pytest_unconfigure():
    """Remove the folder of compiled code, if this process made it."""
    if _MAKES_THE_CACHE:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


def pytest_runtest_setup(item):
    """Most of the suite's time is XLA compiling small functions that run once, but slow tests compute for longer.

    On an accelerator the code is tested as users run it. The same holds in processes that tests start.
    """
    optimise = item.get_closest_marker("slow") is not None or jax.default_backend() != "cpu"
    jax.config.update("jax_disable_most_optimizations", not optimise)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(not optimise))
