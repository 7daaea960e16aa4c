"""Threads of the linear algebra, by the size of its matrices.

JAX factorises by SciPy's LAPACK, whose threads spin while they wait for each other: small matrices gain nothing by
them, and take many times longer as soon as another process keeps one of the cores busy.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import LibController, OpenBLASController, ThreadpoolController

# from so many rows on, two threads factorise a matrix faster than one
MANY_ROWS = 1000

_lock = Lock()
_inside: int = 0
_before: Sequence[int] = ()


@cache
def _libraries() -> list[LibController]:
    # the library must be loaded to be found
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set_threads(numbers: Sequence[int]) -> None:
    for library, number in zip(_libraries(), numbers, strict=True):
        library.set_num_threads(number)
    # otherwise only the Python thread that comes first may ever set it, and a context of another could not end
    OpenBLASController.clear_controlling_thread()


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Within the context, factorise on one thread if matrices have fewer rows than `MANY_ROWS`.

    Contexts may be nested, and overlap in several Python threads: the last one to end restores the number of threads.
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
