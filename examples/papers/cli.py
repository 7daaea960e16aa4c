"""The commands: what is said of each before it is imported."""

from theorykit.cli import Command, run

COMMANDS = {
    "hidden-markov": Command(
        "papers.commands:hidden_markov",
        "Classify hidden Markov chains at many widths: Figs. 2 b-e and 5 b-c of Tiberi et al.",
    ),
    "one-shot": Command(
        "papers.commands:one_shot",
        "One-shot image classification, from training to pruned heads: Figs. 3 b-f, 6 and 7 of Tiberi et al.",
    ),
    "self-attention-dynamics": Command(
        "papers.commands:self_attention_dynamics",
        "Trajectories, orbit and phase diagrams of 1-bit self-attention, as published by Poc-Lopez and Aguilera.",
    ),
}


def main() -> None:
    """Run the command that was asked for."""
    run(COMMANDS, "python examples/papers", "The papers' experiments, run whole, and their figures.")
