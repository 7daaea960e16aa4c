"""The `theorykit` command: derive an action, solve saddle points, sample, reproduce a figure. No science here."""

import sys

from .. import __version__
from .application import application
from .mistakes import tell_in_one_line


def main() -> None:
    """Entry point: mistakes of the user end in one line on standard error and exit code 1."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"theorykit {__version__}")
        return
    with tell_in_one_line():
        description = "The statistical mechanics of transformers. `theorykit --version` prints the version."
        application(arguments).cli(prog="theorykit", description=description, args=arguments)
