"""Mistakes in derivations: in what a step states, and in code that states steps. All are found."""

from dataclasses import replace

import pytest
from sympy import Lambda, Rational

from theorykit.bpkr.action import derivation as back_propagation
from theorykit.bpkr.action import prior
from theorykit.derivation import Derivation
from theorykit.dmft.derivation import derive as derive_map
from theorykit.symbolic import kronecker, log_det
from theorykit.symbolic.algebra import simplify_traces
from theorykit.symbolic.atoms import PartialTrace, Softmax

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


@pytest.fixture(autouse=True, scope="module")
def derived_before_anything_is_wrong():
    """Derivations are remembered for the whole session: none may be made first with a mistake in it."""
    for name in SMALL:
        assert all(route(action(name)) for route in ROUTES.values())


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


# ---- code that is wrong wherever a derivation uses it


def back_propagated(name):
    """The derivation by back-propagation, made anew by the code as it is now."""
    return back_propagation._derive.__wrapped__(action(name).symbols.form).derivation


def of_second_route(name):
    derived = action(name)
    return prior.finite_width_prior(derived.symbols, derived.derivation.sizes).derivation


def traced_over_the_other_factor(expression):
    return simplify_traces(expression).replace(
        lambda node: isinstance(node, PartialTrace),
        lambda node: PartialTrace(node.matrix, tuple(reversed(node.dimensions)), 1 - node.traced),
    )


def reversed_arguments(function):
    return lambda left, right: function(right, left)


def without_determinants(matrix):
    return 0 * log_det(matrix)


def doubled_entropy(width, overlap, inner, right=back_propagation._entropy):
    return right(width, overlap, 2 * inner)


TWO, SKIP, PATHS = "two layers", "a skip connection", "blocks become path indices"
BLOCKS, KRONECKER = reversed_arguments(back_propagation.BlockDiagMatrix), reversed_arguments(kronecker)
# the derivation, the first step that fails, what is wrong in which module, and an architecture that uses it
CODE = (
    (back_propagated, PATHS, back_propagation, "kronecker", KRONECKER, TWO),
    (of_second_route, PATHS, prior, "kronecker", KRONECKER, TWO),
    (back_propagated, "branches side by side", back_propagation, "BlockDiagMatrix", BLOCKS, SKIP),
    (back_propagated, "written out", back_propagation, "simplify_traces", traced_over_the_other_factor, TWO),
    (back_propagated, "Gaussian integral", back_propagation, "log_det", without_determinants, TWO),
    (back_propagated, "eliminated at its saddle point", back_propagation, "_entropy", doubled_entropy, SKIP),
)


@pytest.mark.parametrize(
    ("derive", "rule", "module", "part", "wrong", "name"), CODE, ids=[f"{each[0].__name__}, {each[3]}" for each in CODE]
)
def test_the_verification_fails_at_the_step_that_uses_wrong_code(derive, rule, module, part, wrong, name, monkeypatch):
    monkeypatch.setattr(module, part, wrong)
    derivation = derive(name)
    monkeypatch.undo()
    assert next(evidence for evidence in derivation.verify().evidence if not evidence.holds).step.rule == rule
