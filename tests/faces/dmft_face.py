"""The parameters of theory 2."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from theorykit import dmft
from theorykit.dmft import network
from theorykit.dynamics import gram_schmidt

from .engine import Face
from .values import BATCHES, number, of, whole_number

RNG = np.random.default_rng(0)
CONTEXT, PATTERNS, NEURONS = 3, 2, 5
POINT = dmft.Parameters(1.5, 4.0, 0.1)
ATTENTION = RNG.uniform(-0.5, 0.5, size=(CONTEXT, PATTERNS))
SIGNS = np.where(RNG.random((4, PATTERNS, NEURONS + 2)) < 0.5, -1.0, 1.0)


def limit(context=CONTEXT, patterns=PATTERNS):
    """Weights, their network's limit, and a state of it."""
    weights = dmft.iid_weights(patterns, NEURONS, 2, key=jax.random.key(0))
    model = dmft.self_attention_limit(weights, context)
    window = dmft.Window(RNG.uniform(-0.5, 0.5, size=(context, patterns)))
    return weights, model, dmft.state_from_window(model, POINT, window)


WEIGHTS, MODEL, STATE = limit()
_, LONGER, LONGER_STATE = limit(context=4)
_, OTHER, OTHER_STATE = limit(patterns=3)
OVERLAPS, SPINS = np.asarray(dmft.pattern_prompt(WEIGHTS)), network.class_sum_network(WEIGHTS, CONTEXT, 2)


def signs(example):
    """Weights of +-1."""
    return of(example, of_zeros=0 * example, of_halves=0.5 * example)


def batched(example, **outside):
    """A number, or an array over a batch, in which truth counts as a number."""
    return of(np.array(example), admits=(*number(example, **outside).admits, *BATCHES, "True"))


def elsewhere(start):
    """At positions that the context has not."""
    places = {"at_a_position_beyond": CONTEXT, "at_a_position_below_zero": -1}
    return {name: eqx.tree_at(lambda at: at.position, start, jnp.asarray(place)) for name, place in places.items()}


FACE = Face(
    dmft,
    {
        "theory": dmft.derive(),
        "weights": of(WEIGHTS, signs=WEIGHTS.semantic, network=MODEL),
        "model": of(MODEL, "network", of_other_patterns=OTHER, weights=WEIGHTS, of_another_context=LONGER),
        "Stroboscope.model semantic_overlap.model token_start.model window_start.model": of(
            MODEL, "network", weights=WEIGHTS
        ),
        "context": whole_number(CONTEXT, least=1, most=4),
        "parameters": of(POINT, tuple=(1.5, 4.0, 0.1)),
        "beta gamma inverse_temperature": batched(2.2),
        "epsilon": of(batched(0.1, least=0.0, most=1.0), too_small=np.full(2, -1.0)),
        "segments": of(3, more_than_neurons=100),
        "published_weights.segments": of(3, admits=("None",), more_than_neurons=100),
        "family": whole_number(1, least=0, most=3),
        "pattern": whole_number(1, least=0, most=PATTERNS - 1),
        "output value query weights_from_arrays.key": signs(SIGNS[0]),
        "Weights.semantic": signs(SIGNS[..., :NEURONS]),
        "Weights.positional": signs(SIGNS[..., NEURONS:]),
        "law": of(dmft.column_law(WEIGHTS), weights=WEIGHTS),
        "positional": np.ones((CONTEXT, 4, PATTERNS)),
        "of": of(OVERLAPS, beyond_one=2 + OVERLAPS),
        "state start": of(
            STATE,
            of_another_context=LONGER_STATE,
            of_other_patterns=OTHER_STATE,
            **elsewhere(STATE),
            window=dmft.Window(ATTENTION),
            with_nan=jax.tree.map(lambda leaf: leaf * np.nan if leaf.ndim else leaf, STATE),
        ),
        "window": of(
            dmft.Window(ATTENTION),
            of_another_context=dmft.Window(np.zeros((4, PATTERNS))),
            of_other_patterns=dmft.Window(np.zeros((CONTEXT, 3))),
            with_nan=eqx.tree_at(lambda at: at.attention, dmft.Window(ATTENTION), jnp.full_like(ATTENTION, np.nan)),
            **elsewhere(dmft.Window(ATTENTION)),
            array=ATTENTION,
            state=STATE,
        ),
        "steps": whole_number(4, least=0),
        "lyapunov_spectrum.steps": whole_number(40, least=40),
        "exponents": of(
            2,
            more_than_there_are=7,
            of_zeros=np.zeros((1, CONTEXT, PATTERNS)),
            of_nan=np.full((1, CONTEXT, PATTERNS), np.nan),
            of_another_context=np.ones((1, 4, PATTERNS)),
            the_same_twice=np.ones((2, CONTEXT, PATTERNS)),
        ),
        "blocks": whole_number(20, least=2),
        "orthonormalise": of(gram_schmidt, loses_vectors=lambda vectors: gram_schmidt(vectors[:1])),
        "attention": of(ATTENTION[0], admits=BATCHES, of_other_patterns=np.zeros(3)),
        "Window.attention": of(ATTENTION, admits=BATCHES),
        "Window.position": whole_number(0, least=0, most=CONTEXT - 1),
        "tokens": whole_number(CONTEXT, least=CONTEXT),
        "Stroboscope.__call__.state": ATTENTION.ravel(),
        "Stroboscope.__call__.value": number(1.5),
        "repeats": of((1, 2), one=(1,), twice=(1, 1), of_fractions=(1, 1.5), of_zero=(0, 1)),
        "network.class_sum_network.repeats": 2,
        "convergence.samples": whole_number(2, least=2),
        "convergence.steps network.fluctuations.steps network.run.steps": 2,
        "network": of(SPINS, limit=MODEL),
    },
    instances={
        "SelfAttention": MODEL,
        "Stroboscope": dmft.Stroboscope(MODEL, POINT),
        "Trajectory": lambda: dmft.run(MODEL, POINT, STATE, steps=4),
        "network.FiniteNetwork": SPINS,
    },
    made="State network.ClassSumNetwork network.Fluctuations network.SampledTrajectory",
    compiled={"Stroboscope.__call__": "it is NaN there, so that the steps of a solver may lead outside"},
)
