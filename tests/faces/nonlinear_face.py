"""What the parameters of the public callables of nonlinear are."""

from functools import cache

import numpy as np

from theorykit import bpkr
from theorykit.bpkr import Dense, nonlinear

from .engine import Face
from .values import Kind, array, instance

RNG = np.random.default_rng(0)
INPUTS, LABELS = RNG.normal(size=(5, 1, 4)), RNG.normal(size=5)


@cache
def with_mean():
    return bpkr.Architecture((), 30.0, temperature=0.2, embedding="relu")


@cache
def nested():
    return bpkr.Architecture((Dense(activation="erf"),), 30.0, temperature=0.2, embedding="erf")


@cache
def features(architecture, inputs=5):
    return bpkr.path_features(INPUTS[:inputs], [], architecture)


def other_architectures():
    of_attention = bpkr.Architecture((2,), 30.0, temperature=0.2)
    several = bpkr.Architecture((Dense(activation="erf"),), 30.0, temperature=0.2, embedding="relu", outputs=2)
    return {"the layers alone": (), "of attention": of_attention, "of nonlinear units and two outputs": several}


def other_features(right):
    wrong = bpkr.Architecture((), 30.0, temperature=0.2, embedding="quadratic")
    return {"an array": INPUTS, "of another function": features(wrong), "the inputs": right.tokens}


def point(names, value):
    def wrong():
        return {
            "none": {},
            "of other names": {"Q": value},
            "with a NaN": {**dict.fromkeys(names, value), names[0]: value * np.nan},
            "complex": {**dict.fromkeys(names, value), names[0]: value + 0j},
            "one": value,
        }

    return Kind(lambda: dict.fromkeys(names, value), also=wrong, called=names)


def of(name, architecture, names, value):
    """What the parameters of the three functions of one theory are."""

    def data(count):
        return Kind(lambda: features(architecture(), count), also=lambda: other_features(features(architecture())))

    return {
        **{f"{kind}_{name}.architecture": instance(architecture, also=other_architectures) for kind in KINDS},
        **{f"{kind}_{name}.features": data(5) for kind in KINDS},
        f"predict_{name}.test_features": data(3),
        f"predict_{name}.point": point(names, value),
    }


KINDS = ("derive", "solve", "predict")
FACE = Face(
    nonlinear,
    {
        **of("with_mean", with_mean, ("U_1", "V_1"), np.ones((1, 1))),
        **of("nested", nested, ("Q_1", "Q_2"), np.ones(())),
        "labels": array(lambda: LABELS, also=lambda: {"fewer": LABELS[1:], "of two outputs": np.ones((5, 2))}),
        "options": Kind(dict),
    },
    records={"NonlinearAction": "derive_with_mean and derive_nested make it"},
    untried={
        "solve_with_mean.options": "they are keywords, each checked by saddle.stationary",
        "solve_nested.options": "they are keywords, each checked by saddle.minimise",
    },
)
