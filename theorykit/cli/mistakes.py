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
def tell_in_one_line(program: str = "theorykit") -> Iterator[None]:
    """Within it, mistakes of the user, and failures of disks and memory, end in `SystemExit` with one line.

    Other exceptions are mistakes of the program, and pass.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # the reader of the output, such as head, has enough
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"{program}: interrupted; what it has kept, the same command goes on from", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    except (OSError, ValueError, MissingLibrary, MemoryError, RuntimeError) as mistake:
        message = str(mistake)
        # XLA runs out of memory as a RuntimeError, the only one that is no mistake of the program
        if isinstance(mistake, RuntimeError) and not message.startswith("RESOURCE_EXHAUSTED"):
            raise
        if isinstance(mistake, MemoryError | RuntimeError):
            message = f"there is not enough memory ({message or 'for what is asked'}); ask for less at a time"
        elif isinstance(mistake, OSError) and mistake.errno is not None and mistake.strerror is not None:
            name = "" if mistake.filename is None else f"{os.fsdecode(mistake.filename)}: "
            remedy = f"; {_REMEDIES[mistake.errno]}" if mistake.errno in _REMEDIES else ""
            message = f"{name}{mistake.strerror}{remedy}"
        sys.exit(f"{program}: {' '.join(message.split())}")
    finally:
        # Python tries once more, at exit, to write what is left of the output where there was no room for it
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
