"""The HTML page: formulas in MathML, steps that unfold, and a table of the symbols that occur."""

import re
from xml.etree import ElementTree

import pytest

from theorykit.symbolic.documents.document import Code, Equation, Folded, Heading, Items, Table, Text
from theorykit.symbolic.documents.page import Definition, as_html, mathml


def parsed(blocks, definitions=()):
    return ElementTree.fromstring(as_html(blocks, definitions).removeprefix("<!DOCTYPE html>"))


@pytest.mark.parametrize(
    ("latex", "element"),
    [
        (r"z \sim \mathcal{N}", "<mo>∼</mo>"),
        (r"\mathbf{1}", "<mn>𝟏</mn>"),
        (r"\mathbf{x}", "<mi>𝐱</mi>"),
        (r"\log x", ">log</mo>"),
        (r"\det A", ">det</mo>"),
        (r"\operatorname{tr}_{N} A", ">tr</mo>"),
        (r"\operatorname{log\_loss} x", ">log_loss</mo>"),
        (r"\text{a\$b<\textbackslash{}\}}", "<mtext>a$b&lt;\\}</mtext>"),
    ],
)
def test_symbols_that_browsers_need(latex, element):
    assert element in mathml(latex)


def test_a_formula_that_cannot_be_written_is_refused():
    with pytest.raises(NotImplementedError, match=r"\\foo"):
        mathml(r"\foo x")
    with pytest.raises(ValueError, match="cannot be read"):
        mathml("x_")


def test_a_page_has_contents_steps_and_the_symbols_that_occur():
    fold = Folded("**1. A step**, Eq. (3)", (Equation("U_{1}", "a^{T}"),), remark="checked", is_open=True)
    blocks = [Heading("Title", 1), Heading("Of $x$"), fold, Items(("`c`",)), Table((("1",),), ("a",)), Code("a < b\n")]
    definitions = [Definition(symbol, f"meaning of ${symbol}$") for symbol in ("U_{1}", "x", "T", "b")]
    page = parsed(blocks, definitions)
    assert page.find("head/title").text == "Title" and page.find(".//pre/code").text == "a < b\n"
    assert [link.get("href") for link in page.findall("body/nav//a")] == ["#section-1", "#section-2"]
    step = page.find(".//details[@id='step-1'][@open]")
    assert step.find("summary/strong").text == "1. A step" and step.find("summary/span[@class='remark']") is not None
    # The T of a transpose is no temperature.
    assert [row.get("data-latex") for row in page.findall(".//th[@data-latex]")] == ["U_{1}", "x"]


def test_a_long_formula_stands_on_several_lines():
    long = " + ".join(f"x_{{{i}}}" for i in range(60))
    lines = parsed([Equation("S", long)]).findall(".//div[@class='formula']/div/math")
    assert len(lines) > 1 and sum(len(line.findall(".//msub")) for line in lines) == 60


def test_nothing_is_loaded_from_elsewhere():
    page = as_html([Heading("A $1 title <b>", 1), Text("text")])
    assert "A $1 title &lt;b&gt;" in page and not re.search(r"<script|src=|https?://|@import", page)
