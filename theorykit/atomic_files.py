"""Write files atomically and mark them as written by theorykit. Files without the mark are never replaced.

A file is written under a hidden name and renamed once it is complete and on disk. The mark is the last line of text,
PDF and netCDF files, the comment of an npz archive, and the keyword Software of a PNG. In netCDF files and archives the
mark follows the SHA-256 sum of all preceding bytes.
"""

import hashlib
import io
import os
import re
import secrets
import socket
import stat
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .checks import checked_flag, checked_path

MARK = "written by theorykit"
SOFTWARE = "theorykit"
_COMMENTS = {
    **dict.fromkeys((".md", ".svg", ".html"), f"<!-- {MARK} -->"),
    **dict.fromkeys((".tex", ".pdf"), f"% {MARK}"),
    **dict.fromkeys((".py", ".toml"), f"# {MARK}"),
}
_SUM = re.compile(rb"\nsha256 ([0-9a-f]{64}) " + MARK.encode() + rb"\n\Z")
_SUM_LENGTH = len(f"\nsha256 {64 * '0'} {MARK}\n")
# End of a temporary file's name: a hash of the host, the process id and a random number.
_TEMPORARY = re.compile(r"([0-9a-f]{8})-([1-9][0-9]*)-[0-9a-f]{8}")
# Temporary files that this process is writing now.
_WRITTEN: set[str] = set()
# Age in seconds above which another host's temporary file is removed: we cannot see whether its process still runs.
_ABANDONED = 86_400.0
# Bytes at the start of a file that can contain the mark of a PNG, one of its first chunks.
_HEAD = 512
# Bytes at the end of a file that can contain any other mark; the longest has about 100.
_TAIL = 256


def mark(content: bytes, ending: str) -> bytes:
    """Add the mark to `content` as a comment, by the `ending` of its file: .md, .html, .tex, .py, .pdf or .svg."""
    return content + b"\n" * (not content.endswith(b"\n")) + _COMMENTS[ending].encode() + b"\n"


def with_sum(content: bytes | memoryview) -> bytes:
    """Append the SHA-256 sum and the mark as a last line, for formats whose readers stop before it."""
    return b"".join((content, f"\nsha256 {hashlib.sha256(content).hexdigest()} {MARK}\n".encode()))


def is_damaged(content: bytes) -> bool:
    """Check whether `content` ends in a sum from `with_sum` that does not match the bytes before it."""
    found = _SUM.search(content, max(0, len(content) - _SUM_LENGTH))
    return found is not None and hashlib.sha256(memoryview(content)[: found.start()]).hexdigest().encode() != found[1]


def is_whole(content: bytes) -> bool:
    """Check whether `content` ends in a correct sum from `with_sum` or `npz`."""
    return _SUM.search(content, max(0, len(content) - _SUM_LENGTH)) is not None and not is_damaged(content)


def is_marked(path: Path) -> bool:
    """Check whether the file at `path` carries the mark."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        tail = file.read()
    if head.startswith(b"\x89PNG"):
        return b"tEXtSoftware\0" + SOFTWARE.encode() in head
    last = tail.rstrip().rsplit(b"\n", 1)[-1].decode(errors="replace")
    return last in _COMMENTS.values() or _SUM.search(tail) is not None


def npz(arrays: Mapping[str, Any]) -> bytes:
    """Return an npz archive of `arrays`, with its sum and the mark as its comment."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    # An archive ends in the length of its comment, which is zero so far, and the comment.
    return with_sum(content.getvalue()[:-2] + _SUM_LENGTH.to_bytes(2, "little"))


def refuse_to_overwrite(path: Path, overwrite: bool) -> None:
    """Raise `FileExistsError` unless `path` is free, or is a marked file and `overwrite` is set."""
    path = checked_path("path", path)
    checked_flag("overwrite", overwrite)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise FileExistsError(f"{path} exists and is a folder; choose another output")
    if not stat.S_ISREG(mode):
        raise FileExistsError(f"{path} exists and is not a regular file; choose another output")
    if not is_marked(path):
        raise FileExistsError(
            f"{path} exists without theorykit's mark: another program wrote or changed it. Choose another output, or "
            "move the file away"
        )
    if not overwrite:
        raise FileExistsError(f"{path} exists; choose another output, or replace it with overwrite=True (--overwrite)")


def write(content: bytes | memoryview, path: Path, *, overwrite: bool = False) -> None:
    """Write `content` to `path` atomically, after the checks of `refuse_to_overwrite`.

    Links are followed. A replaced file keeps its permissions and owner.
    """
    path = checked_path("path", path)
    refuse_to_overwrite(path, overwrite)
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    temporary = temporary_name(target)
    _WRITTEN.add(temporary.name)
    try:
        if target.exists():
            before = os.stat(target)
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with suppress(PermissionError):  # only the superuser may give files away
                os.chown(temporary, before.st_uid, before.st_gid)
            os.chmod(temporary, stat.S_IMODE(before.st_mode))
        else:
            temporary.touch(exist_ok=False)
        temporary.write_bytes(content)
        # Flush before renaming, so that `path` is complete even after a power failure.
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        # Name the user's file, not the temporary one.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        _WRITTEN.discard(temporary.name)


def temporary_name(target: Path) -> Path:
    """Return a hidden name next to `target` that is unique among threads, processes and hosts."""
    # File names are limited to 255 bytes.
    start = target.name.encode()[:200].decode(errors="ignore")
    return target.with_name(f".{start}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}")


@cache
def _host() -> str:
    return hashlib.sha256(f"{socket.gethostname()} {uuid.getnode()}".encode()).hexdigest()[:8]


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of `target` from processes that have ended, and from other hosts after a day."""
    beginning = temporary_name(target).name.rpartition(".")[0] + "."
    for entry in os.scandir(target.parent):
        found = _TEMPORARY.fullmatch(entry.name.removeprefix(beginning)) if entry.name.startswith(beginning) else None
        if found is None or entry.name in _WRITTEN or not entry.is_file(follow_symlinks=False):
            continue
        with suppress(FileNotFoundError):  # Another process may remove it first.
            if found[1] == _host():
                is_abandoned = not _runs(int(found[2]))
            else:
                is_abandoned = time.time() - entry.stat().st_mtime > _ABANDONED
            if is_abandoned:
                Path(entry).unlink()


def _runs(process: int) -> bool:
    """Check whether a process may still be writing. An earlier process with our own id has ended."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return process != os.getpid()
