"""The `theorykit` command: derive an action, solve saddle points, sample, reproduce a figure. No science here.

The process computes in float64: the command asks for it before anything else.
"""

from ..precision import enable_float64
from .mistakes import told_in_one_line


def main() -> None:
    """Entry point: mistakes of the user end in one line on standard error and exit code 1."""
    enable_float64()
    with told_in_one_line():
        from .application import application  # takes seconds, in which it may be interrupted

        application().cli(prog="theorykit", description="The statistical mechanics of transformers.")
