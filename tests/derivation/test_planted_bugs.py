"""Mistakes in what the steps of derivations state. All are found."""

from dataclasses import replace

import pytest
from sympy import Lambda, Rational

from theorykit.derivation import Derivation
from theorykit.dmft.derivation import derive as derive_map
from theorykit.symbolic.atoms import Softmax

from .architectures import SMALL, action
from .examples import SIZES, STEPS
from .mistakes import IN_NODES, IN_POWERS_OF_SIZES, IN_SYMBOLS, IN_TERMS, is_caught, mutations, planted
from .test_derivations import ROUTES

DERIVATIONS = {
    f"{route}, {name}": lambda name=name, route=route: ROUTES[route](action(name))
    for name in (*SMALL, "(2, Dense(), 2), outputs 1", "(3, 2), outputs 2")
    for route in ROUTES
}
DERIVATIONS |= {
    "dynamics": lambda: derive_map().derivation,
    "examples": lambda: Derivation(tuple(step for name, step in STEPS.items() if "relu" not in name), SIZES),
}
# Other tests plant in the examples at once.
QUICK = [name for name in DERIVATIONS if "outputs" not in name and name != "examples"]


def missed(derivation, step, mistakes):
    """Kinds of the mistakes in a step that its check misses. The evidence of the others names the step."""
    for kind, wrong in mistakes:
        (evidence,) = Derivation((wrong,), derivation.sizes).verify().evidence
        if evidence.holds or "FAILS" not in str(evidence) or step.rule[:44] not in str(evidence):
            yield kind


@pytest.mark.quick(*QUICK)
@pytest.mark.parametrize("name", DERIVATIONS)
def test_every_kind_of_mistake_is_found(name):
    """At every step a third of the kinds, at one place of the formula."""
    derivation = DERIVATIONS[name]()
    for number, step in enumerate(derivation.steps):
        mistakes = list(planted(step, kinds=slice(number % 3, None, 3)))
        assert list(missed(derivation, step, mistakes)) == [], step.rule


@pytest.mark.slow
@pytest.mark.parametrize("name", DERIVATIONS)
def test_every_mistake_is_found_at_every_place(name):
    derivation = DERIVATIONS[name]()
    for step in derivation.steps:
        assert list(missed(derivation, step, planted(step, every=True))) == [], step.rule


def test_the_examples_have_places_for_mistakes_of_every_kind():
    kinds = {kind for step in STEPS.values() for kind, _ in mutations(step.after)}
    assert kinds == {*IN_TERMS, *IN_POWERS_OF_SIZES, *IN_SYMBOLS, *IN_NODES}


@pytest.mark.parametrize("name", QUICK)
def test_one_part_in_1e13_is_found_at_every_step_that_is_proved(name):
    """A coefficient that is off by less than rounding. What holds of some functions alone is not refuted exactly."""
    derivation = DERIVATIONS[name]()
    verification = derivation.verify()
    assert verification.holds and len(verification.proved) >= len(derivation.steps) / 2
    for step in (item.step for item in verification.proved):
        if any(side.has(Lambda, Softmax) for side in step.claim.expressions(step.before, step.after)):
            continue
        # The term of most factors depends on variables, and is no constant that the claim ignores.
        terms = step.after.args if step.after.is_Add or step.after.is_MatAdd else (step.after,)
        largest = max(terms, key=lambda term: len(term.atoms()))
        if not getattr(largest, "is_ZeroMatrix", largest.is_zero):
            wrong = step.after + Rational(1, 10**13) * largest
            assert is_caught(replace(step, after=wrong), derivation.sizes), step.rule
