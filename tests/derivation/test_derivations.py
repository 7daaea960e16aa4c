"""Whole derivations: every step of every route holds, and no step could be wrong without being caught."""

import numpy as np
import pytest

from theorykit.derivation import Derivation, claims
from theorykit.derivation.step import derivation_blocks, verification_blocks
from theorykit.dmft.derivation import derive as derive_map
from theorykit.symbolic.documents import Equation, Folded, as_markdown

from .architectures import ARCHITECTURES, QUICK, SMALL, action
from .examples import KINDS, SIZES, STEPS

ROUTES = {
    "back-propagation": lambda action: action.derivation,
    "finite width": lambda action: action.finite_width.derivation,
}
# what a step is about that is checked on numbers only; every other is proved
BEYOND_IDENTITIES = {"an average", "a volume", "a second derivative"}
every_architecture = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in ARCHITECTURES]
)
every_route = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)


@pytest.mark.quick(4)
@every_architecture
@every_route
def test_every_step_holds(name, route):
    verification = route(action(name)).verify(seed=1)
    assert verification.holds, str(verification)
    assert {item.numeric for item in verification.evidence if not item.proved} <= BEYOND_IDENTITIES
    assert verification.chance < 1e-30


@every_architecture
def test_closed_forms_hold(name):
    for step in action(name)._riccati_steps:
        assert all(step.error(sizes, np.random.default_rng(0)) <= 1 for sizes in action(name).derivation.sizes)


@every_architecture
def test_every_width_is_tried_at_more_than_one_value(name):
    for width in action(name).symbols.widths:
        values = {sizes[width] for sizes in action(name).derivation.sizes}
        assert len(values) > 1, f"{width} is {values} in every trial: a wrong power of it is not seen"


def test_all_kinds_of_claims_occur():
    steps = [step for name in SMALL for route in ROUTES.values() for step in route(action(name)).steps]
    steps += [step for name in SMALL for step in action(name)._riccati_steps]
    steps += derive_map().derivation.steps
    steps += action("a nonlinear embedding").derivation.steps
    assert {type(step.claim) for step in steps} == KINDS


def test_documents_state_every_kind_of_claim_and_say_how_it_is_checked():
    derivation = Derivation(tuple(STEPS.values()), SIZES[:1])
    verification = derivation.verify()
    text = as_markdown(list(verification_blocks(verification)))
    assert f"{len(derivation.steps)} steps" in text and "all hold" in text
    blocks = derivation_blocks(derivation)
    folds = [block for block in blocks if isinstance(block, Folded)]
    for step, shown in zip(derivation.steps, folds, strict=True):
        assert isinstance(shown.parts[0], Equation), step
    assert {type(step.claim) for step in derivation.steps} == KINDS


@every_architecture
def test_equation_numbers_and_assumptions_are_on_record(name):
    steps = action(name).derivation.steps
    assert {"4", "9", "10", "12", "13", "30", "32", "44"} <= {step.equations for step in steps}
    assert all(step.equations.isdigit() for step in steps if step.equations)
    saddle_points = [step for step in steps if isinstance(step.claim, claims.Stationary)]
    assert any(step.assumptions for step in saddle_points)
    assert all(step.section for step in steps)
