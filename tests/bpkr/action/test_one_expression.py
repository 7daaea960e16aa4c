"""What is shown, recorded and run is one object: nothing between the engine and the generated code is written twice."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest
from sympy import expand

import theorykit
from theorykit import bpkr
from theorykit.codegen import lower

from ..cases import GRAMMAR

PACKAGE = Path(theorykit.__file__).parent


@pytest.mark.parametrize("case", GRAMMAR, ids=str)
def test_every_term_of_the_action_is_what_a_step_arrived_at(case):
    action = bpkr.derive(case.architecture())
    reached = {expand(step.after) for step in action.derivation.steps if not getattr(step.after, "is_Matrix", False)}
    for entropy in (*action.layer_entropies, action.readout_entropy):
        assert expand(entropy) in reached
    matrices = {step.after for step in action.derivation.steps if getattr(step.after, "is_Matrix", False)}
    assert action.predictor.mean in matrices
    assert action.predictor.variance.matrix in matrices
    energies = [step for step in action.derivation.steps if step.section == "Training examples"]
    assert set(action.energy.args) <= set(energies[-1].after.args)


@pytest.mark.parametrize("case", GRAMMAR, ids=str)
def test_each_step_begins_where_earlier_ones_ended_or_with_a_definition(case):
    """But for the first of a section, a step's terms were left by steps before it."""
    steps = bpkr.derive(case.architecture()).derivation.steps
    chained = sum(later.before == earlier.after for earlier, later in pairwise(steps))
    assert chained >= len(steps) / 3


@pytest.mark.parametrize("case", GRAMMAR, ids=str)
def test_the_generated_code_is_that_of_the_action_in_its_free_order_parameters(case):
    action = bpkr.derive(case.architecture())
    outputs = {f"entropy_{layer}": entropy for layer, entropy in enumerate(action.layer_entropies, 1)}
    outputs |= {"entropy_a": action.readout_entropy, "energy": action.energy, "total": action.total}
    substitute_nested = {name: action.substitute_nested(value) for name, value in outputs.items()}
    assert lower("action", substitute_nested, action.symbols.arguments) == bpkr.compile_action(action).terms.program


def test_no_log_determinant_is_written_in_theory_1():
    """Only rules make them: the entropies come out of the engine and stand nowhere else."""
    written = {
        node.func.id
        for path in (PACKAGE / "bpkr").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not written & {"log", "log_det", "LogDet"}
