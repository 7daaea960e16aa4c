"""What the parameters of the public callables of the derivation engine are.

Examples of rules are those that the rules are tested on.
"""

import inspect
from functools import cache
from unittest.mock import patch

import numpy as np
from sympy import Trace

from tests.derivation.examples import RULES, SIZES, M, R, U, Z, r, w
from theorykit import derivation
from theorykit.derivation import claims, rules

from .engine import Face, public_names
from .values import Kind, instance, text, whole_number

NOTHING = dict.fromkeys(("an empty list", "an empty array"), "none of them")
TEXTS = {**dict.fromkeys(("a list of text", "an array of text"), "texts"), **NOTHING}
# a number that is a size in the examples
SIZE = next(iter(SIZES[0]))


@cache
def called(name):
    """The arguments, by name, and the step of an example of a rule."""
    found = {}

    def noted(*arguments, **keywords):
        found.update(inspect.signature(rule).bind(*arguments, **keywords).arguments)
        return rule(*arguments, **keywords)

    rule = getattr(rules, name)
    with patch.object(rules, name, noted):
        step = RULES[name]()
    return found, step


def kind_of(value, *words):
    """Of an argument of which `value` is an example."""
    if isinstance(value, dict):
        return Kind(lambda: value, {}, lambda: {"of text": {"U": "M"}, "to text": {U: "M"}}, words)
    if isinstance(value, (list, tuple)):
        wrong = {"of text": ("U",), "of numbers": (1.0,), "a set of symbols": {U, M}}
        return Kind(lambda: value, NOTHING, lambda: wrong, words)
    if isinstance(value, bool):
        return Kind(lambda: value, {"True": "a truth value"})
    if isinstance(value, int):
        return whole_number(value, least=1)
    if isinstance(value, str):
        return text(value)
    return Kind(lambda: value, {} if value is not None else {"None": "there is none"}, called=words)


EVERY = [name for name in public_names(rules) if name[0].islower()]
EXAMPLES = {name: called(name) for name in EVERY if name in RULES}


def of_rules():
    for rule, (arguments, _) in EXAMPLES.items():
        for name, value in arguments.items():
            # of parameters that take any number of arguments, one
            value = value[0] if name == "symbols" else value
            yield f"rules.{rule}.{name}", kind_of(value)


@cache
def record():
    return derivation.Derivation((EXAMPLES["drop_constants"][1],), SIZES)


FACE = Face(
    derivation,
    {
        **dict(of_rules()),
        "record": Kind(lambda: {}),
        "rules.slope.through": kind_of([(w, Z * r)]),
        "rules.slope.forces": Kind(lambda: {w: r}, also=lambda: {"of text": {"w": "r"}, "to text": {w: "r"}}),
        "rules.source_derivative.order": whole_number(1, least=1),
        "rules.gram_volume.given": kind_of(M),
        "rules.set_to_zero.symbols": kind_of(w),
        **dict.fromkeys(("rules.terms_with.symbols", "rules.terms_without.symbols"), kind_of(M)),
        **dict.fromkeys(("rules.inner_matrix.outer", "rules.solve_for.variable"), kind_of(r)),
        "rules.inner_matrix.outer": kind_of(R),
        "rules.inner_of_form.column": kind_of(r),
        "rules.polynomial.variable": kind_of(w),
        "rules.bilinear_matrix.left": kind_of(r),
        "rules.bilinear_matrix.right": kind_of(w),
        "rules.solve_for.equation": kind_of(2 * M * r - w),
        "rules.inner_matrix.expression": kind_of(Trace(M * R.T * R)),
        "rules.inner_of_form.expression": kind_of(Trace(r.T * M * r)),
        "expression": kind_of(2 * Trace(r.T * M * w)),
        "seed": whole_number(0, least=0),
        "sizes": Kind(lambda: SIZES[0], {}, lambda: {"by text": {"n": 2}, "to text": {SIZE: "2"}}),
        "Derivation.sizes": Kind(lambda: SIZES, NOTHING, lambda: {"alone": SIZES[0], "by text": ({"n": 2},)}),
        "steps": Kind(lambda: record().steps, NOTHING, lambda: {"alone": record().steps[0]}),
        "Recorder.steps": Kind(lambda: [], {"an empty list": "none so far"}),
        "Recorder.apply.rule": Kind(lambda: rules.reduce_traces, called=("the rule makes",)),
        "arguments": kind_of(Trace(M), "before"),
        "rule": text("a rule", any_text=True),
        "Step.before": kind_of(Trace(M)),
        "Step.after": kind_of(Trace(U)),
        "claim": instance(lambda: claims.Equal()),
        **dict.fromkeys(("equations", "section"), text("1", any_text=True)),
        "assumptions": Kind(lambda: ("large",), TEXTS, lambda: {"alone": "large"}),
        "definitions": kind_of(((U, M),)),
        "derivation": instance(record),
        "verified_blocks.verification": instance(
            lambda: record().verify(), also=lambda: {"of no steps": derivation.Verification(())}
        ),
        "names": Kind(lambda: {M: "M"}, {}, lambda: {"by text": {"M": "M"}, "to numbers": {M: 1}}),
        "level": whole_number(3, least=1),
        "verification": instance(lambda: record().verify()),
        "rng": instance(lambda: np.random.default_rng(0), also=lambda: {"the module": np.random}),
        "before": kind_of(Trace(M)),
    },
    instances={
        "Recorder": derivation.Recorder,
        "Derivation": record,
        "Step": lambda: EXAMPLES["drop_constants"][1],
    },
    given={
        "Recorder.apply": ("arguments",),
        **{f"rules.{name}": ("symbols",) for name in ("set_to_zero", "terms_with", "terms_without")},
    },
    untried={f"rules.{name}.record": "the rule has run when the step refuses it; tried of Step" for name in EVERY},
    records={"Evidence": "made by verify", "Verification": "made by verify"},
)
