"""LaTeX that says what the expression says: parentheses where two readings differ, names, folding."""

import re

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from sympy import Identity, Inverse, KroneckerProduct, MatMul, MatPow, MatrixSymbol, Symbol, Trace, log

from tests.expressions import A, B, F, H, L, N, P, W, X, matrices, s, scalars, t, v, y
from theorykit.symbolic import Diagonal, gaussian_average, latex, log_cosh, partial_trace, quadratic_form
from theorykit.symbolic.atoms import LogDet, PartialTrace
from theorykit.symbolic.documents.rendering import fold

KRONECKER = KroneckerProduct(A, B)
PARTIAL = PartialTrace(W, (H, N), 1)
KERNEL = F * KroneckerProduct(A, Identity(N)) * F.T


def assert_balanced(text):
    assert text.count("{") == text.count("}")
    assert text.count(r"\left") == text.count(r"\right")


@given(scalars())
def test_every_scalar_is_rendered(expression):
    assert_balanced(latex(expression))


@given(matrices())
def test_every_matrix_is_rendered(expression):
    assert_balanced(latex(expression))


def parenthesised(matrix):
    return rf"\left({latex(matrix)}\right)"


@pytest.mark.parametrize("inner", [KRONECKER, PartialTrace(X, (H, N), 0), A + L, PARTIAL], ids=str)
def test_a_compound_factor_of_a_product_is_parenthesised(inner):
    other = MatrixSymbol("C", *inner.shape)
    for product in (MatMul(inner, other), MatMul(other, inner), MatMul(s, inner, other)):
        assert parenthesised(inner) in latex(product)


@pytest.mark.parametrize("inner", [KRONECKER, PARTIAL, A + L, A * L], ids=str)
@pytest.mark.parametrize("outer", [Inverse, lambda x: MatPow(x, 2)], ids=["inverse", "power"])
def test_a_compound_base_of_a_power_is_parenthesised(outer, inner):
    assert latex(outer(inner)).startswith(parenthesised(inner) + "^")


@pytest.mark.parametrize("factor", [A + L, PARTIAL], ids=str)
def test_a_compound_factor_of_a_kronecker_product_is_parenthesised(factor):
    assert latex(KroneckerProduct(factor, B)).startswith(parenthesised(factor))


@pytest.mark.parametrize("matrix", [A * L, A + L, Inverse(A)], ids=str)
@pytest.mark.parametrize("node", [Trace, LogDet, Diagonal, lambda x: PartialTrace(x, (H, 1), 1)])
def test_the_operand_of_an_operator_is_parenthesised_unless_a_symbol(node, matrix):
    assert latex(node(matrix)).endswith(parenthesised(matrix))
    assert latex(node(A)).endswith(" A")


def test_operators_have_their_names_and_sizes():
    assert r"\log\det" in latex(LogDet(A))
    assert r"\operatorname{tr}_{N}" in latex(PARTIAL)
    assert r"\operatorname{tr}_{H}" in latex(PartialTrace(W, (H, N), 0))
    assert r"\operatorname{diag}" in latex(Diagonal(A))
    assert latex(Identity(H * N)) == "I_{H N}"
    assert latex(quadratic_form(v, X)) == latex(v.T * X * v) and re.search(r"\\log.*2", latex(log(s) ** 2))


# each scalar with a text that would say something else
MISREADINGS = [
    (Trace(A) ** 2, latex(Trace(A)) + "^{2}"),
    (LogDet(A) ** 2, latex(LogDet(A)) + "^{2}"),
    (quadratic_form(v, X) ** 2, latex(quadratic_form(v, X)) + "^{2}"),
    (Trace(L) * A, latex(Trace(L)) + " A"),
    (LogDet(L) * A, latex(LogDet(L)) + " A"),
]


@pytest.mark.parametrize(("expression", "misreading"), MISREADINGS, ids=[str(node) for node, _ in MISREADINGS])
def test_an_operator_does_not_seem_to_take_what_follows_it(expression, misreading):
    assert latex(expression) != misreading


@pytest.mark.parametrize("argument", [Trace(A), s + t, LogDet(A), s * t], ids=str)
def test_logarithms_of_anything_are_rendered(argument):
    assert latex(argument) in latex(log(argument))


def test_signs_and_coefficients():
    assert latex(-A * L).startswith("- A")
    assert latex((s + t) * A) == rf"\left({latex(s + t)}\right) A"
    assert "- s L" in latex(A - s * L)


def test_symbols_have_the_names_that_they_are_given():
    names = {A: r"\Alpha", s: r"\sigma^{2}"}
    text = latex(s * Trace(A * L), names)
    assert r"\Alpha" in text
    assert r"\sigma^{2}" in text
    assert "A L" not in text.replace(r"\Alpha", "")


def test_folding_replaces_a_value_by_its_symbol():
    kernel = MatrixSymbol("K", P, P)
    expression = LogDet(KERNEL + t * Identity(P)) + quadratic_form(y, Inverse(KERNEL + t * Identity(P)))
    folded = fold(expression, {kernel: KERNEL})
    assert not folded.has(F)
    assert folded.has(kernel)
    assert folded.xreplace({kernel: KERNEL}) == expression
    assert fold(Trace(A), {kernel: KERNEL}) == fold(Trace(A), {}) == Trace(A)
    short = Symbol("z")
    assert fold(Trace(A) ** 2 + partial_trace(A, (H, 1), 0), {short: Trace(A)}) == short**2 + short


def test_sympy_prints_expressions_of_ours_as_documents_do():
    variance, test = Symbol("sigma2_1", positive=True), MatrixSymbol("Phi_test", P, 1)
    ours = (variance * LogDet(A) + Trace(A), Trace(test.T * test), variance**2, [PARTIAL, 1])
    for expression in ours[:-1]:
        assert sympy.latex(expression) == latex(expression) and latex(expression) in expression._repr_latex_()
    assert sympy.latex(ours[0]) == r"\sigma_{1}^{2} \log\det A + \operatorname{tr} A"
    assert latex(variance**2) == r"\left(\sigma_{1}^{2}\right)^{2}" and r"\Phi_{*}" in latex(test)
    assert r"\operatorname{tr}_{N}" in sympy.latex(ours[-1])
    assert sympy.latex(variance, symbol_names={variance: "v"}) == "v" == latex(variance, {variance: "v"})
    # and no others
    assert sympy.latex(Trace(MatrixSymbol("Q", P, P))) == r"\operatorname{tr}\left(Q \right)"
    assert sympy.latex(Symbol("sigma2_1")) == r"\sigma_{2 1}"


@given(st.one_of(scalars(), matrices()))
def test_every_expression_is_written_in_a_terminal(expression):
    text = sympy.pretty(expression, use_unicode=True, wrap_line=False)
    assert not re.search("LogDet|PartialTrace|Stacked|SideBySide|SquareRoot|Average|Eigenvalue|Entrywise|Lambda", text)
    assert sympy.pretty(expression, use_unicode=False, wrap_line=False).isascii()


def test_operators_and_signs_in_a_terminal():
    variance = Symbol("sigma2_a", positive=True)
    assert sympy.pretty(2 * LogDet(A) - variance * Trace(L)) == "-σₐ²⋅tr L + 2⋅log det A"
    assert sympy.pretty(A - s * (PARTIAL * L)).startswith("-s⋅⎛tr  W⎞⋅L + A")
    assert sympy.pretty(gaussian_average(log_cosh(s * t), t)).splitlines()[0] == "E [log(cosh(s⋅t))]"
