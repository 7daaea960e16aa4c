"""Every kind of claim has a statement and a word on how it is checked in the documents of a derivation."""

import inspect

from theorykit.derivation import Derivation, claims, verified_blocks
from theorykit.symbolic import Equation, Folded

from .architectures import action
from .examples import RULES, SIZES


def test_documents_state_every_kind_of_claim_and_say_how_it_is_checked():
    steps = (*(make() for make in RULES.values()), *action("one layer").expansion.derivation.steps)
    kinds = {kind for _, kind in inspect.getmembers(claims, inspect.isclass) if not inspect.isabstract(kind)}
    of_kind = {type(step.claim): step for step in steps}
    assert set(of_kind) == kinds
    for kind, step in of_kind.items():
        derivation = Derivation((step,), SIZES)
        (folded,) = (
            block for block in verified_blocks(derivation, derivation.verify(), {}) if isinstance(block, Folded)
        )
        assert isinstance(folded.parts[0], Equation), kind
        assert folded.remark.startswith("Holds") and "by " in folded.remark, kind
