"""Compile functions, and keep their programs on disk from one process to the next.

THEORYKIT_CACHE names the folder, or is "off"; by default it is in the user's cache
folder. It has functions from `jax.export`, and code unless JAX has its own folder.
"""

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, partial, wraps
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import platformdirs
import sympy as sp
from jax import export

from ._compat import threads_for
from .checks import checked_function, is_in_traced_code

# XLA's older fusion emitter compiles large programs in 40 % of the time.
_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
# For a few numbers, LLVM's optimisation takes longer than it saves.
_OF_NUMBERS = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
# theorykit mixes ranks and types, and some densities have infinite logarithms.
_USUAL = {
    "jax_numpy_rank_promotion": ("allow", jax.numpy_rank_promotion),
    "jax_numpy_dtype_promotion": ("standard", jax.numpy_dtype_promotion),
    "jax_debug_nans": (False, jax.debug_nans),
    "jax_debug_infs": (False, jax.debug_infs),
    "jax_disable_jit": (False, jax.disable_jit),
    "jax_check_tracer_leaks": (False, jax.check_tracer_leaks),
}
# Other code may change without another version, so its programs are not kept.
_PACKAGES = ("theorykit", "jax", "jaxlib", "equinox", "optimistix", "lineax", "numpy", "sympy", "builtins")
_ARRAYS = (jax.Array, np.ndarray, np.generic)
# Each program takes some of the memory maps of the process.
_MOST_PROGRAMS, _MOST_BYTES = 64, 2**28


@contextmanager
def usual_settings() -> Iterator[None]:
    """Use JAX's default settings, as a context or decorator."""
    # JAX keeps operations outside compiled functions there, too.
    _folder()
    with ExitStack() as settings:
        for name, (usual, set_to) in _USUAL.items():
            if getattr(jax.config, name) != usual:
                settings.enter_context(set_to(usual))
        yield


def jit(function: Callable, *, of_numbers: Callable[..., bool] | None = None) -> Callable:
    """Compile `function` like `equinox.filter_jit`, in about half the time on a CPU.

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
        arrays, kinds, home, is_home = [], [], {jax.local_devices()[0]}, True
        for leaf in leaves:
            if isinstance(leaf, _ARRAYS):
                arrays.append(leaf)
                is_home &= not isinstance(leaf, jax.Array) or leaf.devices() == home
                leaf = _Kind(leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False))
            kinds.append(leaf)
        types, is_precise = tuple(map(type, kinds)), jax.config.jax_enable_x64
        return program(structure, tuple(kinds), types, is_home, is_precise)(*arrays)

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


class _Kind(NamedTuple):
    """The kind of an array, on which its program depends."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool


def _program(function: Callable, structure: Any, kinds: tuple, types: tuple, keeps: bool, precise: bool) -> Callable:
    """Compile `function` for arguments of these kinds, or read its program from disk."""
    arguments = jax.tree.unflatten(structure, kinds)
    path, outputs = _path((function, arguments, precise)) if keeps else None, None

    def of_arrays(*arrays):
        nonlocal outputs
        traced = iter(arrays)
        leaves = [next(traced) if isinstance(kind, _Kind) else kind for kind in kinds]
        arguments, keywords = jax.tree.unflatten(structure, leaves)
        results, outputs = jax.tree.flatten(function(*arguments, **keywords))
        return results

    program = of_arrays
    if path is not None and (found := _read(path)):
        program, outputs = found
    elif path is not None:
        # Some programs cannot be serialised.
        with suppress(Exception):
            shapes = [jax.ShapeDtypeStruct(*kind[:2], weak_type=kind[2]) for kind in kinds if isinstance(kind, _Kind)]
            exported = export.export(jax.jit(of_arrays))(*shapes)
            results = jax.tree.unflatten(outputs, [0] * outputs.num_leaves)
            content = pickle.dumps((bytes(exported.serialize()), results))
            path.write_bytes(hashlib.sha256(content).digest() + content)
            # JAX's cache gets the code that the next process will need.
            program = exported.call
    compiled = jax.jit(program, compiler_options=_options())

    def call(*arrays):
        results = compiled(*arrays)
        # The first trace sets `outputs`.
        return jax.tree.unflatten(outputs, results)

    return call


def _read(path: Path) -> tuple[Callable, Any] | None:
    # An entry that is damaged, or being written, can raise any error.
    with suppress(Exception):
        content = path.read_bytes()
        if content[:32] == hashlib.sha256(content[32:]).digest():
            code, results = pickle.loads(content[32:])
            return export.deserialize(bytearray(code)).call, jax.tree.structure(results)
    return None


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


def _path(program: Any) -> Path | None:
    """Return the file of a program, or None if nothing is kept."""
    try:
        name = hashlib.sha256(f"{_versions()} {_text(program)}".encode()).hexdigest()
    except _UnknownCode:
        return None
    return None if (folder := _folder()) is None else folder / name


@cache
def _versions() -> str:
    """Name the versions of all code that takes part in a program."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")))
    versions = [getattr(sys.modules.get(name), "__version__", None) for name in _PACKAGES]
    return f"{hashlib.sha256(sources).hexdigest()} {sys.version} {versions} {jax.default_backend()}"


class _UnknownCode(Exception):
    """The code of a value may change without another version."""


def _text(value: Any) -> str:
    """Describe a value, the same in every process, with all code that it may run."""
    if value is None or type(value) in (bool, int, float, str, _Kind):
        return repr(value)
    if type(value) in (tuple, list):
        return f"({','.join(map(_text, value))})"
    if type(value) is dict:
        return f"dict{_text(sorted(value.items()))}"
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        module, name = value.__module__ or "", value.__qualname__
        # SymPy's classes for functions of users are not found in their module.
        is_lost = isinstance(value, type) and getattr(sys.modules.get(module), name, None) is not value
        if is_lost or "<" in name or module.partition(".")[0] not in _PACKAGES:
            raise _UnknownCode
        return f"{module}.{name}"
    if isinstance(value, sp.Basic):
        kinds = {type(node) for node in sp.preorder_traversal(value)}
        return f"{sorted(map(_text, kinds))}{sp.srepr(value)}"
    kind = _text(type(value))
    if hasattr(value, "program_key"):
        return f"{kind}({_text(value.program_key)})"
    if is_dataclass(value):
        return f"{kind}({','.join(_text(getattr(value, field.name, None)) for field in fields(value))})"
    raise _UnknownCode
