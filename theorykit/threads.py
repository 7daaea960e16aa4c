"""Set the number of linear-algebra threads by the size of the matrices.

JAX factorises matrices with SciPy's LAPACK, whose threads spin while they wait for each other. For small matrices
threads are not faster, and they are many times slower if another process keeps a core busy.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import LibController, OpenBLASController, ThreadpoolController

# Number of rows above which two threads factorise a matrix faster than one.
MANY_ROWS = 1000

_lock = Lock()
_inside: int = 0
_before: Sequence[int] = ()


@cache
def _libraries() -> list[LibController]:
    # threadpoolctl finds only libraries that are loaded.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set_threads(numbers: Sequence[int]) -> None:
    for library, number in zip(_libraries(), numbers, strict=True):
        library.set_num_threads(number)
    # Otherwise only the first Python thread could set the number, and others could not restore it.
    OpenBLASController.clear_controlling_thread()


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Factorise on one thread within the context, if matrices have fewer rows than `MANY_ROWS`.

    Contexts may be nested, and may overlap in several Python threads. The last one to end restores the number of
    threads.
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
