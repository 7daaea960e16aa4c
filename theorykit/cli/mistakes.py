"""What ends a command early, each in one line on standard error; mistakes of the program keep their traceback."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..extras import MissingLibrary

_REMEDIES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, and say the same again: what is finished is kept"
    ),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a place, or a file, that you have the rights to"),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "name a file in it",
    errno.ENOTDIR: "one of the folders in its name is a file",
    errno.ENOENT: "is its name right?",
}
_INTERRUPTED = 130


@contextmanager
def tell_in_one_line() -> Iterator[None]:
    """Within it, mistakes of the user, and what disks, memory and keys do, end in `SystemExit` with one line.

    `ValueError` is how this package refuses, `OSError` how the system does, memory may not suffice for what was asked
    for, and an extra may not be installed. Other exceptions are mistakes of the program, and pass.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # whoever read the output, such as head, has enough
        sys.exit(1)
    except KeyboardInterrupt:
        print("theorykit: interrupted; what it has kept, the same command goes on from", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    except OSError as mistake:
        sys.exit(_line(_of_system(mistake)))
    except (ValueError, MissingLibrary) as mistake:
        sys.exit(_line(str(mistake)))
    except MemoryError as mistake:
        sys.exit(_line(f"there is not enough memory ({str(mistake) or 'for what is asked'}); ask for less at a time"))
    except RuntimeError as mistake:
        # how XLA says it
        if not str(mistake).startswith("RESOURCE_EXHAUSTED"):
            raise
        sys.exit(_line(f"there is not enough memory ({mistake}); ask for less at a time"))
    finally:
        _drop_what_cannot_be_written()


def _drop_what_cannot_be_written() -> None:
    """Have Python not try once more, at exit, to write what is left of the output where there is no room for it."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line(message: str) -> str:
    return f"theorykit: {' '.join(message.split())}"


def _of_system(mistake: OSError) -> str:
    if mistake.errno is None or mistake.strerror is None:
        return str(mistake)
    name = "" if mistake.filename is None else f"{os.fsdecode(mistake.filename)}: "
    remedy = _REMEDIES.get(mistake.errno)
    return f"{name}{mistake.strerror}" + ("" if remedy is None else f"; {remedy}")
