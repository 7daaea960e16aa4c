"""A matrix atom is one class: its value, its gradient, its LaTeX and the proof that it is positive definite."""

import jax
import jax.numpy as jnp
import numpy as np
from sympy.matrices.expressions.matexpr import MatrixExpr

from tests.expressions import SYMBOLS, A, H, L, assert_close, assert_gradient, random_values
from theorykit.codegen import compile_expressions, interpret
from theorykit.derivation import Derivation, Step
from theorykit.derivation.claims import Equal
from theorykit.symbolic import gradient, log_det, positive_definite, trace
from theorykit.symbolic.documents.rendering import latex

C = positive_definite("C", H)


class SchurProduct(MatrixExpr):
    """Product of two matrices, entry by entry."""

    shape = property(lambda self: self.args[0].shape)

    def _eval_transpose(self):
        return SchurProduct(*(each.T for each in self.args))

    def value(self, at):
        """Multiply the entries."""
        return at(self.args[0]) * at(self.args[1])

    def pullback(self, cotangent):
        """Return the gradient, by the product rule for every entry."""
        left, right = self.args
        return [(left, SchurProduct(cotangent, right)), (right, SchurProduct(cotangent, left))]

    def is_definite(self, proof):
        """Follow the theorem of Schur: the product of positive definite matrices is positive definite."""
        return all(map(proof, self.args))

    def _latex(self, printer, **_):
        return r" \circ ".join(map(printer._print, self.args))


VALUES = random_values((3, 2, 2), 4)
VALUES["C"] = VALUES["A"] @ VALUES["A"] + np.eye(3)
ARGUMENTS = (*SYMBOLS, C)


def compiled(expression):
    function = compile_expressions("own", {"value": expression}, ARGUMENTS)
    return lambda values: function(**{each.name: jnp.asarray(values[each.name]) for each in ARGUMENTS})["value"]


def test_it_is_evaluated_under_every_algebra():
    expression = SchurProduct(A, C) * L
    expected = (VALUES["A"] * VALUES["C"]) @ VALUES["L"]
    assert_close(interpret(expression, VALUES), expected, 1e-14)
    assert_close(compiled(expression)(VALUES), expected, 1e-14)
    source = compile_expressions("own", {"value": expression}, (A, C, L)).source
    namespace = {}
    exec(source, namespace)
    assert_close(namespace["own"](**{name: jnp.asarray(VALUES[name]) for name in "ACL"})["value"], expected, 1e-14)
    assert "A * C @ L" in source or "(A * C) @ L" in source


def test_it_is_differentiated_and_factorised_and_written():
    action = log_det(SchurProduct(A, C)) + trace(SchurProduct(A, L) * L)
    assert_gradient(action, A, VALUES, compiled, differences=1e-6)
    hessian = jax.hessian(lambda at: compiled(action)({**VALUES, "C": at}))(jnp.asarray(VALUES["C"]))
    assert np.all(np.isfinite(hessian)) and np.any(hessian != 0)
    assert latex(SchurProduct(A, C)) == r"A \circ C"
    assert gradient(trace(SchurProduct(A, L)), L) != 0


def test_identities_of_it_are_proved_and_false_ones_are_not():
    commuted = Step("commuted", SchurProduct(L, A) * L, SchurProduct(A, L) * L, Equal())
    mistaken = Step("mistaken", SchurProduct(L, A) * L, SchurProduct(A, L.T) * L, Equal())
    found = Derivation((commuted, mistaken), ({H: 3},)).verify().evidence
    assert [each.proved for each in found] == [True, False]
    assert not found[1].holds
