"""The parameters of the derivation engine; examples of rules are those that rules are tested on."""

import inspect
from unittest.mock import patch

import numpy as np
from sympy import Interval, Trace

from tests.derivation.examples import RULES, SIZES, M, R, U, Z, r, scale, w
from theorykit import derivation
from theorykit.derivation import claims, rules

from .engine import Face, public_names
from .values import EMPTY, TEXTS, Kind, of, whole_number

# a number that is a size in the examples
SIZE = next(iter(SIZES[0]))


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


def like(value):
    """The kind of an argument of which `value` is an example."""
    if isinstance(value, dict):
        return of(value, of_text={"U": "M"}, to_text={U: "M"})
    if isinstance(value, (list, tuple)):
        return of(value, admits=EMPTY, of_text=("U",), of_numbers=(1.0,), set_of_symbols={U, M})
    return of(value, admits=("None",) if value is None else ())


EVERY = [name for name in public_names(rules) if name[0].islower()]
EXAMPLES = {name: called(name) for name in EVERY if name in RULES}
STEP = EXAMPLES["drop_constants"][1]
RECORD = derivation.Derivation((STEP,), SIZES)
VERIFIED = RECORD.verify()

FACE = Face(
    derivation,
    {
        # of parameters that take any number of arguments, one
        **{
            f"rules.{rule}.{name}": like(value[0] if name == "symbols" else value)
            for rule, (arguments, _) in EXAMPLES.items()
            for name, value in arguments.items()
        },
        "record": {},
        "rules.slope.through": like([(w, Z * r)]),
        "rules.slope.forces": of({w: r}, of_text={"w": "r"}, to_text={w: "r"}),
        "rules.source_derivative.order": 1,
        "rules.gram_volume.given rules.terms_with.symbols rules.terms_without.symbols": M,
        "rules.set_to_zero.symbols rules.bilinear_matrix.right": w,
        "ranges": of({scale: Interval.open(0, 1)}, of_pairs={scale: (0, 1)}),
        "rules.inner_matrix.outer": R,
        "rules.solve_for.variable rules.inner_of_form.column rules.bilinear_matrix.left": r,
        "rules.solve_for.equation": 2 * M * r - w,
        "rules.inner_matrix.expression": Trace(M * R.T * R),
        "rules.inner_of_form.expression": Trace(r.T * M * r),
        "rules.polynomial.variable": w,
        "expression": 2 * Trace(r.T * M * w),
        "seed": whole_number(0, least=0),
        "sizes": of(SIZES[0], by_text={"n": 2}, to_text={SIZE: "2"}),
        "Derivation.sizes": of(SIZES, admits=EMPTY, alone=SIZES[0], by_text=({"n": 2},)),
        "steps": of(RECORD.steps, admits=EMPTY, alone=STEP),
        "Recorder.steps": of([], admits=EMPTY[:1]),
        "Recorder.apply.rule": Kind(lambda: rules.reduce_traces, called=("the result of the rule",)),
        "arguments": of(Trace(M), "before"),
        "Step.before": Trace(M),
        "Step.after": Trace(U),
        "claim": claims.Equal(),
        "assumptions": of(("large",), admits=(*TEXTS, *EMPTY), alone="large"),
        "definitions": like(((U, M),)),
        "derivation": RECORD,
        "verification": VERIFIED,
        "derivation_blocks.verification": of(VERIFIED, admits=("None",), of_no_steps=derivation.Verification(())),
        "names": of({M: "M"}, by_text={"M": "M"}, to_numbers={M: 1}),
        "rng": of(np.random.default_rng(0), module=np.random),
    },
    instances={"Recorder": derivation.Recorder, "Derivation": RECORD, "Step": STEP},
    made="Evidence Verification",
    given={
        "Recorder.apply": ("arguments",),
        "rules.set_to_zero rules.terms_with rules.terms_without": ("symbols",),
    },
    untried={" ".join(f"rules.{name}.record" for name in EVERY): "the step refuses it after the rule; tried of Step"},
)
