"""Cache compiled programs on disk, from one process to the next.

The environment variable THEORYKIT_CACHE names the folder, or is "off". By default it is theorykit's folder in the
user's cache folder. Entries that are missing, damaged or cannot be written never raise an error. The settings are
environment variables, so child processes inherit them, and JAX, whose import takes long, need not be imported.
"""

import hashlib
import os
import platform
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

import platformdirs

_FOLDER, _LIMIT = "THEORYKIT_CACHE", "THEORYKIT_CACHE_SIZE"
_OFF = ("off", "0", "no", "false")
_DEFAULT_LIMIT = 2**30
# JAX's setting for the folder of compiled functions
_JAX_FOLDER = "jax_compilation_cache_dir"
_JAX_SETTINGS = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}
# Age in seconds above which an unfinished file of another process is removed.
_STALE = 3600.0


def enable_cache(folder: str | os.PathLike | None = None, *, size_limit: int | None = None) -> Path | None:
    """Set the cache folder, and let JAX keep its compiled functions there, for this process and its child processes.

    Without this call theorykit keeps its largest programs in the default folder, and JAX keeps nothing. If JAX already
    has a folder for compiled functions, JAX keeps using that folder. Settings of JAX's cache in environment variables
    are kept too.

    Args:
        folder: the cache folder. The default is the environment variable THEORYKIT_CACHE, or else theorykit's folder in
            the user's cache folder. The code in this folder is run: give write access only to people you trust.
        size_limit: in bytes. The default is the environment variable THEORYKIT_CACHE_SIZE, or else 1 GiB. Derived
            actions, programs and JAX's functions get a third each, and the least recently used entries are removed.

    Returns:
        The folder, or None if THEORYKIT_CACHE is "off" and the cache stays off.

    Raises:
        ValueError: `folder` is a file, or `size_limit` or THEORYKIT_CACHE_SIZE is not a number of bytes.

    Example:
        >>> import theorykit
        >>> theorykit.enable_cache("/scratch/cache", size_limit=2**32)  # doctest: +SKIP
        PosixPath('/scratch/cache')
    """
    before = _named_folder()
    if os.environ.get(_FOLDER, "").strip().casefold() in _OFF:
        return None
    if size_limit is None:
        named = os.environ.get(_LIMIT, "").strip()
        if named and not (named.isascii() and named.isdigit()):
            raise ValueError(f"the environment variable {_LIMIT} must be a number of bytes, got {named!r}")
        limit = _limit()
    else:
        from .checks import checked_whole_number

        limit = checked_whole_number("size_limit", size_limit, least=0)
    if folder is not None:
        from .checks import checked_path

        chosen = checked_path("folder", folder)
    else:
        chosen = before
    if not chosen.is_absolute():
        from .checks import require_working_directory

        require_working_directory(f"the cache folder {chosen} is relative")
    chosen = chosen.expanduser().absolute()
    if chosen.exists() and not chosen.is_dir():
        raise ValueError(f"folder must be a folder or a path that does not exist yet, got the file {chosen}")
    os.environ.update({_FOLDER: str(chosen), _LIMIT: str(limit)})
    with suppress(OSError):
        chosen.mkdir(mode=0o700, parents=True, exist_ok=True)
    _keep_compiled_functions(chosen, before)
    return chosen


def disable_cache() -> None:
    """Keep nothing on disk in this process and its child processes, even if `enable_cache` is called.

    The environment variable THEORYKIT_CACHE=off has the same effect.
    """
    os.environ[_FOLDER] = _OFF[0]


def is_enabled() -> bool:
    """Check whether this process has a cache."""
    return _named_folder() is not None


def read_entry(kind: str, name: str) -> bytes | None:
    """Return the content written under this name, or None."""
    folder = _named_folder()
    if folder is None:
        return None
    try:
        # Do not follow links, and do not block on a pipe that nobody writes to.
        descriptor = os.open(folder / kind / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            # A directory cannot be opened as a file, so the type is known before.
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read()
            with suppress(OSError):  # Record the last use, for the size limit.
                os.utime(descriptor)
            return content
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return None


def write_entry(kind: str, name: str, content: bytes) -> None:
    """Write `content` under this name and replace an existing entry; do nothing if that is not possible."""
    folder = _named_folder()
    if folder is None or len(content) > _limit() // 3:
        return
    path = folder / kind / name
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        from .runs import write

        write(content, path, overwrite=True)
        remove_beyond(path.parent, _limit() // 3)


def _named_folder() -> Path | None:
    named = os.environ.get(_FOLDER, "").strip()
    if named:
        return None if named.casefold() in _OFF else Path(named)
    return platformdirs.user_cache_path("theorykit", appauthor=False)


def _limit() -> int:
    named = os.environ.get(_LIMIT, "").strip()
    return int(named) if named.isascii() and named.isdigit() else _DEFAULT_LIMIT


def _keep_compiled_functions(folder: Path, before: Path | None) -> None:
    """Let JAX cache compiled functions in `folder`. `before` is the folder from an earlier call, if any."""
    jax = sys.modules.get("jax")
    current = os.environ.get(_JAX_FOLDER.upper()) if jax is None else jax.config.jax_compilation_cache_dir
    if current is not None and (before is None or current != str(before / "jax" / machine())):
        return
    part = folder / "jax" / machine()
    try:
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(part, os.W_OK):
        return
    remove_beyond(folder / "jax", _limit() // 3)
    settings = {name: value for name, value in _JAX_SETTINGS.items() if name.upper() not in os.environ}
    for name, value in {_JAX_FOLDER: str(part), **settings}.items():
        os.environ[name.upper()] = str(value)
        if jax is not None:
            jax.config.update(name, value)
    if jax is not None and current is not None:
        from jax.experimental.compilation_cache import compilation_cache

        compilation_cache.reset_cache()


def machine() -> str:
    """Return the kind of CPU, because compiled code may use instructions that other CPUs lack."""
    name = platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
        name = hashlib.sha256(f"{name} {features}".encode()).hexdigest()[:8]
    return name


def remove_beyond(folder: Path, limit: int) -> None:
    """Remove the least recently used files in `folder` until the rest fit in `limit` bytes."""
    files, total = [], 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                files.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    for used, size, path in sorted(files, reverse=True):
        # A hidden file is unfinished: another process is writing it, or ended before it was complete.
        is_hidden = path.name.startswith(".")
        total += 0 if is_hidden else size
        if (time.time() - used > _STALE) if is_hidden else total > limit:
            with suppress(OSError):
                path.unlink()
