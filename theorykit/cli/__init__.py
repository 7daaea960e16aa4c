"""The `theorykit` command; `run` is for programs with commands of their own, as `examples/papers` is."""

import errno
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from .. import __version__
from ..extras import MissingLibrary, needed
from ..precision import enable_float64

__all__ = ["Command", "run"]


class Command(NamedTuple):
    """A function, as "module:function", and the first line of its docstring, known before the module is imported."""

    function: str
    summary: str


_COMMANDS = {
    "derive": Command("theorykit.cli.derive:derive", "Derive the action of a deep network and print it."),
    "solve": Command(
        "theorykit.cli.commands:solve",
        "Solve the saddle point of an architecture on data from a file, and predict test examples if there are any.",
    ),
    "sweep": Command(
        "theorykit.cli.commands:sweep",
        "Solve the saddle point at every width and temperature of a grid, on data from a file; predict test examples.",
    ),
    "compare": Command(
        "theorykit.cli.commands:compare",
        "Check theory by sampling, on data from a file: order parameters and predictions of every approach, side by "
        "side.",
    ),
}


def main() -> None:
    """Entry point of the `theorykit` command."""
    run(_COMMANDS, "theorykit", "The statistical mechanics of transformers.")


def run(commands: Mapping[str, Command], program: str, description: str) -> None:
    """Run the command that `sys.argv` names, with its options, as `theorykit` runs its own.

    Mistakes of the user end in one line on standard error and exit code 1. `--version`, and `--no-cache` before a
    command, are understood, too. Only the command that is asked for is imported.
    """
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"theorykit {__version__}")
        return
    if arguments[:1] == ["--no-cache"]:
        from ..cache import turn_off

        turn_off()
        arguments = arguments[1:]
    with tell_in_one_line(program):
        for library in ("tyro", "msgspec"):
            needed(library, "the command line")
        from tyro.extras import SubcommandApp

        app = SubcommandApp()
        for name, command in commands.items():
            # the others would take seconds to import, and show their summary alone
            app.command(_load(command) if arguments[:1] == [name] else _describe(command), name=name)
        more = (
            f"`{program} --version` prints the version; `{program} --no-cache COMMAND` keeps nothing in the user's "
            "cache, as the environment variable THEORYKIT_CACHE=off does."
        )
        app.cli(prog=program, description=f"{description} {more}", args=arguments)


def _load(command: Command) -> Callable[..., None]:
    from ..cache import enable_cache

    # JAX is told before anything else is done with it
    enable_float64()
    enable_cache()
    return pkgutil.resolve_name(command.function)


def _describe(command: Command) -> Callable[[], None]:
    def stands_for_it() -> None:
        raise AssertionError(f"{command.function} was not imported")

    stands_for_it.__doc__ = command.summary
    return stands_for_it


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
