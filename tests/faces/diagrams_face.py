"""The parameters of diagrams; no mistake may come to iterate an orbit."""

from dataclasses import replace

import jax
import numpy as np

from theorykit import dmft
from theorykit.dmft import diagrams
from theorykit.dmft.diagrams import OrbitSettings

from .engine import Face
from .values import EMPTY, of, whole_number

CONTEXT, PATTERNS = 3, 2
BRIEF = OrbitSettings(transient=0, recorded=20, exponents=0, levels=11, sections=())
ATTENTION = np.random.default_rng(0).uniform(-0.5, 0.5, size=(CONTEXT, PATTERNS))
WEIGHTS, OTHER_WEIGHTS = (dmft.iid_weights(patterns, 5, 2, key=jax.random.key(0)) for patterns in (PATTERNS, 3))
MODEL, LONGER = (dmft.self_attention_limit(WEIGHTS, context) for context in (CONTEXT, 4))
OTHER = dmft.self_attention_limit(OTHER_WEIGHTS, CONTEXT)
POINT, LINE = dmft.Parameters(1.5, 4.0, 0.1), dmft.Parameters([1.5, 1.6], 4.0, 0.1)
IN_WORDS = {"as_a_dictionary": vars(BRIEF)}


def begin(model, parameters):
    return dmft.window_start(model, parameters, dmft.pattern_prompt(WEIGHTS))


def elsewhere(other, weights):
    """A start of another network."""
    return lambda model, parameters: dmft.window_start(other, parameters, dmft.pattern_prompt(weights))


def windows(*batch):
    return dmft.Window(np.broadcast_to(ATTENTION.reshape(*ATTENTION.shape, *(1 for _ in batch)), (3, 2, *batch)))


FACE = Face(
    diagrams,
    {
        "model": of(MODEL, "network", "start", weights=WEIGHTS, of_other_patterns=OTHER),
        "parameters": of(LINE, of_no_axis=POINT, of_two_axes=dmft.Parameters(np.full((2, 2), 1.5), 4.0, 0.1)),
        "phase_diagram.parameters": of(
            dmft.Parameters([1.5, 1.6], [[4.0]], 0.1),
            of_one_axis=LINE,
            of_every_pair=dmft.Parameters(np.full((2, 2), 1.5), 4.0, 0.1),
        ),
        "coexisting_attractors.parameters": of(POINT, batch=LINE),
        "start": of(
            begin,
            of_another_context=elsewhere(LONGER, WEIGHTS),
            of_other_patterns=elsewhere(OTHER, OTHER_WEIGHTS),
            state=begin(MODEL, POINT),
        ),
        "settings": of(BRIEF, "sections", **IN_WORDS, of_other_patterns=OrbitSettings(recorded=20, sections=((0, 5),))),
        "continuation_diagram.settings": of(replace(BRIEF, transient=6), **IN_WORDS, of_less_than_a_window=BRIEF),
        "phase_diagram.settings": of(
            replace(BRIEF, exponents=2), **IN_WORDS, of_one_exponent=OrbitSettings(exponents=1)
        ),
        "window": of(dmft.Window(ATTENTION), array=ATTENTION, batch=windows(2)),
        "windows": of(
            windows(2),
            array=ATTENTION,
            of_one_start=dmft.Window(ATTENTION),
            of_two_axes=windows(2, 2),
            of_another_context=dmft.Window(np.zeros((4, PATTERNS, 2))),
        ),
        "centre": whole_number(1, least=-2, most=1),
        "recorded measured": whole_number(20, least=20),
        "sections": of(((0, 1),), admits=EMPTY, of_one_pattern=((0,),), fractions=((0, 1.5),), below_zero=((0, -1),)),
    },
    given={"continuation_diagram": ("settings",)},
    instances={"OrbitSettings": BRIEF},
)
