"""The parameters of the derivation engine; examples of rules and of their claims are those that rules are tested on."""

import inspect
from dataclasses import fields
from unittest.mock import patch

import numpy as np
from sympy import Trace

from tests.derivation.examples import RULES, SIZES, M, R, U, Z, r, w
from theorykit import derivation
from theorykit.derivation import claims, rules
from theorykit.derivation.sampling import random_values

from .engine import Face, public_names
from .values import EMPTY, NUMBERS, TEXTS, Kind, kind_of, of, text, whole_number

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


def like(value, *words):
    """The kind of an argument of which `value` is an example."""
    if isinstance(value, dict):
        return of(value, *words, of_text={"U": "M"}, to_text={U: "M"})
    if isinstance(value, (list, tuple)):
        return of(value, *words, admits=EMPTY, of_text=("U",), of_numbers=(1.0,), set_of_symbols={U, M})
    return of(value, *words, admits=("None",) if value is None else ())


EVERY = [name for name in public_names(rules) if name[0].islower()]
EXAMPLES = {name: called(name) for name in EVERY if name in RULES}
STEPS = {type(step.claim).__name__: step for _, step in EXAMPLES.values()}
STEPS |= {type(step.claim).__name__: step for step in (RULES["linearise_square"](), RULES["eliminate"]())}
STEP = EXAMPLES["drop_constants"][1]
RECORD = derivation.Derivation((STEP,), SIZES)
VERIFIED = RECORD.verify()

KINDS = {
    # of parameters that take any number of arguments, one
    f"rules.{rule}.{name}": like(value[0] if name == "symbols" else value)
    for rule, (arguments, _) in EXAMPLES.items()
    for name, value in arguments.items()
}
for name, step in STEPS.items():
    KINDS |= {f"claims.{name}.{field.name}": like(getattr(step.claim, field.name)) for field in fields(step.claim)}
    numbers = random_values(step.claim.expressions(step.before, step.after), SIZES[0], np.random.default_rng(0))
    KINDS[f"claims.{name}.error.values"] = Kind(lambda numbers=numbers: numbers, also=lambda: {"of others": {"y": 1.0}})
    for side in ("before", "after"):
        KINDS[f"claims.{name}.error.{side} claims.{name}.expressions.{side}"] = kind_of(getattr(step, side))

FACE = Face(
    derivation,
    {
        **KINDS,
        "record": {},
        "rules.slope.through": like([(w, Z * r)]),
        "rules.slope.forces": of({w: r}, of_text={"w": "r"}, to_text={w: "r"}),
        "rules.source_derivative.order": 1,
        "rules.gram_volume.given rules.terms_with.symbols rules.terms_without.symbols": M,
        "rules.set_to_zero.symbols rules.bilinear_matrix.right": w,
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
        "evidence": of(VERIFIED.evidence, admits=EMPTY),
        "step": STEP,
        # NaN is the error of what could not be evaluated
        "error": Kind(lambda: 0.5, (*NUMBERS, "NaN", "infinity")),
        "reason numeric rule equations section": text("why"),
        "chance": Kind(lambda: 1e-35, ("None", "0", "1")),
        "Recorder.apply.rule": Kind(lambda: rules.reduce_traces, called=("the rule makes",)),
        "arguments": of(Trace(M), "before"),
        "Step.before before": Trace(M),
        "Step.after after": Trace(U),
        "claim": claims.Equal(),
        "assumptions": of(("large",), admits=(*TEXTS, *EMPTY), alone="large"),
        "definitions": like(((U, M),)),
        "derivation": RECORD,
        "verification": VERIFIED,
        "derivation_blocks.verification": of(VERIFIED, admits=("None",), of_no_steps=derivation.Verification(())),
        "names": of({M: "M"}, by_text={"M": "M"}, to_numbers={M: 1}),
        "level": 3,
        "rng": of(np.random.default_rng(0), module=np.random),
        "claims.SolvesToFirstOrder.variable": U,
        "claims.SolvesToFirstOrder.limit claims.SolvesToFirstOrder.displaced": like(((U, M),)),
        "claims.SolvesToFirstOrder.force": M,
        "values": of({"U": np.eye(2)}, of_others={"y": 1.0}),
    },
    instances={
        "Recorder": derivation.Recorder,
        "Derivation": RECORD,
        "Step": STEP,
        **{f"claims.{name}": step.claim for name, step in STEPS.items()},
        "claims.Claim": claims.Equal(),
        "claims.SolvesToFirstOrder": claims.SolvesToFirstOrder(U, ((U, M),), (), M),
    },
    records={"Verification": "verify makes it"},
    given={
        "Recorder.apply": ("arguments",),
        "rules.set_to_zero rules.terms_with rules.terms_without": ("symbols",),
    },
    untried={" ".join(f"rules.{name}.record" for name in EVERY): "the step refuses it after the rule; tried of Step"},
    examples={
        "claims.Claim.error": "each claim has its own",
        "claims.SolvesToFirstOrder.error": "no single rule claims it; the derivations have it",
    },
)
