"""What the parameters of the public callables of diagrams are; none of the mistakes may come to iterate an orbit."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np

from theorykit import dmft
from theorykit.dmft import diagrams
from theorykit.dmft.diagrams import OrbitSettings

from .engine import Face
from .values import Kind, flag, instance, number, path, whole_number

CONTEXT, PATTERNS = 3, 2
BRIEF = OrbitSettings(transient=0, recorded=20, exponents=0, levels=11, sections=())
CARRIED = replace(BRIEF, transient=6)
TWO_EXPONENTS = OrbitSettings(transient=0, recorded=20, exponents=2, levels=11, sections=())
ATTENTION = np.random.default_rng(0).uniform(-0.5, 0.5, size=(CONTEXT, PATTERNS))


@cache
def weights(patterns=PATTERNS):
    return dmft.iid_weights(patterns, 5, 2, key=jax.random.key(0))


@cache
def model(context=CONTEXT, patterns=PATTERNS):
    return dmft.self_attention_limit(weights(patterns), context)


def begin(model, parameters):
    return dmft.window_start(model, parameters, dmft.pattern_prompt(weights()))


def elsewhere(other):
    """A start of another network."""
    return lambda model, parameters: dmft.window_start(other, parameters, dmft.pattern_prompt(weights(other.patterns)))


def windows(batch=(2,)):
    return dmft.Window(
        np.broadcast_to(ATTENTION.reshape(CONTEXT, PATTERNS, *(1 for _ in batch)), ATTENTION.shape + batch)
    )


def settings():
    of_others = {"of patterns that there are not": OrbitSettings(recorded=20, sections=((0, 5),))}
    return Kind(lambda: BRIEF, also=lambda: {"a dictionary of them": vars(BRIEF), **of_others}, called=("sections",))


def start():
    also = {
        "of another context": elsewhere(model(context=4)),
        "of other patterns": elsewhere(model(patterns=3)),
        "a state": begin(model(), dmft.Parameters(1.5, 4.0, 0.1)),
    }
    return Kind(lambda: begin, also=lambda: also)


FACE = Face(
    diagrams,
    {
        "model": instance(
            model, "network", "start", also=lambda: {"weights": weights(), "of other patterns": model(patterns=3)}
        ),
        "parameters": instance(
            lambda: dmft.Parameters([1.5, 1.6], 4.0, 0.1),
            also=lambda: {
                "of no axis": dmft.Parameters(1.5, 4.0, 0.1),
                "of two axes": dmft.Parameters(np.full((2, 2), 1.5), 4.0, 0.1),
            },
        ),
        "phase_diagram.parameters": instance(
            lambda: dmft.Parameters([1.5, 1.6], [[4.0]], 0.1),
            also=lambda: {
                "of one axis": dmft.Parameters([1.5, 1.6], 4.0, 0.1),
                "of every pair": dmft.Parameters(np.full((2, 2), 1.5), 4.0, 0.1),
            },
        ),
        "coexisting_attractors.parameters": instance(
            lambda: dmft.Parameters(1.5, 4.0, 0.1), also=lambda: {"a batch": dmft.Parameters([1.5, 1.6], 4.0, 0.1)}
        ),
        "start": start(),
        "settings": settings(),
        "continuation_diagram.settings": instance(
            lambda: CARRIED,
            also=lambda: {"a dictionary of them": vars(BRIEF), "of less than a window": BRIEF},
        ),
        "phase_diagram.settings": instance(
            lambda: TWO_EXPONENTS,
            also=lambda: {"a dictionary of them": vars(BRIEF), "of one exponent": OrbitSettings(exponents=1)},
        ),
        "folder": path(lambda: None),
        "executor": Kind(lambda: None),
        "progress": flag(),
        "label": Kind(lambda: "orbits", {"text": "text"}),
        "window": instance(lambda: dmft.Window(ATTENTION), also=lambda: {"an array": ATTENTION, "a batch": windows()}),
        "windows": instance(
            windows,
            also=lambda: {
                "an array": ATTENTION,
                "of one start": dmft.Window(ATTENTION),
                "of two axes": windows((2, 2)),
                "of another context": dmft.Window(np.zeros((4, PATTERNS, 2))),
            },
        ),
        "count": whole_number(2, least=1),
        "spread": number(0.1, least=0.0),
        "key": instance(lambda: jax.random.key(0), also=lambda: {"two keys": jax.random.split(jax.random.key(0))}),
        "tolerance": number(0.01, least=0.0),
        "centre": whole_number(1, least=-2, most=1),
        "transient": whole_number(0, least=0),
        "recorded": whole_number(20, least=20),
        "exponents": whole_number(0, least=0),
        "levels": whole_number(11, least=2),
        "sections": Kind(
            lambda: ((0, 1),),
            {name: "no section" for name in ("an empty list", "an empty array")},
            lambda: {"of one pattern": ((0,),), "of fractions": ((0, 1.5),), "below zero": ((0, -1),)},
        ),
        "width": number(0.001, above=0.0),
        "measured": whole_number(20, least=20),
    },
    given={"continuation_diagram": ("settings",)},
)
