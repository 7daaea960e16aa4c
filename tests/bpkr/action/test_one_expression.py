"""What is shown, recorded and run is one object: nothing between the engine and the generated code is written twice."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest
from sympy import expand

import theorykit
from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import compiled_terms

from ..cases import GRAMMAR, READOUTS_OF_TOKENS

PACKAGE = Path(theorykit.__file__).parent


@pytest.mark.quick(3)
@pytest.mark.parametrize("case", (*GRAMMAR, *READOUTS_OF_TOKENS), ids=str)
def test_every_term_of_the_action_is_what_a_step_arrived_at(case):
    action = bpkr.derive(case.architecture())
    reached = {expand(step.after) for step in action.derivation.steps if not getattr(step.after, "is_Matrix", False)}
    for entropy in action.entropies:
        assert expand(entropy) in reached
    matrices = {step.after for step in action.derivation.steps if getattr(step.after, "is_Matrix", False)}
    assert action.predictor.mean in matrices
    assert action.predictor.variance.matrix in matrices
    energies = [step for step in action.derivation.steps if step.section == "Training examples"]
    assert set(action.energy.args) <= set(energies[-1].after.args)


@pytest.mark.parametrize("case", (*GRAMMAR, *READOUTS_OF_TOKENS), ids=str)
def test_each_step_begins_where_earlier_ones_ended_or_with_a_definition(case):
    """But for the first of a section, a step's terms were left by steps before it."""
    steps = bpkr.derive(case.architecture()).derivation.steps
    chained = sum(later.before == earlier.after for earlier, later in pairwise(steps))
    assert chained >= len(steps) / 3


@pytest.mark.parametrize("case", (*GRAMMAR, *READOUTS_OF_TOKENS), ids=str)
def test_the_generated_code_is_that_of_the_action_in_its_free_order_parameters(case):
    action = bpkr.derive(case.architecture())
    *layers, readout = action.entropies
    outputs = {f"entropy_{layer}": entropy for layer, entropy in enumerate(layers, 1)}
    outputs |= {"entropy_a": readout, "energy": action.energy, "total": action.total}
    substitute_nested = {name: action.substitute_nested(value) for name, value in outputs.items()}
    terms = compiled_terms(action)
    assert (terms.outputs, terms.arguments) == (substitute_nested, action.symbols.arguments)


def called(path: Path) -> set[str]:
    """The names of all functions that a module calls, and "@" where it has that operator."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {function.id for function in functions if isinstance(function, ast.Name)}
    names |= {function.attr for function in functions if isinstance(function, ast.Attribute)}
    return names | {
        "@" for node in nodes if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) is ast.MatMult
    }


def test_log_determinants_are_written_in_derivations_alone():
    """Entropies and energies are stated in steps that are proved, and stand nowhere else."""
    modules = (PACKAGE / "bpkr").rglob("*.py")
    written = {path.name for path in modules if called(path) & {"log_det", "LogDet", "slogdet"}}
    assert written == {"backpropagation.py", "prior.py"}
