"""The tree of subcommands."""

from tyro.extras import SubcommandApp

from .compare import compare
from .derive import derive
from .reproduce import hidden_markov, one_shot, self_attention_dynamics
from .solve import solve
from .sweep import sweep


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
