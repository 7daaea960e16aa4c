"""What a user may write instead of the atoms of this package, and what is refused with the right atom named."""

import numpy as np
import pytest
import sympy as sp

from tests.expressions import assert_close
from theorykit import saddle
from theorykit.codegen import interpret
from theorykit.symbolic import gradient, log_det, positive_definite

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
