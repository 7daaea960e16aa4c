"""Threads of the linear algebra, by the size of its matrices.

JAX on a processor factorises by the LAPACK that SciPy brings. The threads of that library spin while they wait for each
other: a factorisation of a small matrix gains nothing by them, and takes many times longer as soon as another process
keeps one of the cores busy.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import equinox as eqx
import jax
from threadpoolctl import LibController, OpenBLASController, ThreadpoolController

# from so many rows on, two threads factorise a matrix faster than one
MANY_ROWS = 1000

_lock = Lock()
_inside: int = 0
_before: Sequence[int] = ()


@cache
def _libraries() -> list[LibController]:
    # JAX has loaded NumPy and SciPy by now, and with them their linear algebra
    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set_threads(numbers: Sequence[int]) -> None:
    for library, number in zip(_libraries(), numbers, strict=True):
        library.set_num_threads(number)
    # otherwise only the Python thread that comes first may ever set it, and a context of another could not end
    OpenBLASController.clear_controlling_thread()


def rows_of(*values: Any) -> int:
    """Return the number of rows of the largest matrix that a function of `values` may factorise.

    It is the number of rows of square matrices, or of a batch of them, and the longest axis of any other array.
    """
    most = 0
    for leaf in jax.tree.leaves(values):
        shape = leaf.shape if eqx.is_inexact_array(leaf) else ()
        if shape:
            is_square = len(shape) > 1 and shape[-1] == shape[-2]
            most = max(most, shape[-1] if is_square else max(shape))
    return most


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Within the context, factorise on one thread if matrices have fewer rows than `MANY_ROWS`.

    The number of threads belongs to the process. Contexts may be nested and may overlap in several Python threads: the
    limit is set by the first, and the last one to end restores the number of before.
    """
    global _inside, _before
    if rows >= MANY_ROWS:
        yield
        return
    with _lock:
        if _inside == 0:
            _before = [library.get_num_threads() for library in _libraries()]
            _set_threads([1] * len(_before))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _set_threads(_before)
