"""Compile functions, and keep their programs on disk from one process to the next.

THEORYKIT_CACHE names the folder, or is "off"; by default it is in the user's cache
folder. It has functions from `jax.export`, and code unless JAX has its own folder.
"""

import gzip
import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, partial, wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import equinox as eqx
import jax
import numpy as np
import platformdirs
from jax import export

from ._compat import threads_for
from .checks import checked_function, is_in_traced_code

# XLA's older fusion emitter compiles large programs in 40 % of the time.
_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
# For a few numbers, LLVM's optimisation takes longer than it saves.
_OF_NUMBERS = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
# Other code may change without another version, so its programs are not kept.
_PACKAGES = ("theorykit", "jax", "jaxlib", "equinox", "optimistix", "lineax", "numpy", "sympy", "builtins")
_ARRAYS = (jax.Array, np.ndarray, np.generic)
_KIND = jax.core.ShapedArray
# Each program takes some of the memory maps of the process.
_MOST_PROGRAMS, _MOST_BYTES = 64, 2**28


@contextmanager
def usual_settings() -> Iterator[None]:
    """Use JAX's default settings, as a context or decorator.

    theorykit mixes ranks and types, and some densities have infinite logarithms.
    """
    # JAX keeps operations outside compiled functions there, too.
    _folder()
    with (
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.disable_jit(False),
        jax.check_tracer_leaks(False),
    ):
        yield


def jit(function: Callable, *, of_numbers: Callable[..., bool] | None = None) -> Callable:
    """Return `function`, compiled as by `equinox.filter_jit`, in about half the time on a CPU.

    Use it for functions with solves. A new value of a float needs no compilation. On a
    CPU the call waits for its results, and factorises small matrices on one thread.

    Args:
        function: the function to compile.
        of_numbers: function of the same arguments: whether they are only a few numbers.
            If so, compilation takes a fraction of the time, and a call twice as long.

    Example:
        >>> import jax.numpy as jnp
        >>> import theorykit
        >>> double = theorykit.jit(lambda x: 2 * x)
        >>> float(double(jnp.array(1.5)))
        3.0
    """
    checked_function("function", function)
    compiled = cache(lambda few: eqx.filter_jit(function, compiler_options=_options(few)))

    def run(structure, leaves):
        arguments, keywords = jax.tree.unflatten(structure, leaves)
        few = of_numbers is not None and jax.default_backend() == "cpu" and of_numbers(*arguments, **keywords)
        return compiled(bool(few))(*arguments, **keywords)

    return _called(function, run)


def jit_and_keep(function: Callable) -> Callable:
    """Compile `function` like `jit`, and keep its programs on disk for other processes.

    It must return arrays only, without errors at run time and calls to Python.
    """
    program = lru_cache(_MOST_PROGRAMS)(partial(_program, function))

    def run(structure, leaves):
        arrays = [leaf for leaf in leaves if isinstance(leaf, _ARRAYS)]
        kinds = tuple(jax.typeof(leaf) if isinstance(leaf, _ARRAYS) else leaf for leaf in leaves)
        home = {jax.local_devices()[0]}
        is_home = all(leaf.devices() == home for leaf in arrays if isinstance(leaf, jax.Array))
        # Equal numbers may have different types.
        types = tuple(map(type, kinds))
        return program(structure, kinds, types, is_home, jax.config.jax_enable_x64)(*arrays)

    call = _called(function, run)
    call.programs = program.cache_info
    return call


def _called(function: Callable, run: Callable) -> Callable:
    traced = eqx.filter_jit(function)

    @wraps(function)
    def call(*arguments, **keywords):
        leaves, structure = jax.tree.flatten((arguments, keywords))
        with usual_settings():
            if is_in_traced_code(leaves):
                return traced(*arguments, **keywords)
            leaves = [np.asarray(leaf) if type(leaf) is float else leaf for leaf in leaves]
            with threads_for(rows_of(leaves)):
                found = run(structure, leaves)
                return jax.block_until_ready(found) if jax.default_backend() == "cpu" else found

    return call


@cache
def _options(few: bool = False) -> Mapping[str, Any]:
    """Return the options that this version of XLA has."""
    options = {}
    for wanted in (_OPTIONS, _OF_NUMBERS)[: 1 + few]:
        with suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda: 0.0, compiler_options=wanted).lower().compile()
            options |= wanted
    return options


def rows_of(leaves: Sequence[Any]) -> int:
    """Return the most rows of square arrays, and the longest axis of others."""
    most = 0
    for leaf in leaves:
        if isinstance(leaf, _ARRAYS) and leaf.shape and leaf.dtype.kind in "fc":
            most = max(most, leaf.shape[-1] if leaf.shape[-2:-1] == leaf.shape[-1:] else max(leaf.shape))
    return most


def _program(function: Callable, structure: Any, kinds: tuple, types: tuple, keeps: bool, precise: bool) -> Callable:
    """Compile `function` for arguments of these kinds, or read its program from disk."""
    outputs = None

    def of_arrays(*arrays):
        nonlocal outputs
        traced = iter(arrays)
        leaves = [next(traced) if isinstance(kind, _KIND) else kind for kind in kinds]
        arguments, keywords = jax.tree.unflatten(structure, leaves)
        results, outputs = jax.tree.flatten(function(*arguments, **keywords))
        return results

    program, path = of_arrays, None
    if keeps and (folder := _folder()) is not None:
        with suppress(pickle.PicklingError):
            path = folder / digest((_versions(), function, jax.tree.unflatten(structure, kinds), precise), kept=True)
    if path is not None:
        # A damaged or unfinished entry can raise any error, and some programs cannot be kept.
        try:
            code, results = pickle.loads(gzip.decompress(path.read_bytes()))
            program, outputs = export.deserialize(bytearray(code)).call, jax.tree.structure(results)
        except Exception:
            with suppress(Exception):
                exported = export.export(jax.jit(of_arrays))(*(kind for kind in kinds if isinstance(kind, _KIND)))
                results = jax.tree.unflatten(outputs, [0] * outputs.num_leaves)
                path.write_bytes(gzip.compress(pickle.dumps((bytes(exported.serialize()), results)), 1))
                # JAX's cache gets the code that the next process will need.
                program = exported.call
    compiled = jax.jit(program, compiler_options=_options())

    def call(*arrays):
        results = compiled(*arrays)
        # The first trace sets `outputs`.
        return jax.tree.unflatten(outputs, results)

    return call


@cache
def _folder() -> Path | None:
    """Make the cache folder, and let JAX use it."""
    named = os.environ.get("THEORYKIT_CACHE", "")
    if named.casefold() == "off":
        return None
    folder = Path(named).absolute() if named else platformdirs.user_cache_path("theorykit", appauthor=False)
    try:
        # Code in this folder is run, so nobody else may write there.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_beyond(folder, _MOST_BYTES)
        if not os.access(folder, os.W_OK):
            return None
    except OSError:
        return None
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder


def remove_beyond(folder: Path, most: int) -> None:
    """Remove the least recently used files in `folder` until the rest fit in `most` bytes."""
    files = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    for path, status in sorted(files, key=lambda file: -max(file[1].st_atime, file[1].st_mtime)):
        most -= status.st_size
        if most < 0:
            path.unlink(missing_ok=True)


@cache
def _versions() -> str:
    """Name the versions of all code that takes part in a program."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")))
    versions = [getattr(sys.modules.get(name), "__version__", None) for name in _PACKAGES]
    return f"{hashlib.sha256(sources).hexdigest()} {sys.version} {versions} {jax.default_backend()}"


def digest(value: Any, *, kept: bool = False) -> str:
    """Hash a value by its content, the same in every process.

    Raises `PicklingError` for code without a name. If programs are `kept` under it, code
    outside of packages with a version counts as such.
    """
    content = io.BytesIO()
    pickler = _Pickler(content, protocol=5)
    # Equal values are pickled alike, whether or not they share their parts.
    pickler.fast, pickler.kept = True, kept
    try:
        pickler.dump(value)
    except (AttributeError, TypeError) as error:
        raise pickle.PicklingError(f"{error}") from error
    return hashlib.sha256(content.getvalue()).hexdigest()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if hasattr(value, "__qualname__"):
            name = f"{value.__module__}.{value.__qualname__}"
            if "<" in name or (self.kept and name.partition(".")[0] not in _PACKAGES):
                raise pickle.PicklingError(name)
            # A decorator may have taken its name.
            return (str, (name,)) if isinstance(value, FunctionType) else NotImplemented
        if isinstance(value, _KIND):
            return str, (repr(value),)
        elif isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return str, (str(jax.random.key_impl(value)), np.asarray(jax.random.key_data(value)))
        elif isinstance(value, _ARRAYS):
            return np.array, (str(value.dtype), np.shape(value), np.asarray(value).tobytes())
        elif hasattr(value, "program_key"):
            return type(value), (value.program_key,)
        elif is_dataclass(value):
            return type(value), tuple(getattr(value, field.name, None) for field in fields(value))
        return NotImplemented
