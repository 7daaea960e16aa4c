"""What the parameters of theory 2's public callables are."""

from functools import cache

import jax
import numpy as np

from theorykit import dmft
from theorykit.dmft import network
from theorykit.dynamics import gram_schmidt

from .engine import Face
from .values import Kind, array, flag, instance, number, whole_number

RNG = np.random.default_rng(0)
CONTEXT, PATTERNS, NEURONS = 3, 2, 5
POINT = dmft.Parameters(1.5, 4.0, 0.1)
ATTENTION = RNG.uniform(-0.5, 0.5, size=(CONTEXT, PATTERNS))
SIGNS = np.where(RNG.random((4, PATTERNS, NEURONS + 2)) < 0.5, -1, 1)
BATCH = dict.fromkeys(("with one axis more", "with seven axes"), "batch axes")


@cache
def weights(patterns=PATTERNS):
    return dmft.iid_weights(patterns, NEURONS, 2, key=jax.random.key(0))


@cache
def model(context=CONTEXT, patterns=PATTERNS):
    return dmft.self_attention_limit(weights(patterns), context)


@cache
def state(context=CONTEXT, patterns=PATTERNS):
    window = RNG.uniform(-0.5, 0.5, size=(context, patterns))
    return dmft.state_from_window(model(context, patterns), POINT, dmft.Window(window))


@cache
def spins():
    return network.class_sum_network(weights(), CONTEXT, 2)


def other_states():
    return {
        "of another context": state(context=4),
        "of other patterns": state(patterns=3),
        "a window": dmft.Window(ATTENTION),
        "with a NaN": jax.tree.map(lambda leaf: leaf * np.nan if leaf.ndim else leaf, state()),
    }


def other_windows():
    return {
        "of another context": dmft.Window(np.zeros((4, PATTERNS))),
        "of other patterns": dmft.Window(np.zeros((CONTEXT, 3))),
        "an array": ATTENTION,
        "a state": state(),
    }


def other_models():
    return {"of other patterns": model(patterns=3), "weights": weights(), "of another context": model(context=4)}


def overlaps():
    return dmft.pattern_prompt(weights())


def signs(example):
    """Weights of +-1."""
    return array(example, also=lambda: {"of zeros": 0 * example(), "of halves": 0.5 * example()})


@cache
def stroboscope():
    return dmft.Stroboscope(model(), POINT)


def batched(example, *, least=-np.inf, most=np.inf):
    """A number, or an array over a batch."""
    outside = {"too small": np.full(2, least - 1)} if np.isfinite(least) else {}
    taken = number(example, least=least, most=most).admits
    many = ("with one axis more", "with seven axes", "an array of seven axes")
    reasons = {**taken, **dict.fromkeys(many, "a batch"), "True": "booleans count as 0 and 1"}
    return array(lambda: np.array(example), admits=reasons, also=lambda: outside)


def basis(vectors):
    """Of one vector less."""
    return gram_schmidt(vectors[:1])


FACE = Face(
    dmft,
    {
        "theory": instance(dmft.derive),
        "weights": instance(weights, also=lambda: {"their signs": weights().semantic, "a network": model()}),
        "model": instance(model, "network", also=other_models),
        **{
            f"{name}.model": instance(model, "network", also=lambda: {"weights": weights()})
            for name in ("Stroboscope", "semantic_overlap", "token_start", "window_start")
        },
        "context": whole_number(CONTEXT, least=1, most=4),
        "parameters": instance(lambda: POINT, also=lambda: {"a tuple": (1.5, 4.0, 0.1)}),
        "beta": batched(1.5),
        "gamma": batched(4.0),
        "epsilon": batched(0.1, least=0.0, most=1.0),
        "inverse_temperature": batched(2.2),
        "scale": number(100.0),
        "patterns": whole_number(PATTERNS, least=1),
        "neurons": whole_number(NEURONS, least=1),
        "position_bits": whole_number(2, least=1),
        "segments": whole_number(3, least=1, most=NEURONS),
        "published_weights.segments": Kind(
            lambda: 3, {"1": "one segment", "None": "no segments"}, lambda: {"more than neurons": 100, "of text": "3"}
        ),
        "seed": whole_number(1, least=0),
        "key": instance(lambda: jax.random.key(0), also=lambda: {"two keys": jax.random.split(jax.random.key(0))}),
        "family": whole_number(1, least=0, most=3),
        "pattern": whole_number(1, least=0, most=PATTERNS - 1),
        **{name: signs(lambda: SIGNS[0].astype(float)) for name in ("output", "value", "query")},
        "weights_from_arrays.key": signs(lambda: SIGNS[0].astype(float)),
        "Weights.semantic": signs(lambda: SIGNS[..., :NEURONS].astype(float)),
        "Weights.positional": signs(lambda: SIGNS[..., NEURONS:].astype(float)),
        "law": instance(lambda: dmft.column_law(weights()), also=lambda: {"weights": weights()}),
        "positional": array(lambda: np.ones((CONTEXT, 4, PATTERNS))),
        "of": array(overlaps, also=lambda: {"beyond one": 2 + overlaps()}),
        "state": instance(state, also=other_states),
        "start": instance(state, also=other_states),
        "window": instance(lambda: dmft.Window(ATTENTION), also=other_windows),
        "steps": whole_number(4, least=0),
        "settled.steps": whole_number(4, least=CONTEXT),
        "lyapunov_spectrum.steps": whole_number(40, least=40),
        "exponents": Kind(
            lambda: 2,
            {"1": "one exponent"},
            also=lambda: {
                "more than there are": 7,
                "perturbations of zeros": np.zeros((1, CONTEXT, PATTERNS)),
                "perturbations of NaN": np.full((1, CONTEXT, PATTERNS), np.nan),
                "perturbations of another context": np.ones((1, 4, PATTERNS)),
                "the same perturbation twice": np.ones((2, CONTEXT, PATTERNS)),
            },
        ),
        "every": whole_number(1, least=1),
        "blocks": whole_number(20, least=2),
        "orthonormalise": Kind(lambda: gram_schmidt, also=lambda: {"one that loses vectors": basis}),
        "attention": array(lambda: ATTENTION[0], also=lambda: {"of other patterns": np.zeros(3)}, admits=BATCH),
        "Window.attention": array(
            lambda: ATTENTION, admits={**BATCH, "an array of seven axes": "five of them batch axes"}
        ),
        "Window.position": whole_number(0, least=0, most=CONTEXT - 1),
        "scanned": Kind(lambda: "gamma", also=lambda: {"another": "delta"}),
        "tokens": whole_number(CONTEXT, least=CONTEXT),
        "Stroboscope.__call__.state": array(lambda: ATTENTION.ravel()),
        "Stroboscope.__call__.value": number(1.5),
        "repeats": Kind(
            lambda: (1, 2),
            also=lambda: {"one": (1,), "twice": (1, 1), "of fractions": (1, 1.5), "of zero": (0, 1)},
        ),
        "network.class_sum_network.repeats": whole_number(2, least=1),
        "samples": whole_number(2, least=1),
        "convergence.samples": whole_number(2, least=2),
        "convergence.steps": whole_number(2, least=1),
        "network": instance(spins, also=lambda: {"its limit": model()}),
        "network.fluctuations.steps": whole_number(2, least=1),
        "network.run.steps": whole_number(2, least=1),
        "keep_spins": flag(),
    },
    instances={
        "SelfAttention": model,
        "Stroboscope": stroboscope,
    },
    records={
        "State": "token_start, window_start and state_from_window make it, and loops of anything that JAX traces",
        "network.ClassSumNetwork": "class_sum_network makes it",
        "network.Fluctuations": "fluctuations makes it",
        "network.SampledTrajectory": "run makes it",
    },
    compiled={
        "Stroboscope.__call__": "it is NaN there, so that the steps of a solver may lead outside",
    },
)
