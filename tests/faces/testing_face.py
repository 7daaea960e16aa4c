"""The parameters of testing."""

import numpy as np
from sympy import symbols

from tests.testing.layers import attention, normal
from theorykit import bpkr, saddle, testing

from .engine import Face
from .values import EMPTY, NONE, TEXTS, number, of, whole_number

m, beta = symbols("m beta", real=True)
ARCHITECTURE = bpkr.Architecture((2,), 5, temperature=0.1)
PROBLEM = testing.random_problem(ARCHITECTURE, 0)
ACTION = saddle.Action(beta * (m**2 - m), {m: saddle.Real()}, [beta])
# None compares nothing, and a class can be called
FUNCTION = ("None", "a class")

FACE = Face(
    testing,
    {
        "findings": of((testing.Finding("the claim", "3.0 instead of 1.0", "a factor"),), admits=EMPTY),
        "passed": of((testing.Finding("another claim", "1e-16"),), admits=EMPTY),
        "left_out": of(("a check: its reason",), admits=(*EMPTY, *TEXTS)),
        "action": of(ACTION, expression=ACTION.expression),
        "values": of({beta: 1.5}, admits=NONE),
        "check_action.reference": of(lambda m, beta: beta * (m**2 - m), admits=FUNCTION),
        "sampled": of(None),
        "sizes": of((50, 200), with_a_zero=(0, 10)),
        "kind kinds": of(bpkr.Attention(2), class_of_layers=bpkr.Attention),
        "reference": of(attention, admits=FUNCTION),
        "draw_weights": of(normal, admits=FUNCTION),
        "checks": of(("reference",), admits=("None", *EMPTY), another=("everything",)),
        "seed": whole_number(1, least=0),
        "rng": of(np.random.default_rng(0), of_the_past=np.random.RandomState(0)),
        "architecture": of(ARCHITECTURE, layers=(2,)),
        "problem": of(PROBLEM, architecture=ARCHITECTURE),
        "examples": 3,
        "make": of(testing.random_inputs, admits=("a class",)),
        "temperature": number(0.2, least=0.0),
    },
    instances={"Problem": PROBLEM, "ActionPoint": testing.random_action_point(ACTION, 0)},
    belonging={"check_layer": "it compiles networks and action of the layer for itself, in every call"},
    untried={"ActionPoint.moved": "its steps are those of a solver"},
    made="ActionPoint Problem",
)
