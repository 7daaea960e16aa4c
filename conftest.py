"""Set up the tests: double precision, reproducible property tests, and a disk cache of compiled code."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import jax
import pytest

_ROOT = Path(__file__).parent

jax.config.update("jax_enable_x64", True)
# XLA's older code generator, with one kernel per fusion, compiles in a third of the time. Compile on one thread.
_FLAG = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"


def _takes(flags: str) -> bool:
    """Return whether XLA knows these flags. It ends the process if it does not, so try them in another process."""
    tried = [sys.executable, "-c", "import jax; jax.numpy.zeros(1)"]
    return subprocess.run(tried, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True).returncode == 0


_FLAGS = os.environ.get("XLA_FLAGS", "")
if _FLAG not in _FLAGS and _takes(f"{_FLAGS} {_FLAG}"):
    os.environ["XLA_FLAGS"] = f"{_FLAGS} {_FLAG}"

# Fast tests run without XLA's optimisations (see pytest_runtest_setup), and so does what their modules compute.
jax.config.update("jax_disable_most_optimizations", jax.config.jax_platforms in (None, "cpu"))

# Where in a test an operation was traced is of no use.
jax.config.update("jax_traceback_in_locations_limit", 0)

# Tracing makes many small long-lived objects, so collect garbage rarely.
gc.freeze()
gc.set_threshold(50_000, 20, 100)

# Tests, and processes that they start, must not use or change the user's cache.
os.environ["THEORYKIT_CACHE"] = "off"

_MOST_MAPS = 8_000

hypothesis.settings.register_profile("default", deadline=None, max_examples=10, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("default")

# Doctests that are quick; all others are slow.
_QUICK_DOCTESTS = [_ROOT / name for name in ("theorykit/symbolic", "theorykit/codegen", "docs/quickstart.md")]


def pytest_addoption(parser):
    """Add the option `--types`."""
    parser.addoption("--types", action="store_true", help="check annotations of the package at run time; slower")


def pytest_configure(config):
    """Install the type checks, before theorykit is imported, and choose the folder of compiled code."""
    if config.getoption("types"):
        _check_types()
    from theorykit._jit import remove_beyond

    # Workers, subprocesses and later runs share one cache of compiled code. `--cache-clear` removes it.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        compiled = _ROOT / ".pytest_cache" / "d" / "compiled"
        compiled.mkdir(parents=True, exist_ok=True)
        remove_beyond(compiled, 10**9)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compiled)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _check_types():
    """Check annotations at run time: by jaxtyping in modules with arrays, by beartype alone in the others.

    In symbolic modules the checks of jaxtyping would take longer than the functions themselves. So would any checks in
    `checks`, which every public function calls.
    """
    from beartype import BeartypeConf
    from beartype.claw import beartype_packages
    from jaxtyping import TypeCheckError, install_import_hook

    with_arrays, symbolic = [], []
    for path in sorted((_ROOT / "theorykit").rglob("*.py")):
        if path.stem not in ("__init__", "checks"):
            name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
            (with_arrays if "jaxtyping" in path.read_text() else symbolic).append(name)
    beartype_packages(symbolic, conf=BeartypeConf(violation_type=TypeCheckError))
    install_import_hook(with_arrays, "beartype.beartype")


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """Clear compiled functions: each holds memory maps, and a process may have only so many (65530 on Linux)."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_text().count("\n") > _MOST_MAPS:
        jax.clear_caches()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark as slow all cases of a test except the quick ones: `quick(3)` takes three spread over the list.

    `quick("case00")` takes cases by name. Also mark doctests that are not quick.
    """
    for item in items:
        if isinstance(item, pytest.DoctestItem) and not {item.path, *item.path.parents} & set(_QUICK_DOCTESTS):
            item.add_marker(pytest.mark.slow)
    cases = {}
    for item in items:
        if marked := item.get_closest_marker("quick"):
            cases.setdefault((item.parent.nodeid, item.originalname), (marked.args, []))[1].append(item)
    for (file, test), (chosen, every) in cases.items():
        names = [item.callspec.id for item in every]
        if isinstance(chosen[0], int):
            count = min(chosen[0], len(every))
            chosen = [names[(2 * place + 1) * len(every) // (2 * count)] for place in range(count)]
        elif (unknown := set(chosen) - set(names)) and not any("[" in argument for argument in config.args):
            raise pytest.UsageError(f"{file}::{test} has no cases {sorted(unknown)}; its cases are {names}")
        for item in every:
            if item.callspec.id not in chosen:
                item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item):
    """Turn XLA's optimisations off for fast tests, which mostly compile small functions that run once.

    Slow tests and tests on an accelerator run with optimisations, as users do. Processes that tests start do the same.
    """
    optimise = item.get_closest_marker("slow") is not None or jax.default_backend() != "cpu"
    jax.config.update("jax_disable_most_optimizations", not optimise)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(not optimise))
