"""The source of a function: it runs where this package is not installed, and factorises every matrix once."""

import ast
import os
import subprocess
import sys
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

from tests.expressions import A, L, assert_close, primitives_of, s
from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import compiled_terms
from theorykit.codegen import compile_expressions
from theorykit.derivation.claims import random_values as values_of

DEPTHS = range(1, 5)

# The process sees a package of this name that cannot be imported.
RUN = """
import json, sys
sys.modules["theorykit"] = None
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
folder = sys.argv[1]
sys.path.insert(0, folder)
import written
arrays = {name: value if value.shape else float(value) for name, value in np.load(f"{folder}/values.npz").items()}
found = written.action(**arrays)
slope = jax.grad(lambda u: written.action(**{**arrays, "U_1": u})["total"])(arrays["U_1"])
np.savez(f"{folder}/found.npz", slope=slope, **found)
"""


@cache
def action_of(depth):
    return bpkr.derive(bpkr.Architecture(layers=(2,) * depth, widths=10.0, temperature=0.1))


@cache
def values_of_action(depth):
    symbols = action_of(depth).symbols
    sizes = {**dict.fromkeys(symbols.heads, 2), symbols.input_features: 3, symbols.examples: 4}
    values = values_of([action_of(depth).total], sizes, np.random.default_rng(1))
    return {each.name: values[each.name] for each in symbols.arguments}


def executed(source):
    """The function that a source defines last."""
    namespace = {}
    exec(compile(source, "written", "exec"), namespace)
    name = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)][-1]
    return namespace[name]


def test_the_source_of_an_action_runs_without_this_package(tmp_path):
    action, values = action_of(2), values_of_action(2)
    (tmp_path / "written.py").write_text(bpkr.generate_source(action))
    np.savez(tmp_path / "values.npz", **values)
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": ""})
    found = np.load(tmp_path / "found.npz")
    arrays = {name: jnp.asarray(value) for name, value in values.items()}
    terms = compiled_terms(action)
    for name, value in terms(**arrays).items():
        assert_close(found[name], value, 1e-13)
    slope = jax.grad(lambda u: terms(**{**arrays, "U_1": u})["total"])(arrays["U_1"])
    assert_close(found["slope"] + found["slope"].T, slope + slope.T, 1e-12)


@pytest.mark.parametrize("depth", DEPTHS)
def test_every_matrix_is_factorised_once(depth):
    action = action_of(depth)
    terms = compiled_terms(action)
    counts = primitives_of(terms.outputs, terms.arguments, values_of_action(depth))
    assert counts["cholesky"] == depth + 1
    assert terms.source.count("jnp.linalg.cholesky(") == depth + 1
    assert "inv(" not in terms.source and "det(" not in terms.source.replace("log_det(", "")


def test_operations_of_an_action_grow_linearly_in_depth():
    lengths = [len(compiled_terms(action_of(depth)).source.splitlines()) for depth in range(1, 6)]
    increments = np.diff(lengths)[1:]
    assert max(increments) <= 14


def test_arguments_and_results_come_by_name():
    long = sum((s + power) ** power / (1 + power * s) for power in range(1, 30))
    outputs = {"trace": sp.Trace(A), "matrix": A * L, "number": s, "long": long}
    function = compile_expressions("several", outputs, (A, L, s))
    assert "def several(*, A, L, s):" in function.source
    assert max(map(len, function.source.splitlines())) <= 100
    arguments = {"A": jnp.eye(2), "L": jnp.ones((2, 2)), "s": 3.0}
    for found in (function(**arguments), executed(function.source)(**arguments)):
        assert list(found) == list(outputs) and (found["trace"], found["number"]) == (2, 3)
        assert_close(found["long"], sum((3.0 + k) ** k / (1 + k * 3.0) for k in range(1, 30)), 1e-14)
    with pytest.raises(TypeError, match="takes the arguments A, L, s, got A, L"):
        function(A=1, L=2)
