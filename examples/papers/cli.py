"""The commands, with help texts that need no import of the experiments."""

from theorykit.cli import Command, run

COMMANDS = {
    "one-shot": Command(
        "papers.commands.one_shot:one_shot",
        "Run one-shot image classification, from training to pruned heads: Figs. 3 b-f, 6 and 7 of Tiberi et al.",
    ),
}


def main() -> None:
    """Run the command from the command line."""
    run(COMMANDS, "python examples/papers", "Run the papers' experiments and draw their figures.")
