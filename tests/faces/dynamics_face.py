"""The parameters of orbits of maps."""

import jax.numpy as jnp
import numpy as np

from theorykit import dynamics

from .engine import Face
from .values import BATCHES, NUMBERS, number, of, whole_number

SERIES = np.random.default_rng(0).normal(size=(2, 120))
EXPONENTS = np.array([[0.1, -0.2], [-0.1, -0.3]])
NO_EXPONENTS = {"not_finite": np.array([np.nan, -1.0]), "infinite": np.array([np.inf, -1.0]), "one_number": 0.1}


def logistic(state, parameter):
    return parameter * state * (1 - state)


CYCLE = dynamics.find_cycle(logistic, np.array([0.5, 0.8]), 3.2, 2)
# its first period doubling
(EVENT,) = dynamics.follow(logistic, dynamics.find_cycle(logistic, np.array([0.65]), 2.9, 1), (2.8, 3.1)).events

FACE = Face(
    dynamics,
    {
        "series": of(SERIES, of_ten_values=SERIES[:, :1]),
        "detect_period.max_period": whole_number(2, least=1, most=60),
        "vectors": of(
            tuple(np.eye(3)),
            admits=("an array of seven axes",),
            of_two_lengths=(np.ones(3), np.ones(2)),
            of_one_number=(1.0,),
            more_than_entries=(np.ones(1), np.ones(1)),
        ),
        "step": of(logistic, of_another_size=jnp.append, of_whole_numbers=lambda state, _: jnp.zeros(1, dtype=int)),
        # a number is a state of one coordinate
        "guess": of(np.array([[0.5], [0.8]]), admits=NUMBERS, of_a_period_of_three=np.ones((3, 1))),
        "start": of(np.array([0.5]), admits=NUMBERS),
        "parameter": number(3.2),
        "cycle": of(CYCLE, points=CYCLE.points, event=EVENT),
        "bounds": of(
            (3.1, 3.3),
            higher_first=(3.3, 3.1),
            one=(3.1,),
            three=(3.1, 3.2, 3.3),
            not_around_the_cycle=(3.3, 3.4),
            with_truth=(True, 3.3),
        ),
        "direction": of(1, admits=("-1",)),
        "largest_step": 0.05,
        "event": of(EVENT, cycle=CYCLE),
        "exponents": of(EXPONENTS, admits=BATCHES, **NO_EXPONENTS),
        "classify.exponents": of(EXPONENTS, **NO_EXPONENTS),
        # an error bar without bounds leaves the regime undecided
        "errors": of(np.zeros((2, 2)), admits=("with an infinity",), negative=-np.ones((2, 2)), fewer=np.zeros(2)),
    },
)
