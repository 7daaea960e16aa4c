"""Check that arrays fit in the memory of this machine."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import jax

# Files that contain the memory limit of a container, in version 2 and version 1 of cgroups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@cache
def memory() -> float:
    """Return the memory of the machine or its container in bytes."""
    found = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for path in map(Path, _LIMITS):
        with suppress(OSError, ValueError):
            found.append(float(path.read_text()))
    return min(found)


def check_fits(what: str, size: float | int, advice: str = "") -> None:
    """Raise `ValueError`, with `advice`, unless `what` of `size` bytes fits in memory."""
    if size > memory():
        raise ValueError(
            f"{what} takes about {size:.3g} bytes of the {memory():.3g} that this machine has"
            f"{f': {advice}' if advice else ''}"
        )


@contextmanager
def memory_errors_in_words(what: str) -> Iterator[None]:
    """Replace JAX's error by a `MemoryError` with the number of bytes if an array of `what` does not fit in memory."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        asked = re.search(r"allocat\w+ (\d+) bytes", str(error))
        bytes_asked = f"{int(asked[1]):.3g} bytes at once" if asked else "more memory than there is"
        raise MemoryError(
            f"{what} needs {bytes_asked}, and this machine has {memory():.3g} in all: use fewer examples, tokens, "
            "paths or nodes"
        ) from None
