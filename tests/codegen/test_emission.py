"""The generated source: the same everywhere, free of explicit inverses, the text that runs."""

import os
import re
import subprocess
import sys
import traceback
from functools import cache
from itertools import pairwise
from pathlib import Path

import jax.numpy as jnp
import pytest
from hypothesis import given
from sympy import Identity, Inverse, Trace, exp

from tests.expressions import SYMBOLS, A, B, F, L, P, W, matrices, s, t, y
from theorykit import bpkr
from theorykit.bpkr.evaluation.bound_action import bind
from theorykit.codegen import compile_expressions
from theorykit.codegen.emission import emit
from theorykit.codegen.lowering import lower
from theorykit.symbolic import quadratic_form
from theorykit.symbolic.atoms import LogDet

REGULARISED = F * W * F.T + t * Identity(P)
DEPTHS = range(1, 7)
PRINT_THE_SOURCES = """
from theorykit.bpkr import Architecture
from theorykit.bpkr.evaluation.bound_action import bind
compiled = bind(Architecture((2, 3), 10.0, temperature=0.1)).compiled
for function in (compiled.terms, compiled.predictor, compiled.readout, compiled.kernel):
    print(function.source)
"""


@cache
def compiled(depth):
    return bind(bpkr.Architecture((2,) * depth, 10.0, temperature=0.1)).compiled


@pytest.mark.slow
def test_the_source_is_the_same_in_every_process():
    def started(seed):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command, root = [sys.executable, "-c", PRINT_THE_SOURCES], Path(__file__).parents[2]
        return subprocess.Popen(command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True)

    processes = [started(seed) for seed in ("1", "2")]
    first, second = (process.communicate(timeout=120)[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert first == second
    assert first.count("def ") == 4


@given(matrices())
def test_the_source_is_the_same_every_time_and_has_no_inverse_or_determinant(expression):
    source = compile_expressions("generated", {"value": expression}, SYMBOLS).source
    assert source == emit(lower("generated", {"value": expression}, SYMBOLS))
    assert not re.search(r"\b(inv|det|pinv|slogdet)\(", source)


@pytest.mark.parametrize("depth", DEPTHS)
def test_each_operation_is_emitted_once_and_every_matrix_factorised_once(depth):
    program = compiled(depth).terms.program
    steps, counts = program.instructions, program.operation_counts()
    assert (
        len({(step.operation, step.operands) for step in steps}) == len({step.target for step in steps}) == len(steps)
    )
    assert counts["cholesky"] == counts["log_det"] == depth + 1


def test_operations_of_an_action_grow_linearly_in_depth():
    counts = [compiled(depth).terms.program.operation_counts() for depth in DEPTHS]
    for operation in set().union(*counts):
        increments = [deep[operation] - shallow[operation] for shallow, deep in pairwise(counts)]
        assert len(set(increments[1:])) == 1, operation


def generated_frame(function, **arguments):
    """The traceback's frame inside the generated function, when it fails."""
    with pytest.raises(Exception) as failure:
        function(**arguments)
    return next(x for x in traceback.extract_tb(failure.value.__traceback__) if x.filename.startswith("<generated"))


def test_a_traceback_shows_the_line_of_the_source_that_failed():
    function = compile_expressions("shown", {"value": LogDet(A) + quadratic_form(y, Inverse(REGULARISED))}, SYMBOLS)
    values = {symbol.name: jnp.eye(3) if symbol.is_Matrix else 1.0 for symbol in SYMBOLS}
    frame = generated_frame(function, **{**values, "W": jnp.eye(2)})
    assert frame.line == function.source.splitlines()[frame.lineno - 1].strip()
    assert "W" in frame.line


def test_a_traceback_shows_the_source_of_its_own_function_among_those_of_the_same_name():
    first = compile_expressions("shared", {"value": Trace(A * L)}, (A, L))
    second = compile_expressions("shared", {"value": LogDet(B), "other": Trace(B) * s}, (B, s))
    frame = generated_frame(first, A=jnp.eye(2), L=jnp.eye(3))
    assert second.source != first.source
    assert frame.line == first.source.splitlines()[frame.lineno - 1].strip()


def test_arguments_and_results_come_by_name_with_or_without_matrix_operations():
    long = sum((s + power) ** power / (1 + power * s) for power in range(1, 30))
    outputs = {"trace": Trace(A), "matrix": A * L, "number": s, "long": long}
    function = compile_expressions("several", outputs, (A, L, s))
    assert "def several(*, A, L, s):" in function.source
    result = function(A=jnp.eye(2), L=jnp.ones((2, 2)), s=3.0)
    assert list(result) == list(outputs) and (result["trace"], result["number"]) == (2, 3)
    plain = compile_expressions("plain", {"value": s**2 + exp(-s), "matrix": 2 * A}, (s, A))(s=2.0, A=jnp.eye(2))
    assert plain["value"] == 4 + jnp.exp(-2.0) and jnp.array_equal(plain["matrix"], 2 * jnp.eye(2))
