"""Every kind of claim has a statement and a word on how it is checked in the documents of a derivation."""

import inspect

from theorykit.derivation import Derivation, claims, verified_blocks
from theorykit.symbolic import Equation, Folded

from .architectures import action
from .examples import RULES, SIZES


def test_documents_state_every_kind_of_claim_and_say_how_it_is_checked():
    of_rules = Derivation(tuple(make() for make in RULES.values()), SIZES)
    found = set()
    for derivation in (of_rules, action("one layer").expansion.derivation):
        blocks = verified_blocks(derivation, derivation.verify(), {})
        steps = [block for block in blocks if isinstance(block, Folded)]
        for step, shown in zip(derivation.steps, steps, strict=True):
            assert isinstance(shown.parts[0], Equation), step
            assert shown.remark.startswith("Holds: error") and ", by " in shown.remark, step
            found.add(type(step.claim))
    assert found == {kind for _, kind in inspect.getmembers(claims, inspect.isclass) if not inspect.isabstract(kind)}
