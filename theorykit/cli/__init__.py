"""The `theorykit` command: derive an action, solve saddle points, sample, reproduce a figure. No science here."""

import sys

from .. import __version__
from ..extras import needed
from .mistakes import tell_in_one_line

_DESCRIPTION = (
    "The statistical mechanics of transformers. `theorykit --version` prints the version; `theorykit --no-cache "
    "COMMAND` keeps nothing in the user's cache, as the environment variable THEORYKIT_CACHE=off does."
)


def main() -> None:
    """Entry point: mistakes of the user end in one line on standard error and exit code 1."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"theorykit {__version__}")
        return
    if arguments[:1] == ["--no-cache"]:
        # with what it imports, only where it is wanted
        from ..cache import turn_off

        turn_off()
        arguments = arguments[1:]
    with tell_in_one_line():
        for library in ("tyro", "msgspec"):
            needed(library, "the command line")
        from .application import application

        application(arguments).cli(prog="theorykit", description=_DESCRIPTION, args=arguments)
