"""Functions of the entries of several matrices, and sums over entries: their forms and their derivatives."""

import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from scipy import stats
from sympy import symbols

from tests.expressions import assert_close, assert_gradient
from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import (
    GaussianAverage,
    entrywise,
    gaussian_average,
    gradient,
    log_cosh,
    normal,
    positive_definite,
    sum_of_entries,
)
from theorykit.symbolic.atoms import LogDet
from theorykit.symbolic.documents.rendering import latex
from theorykit.symbolic.functions import SmoothedKink
from theorykit.symbolic.matrix_functions import Entrywise, SumOfEntries

P, N = symbols("P N", integer=True, positive=True)
U, V, K = sp.MatrixSymbol("U", P, N), sp.MatrixSymbol("V", P, N), positive_definite("K", N)
X, Y, W = sp.MatrixSymbol("X", P, 1), sp.MatrixSymbol("Y", P, 1), sp.MatrixSymbol("W", N, 1)
s, z = symbols("s z", real=True)
SYMBOLS = (U, V, K, X, Y, W, s)
SIZES = ((3, 2), (1, 3), (4, 1))


def random_values(shape, seed):
    generator, sizes = np.random.default_rng(seed), dict(zip((P, N), shape, strict=True))
    drawn = {}
    for symbol in SYMBOLS[:-1]:
        rows, columns = (int(side.subs(sizes)) for side in symbol.shape)
        drawn[symbol.name] = generator.standard_normal((rows, columns))
    drawn["K"] = drawn["K"] @ drawn["K"].T / 2 + np.eye(shape[1])
    return {**drawn, "s": 0.7, "P": float(shape[0]), "N": float(shape[1])}


DATA = sum_of_entries(entrywise(lambda x, y: log_cosh(s * x) - x * y, U * W, Y))


def compiled(expression):
    function = compile_expressions("f", {"value": expression}, SYMBOLS)
    return lambda values: function.call_from({name: jnp.asarray(value) for name, value in values.items()})["value"]


def test_what_is_simple_is_written_simply():
    assert entrywise(lambda x, y: x**2, U, V) == U.applyfunc(entrywise(lambda x: x**2, U).function)
    assert entrywise(lambda x, y: 3 * y, U, V) == 3 * V
    assert entrywise(lambda x, y: sp.Integer(2), U, V) == 2 * sp.OneMatrix(P, N)
    assert entrywise(lambda x, y: x - y, U, U) == sp.ZeroMatrix(P, N)
    assert entrywise(lambda x, y: x * y, 2 * U, sp.OneMatrix(P, N)) == 2 * U
    assert entrywise(lambda x, y: s * x * y, U, V) == s * entrywise(lambda x, y: x * y, U, V)
    assert gradient(DATA, Y) == -U * W
    assert sum_of_entries(2 * U + V) == 2 * SumOfEntries(U) + SumOfEntries(V)
    assert sum_of_entries(s * sp.OneMatrix(P, N)) == s * P * N
    assert sum_of_entries(sp.ZeroMatrix(P, N)) == 0
    assert entrywise(lambda x, y: x - y, U.T, V.T) == entrywise(lambda x, y: x - y, U, V).T


def test_the_variables_of_a_function_are_its_own():
    named = sp.Symbol("x", real=True)
    for of_entries in (entrywise(lambda x: x * s, U), entrywise(lambda x, y: x * s * sp.tanh(y), U, V)):
        put_in = of_entries.xreplace({s: named})
        assert named in put_in.free_symbols
        values = {**random_values((3, 2), 0), "x": 0.7}
        assert_close(interpret(put_in, values), interpret(of_entries, values), 1e-15)
    given = Entrywise(sp.Lambda((named, s), named * s), U, V)
    assert given.free_symbols == {U, V}
    assert given.func(*given.args) == given


def test_sums_in_the_function_keep_their_own_variables():
    total = sum_of_entries(entrywise(lambda x: x**2, X))
    for value in (
        entrywise(lambda x, y: x * y * total, sp.OneMatrix(P, 1), X),
        entrywise(lambda x, y: x * total, X, Y),
    ):
        assert value == total * X
    values = random_values((3, 2), 0)
    nested = sum_of_entries(entrywise(lambda x, y: sp.tanh(x * total / 5) * y, X, Y))
    assert_close(interpret(nested, values), np.sum(np.tanh(values["X"] * np.sum(values["X"] ** 2) / 5) * values["Y"]))
    assert_gradient(nested, X, values, compiled)
    slope = gradient(sp.Trace(sp.OneMatrix(1, P) * entrywise(lambda x: sp.cos(s * x), X)), s)
    assert_close(interpret(slope, values), -np.sum(np.sin(0.7 * values["X"]) * values["X"]), 1e-14)


def test_sums_and_averages_are_kept_whole_by_the_normal_form():
    total = sum_of_entries(entrywise(lambda x, y: (x + y) ** 2, U, V))
    average = GaussianAverage((z + sp.Trace(K + K)) ** 2, z)
    assert normal((total + 1) * s) == s * total + s
    assert normal(average - GaussianAverage((z + 2 * sp.Trace(K)) ** 2, z)) == 0


def test_a_matrix_that_depends_on_an_entry_is_refused():
    function = entrywise(lambda x, y: LogDet(sp.exp(x) * K) * y, U, V)
    with pytest.raises(NotImplementedError, match="depends on x"):
        compiled(sum_of_entries(function))
    with pytest.raises(NotImplementedError, match="depends on x"):
        gradient(sum_of_entries(function), K)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (
            DATA,
            r"\sum_{i} \left(- \left(U W\right)_{i} Y_{i} + "
            r"\log\left(\cosh{\left(s \left(U W\right)_{i} \right)}\right)\right)",
        ),
        (sum_of_entries(entrywise(sp.tanh, U)) * s, r"s \sum_{i j} \tanh{\left(U_{i j} \right)}"),
        (sum_of_entries(U) * SumOfEntries(V), r"\left(\sum_{i j} U_{i j}\right) \sum_{i j} V_{i j}"),
        (sum_of_entries(U) ** 2, r"\left(\sum_{i j} U_{i j}\right)^{2}"),
        (
            sum_of_entries(entrywise(lambda x, y: x * y, U, sp.MatrixSymbol("V_1", P, N))),
            r"\sum_{i j} U_{i j} \left(V_{1}\right)_{i j}",
        ),
        (
            sum_of_entries(entrywise(lambda x: sp.cos(s * x), X)).xreplace({s: sp.Symbol("i")}),
            r"\sum_{j} \cos{\left(i X_{j} \right)}",
        ),
        (entrywise(lambda x, y: x / y, U, V), r"\left[\frac{U_{i j}}{V_{i j}}\right]_{i j}"),
    ],
)
def test_sums_are_written_with_indices(expression, expected):
    assert latex(expression) == expected


def test_functions_in_cases_do_not_mix_their_variables_with_those_of_entries():
    """The mean of max(x + x z, 0), and the probability that sqrt(x) z is positive, for every entry x."""
    column = sp.MatrixSymbol("c", 2, 1)
    found = entrywise(lambda x: gaussian_average(sp.Max(x + x * z, 0), z), column)
    expected = [x * (stats.norm.pdf(1) + stats.norm.cdf(1)) for x in (0.5, 2.0)]
    np.testing.assert_allclose(interpret(found, {"c": np.array([[0.5], [2.0]])})[:, 0], expected, rtol=1e-14)
    share = entrywise(lambda x: SmoothedKink(0, sp.sqrt(x), 1, 0), column)
    np.testing.assert_allclose(interpret(share, {"c": np.array([[0.5], [2.0]])}), 0.5, rtol=1e-14)
