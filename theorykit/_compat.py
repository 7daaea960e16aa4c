"""Double precision, optional libraries, threads of linear algebra, and memory."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module, metadata
from threading import Lock
from types import ModuleType
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController

MANY_ROWS = 1000
"""Number of rows from which two threads factorise a matrix faster than one."""

# Before jaxlib 0.11.2, batched calls of LAPACK wait for ever if no other thread of XLA is idle.
if metadata.version("jaxlib") < "0.11.2":
    os.environ.setdefault("NPROC", str(max(16, os.cpu_count() or 1)))

# The extra that installs an optional library.
_EXTRAS = {"matplotlib": "plots", "hypothesis": "testing", "arviz_stats": "sampling", "numpyro": "sampling"}


def enable_float64() -> None:
    """Switch JAX to 64-bit numbers, in this process and in processes that it starts.

    Call this before you create arrays.

    Example:
        >>> import jax.numpy as jnp
        >>> import theorykit
        >>> theorykit.enable_float64()
        >>> jnp.zeros(3).dtype
        dtype('float64')
    """
    os.environ["JAX_ENABLE_X64"] = "1"
    # Importing JAX takes most of a second, and it will read the variable.
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)


def require_float64() -> None:
    """Raise `RuntimeError` unless JAX computes in 64 bits."""
    import jax

    if not jax.config.jax_enable_x64:
        raise RuntimeError("theorykit computes in float64: call theorykit.enable_float64() first")


def needed(module: str, feature: str) -> ModuleType:
    """Import `module`, or raise `ImportError` with the `feature` and how to install it."""
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        # An installed library may lack another one, which the error names.
        if (error.name or library).partition(".")[0] != library:
            raise
        command = f"pip install -e '.[{_EXTRAS[library]}]'"
        message = f"{feature} needs {library.replace('_', '-')}: in a clone of theorykit, run {command}"
        raise ImportError(message, name=library) from None


_lock = Lock()
_inside = 0
_limiter: Any = None


@cache
def _blas() -> ThreadpoolController:
    # Only libraries that are loaded are found. JAX factorises with SciPy's.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Factorise matrices with fewer rows than `MANY_ROWS` on one thread.

    Threads spin while they wait: if another process keeps a core busy, small matrices
    take many times as long. Contexts may overlap in several Python threads.
    """
    global _inside, _limiter
    if rows >= MANY_ROWS:
        yield
        return
    with _lock:
        if _inside == 0:
            _limiter = _blas().limit(limits=1)
            # Otherwise only this Python thread could set the number back.
            OpenBLASController.clear_controlling_thread()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limiter.restore_original_limits()
                OpenBLASController.clear_controlling_thread()


def check_fits(what: str, size: float | int) -> None:
    """Raise `ValueError` unless `what` of `size` bytes fits in the memory of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise ValueError(f"{what} takes {size:.3g} bytes, of {memory:.3g} on this machine")
