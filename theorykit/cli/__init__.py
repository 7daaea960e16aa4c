"""The `theorykit` command: derive an action, solve saddle points, sample, reproduce a figure. No science here.

The process computes in float64: the command asks for it before anything else.
"""

import sys

from tyro.extras import SubcommandApp

from ..precision import enable_float64
from .compare import compare
from .derive import derive
from .reproduce import hidden_markov, one_shot, self_attention_dynamics
from .solve import solve
from .sweep import sweep

_EXPECTED = (ValueError, ConnectionError, FileExistsError, FileNotFoundError, PermissionError)


def application() -> SubcommandApp:
    """The tree of subcommands."""
    reproduce = SubcommandApp()
    reproduce.command(hidden_markov, name="hidden-markov")
    reproduce.command(one_shot, name="one-shot")
    reproduce.command(self_attention_dynamics, name="self-attention-dynamics")
    app = SubcommandApp()
    app.command(derive)
    app.command(solve)
    app.command(sweep)
    app.command(compare)
    app.command(reproduce, name="reproduce", help="Run a paper's experiment and draw its figures.")
    return app


def main() -> None:
    """Entry point: mistakes of the user end in one line on standard error and exit code 1."""
    enable_float64()
    try:
        application().cli(prog="theorykit", description="The statistical mechanics of transformers.")
    except _EXPECTED as mistake:
        sys.exit(f"theorykit: {mistake}")
