"""LaTeX that says what the expression says: parentheses where two readings differ, and names."""

import re

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from sympy import Identity, Inverse, KroneckerProduct, MatMul, MatPow, MatrixSymbol, Symbol, Trace, log

from tests.expressions import A, B, F, H, L, N, P, W, X, s, t, v
from theorykit.symbolic import Diagonal, Softmax, SquareRoot, gaussian_average, log_cosh, quadratic_form, sum_of_entries
from theorykit.symbolic.atoms import LogDet, PartialTrace
from theorykit.symbolic.documents.rendering import latex

KRONECKER = KroneckerProduct(A, B)
PARTIAL = PartialTrace(W, (H, N), 1)
KERNEL = F * KroneckerProduct(A, Identity(N)) * F.T


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


def test_symbols_have_the_names_that_they_are_given():
    names = {A: r"\Alpha", s: r"\sigma^{2}"}
    text = latex(s * Trace(A * L), names)
    assert r"\Alpha" in text
    assert r"\sigma^{2}" in text
    assert "A L" not in text.replace(r"\Alpha", "")


def test_atoms_write_themselves_with_the_printer_of_sympy():
    for expression in (LogDet(A), Diagonal(A), PARTIAL, SquareRoot(A), sum_of_entries(A), Softmax(v)):
        assert sympy.latex(expression) == latex(expression) and latex(expression) in expression._repr_latex_()
    assert sympy.latex(2 * LogDet(A) ** 2) == r"2 \left(\log\det A\right)^{2}"
    assert sympy.latex(gaussian_average(log_cosh(s * t), t)) == (
        r"\left\langle \log{\left(\cosh{\left(s t \right)} \right)} \right\rangle_{t \sim \mathcal{N}(0, 1)}"
    )
    # SymPy's own nodes are written as SymPy does.
    assert sympy.latex(Trace(A)) == r"\operatorname{tr}\left(A \right)" != latex(Trace(A))


def test_variances_and_test_data_have_their_names():
    variance, test = Symbol("sigma2_1", positive=True), MatrixSymbol("Phi_test", P, 1)
    assert latex(variance**2) == r"\left(\sigma_{1}^{2}\right)^{2}" and latex(test) == r"\Phi_{*}"
    assert latex(variance, {variance: "v"}) == "v" and latex(Symbol("sigma2_1")) == r"\sigma_{2 1}"


NAMES = {
    "Phi_1": r"\Phi_{1}", "x'": "x'", "mu_{n-2}": "mu_{n-2}", r"\phi": r"\phi", "lambda": r"\lambda",
    "_x": r"\text{\_x}", "^": r"\text{\textasciicircum{}}", "a}b": r"\text{a\}b}", "a$b": r"\text{a\$b}",
    "50%": r"\text{50\%}", "a b": r"\text{a b}", "<b>": r"\text{<b>}", "**b**": r"\text{**b**}",
    "\\": r"\text{\textbackslash{}}", "}{": r"\text{\}\{}",
}  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_names_are_formulas_or_verbatim(name, expected):
    assert latex(Symbol(name)) == expected


@given(st.text(min_size=1, max_size=6, alphabet="ab1_^{}\\$%& '`*<|~#"))
def test_a_symbol_of_any_name_is_written(name):
    text = latex(Symbol(name) ** 2)
    assert re.sub(r"\\[{}\\]", "", text).count("{") == re.sub(r"\\[{}\\]", "", text).count("}")
