"""What a user may write instead of the atoms of this package, and what is refused with the right atom named."""

import numpy as np
import pytest
import sympy as sp

from tests.expressions import assert_close
from theorykit import saddle
from theorykit.codegen import interpret
from theorykit.symbolic import gaussian_average, gradient, log_det, positive_definite

K, x = positive_definite("K", 2), sp.MatrixSymbol("x", 2, 1)
a, b, z = sp.symbols("a b z", real=True)
VALUES = {"K": np.array([[2.0, 0.3], [0.3, 1.0]]), "x": np.array([[0.5], [-2.0]])}


def test_a_product_with_one_entry_is_a_number():
    action = saddle.Action(x.T * K * x, {K: saddle.PositiveDefinite()}, [x])
    assert_close(action(VALUES), (VALUES["x"].T @ VALUES["K"] @ VALUES["x"])[0, 0], 1e-14)
    assert_close(interpret(gradient(x.T * K * x, x), VALUES), 2 * VALUES["K"] @ VALUES["x"], 1e-14)


def test_explicit_matrices_and_entries_have_values_and_gradients():
    action = saddle.Action((x.T * x)[0, 0] * sp.Trace(K) - log_det(K + sp.eye(2)), {K: saddle.PositiveDefinite()}, [x])
    size = np.sum(VALUES["x"] ** 2)
    expected = size * np.trace(VALUES["K"]) - np.linalg.slogdet(VALUES["K"] + np.eye(2))[1]
    assert_close(action(VALUES), expected, 1e-14)
    slope = interpret(gradient(action.expression, K), VALUES)
    assert_close(slope, size * np.eye(2) - np.linalg.inv(VALUES["K"] + np.eye(2)), 1e-13)
    assert_close(interpret(gradient((x.T * x)[0, 0], x), VALUES), 2 * VALUES["x"], 1e-14)


@pytest.mark.parametrize("expression", [sp.log(sp.Determinant(K)), sp.Determinant(K) ** 2])
def test_a_determinant_is_refused_with_the_atom_to_write(expression):
    with pytest.raises(ValueError, match=r"write log\(det\(A\)\) as symbolic.log_det\(A\)"):
        saddle.Action(sp.Trace(K) - expression, {K: saddle.PositiveDefinite()})


@pytest.mark.parametrize("steepness", [48.0, 500.0])
def test_ratios_of_exponentials_inside_averages_do_not_overflow(steepness):
    """The average of log(1 + exp(-a - b z)) has the slope -E[1 / (1 + exp(a + b z))], which both forms share."""
    average = gaussian_average(sp.log(1 + sp.exp(-a - b * z)), z)
    action = saddle.Action(a**2 / 2 + average, {a: saddle.Real()}, [b])
    found = saddle.minimise(action, {b: steepness})
    by_tanh = gaussian_average(sp.log(2 * sp.cosh((a + b * z) / 2)) - (a + b * z) / 2, z)
    same = saddle.minimise(saddle.Action(a**2 / 2 + by_tanh, {a: saddle.Real()}, [b]), {b: steepness})
    assert found.converged and abs(float(found[a]) - float(same[a])) < 1e-9
    if steepness == 500.0:
        assert abs(float(found[a]) - 0.499601378462705) < 1e-12
