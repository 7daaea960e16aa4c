"""Formulas in lines: the same formula, every line whole by itself, and as wide as it may be."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expressions import matrices, scalars
from theorykit.symbolic.documents.document import Equation, align_environment
from theorykit.symbolic.documents.lines import broken, width
from theorykit.symbolic.documents.rendering import latex

LONG = r"a \left(b + \frac{c}{d} \left(e_{1}^{2} + f\right)^{-1} g h \left(i - j\right)\right) + k l = m - n"


def joined(lines: list[str]) -> str:
    """One line again, without what a break adds."""
    text = " ".join(re.sub(r"^(\\left\. )+(\{\} )?", "", line) for line in lines)
    return re.sub(r"( \\right\.)+(?= |$)|\\cdot |\s", "", text)


def assert_whole(lines: list[str]) -> None:
    for line in lines:
        assert line.count(r"\left") == line.count(r"\right") and line.count("{") == line.count("}")


@given(st.one_of(scalars(), matrices()), st.sampled_from([60.0, 120.0, 300.0]))
def test_lines_are_the_formula(expression, most):
    formula = latex(expression)
    lines = broken(formula, most)
    assert_whole(lines)
    if r"\exp" not in "".join(lines) and "".join(lines).count(r"\frac{1}") == formula.count(r"\frac{1}"):
        assert joined(lines) == joined([formula])
    if width(formula) <= most:
        assert lines == [formula]


@pytest.mark.parametrize("most", [80.0, 120.0, 200.0])
def test_lines_fit_and_break_outside_of_brackets_first(most):
    lines = broken(LONG, most)
    assert_whole(lines)
    assert joined(lines) == joined([LONG]) and all(width(line) <= most + width(r"\cdot") + 3 for line in lines)
    assert (most < 200) == any(r"\right." in line for line in lines)


def test_a_long_exponent_or_numerator_comes_down_to_the_line():
    terms = " + ".join(f"a_{{{i}}}" for i in range(20))
    for formula, begins in ((rf"e^{{{terms}}}", r"\exp\left("), (rf"\frac{{{terms}}}{{b}}", r"\frac{1}{b} \left(")):
        lines = broken(formula, 150.0)
        assert_whole(lines)
        assert len(lines) > 1 and lines[0].startswith(begins) and all(width(line) <= 150 for line in lines)


def test_equations_are_aligned_labelled_and_say_where_they_are_from():
    long = " + ".join(f"x_{{{i}}}" for i in range(30))
    text = align_environment(
        [Equation("S", "a", source="32"), Equation(long, long, label="step-1"), Equation("u", long)]
    )
    assert r"S &= a \quad [\text{Eq.\,32}] \label{eq:S} \\" in text and r"\label{eq:step-1}" in text
    assert text.count(r"\label") == 3 and text.count("&") == text.count(r"\\") + 1
