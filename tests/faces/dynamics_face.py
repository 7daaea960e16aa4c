"""What the parameters of the public callables on orbits of maps are."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from theorykit import dynamics

from .engine import Face
from .values import Kind, array, instance, number, whole_number

SERIES = np.random.default_rng(0).normal(size=(2, 120))
EXPONENTS = np.array([[0.1, -0.2], [-0.1, -0.3]])
BATCH = dict.fromkeys(("with one axis more", "with seven axes", "an array of seven axes"), "axes of a batch")


@cache
def cycle():
    return dynamics.find_cycle(logistic, np.array([0.5, 0.8]), 3.2, 2)


@cache
def event():
    """The logistic map's first period doubling."""
    branch = dynamics.follow(logistic, dynamics.find_cycle(logistic, np.array([0.65]), 2.9, 1), (2.8, 3.1))
    (found,) = branch.events
    return found


def logistic(state, parameter):
    return parameter * state * (1 - state)


def tangled(state, parameter):
    """Of one number more than it was given."""
    return jnp.append(state, parameter)


def step():
    wrong = {"of another size": tangled, "of whole numbers": lambda state, parameter: jnp.zeros(1, dtype=int)}
    return Kind(lambda: logistic, also=lambda: wrong)


def vectors():
    return Kind(
        lambda: tuple(np.eye(3)),
        {"an array of seven axes": "one vector, with batch axes"},
        also=lambda: {
            "of two lengths": (np.ones(3), np.ones(2)),
            "with a NaN": (np.full(3, np.nan),),
            "of text": (np.array(["1", "2"]),),
            "of one number": (1.0,),
            "masked": (np.ma.masked_array(np.ones(3)),),
            "complex": (np.ones(3) + 0j,),
            "more than they have entries": (np.ones(1), np.ones(1)),
        },
    )


NO_EXPONENTS = {
    "not finite": np.array([np.nan, -1.0]),
    "of infinity": np.array([np.inf, -1.0]),
    "of one number": 0.1,
}

FACE = Face(
    dynamics,
    {
        "series": array(lambda: SERIES, also=lambda: {"of ten values": SERIES[:, :1]}),
        "key": instance(lambda: jax.random.key(0), also=lambda: {"two keys": jax.random.split(jax.random.key(0))}),
        "draws": whole_number(2, least=1),
        "max_period": whole_number(2, least=1, most=60),
        "detect_period.tolerance": number(1e-9, least=0.0),
        "cycle_near.max_period": whole_number(2, least=1),
        "cycle_near.tolerance": number(1e-6, above=0.0),
        "vectors": vectors(),
        "step": step(),
        "guess": array(lambda: np.array([[0.5], [0.8]]), also=lambda: {"of a period of three": np.ones((3, 1))}),
        "start": array(lambda: np.array([0.5])),
        "parameter": number(3.2),
        "period": whole_number(2, least=1),
        "transient": whole_number(100, least=0),
        "cycle": instance(cycle, also=lambda: {"its points": cycle().points, "an event": event()}),
        "bounds": Kind(
            lambda: (3.1, 3.3),
            also=lambda: {
                "the higher first": (3.3, 3.1),
                "one": (3.1,),
                "three": (3.1, 3.2, 3.3),
                "with a NaN": (3.1, np.nan),
                "of text": ("3.1", "3.3"),
                "not around the cycle": (3.3, 3.4),
                "with a truth value": (True, 3.3),
            },
        ),
        "direction": Kind(lambda: 1, {"1": "towards larger", "-1": "towards smaller"}),
        "largest_step": number(0.05, above=0.0),
        "most_cycles": whole_number(3, least=1),
        "event": instance(event, also=lambda: {"a cycle": cycle()}),
        "amplitude": number(1e-2, above=0.0),
        "exponents": array(lambda: EXPONENTS, also=lambda: NO_EXPONENTS, admits=BATCH),
        "classify.exponents": array(lambda: EXPONENTS, also=lambda: NO_EXPONENTS),
        "errors": array(
            lambda: np.zeros((2, 2)),
            also=lambda: {"negative": -np.ones((2, 2)), "fewer": np.zeros(2)},
            admits={"with an infinity": "a bar without bounds leaves the regime undecided"},
        ),
        "threshold": number(1e-4, above=0.0),
    },
)
