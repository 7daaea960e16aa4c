"""The `theorykit` command."""

import difflib
import errno
import itertools
import os
import pkgutil
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from functools import wraps
from typing import Any, NamedTuple, NoReturn, get_origin, get_type_hints

from .. import __version__
from .._compat import MissingLibrary, enable_float64, needed

__all__ = ["Command", "run"]


class Command(NamedTuple):
    """A command of a program.

    - `function`: the function, as "module:function".
    - `summary`: the first line of its docstring, which is shown without importing the module.
    """

    function: str
    summary: str


_COMMANDS = {
    "derive": Command("theorykit.cli.derive:derive", "Derive the action of a deep network and print it."),
    "init": Command("theorykit.cli.init:init", "Write a commented configuration for a data file, to start from."),
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
    """Run the `theorykit` command."""
    run(_COMMANDS, "theorykit", "The statistical mechanics of transformers.")


def run(commands: Mapping[str, Command], program: str, description: str) -> None:
    """Run the command in `sys.argv` with its options.

    User errors are shown in one line on standard error, with exit code 1. `--version` is supported, and so is
    `--no-cache` before a command. Only the module of the requested command is imported.

    Args:
        commands: the commands by name.
        program: name of the program.
        description: text for the help page of the program.
    """
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"theorykit {__version__}")
        return
    cached = arguments[:1] != ["--no-cache"]
    arguments = arguments if cached else arguments[1:]
    with tell_in_one_line(program):
        for library in ("tyro", "msgspec"):
            needed(library, "the command line")
        name = arguments[0] if arguments else ""
        if not arguments:
            _leave(f"{program}: no command is given; `{program} --help` lists them")
        if name not in commands and not name.startswith("-"):
            _refuse_usage(program, "command", name, commands)
        from tyro.extras import SubcommandApp

        app, loaded = SubcommandApp(), _load(commands[name], program, cached) if name in commands else None
        if loaded is not None:
            options = _options(loaded)
            for given, following in itertools.pairwise([*arguments[1:], "--"]):
                argument = given.partition("=")[0].replace("_", "-")
                if argument.startswith("--") and argument not in options:
                    _refuse_usage(f"{program} {name}", "option", argument, options)
                # tyro takes this for an empty sequence.
                if "=" not in given and get_origin(options.get(argument)) is tuple and following.startswith("--"):
                    _leave(f"{program} {name}: `{given}` needs one value or more; `{program} {name} --help` shows it")
        for each, command in commands.items():
            # Show only the summaries of the other commands, so that their modules need not be imported.
            app.command(loaded if each == name else _describe(command), name=each)
        more = (
            f"`{program} --version` prints the version. `{program} --no-cache COMMAND` runs a command without the "
            "user's cache, like the environment variable THEORYKIT_CACHE=off."
        )
        app.cli(prog=program, description=f"{description} {more}", args=arguments)


def _load(command: Command, program: str, cached: bool) -> Callable[..., None]:
    """Load the function of a command, which runs in double precision, with the cache if it is `cached`."""
    enable_float64()
    function = pkgutil.resolve_name(command.function)

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> None:
        if not cached:
            os.environ["THEORYKIT_CACHE"] = "off"
        function(*arguments, **options)

    return call


def _options(function: Callable[..., None]) -> Mapping[str, Any]:
    """Return the types of options that tyro makes from arguments, and from fields of dataclasses among them."""

    def options_in(kinds: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        for name, kind in kinds.items():
            if is_dataclass(kind):
                yield from options_in(get_type_hints(kind), prefix=f"{prefix}{name}." if kinds is not arguments else "")
            else:
                plain = f"{prefix}{name}".replace("_", "-")
                yield from [(f"--{plain}", kind), (f"--no-{plain}", kind)][: 1 + (kind is bool)]

    arguments = get_type_hints(function)
    return {"--": None, "--help": None, **dict(options_in(arguments))}


def _refuse_usage(program: str, kind: str, word: str, known: Collection[str]) -> NoReturn:
    close = difflib.get_close_matches(word, known, n=1)
    meant = f"did you mean `{close[0]}`?" if close else f"`{program} --help` lists them"
    _leave(f"{program}: no {kind} `{word}`; {meant}")


def _leave(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(_USAGE)


def _describe(command: Command) -> Callable[[], None]:
    def stands_for_it() -> None:
        raise AssertionError(f"{command.function} was not imported")

    stands_for_it.__doc__ = command.summary
    return stands_for_it


_REMEDIES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free disk space and run it again: finished work is kept"
    ),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a folder or file for which you have permission"),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "pass a file in this folder",
    errno.ENOTDIR: "one of the folders in the path is a file",
    errno.ENOENT: "check the path",
}
_USAGE, _INTERRUPTED = 2, 130


_RESUMED = "interrupted; run the same command again to resume from what was kept"


@contextmanager
def tell_in_one_line(program: str = "theorykit") -> Iterator[None]:
    """Convert user errors and failures of disks and memory to `SystemExit` with a message of one line.

    Other exceptions are bugs and are not caught.
    """
    shown = warnings.formatwarning
    warnings.formatwarning = lambda message, *_: f"{program}: warning: {' '.join(str(message).split())}\n"
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output, such as head, has closed the pipe.
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"{program}: {_RESUMED}", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    except (OSError, ValueError, MissingLibrary, MemoryError, RuntimeError) as mistake:
        message = str(mistake)
        # XLA reports a lack of memory as RuntimeError. Any other RuntimeError is a bug.
        if isinstance(mistake, RuntimeError) and not message.startswith("RESOURCE_EXHAUSTED"):
            raise
        if isinstance(mistake, MemoryError | RuntimeError):
            message = f"there is not enough memory ({message or 'for this computation'}); use a smaller problem"
        elif isinstance(mistake, OSError) and mistake.errno is not None and mistake.strerror is not None:
            name = "" if mistake.filename is None else f"{os.fsdecode(mistake.filename)}: "
            remedy = f"; {_REMEDIES[mistake.errno]}" if mistake.errno in _REMEDIES else ""
            message = f"{name}{mistake.strerror}{remedy}"
        sys.exit(f"{program}: {' '.join(message.split())}")
    finally:
        warnings.formatwarning = shown
        # If the disk is full, Python would try to write buffered output again at exit, so redirect it.
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
