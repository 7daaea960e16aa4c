"""The user's cache: derived actions, and JAX's machine code, kept from one process to the next.

There is none unless `enable_cache` is called, as the command line does, or the environment variable THEORYKIT_CACHE
names its folder. An entry that is missing, damaged or cannot be written is never an error. The settings are environment
variables, so that processes that this one starts have them too.
"""

import hashlib
import os
import platform
import stat
import time
from contextlib import suppress
from pathlib import Path

import platformdirs

from . import atomic_files
from .checks import checked_path, checked_whole_number, shown

_FOLDER, _LIMIT = "THEORYKIT_CACHE", "THEORYKIT_CACHE_SIZE"
_OFF = ("off", "0", "no", "false")
_DEFAULT_LIMIT = 2**30
# how JAX is told to keep all that it compiles
_JAX_FOLDER = "jax_compilation_cache_dir"
_JAX_SETTINGS = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}
# after how many seconds a file of a process that did not finish it is removed
_STALE = 3600.0


def enable_cache(folder: str | os.PathLike | None = None, *, size_limit: int | None = None) -> Path | None:
    """Keep derived actions and compiled functions in `folder`, for this process and those that it starts.

    JAX is left as it is if you have given it a folder for its compiled functions; so are the settings of its cache that
    environment variables make.

    Args:
        folder: By default the one that the environment variable THEORYKIT_CACHE names, or else a folder of theorykit in
            the user's cache folder. JAX runs what is in it: let only people whom you trust write to it.
        size_limit: In bytes, by default THEORYKIT_CACHE_SIZE, or 1 GiB. Half of it is for either part; what has been
            unused for the longest time is removed.

    Returns:
        The folder; None, and nothing is done, if THEORYKIT_CACHE is "off".
    """
    before = _named_folder()
    if os.environ.get(_FOLDER, "").strip().casefold() in _OFF:
        return None
    if size_limit is None:
        named = os.environ.get(_LIMIT, "").strip()
        if named and not (named.isascii() and named.isdigit()):
            raise ValueError(f"the environment variable {_LIMIT} must be a number of bytes, got {shown(named)}")
        limit = _limit()
    else:
        limit = checked_whole_number("size_limit", size_limit, least=0)
    if folder is not None:
        chosen = checked_path("folder", folder)
    else:
        chosen = before or platformdirs.user_cache_path("theorykit", appauthor=False)
    chosen = chosen.expanduser().absolute()
    if chosen.exists() and not chosen.is_dir():
        raise ValueError(f"folder must be a folder, or none yet, got the file {chosen}")
    os.environ.update({_FOLDER: str(chosen), _LIMIT: str(limit)})
    with suppress(OSError):
        chosen.mkdir(mode=0o700, parents=True, exist_ok=True)
    _keep_compiled_functions(chosen, before)
    return chosen


def turn_off() -> None:
    """Have no cache in this process and those that it starts, also where one is asked for."""
    os.environ[_FOLDER] = _OFF[0]


def is_enabled() -> bool:
    """Whether there is a cache in this process."""
    return _named_folder() is not None


def read_entry(kind: str, name: str) -> bytes | None:
    """What was written under this name, or None."""
    folder = _named_folder()
    if folder is None:
        return None
    try:
        # neither what a link points to, nor a pipe, which nobody may ever write to
        descriptor = os.open(folder / kind / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file, suppress(OSError):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            content = file.read()
            with suppress(OSError):  # when it was last used, for the limit of size
                os.utime(descriptor)
            return content
    return None


def write_entry(kind: str, name: str, content: bytes) -> None:
    """Keep `content` under this name, in the place of what was there; nothing if that is not possible."""
    folder = _named_folder()
    if folder is None or len(content) > _limit() // 2:
        return
    path = folder / kind / name
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # what is damaged has no mark of theorykit, without which no file is replaced
        path.unlink(missing_ok=True)
        atomic_files.write(content, path)
        _remove_beyond(path.parent, _limit() // 2)


def _named_folder() -> Path | None:
    named = os.environ.get(_FOLDER, "").strip()
    return None if not named or named.casefold() in _OFF else Path(named)


def _limit() -> int:
    named = os.environ.get(_LIMIT, "").strip()
    return int(named) if named.isascii() and named.isdigit() else _DEFAULT_LIMIT


def _keep_compiled_functions(folder: Path, before: Path | None) -> None:
    """Have JAX keep what it compiles in `folder`; `before` is the folder that it may have been told of here."""
    import jax

    current = jax.config.jax_compilation_cache_dir
    if current is not None and (before is None or current != str(_of_compiled(before))):
        return
    part = _of_compiled(folder)
    try:
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(part, os.W_OK):
        return
    _remove_beyond(folder / "jax", _limit() // 2)
    settings = {name: value for name, value in _JAX_SETTINGS.items() if name.upper() not in os.environ}
    for name, value in {_JAX_FOLDER: str(part), **settings}.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)
    if current is not None:
        from jax.experimental.compilation_cache import compilation_cache

        compilation_cache.reset_cache()


def _of_compiled(folder: Path) -> Path:
    """The folder of compiled functions of machines like this one: others may lack instructions that it has."""
    machine = platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
        machine = hashlib.sha256(f"{machine} {features}".encode()).hexdigest()[:8]
    return folder / "jax" / machine


def _remove_beyond(folder: Path, limit: int) -> None:
    """Remove files in `folder`, the one unused for the longest time first, until the others have `limit` bytes."""
    files, total = [], 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                files.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    for used, size, path in sorted(files, reverse=True):
        # one that is hidden is under way in another process, or left by one that ended
        is_hidden = path.name.startswith(".")
        total += 0 if is_hidden else size
        if (time.time() - used > _STALE) if is_hidden else total > limit:
            with suppress(OSError):
                path.unlink()
