"""Compile functions with XLA options that shorten compilation times on CPUs, and keep compiled programs on disk."""

import hashlib
import math
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable

from . import cache as disk
from .checks import checked_function, is_in_traced_code
from .memory import memory_errors_in_words
from .settings import usual_settings
from .threads import threads_for

# XLA has two fusion emitters. With the older one, the large programs of a solve compile in 40 % of the time.
_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
# For functions of a few numbers, LLVM's optimisation takes several times as long as it saves, and splitting the code
# into many modules, to compile them in parallel, costs more than one module.
_OF_NUMBERS = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
# Programs are kept only if all their code is in these packages, whose versions are part of the program's name.
_PACKAGES = ("theorykit", "jax", "jaxlib", "equinox", "optimistix", "lineax", "numpy", "sympy", "builtins")
_PART = "programs"
_ARRAYS = (jax.Array, np.ndarray, np.generic)
# Number of programs of one function that stay in memory. Each takes some of the memory maps of the process.
_MOST_PROGRAMS = 64


def jit(function: Callable, *, of_numbers: Callable[..., bool] | None = None) -> Callable:
    """Compile `function` like `equinox.filter_jit`, in about half the time on a CPU. Use it for functions with solves.

    Within another jit, the options of the outer jit apply. Floats are traced like arrays, so a new temperature needs no
    compilation. On a CPU the call waits for its results, and small matrices are factorised on one thread. The compiled
    function raises `MemoryError` if an array does not fit in memory.

    Args:
        function: The function to compile.
        of_numbers: Function of the same arguments: whether they are only a few numbers. If so, compilation is several
            times as fast, and the compiled function takes about twice as long.

    Example:
        >>> import jax.numpy as jnp
        >>> import theorykit
        >>> double = theorykit.jit(lambda x: 2 * x)
        >>> float(double(jnp.array(1.5)))
        3.0
    """
    checked_function("function", function)
    if of_numbers is not None:
        checked_function("of_numbers", of_numbers)
    return _called(function, cache(lambda few: eqx.filter_jit(function, compiler_options=_options(few))), of_numbers)


def jit_and_keep(function: Callable) -> Callable:
    """Compile `function` like `jit`, and keep the programs on disk, so that other processes do not compile them again.

    The function must not raise errors at run time (`equinox.error_if`) or call back to Python.
    """
    programs = _Programs(function)
    called = _called(function, lambda few: programs)
    called.programs = programs
    return called


def _called(
    function: Callable, compiled: Callable[[bool], Callable], of_numbers: Callable[..., bool] | None = None
) -> Callable:
    part = eqx.filter_jit(function)
    name = getattr(function, "__name__", "the function").strip("_").replace("_", " ")

    @wraps(function)
    def call(*arguments, **keywords):
        if is_in_traced_code(arguments, keywords):
            with usual_settings():
                return part(*arguments, **keywords)
        leaves, structure = jax.tree.flatten((arguments, keywords))
        leaves = [np.asarray(leaf) if type(leaf) is float else leaf for leaf in leaves]
        arguments, keywords = jax.tree.unflatten(structure, leaves)
        on_cpu = jax.default_backend() == "cpu"
        whole = compiled(on_cpu and of_numbers is not None and of_numbers(*arguments, **keywords))
        with usual_settings(), memory_errors_in_words(name):
            if not on_cpu:
                return whole(*arguments, **keywords)
            with threads_for(rows_of(arguments, keywords)):
                return jax.block_until_ready(whole(*arguments, **keywords))

    return call


@cache
def _options(few: bool = False) -> Mapping[str, Any] | None:
    """Return the options that this version of XLA has, or None, since unknown options raise an error."""
    options = {}
    for wanted in (_OPTIONS, _OF_NUMBERS)[: 1 + few]:
        try:
            jax.jit(lambda: 0.0, compiler_options=wanted).lower().compile()
        except jax.errors.JaxRuntimeError:
            continue
        options |= wanted
    return options or None


def rows_of(*values: Any) -> int:
    """Bound the rows of matrices in a function of `values`: the rows of square arrays, the longest axis of others."""
    most = 0
    for leaf in jax.tree.leaves(values):
        if isinstance(leaf, _ARRAYS) and leaf.shape and leaf.dtype.kind in "fc":
            most = max(most, leaf.shape[-1] if leaf.shape[-2:-1] == leaf.shape[-1:] else max(leaf.shape))
    return most


class _Programs:
    """The compiled programs of a function, by the structure, the shapes and the other values of its arguments."""

    def __init__(self, function: Callable):
        self.function, self.programs = function, {}
        self.on_other_devices = cache(lambda: eqx.filter_jit(function, compiler_options=_options()))

    def __call__(self, *arguments, **keywords):
        leaves, structure = jax.tree.flatten((arguments, keywords))
        default = jax.config.jax_default_device or jax.local_devices()[0]
        # One loop without calls, because small solves take milliseconds.
        arrays, kinds = [], []
        for leaf in leaves:
            if isinstance(leaf, _ARRAYS):
                if isinstance(leaf, jax.Array) and leaf.devices() != {default}:
                    return self.on_other_devices()(*arguments, **keywords)
                arrays.append(leaf)
                # A program depends on shapes and types of arrays, and on the values of anything else.
                kinds.append((leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)))
            else:
                kinds.append((type(leaf), leaf))
        key = structure, default, tuple(kinds)
        if key not in self.programs:
            if len(self.programs) >= _MOST_PROGRAMS:
                self.programs.clear()
            self.programs[key] = self._program(leaves, structure, default)
        program, outputs = self.programs[key]
        return jax.tree.unflatten(outputs, program(*arrays))

    def _program(self, leaves: list[Any], structure: Any, device: Any) -> tuple[Callable, Any]:
        """Read a program from disk or compile it. Return it with the structure of its results."""
        arrays, outputs = [leaf for leaf in leaves if isinstance(leaf, _ARRAYS)], None
        is_kept = disk.is_enabled() and device == jax.local_devices()[0]
        name = _name(self.function, jax.tree.unflatten(structure, leaves)) if is_kept else None
        if name is not None and (found := _read(name, len(arrays))) is not None:
            return found

        def of_arrays(*arrays):
            nonlocal outputs
            traced = iter(arrays)
            filled = [next(traced) if isinstance(leaf, _ARRAYS) else leaf for leaf in leaves]
            arguments, keywords = jax.tree.unflatten(structure, filled)
            results, outputs = jax.tree.flatten(self.function(*arguments, **keywords))
            return results

        of_arrays.__name__ = self.function.__name__ if name is None else f"{self.function.__name__}_{name}"
        lowered = jax.jit(of_arrays, compiler_options=_options()).lower(*arrays)
        if name is None:
            return lowered.compile(), outputs
        # A program that JAX has read from its own cache cannot be serialised completely. So do not let JAX write it
        # there.
        setting = "jax_persistent_cache_min_compile_time_secs"
        before = getattr(jax.config, setting)
        jax.config.update(setting, math.inf)
        try:
            program = lowered.compile()
        finally:
            jax.config.update(setting, before)
        _write(name, program, outputs)
        return program, outputs


def _read(name: str, arrays: int) -> tuple[Callable, Any] | None:
    """Read a program of a number of arrays and the structure of its results; return None if there is none."""
    content = disk.read_entry(_PART, name)
    if content is None or _sum(name, content[32:]) != content[:32]:
        return None
    try:
        code, parts = pickle.loads(content[32:])
        inputs, device = jax.tree.structure(((0,) * arrays, {})), jax.local_devices()[0]
        outputs = jax.tree.structure(_put_together(parts))
        results = jax.tree.structure([0] * outputs.num_leaves)
        _load_lapack()
        return serialize_executable.deserialize_and_load(code, inputs, results, device.client, [device]), outputs
    except Exception:
        # The entry is from another version of JAX or another computer.
        return None


@cache
def _load_lapack() -> None:
    # JAX finds the functions of LAPACK when it lowers the first one. Without them a program from disk would crash.
    jax.jit(jnp.linalg.cholesky).lower(jnp.eye(1))


def _write(name: str, program: Callable, outputs: Any) -> None:
    try:
        parts = _take_apart(jax.tree.unflatten(outputs, [0] * outputs.num_leaves))
        content = pickle.dumps((serialize_executable.serialize(program)[0], parts))
    except Exception:
        # Some programs and some structures cannot be serialised.
        return
    disk.write_entry(_PART, name, _sum(name, content) + content)


def _sum(name: str, content: bytes) -> bytes:
    """Return a checksum that also depends on the name, because a program under another name would be a wrong one."""
    return hashlib.sha256(name.encode() + content).digest()


def _take_apart(value: Any) -> Any:
    """Write results as plain containers, because the structure of Equinox modules cannot be pickled."""
    if isinstance(value, eqx.Module):
        of_fields = {each.name: getattr(value, each.name) for each in fields(value) if hasattr(value, each.name)}
        return eqx.Module, type(value), _take_apart(of_fields)
    if isinstance(value, dict):
        return dict, {name: _take_apart(part) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value), [_take_apart(part) for part in value]
    return None, value


def _put_together(parts: Any) -> Any:
    """Return the results that were taken apart."""
    kind, *content = parts
    if kind is None:
        return content[0]
    if kind is dict:
        return {name: _put_together(part) for name, part in content[0].items()}
    if kind is not eqx.Module:
        return kind(map(_put_together, content[0]))
    of_class, of_fields = content
    module = object.__new__(of_class)
    for name, part in _put_together(of_fields).items():
        object.__setattr__(module, name, part)
    return module


def _name(function: Callable, arguments: Any) -> str | None:
    """Return the name of a program on disk, or None if its code may be in other packages."""
    try:
        text = f"{_text(function)} {_text(arguments)}"
    except _UnknownCode:
        return None
    return hashlib.sha256(f"{_versions()} {text}".encode()).hexdigest()[:32]


class _UnknownCode(Exception):
    """A value is from a package that is not listed, so its code may change without another version."""


def _text(value: Any) -> str:
    """Describe a value: shapes of arrays, fields of objects, and names of functions and classes."""
    if isinstance(value, _ARRAYS):
        return f"{value.dtype}{value.shape}{getattr(value, 'weak_type', '')}"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if type(value) in (tuple, list):
        return f"({','.join(map(_text, value))})"
    if type(value) is dict:
        return f"{{{','.join(f'{_text(key)}:{_text(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        module, name = value.__module__, value.__qualname__
        if module.partition(".")[0] not in _PACKAGES or "<" in name:
            raise _UnknownCode
        return f"{module}.{name}"
    if hasattr(value, "name_of_program"):
        name = value.name_of_program
        if name is None:
            raise _UnknownCode
        return name
    if is_dataclass(value):
        parts = (f"{field.name}={_text(getattr(value, field.name, None))}" for field in fields(value))
        return f"{_text(type(value))}({','.join(parts)})"
    raise _UnknownCode


@cache
def _versions() -> str:
    """Return a hash of the package, and the versions of everything else that takes part in a compilation."""
    package = Path(__file__).parent
    sources = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(package.rglob("*.py")))).hexdigest()
    versions = [sys.modules[name].__version__ for name in _PACKAGES if hasattr(sys.modules.get(name), "__version__")]
    device = jax.local_devices()[0]
    settings = os.environ.get("XLA_FLAGS", ""), device.device_kind, device.client.platform_version
    return f"{sources} {sys.version} {versions} {settings} {disk.machine()} {_options()}"
