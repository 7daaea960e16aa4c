"""What the parameters of the public callables of testing are."""

from functools import cache

import numpy as np
from sympy import symbols

from tests.testing.layers import attention, normal
from theorykit import bpkr, saddle, testing

from .engine import Face
from .values import Kind, flag, function, instance, number, text, whole_number

m, beta = symbols("m beta", real=True)
FINDING = testing.Finding("the claim", "3.0 instead of 1.0", "a factor")
PASSED = testing.Passed("another claim", "1e-16")
NOTHING = dict.fromkeys(("an empty list", "an empty array"), "a sequence of no entries")
TEXTS = ("a list of text", "an array of text")
NONE, CLASS = {"None": "nothing is compared"}, {"a class": "it can be called"}


@cache
def architecture():
    return bpkr.Architecture((2,), 5, temperature=0.1)


@cache
def problem():
    return testing.random_problem(architecture(), 0)


@cache
def action():
    return saddle.Action(beta * (m**2 - m), {m: saddle.Real()}, [beta])


@cache
def point():
    return testing.random_action_point(action(), 0)


def a_kind(*called):
    """A kind of layer, made and not the class of one."""
    return instance(lambda: bpkr.Attention(2), *called, also=lambda: {"a class of layers": bpkr.Attention})


FACE = Face(
    testing,
    {
        "check": text("the claim", any_text=True),
        "measured": text("3.0", any_text=True),
        "meaning": text("a factor", any_text=True),
        "subject": text("a layer", any_text=True),
        "findings": Kind(lambda: (FINDING,), NOTHING),
        "passed": Kind(lambda: (PASSED,), NOTHING),
        "left_out": Kind(lambda: ("a check: its reason",), {**NOTHING, **dict.fromkeys(TEXTS, "a sequence of text")}),
        "action": instance(action, also=lambda: {"its expression": action().expression}),
        "values": Kind(lambda: {beta: 1.5}, {"None": "random ones"}, lambda: {"of text": {beta: "1"}}),
        "index": Kind(lambda: 0, {"None": "not looked for", "0": "a minimum", "1": "of one negative direction"}),
        "check_action.reference": function(lambda m, beta: beta * (m**2 - m), {**NONE, **CLASS}),
        "sampled": Kind(lambda: None, NONE),
        "sizes": Kind(lambda: (50, 200), also=lambda: {"of text": ("50",), "with a zero": (0, 10)}),
        "kind": a_kind(),
        "kinds": a_kind(),
        "reference": function(attention, {**NONE, **CLASS}),
        "draw_weights": function(normal, {**NONE, **CLASS}),
        "checks": Kind(lambda: ("reference",), {**NONE, **NOTHING}, lambda: {"another": ("everything",)}),
        "thorough": flag(),
        "seed": whole_number(1, least=0),
        "rng": instance(lambda: np.random.default_rng(0), also=lambda: {"of NumPy's past": np.random.RandomState(0)}),
        "architecture": instance(architecture, also=lambda: {"the layers alone": (2,)}),
        "problems.architecture": Kind(architecture, {"None": "any architecture"}),
        "problem": instance(problem, also=lambda: {"its architecture": architecture()}),
        "examples": whole_number(3, least=1),
        "temperature": number(0.2, least=0.0),
    },
    instances={"Problem": problem, "ActionPoint": point},
    belonging={"check_layer": "it compiles networks and action of the layer for itself, in every call"},
    untried={"ActionPoint.moved": "its steps are those of a solver"},
    records={
        "ActionPoint": "random_action_point makes it, of parts that fit",
        "Problem": "random_problem makes it, of parts that fit",
    },
)
