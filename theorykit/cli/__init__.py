"""The `theorykit` command; `run` is for programs with commands of their own, as `examples/papers` is."""

import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .. import __version__
from ..extras import needed
from ..precision import enable_float64
from .mistakes import tell_in_one_line

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
