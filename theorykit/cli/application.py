"""The tree of subcommands. Only the one that is asked for is imported: the others would take seconds."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from tyro.extras import SubcommandApp

from ..precision import enable_float64


class Command(NamedTuple):
    """A function of a module of this package; `summary` is the first line of its docstring."""

    module: str
    function: str
    summary: str


class Group(NamedTuple):
    """Subcommands under one name."""

    commands: Mapping[str, Command]
    summary: str


_EXPERIMENTS = {
    "hidden-markov": Command(
        "reproduce",
        "hidden_markov",
        "Classify hidden Markov chains at many widths: Figs. 2 b-e and 5 b-c of Tiberi et al.",
    ),
    "one-shot": Command(
        "reproduce",
        "one_shot",
        "One-shot image classification, from training to pruned heads: Figs. 3 b-f, 6 and 7 of Tiberi et al.",
    ),
    "self-attention-dynamics": Command(
        "reproduce",
        "self_attention_dynamics",
        "Trajectories, orbit and phase diagrams of 1-bit self-attention, as published by Poc-Lopez and Aguilera.",
    ),
}
COMMANDS: Mapping[str, Command | Group] = {
    "derive": Command("derive", "derive", "Derive the action of a deep network and print it."),
    "solve": Command(
        "solve",
        "solve",
        "Solve the saddle point of an architecture on data from a file, and predict test examples if there are any.",
    ),
    "sweep": Command(
        "sweep",
        "sweep",
        "Solve the saddle point at every width and temperature of a grid, on data from a file; predict test examples.",
    ),
    "compare": Command(
        "compare",
        "compare",
        "Check theory by sampling, on data from a file: order parameters and predictions of every approach, side by "
        "side.",
    ),
    "reproduce": Group(_EXPERIMENTS, "Run a paper's experiment and draw its figures."),
}


def application(arguments: Sequence[str], commands: Mapping[str, Command | Group] = COMMANDS) -> SubcommandApp:
    """The tree of subcommands for these `arguments`: the one that they name is ready to run, of others the summary."""
    app = SubcommandApp()
    named, rest = (arguments[0], arguments[1:]) if arguments else (None, ())
    for name, command in commands.items():
        if isinstance(command, Group):
            inner = application(rest if name == named else (), command.commands)
            app.command(inner, name=name, help=command.summary)
        else:
            app.command(_load(command) if name == named else _describe(command), name=name)
    return app


def _load(command: Command) -> Callable[..., None]:
    from ..cache import enable_cache

    # the process computes in float64: JAX is told so before anything else is done with it
    enable_float64()
    enable_cache()
    return getattr(import_module(f".{command.module}", __package__), command.function)


def _describe(command: Command) -> Callable[[], None]:
    def stands_for_it() -> None:
        raise AssertionError(f"{command.function} was not imported")

    stands_for_it.__doc__ = command.summary
    return stands_for_it
