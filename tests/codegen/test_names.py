"""Any name of a symbol, a size, a result or the function works or is refused by name; no name is ever executed."""

import ast
import builtins
from inspect import signature

import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Abs, Dummy, MatrixSymbol, Symbol, Trace, exp

from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import entrywise, positive_definite

from ..expressions import assert_close

INJECTIONS = (
    'x"): pass\nimport builtins; builtins.injected = True\ndef f(',
    "x=setattr(__import__('builtins'), 'injected', True)",
)
# Names that Python reads otherwise, keywords, names of the generated code, and names that look like its results.
HARD = (
    *("ℓ", "ﬁ", "e\u0301", "κ_1", "é", "lambda", "abs", "entry", "jnp", "trace_1", "matmul_1", "entrywise_1"),
    *("__name__", "self", "1x", "a b", "shape", "x1", "normal_2"),
)
ROLES = ("function", "output", "scalar", "matrix", "size")
MATRIX = np.array([[2.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 1.5]])


def compiled_with(role: str, name: str):
    """A function that has `name` in one role, and its value by the interpreter of the same expression."""
    names = {"function": "f", "output": "out", "scalar": "s", "matrix": "A", "size": "n", role: name}
    scalar, size = Symbol(names["scalar"], real=True), Symbol(names["size"], integer=True, positive=True)
    matrix = positive_definite(names["matrix"], size)
    of_entries = entrywise(lambda entry: exp(scalar * entry), matrix)
    expression = Trace(of_entries) * Abs(scalar) / size + Trace(matrix.inverse())
    function = compile_expressions(names["function"], {names["output"]: expression}, (matrix, scalar))
    values = {names["matrix"]: MATRIX, names["scalar"]: -0.3, names["size"]: 3}
    found = function.call_from({name: jnp.asarray(value) for name, value in values.items()})
    arguments = {each.name: jnp.asarray(values[each.name]) for each in (matrix, scalar)}
    assert found == function(**arguments)
    # The source has identifiers in the place of such names, in the same order.
    namespace = {}
    exec(function.source, namespace)
    (defined,) = (node.name for node in ast.parse(function.source).body if isinstance(node, ast.FunctionDef))
    written = namespace[defined]
    ((_, again),) = written(**dict(zip(signature(written).parameters, arguments.values(), strict=True))).items()
    assert_close(again, found[names["output"]], 1e-12)
    return found[names["output"]], interpret(expression, values)


@pytest.mark.parametrize("role", ROLES)
def test_every_name_works_and_is_never_executed(role):
    for name in HARD + INJECTIONS:
        found, expected = compiled_with(role, name)
        assert_close(found, expected, 1e-12)
        assert not hasattr(builtins, "injected")


PLAIN, POSITIVE, MATRIX_A = Symbol("s"), Symbol("s", positive=True), MatrixSymbol("A", 2, 2)


@pytest.mark.parametrize(
    ("expression", "arguments", "message"),
    [
        (PLAIN + exp(POSITIVE), (PLAIN, POSITIVE), "two different symbols are named 's'"),
        (PLAIN + exp(POSITIVE), (PLAIN,), "two different symbols are named 's'"),
        (Trace(MATRIX_A) * Symbol("A"), (MATRIX_A,), "two different symbols are named 'A'"),
        (PLAIN, (PLAIN, PLAIN), "occur twice: s"),
        (Dummy("s") + 1, (), "dummy"),
    ],
)
def test_different_symbols_of_one_name_are_refused(expression, arguments, message):
    with pytest.raises(ValueError, match=message):
        compile_expressions("f", {"out": expression}, arguments)
