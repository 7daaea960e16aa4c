"""What is shown, recorded and run is one object: nothing between the engine and the generated code is written twice."""

import pytest
from sympy import expand

from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import compiled_terms

from ..cases import GRAMMAR, READOUTS_OF_TOKENS


@pytest.mark.quick(3)
@pytest.mark.parametrize("case", (*GRAMMAR, *READOUTS_OF_TOKENS), ids=str)
def test_every_term_of_the_action_is_what_a_step_arrived_at(case):
    action = bpkr.derive(case.architecture())
    reached = {expand(step.after) for step in action.derivation.steps if not getattr(step.after, "is_Matrix", False)}
    for entropy in action.entropies:
        assert expand(entropy) in reached
    matrices = {step.after for step in action.derivation.steps if getattr(step.after, "is_Matrix", False)}
    assert action.predictor.mean in matrices
    assert action.predictor.covariance in matrices
    energies = [step for step in action.derivation.steps if step.section == "Training examples"]
    assert set(action.energy.args) <= set(energies[-1].after.args)


@pytest.mark.parametrize("case", (*GRAMMAR, *READOUTS_OF_TOKENS), ids=str)
def test_the_generated_code_is_that_of_the_action_in_its_free_order_parameters(case):
    action = bpkr.derive(case.architecture())
    *layers, readout = action.entropies
    outputs = {f"entropy_{layer}": entropy for layer, entropy in enumerate(layers, 1)}
    outputs |= {"entropy_a": readout, "energy": action.energy, "total": action.total}
    substitute_nested = {name: action.substitute_nested(value) for name, value in outputs.items()}
    terms = compiled_terms(action)
    assert (terms.outputs, terms.arguments) == (substitute_nested, action.symbols.arguments)
