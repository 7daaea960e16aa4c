"""The parameters of nonlinear."""

import numpy as np

from theorykit import bpkr
from theorykit.bpkr import Dense, nonlinear

from .engine import Face
from .values import Kind, of

RNG = np.random.default_rng(0)
INPUTS, LABELS = RNG.normal(size=(5, 1, 4)), RNG.normal(size=5)
ERF = (Dense(activation="erf"),)
WITH_MEAN = bpkr.Architecture((), 30.0, temperature=0.2, embedding="relu")
NESTED = bpkr.Architecture(ERF, 30.0, temperature=0.2, embedding="erf")
QUADRATIC = bpkr.Architecture((), 30.0, temperature=0.2, embedding="quadratic")
OTHER = {
    "layers": (),
    "of_attention": bpkr.Architecture((2,), 30.0, temperature=0.2),
    "several": bpkr.Architecture(ERF, 30.0, temperature=0.2, embedding="relu", outputs=2),
}


def of_theory(name, architecture, names, value):
    """The parameters of the three functions of one theory."""
    features, fewer, other = (
        bpkr.path_features(INPUTS[:count], [], each)
        for count, each in ((5, architecture), (3, architecture), (5, QUADRATIC))
    )
    wrong = {"array": INPUTS, "of_another_function": other, "inputs": features.tokens}
    right, first = dict.fromkeys(names, value), names[0]
    kinds = ("derive", "solve", "predict")
    return {
        " ".join(f"{kind}_{name}.architecture" for kind in kinds): of(architecture, **OTHER),
        " ".join(f"{kind}_{name}.features" for kind in kinds): of(features, **wrong),
        f"predict_{name}.test_features": of(fewer, **wrong),
        f"predict_{name}.point": of(
            Kind(lambda: right),
            *names,
            none={},
            of_other_names={"Q": value},
            with_nan={**right, first: value * np.nan},
            complex={**right, first: value + 0j},
            one=value,
        ),
    }


FACE = Face(
    nonlinear,
    {
        **of_theory("with_mean", WITH_MEAN, ("U_1", "V_1"), np.ones((1, 1))),
        **of_theory("nested", NESTED, ("Q_1", "Q_2"), np.ones(())),
        "labels": of(LABELS, fewer=LABELS[1:], of_two_outputs=np.ones((5, 2))),
        "options": {},
    },
    records={"NonlinearAction": "derive_with_mean and derive_nested make it"},
    untried={
        "solve_with_mean.options": "they are keywords, each checked by saddle.stationary",
        "solve_nested.options": "they are keywords, each checked by saddle.minimise",
    },
)
