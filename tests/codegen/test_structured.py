"""Compiled functions against the interpreter, the structure that they exploit, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

from tests.expressions import SYMBOLS, H, N, P, assert_close, primitives_of, random_values
from theorykit.codegen import compile_expressions, interpret
from theorykit.codegen.jax_algebra import cholesky, log_det, solve
from theorykit.symbolic import Diagonal, positive_definite, quadratic_form
from theorykit.symbolic.atoms import LogDet, PartialTrace

A, B, W, L, R, X, F, y, v, s, t = SYMBOLS


def refused(expression):
    return compile_expressions("refused", {"value": expression}, SYMBOLS)


KERNEL = F * sp.KroneckerProduct(A, sp.Identity(N)) * F.T
REGULARISED = KERNEL + t * sp.Identity(P)
NO_IDENTITY, NO_RIGHT, NO_LEFT = (
    sp.KroneckerProduct(*factors) for factors in ((L, R), (L, sp.Identity(N)), (sp.Identity(H), R))
)


@pytest.mark.parametrize("expression", [PartialTrace(X, (H, N), 0), KERNEL, X * v * y.T], ids=str)
def test_sizes_may_be_numbers(expression):
    shape = (2, 3, 4)
    numbers = dict(zip((H, N, P), shape, strict=True))
    arguments = [symbol.subs(numbers) for symbol in SYMBOLS]
    values = random_values(shape, 6)
    function = compile_expressions("generated", {"value": expression.subs(numbers)}, arguments)
    result = function(**{symbol.name: jnp.asarray(values[symbol.name]) for symbol in SYMBOLS})["value"]
    assert_close(result, interpret(expression, values))


# expressions, and how often operations occur in the function that computes them
COUNTS = {
    "one factorisation": (
        (LogDet(REGULARISED) + quadratic_form(y, sp.Inverse(REGULARISED)), LogDet(REGULARISED)),
        {"cholesky": 1, "custom_linear_solve": 1},
    ),
    "Kronecker factors": ((KERNEL, NO_RIGHT * X), {"dot_general": 3}),
    "an inverse of a Kronecker product": (
        (sp.Inverse(sp.KroneckerProduct(A, B)) * X,),
        {"cholesky": 2, "custom_linear_solve": 2, "dot_general": 2},
    ),
    "an identity factor": ((NO_RIGHT * X, NO_LEFT * X), {"dot_general": 2}),
    "products in traces": ((sp.Trace(X * W), PartialTrace(X * W, (H, N), 0), Diagonal(X * W)), {"dot_general": 2}),
    "an inverse in a trace": (
        (sp.Trace(sp.Inverse(W) * X), PartialTrace(sp.Inverse(W) * X, (H, N), 1)),
        {"cholesky": 1, "custom_linear_solve": 1, "dot_general": 0},
    ),
    "an inner size of one": ((X * v * y.T,), {"dot_general": 2}),
    "common subexpressions": ((X * W * X, sp.Trace(A) + 1, s * sp.Trace(A)), {"dot_general": 2}),
    "a size that is a number": ((LogDet(positive_definite("A", H).subs(H, 2)),), {"cholesky": 1}),
}


@pytest.mark.parametrize("name", COUNTS)
def test_structure_is_exploited_and_nothing_is_computed_twice(name):
    expressions, expected = COUNTS[name]
    arguments = [symbol.subs(H, 2) for symbol in SYMBOLS] if "number" in name else SYMBOLS
    outputs = {f"value_{i}": expression for i, expression in enumerate(expressions)}
    counts = primitives_of(outputs, arguments, random_values((2, 3, 4), 5))
    assert {operation: counts[operation] for operation in expected} == expected


NOT_PROVABLY_DEFINITE = [sp.Inverse(X), LogDet(X), LogDet(A - sp.Inverse(A)), LogDet(-A), LogDet(F * W * F.T)]


@pytest.mark.parametrize("expression", NOT_PROVABLY_DEFINITE, ids=str)
def test_a_matrix_that_is_not_provably_definite_is_refused(expression):
    with pytest.raises(NotImplementedError, match="not provably positive definite"):
        refused(expression)


WITHOUT_A_RULE = [
    (sp.HadamardProduct(A, L) * L, "HadamardProduct"),
    (sp.Determinant(A) + 1, "Determinant"),
    (sp.MatPow(A, sp.Rational(1, 2)), "power"),
    (sp.MatPow(A, sp.Symbol("k", integer=True)), "power"),
    (sp.Function("unheard_of")(s), "unheard_of"),
    (sp.zeta(s) * sp.Trace(A), "zeta"),
]


@pytest.mark.parametrize(("expression", "name"), WITHOUT_A_RULE, ids=str)
def test_a_node_without_a_rule_is_named(expression, name):
    with pytest.raises(NotImplementedError, match=name):
        refused(expression)
    with pytest.raises(NotImplementedError, match=f"{name}|MatPow"):
        interpret(expression, {**random_values((2, 3, 4), 0), "k": 2.5})


@pytest.mark.parametrize("differentiated", [jax.grad, jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))])
def test_derivatives_of_log_det_and_solve_are_those_without_a_factor(differentiated):
    generator = np.random.default_rng(0)
    root, right = generator.standard_normal((4, 4)), jnp.asarray(generator.standard_normal((4, 2)))
    start = jnp.asarray(root @ root.T / 4 + np.eye(4))

    def by_factor(root):
        of = cholesky(root @ root.T)
        return log_det(of) + jnp.sum(jnp.sin(solve(of, root @ right)))

    def by_elimination(root):
        square = root @ root.T
        return jnp.linalg.slogdet(square)[1] + jnp.sum(jnp.sin(jnp.linalg.solve(square, root @ right)))

    mine, theirs = (jax.jit(differentiated(function))(start) for function in (by_factor, by_elimination))
    assert_close(mine, theirs, 1e-10)


def test_log_det_neither_overflows_nor_underflows():
    for scale in (1e-200, 1e200):
        assert_close(log_det(cholesky(scale * jnp.eye(5))), 5 * np.log(scale), 1e-12)
