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
LINEAR = bpkr.Architecture((2,), 30.0, temperature=0.2)
OTHER = {
    "layers": (),
    "of_attention": LINEAR,
    "several": bpkr.Architecture(ERF, 30.0, temperature=0.2, embedding="relu", outputs=2),
}


def of_theory(name, derive, problem, architecture, names, value):
    """The parameters of a theory's functions, and its problem."""
    features, fewer, other = (
        bpkr.path_features(INPUTS[:count], [], each)
        for count, each in ((5, architecture), (3, architecture), (5, QUADRATIC))
    )
    whole = bpkr.Problem(architecture, bpkr.Data(features, LABELS))
    right, first = dict.fromkeys(names, value), names[0]
    linear = bpkr.Problem(LINEAR, bpkr.Data(np.ones((1, 2, 3)), [1.0]))
    kinds = {
        f"{derive}.architecture": of(architecture, **OTHER),
        f"{name}.problem": of(whole, "features", "architecture", architecture=architecture, linear=linear),
        f"{name}.predict.test_features": of(fewer, array=INPUTS, of_another_function=other, inputs=features.tokens),
        f"{name}.predict.point": of(
            Kind(lambda: right),
            *names,
            none={},
            of_other_names={"Q": value},
            with_nan={**right, first: value * np.nan},
            complex={**right, first: value + 0j},
            one=value,
        ),
    }
    return kinds, {name: problem(whole)}


MEAN = of_theory("MeanProblem", "derive_with_mean", nonlinear.MeanProblem, WITH_MEAN, ("U_1", "V_1"), np.ones((1, 1)))
OF_NESTED = of_theory("NestedProblem", "derive_nested", nonlinear.NestedProblem, NESTED, ("Q_1", "Q_2"), np.ones(()))
FACE = Face(
    nonlinear,
    {**MEAN[0], **OF_NESTED[0]},
    instances={**MEAN[1], **OF_NESTED[1]},
    made="NonlinearAction",
    untried={
        "MeanProblem.solve": "its options are keywords, each checked by saddle.stationary",
        "NestedProblem.solve": "its options are keywords, each checked by saddle.minimise",
    },
    given={"MeanProblem.predict NestedProblem.predict": ("test_features",)},
)
