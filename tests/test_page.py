"""A derivation as a page: every formula of the LaTeX document is on it, and every link leads somewhere on it."""

import re
from collections import Counter
from functools import cache
from html import unescape
from xml.etree import ElementTree

import pytest

from tests.browser import assert_steps_fold_and_symbols_lead_to_their_meaning, chromium, complaints
from tests.derivation.architectures import SMALL, action, case
from tests.marks import slow
from theorykit import dmft
from theorykit.bpkr.action import document
from theorykit.dmft.derivation.document import mean_field_blocks
from theorykit.symbolic import Block, Definition, Equation, Heading, Text, as_html, as_latex, as_markdown
from theorykit.symbolic.documents.document import Folded, Items
from theorykit.symbolic.documents.mathml import as_text, broken, mathml

ACTIONS = {**SMALL, "two outputs": case(2, outputs=2)}


@cache
def blocks(name: str) -> tuple[Block, ...]:
    if name == "dynamics":
        return tuple(mean_field_blocks(dmft.derive()))
    architecture = ACTIONS[name].architecture()
    derived = action(name) if name in SMALL else document_action(name)
    parts = (
        document.action_blocks(derived, architecture),
        document.closed_forms_part(derived),
        document.expansion_part(derived),
        document.derivation_part(derived),
        document.dual_part(derived),
        document.finite_width_part(derived),
    )
    return tuple(block for part in parts for block in part)


def document_action(name):
    from theorykit import bpkr

    return bpkr.derive(ACTIONS[name].architecture())


@cache
def page(name: str) -> str:
    if name == "dynamics":
        return as_html(blocks(name), [Definition("m", "overlaps")])
    derived = action(name) if name in SMALL else document_action(name)
    return as_html(blocks(name), document.definitions(derived))


def tree(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))


every_page = pytest.mark.parametrize("name", ["a skip connection", *slow(("two layers", "two outputs")), "dynamics"])


def equations(found) -> list[Equation]:
    """All displayed equations of a document, folded or not."""
    flat = (each for block in found for each in (block.parts if isinstance(block, Folded) else (block,)))
    return [each for each in flat if isinstance(each, Equation)]


@pytest.mark.quick("dynamics")
@every_page
def test_a_page_is_well_formed(name):
    root = tree(page(name))
    anchors = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(anchors) == len(set(anchors)) > 0
    assert root.find("head/title").text and root.find("head/meta[@name='viewport']") is not None


@every_page
def test_every_link_has_its_target(name):
    root = tree(page(name))
    anchors = {element.get("id") for element in root.iter()}
    links = [element.get("href") for element in root.iter("a")]
    assert links and all(link.startswith("#") and link[1:] in anchors for link in links)
    # contents: every heading but the title
    listed = {link.get("href")[1:] for link in root.find(".//nav").iter("a")}
    assert listed == {each.get("id") for level in ("h2", "h3", "h4") for each in root.iter(level)}


@every_page
def test_nothing_on_a_page_is_from_elsewhere(name):
    text = page(name)
    for element in tree(text).iter():
        assert element.tag not in ("script", "link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "style", "srcset", "data", "action"} & set(element.attrib)
        assert not [key for key in element.attrib if key.startswith("on")]
    assert not re.search(r"https?:|//[a-z]|url\(|@import|@font-face", text)


@every_page
def test_every_formula_of_the_latex_document_is_on_the_page(name):
    root, latex = tree(page(name)), as_latex(blocks(name))
    displayed = [each.get("data-latex") for each in root.iter("div") if each.get("class") == "formula"]
    found = equations(blocks(name))
    assert displayed == [f"{e.left} {e.numbered}" for e in found]
    labels = re.findall(r"\\label\{(.*?)\}", latex)
    assert latex.count(r"\begin{align}") == len(displayed) == len(set(labels)) == len(labels)
    bodies = re.findall(r"\\begin\{align\}\n(.*?) \\label", latex, re.DOTALL)
    for body, equation in zip(bodies, found, strict=True):
        whole = re.sub(r" \[\\text\{Eq\..*?\}\]", "", re.sub(r"\\notag|\\q?quad", "", body))
        if body.count(r"\frac{1}") == equation.right.count(r"\frac{1}") and r"\exp" not in body:
            assert letters(whole) == letters(f"{equation.left} {equation.right}"), body
    inline = Counter(each.get("data-latex") for each in root.find(".//main").iter("span") if each.get("data-latex"))
    assert (
        not Counter(re.findall(r"\$([^$]+)\$", as_markdown([*blocks(name)]).replace("$$", "\n")))
        - inline
        - Counter(displayed)
    )


NAMES = {
    **{"Phi": "Φ", "sigma": "σ", "Lambda": "Λ", "delta": "δ", "kappa": "κ", "Omega": "Ω", "partial": "∂", "beta": "β"},
    **{name: name for name in ("log", "det", "sinh", "cosh", "tanh", "exp")},
    **{"alpha": "α", "Gamma": "Γ", "gamma": "γ", "epsilon": "ϵ", "xi": "ξ", "infty": "∞", "ell": "ℓ"},
}


def letters(latex: str) -> str:
    """The letters and numbers that a person sees of a formula, by an independent way: regular expressions."""
    latex = re.sub(r"\\(?:begin|end)\{\w+\}", "", latex)
    latex = re.sub(r"\\mathcal\s*(?:\{N\}|N)", "", latex)
    latex = re.sub(r"\\mathbf\{1\}", "", latex)
    latex = re.sub(r"\\([A-Za-z]+)", lambda command: NAMES.get(command[1], ""), latex)
    return "".join(sorted(character for character in latex if character.isalnum() or character in "∂∞"))


@every_page
def test_the_letters_of_a_formula_are_those_of_its_latex(name):
    for equation in equations(blocks(name)):
        latex = f"{equation.left} {equation.relation} {equation.right}"
        shown = "".join("".join(element.itertext()) for element in mathml(latex))
        kept = sorted(each for each in shown if (each.isalnum() or each in "∂∞") and each not in "𝒩𝟏")
        assert "".join(kept) == letters(latex), latex


@every_page
def test_a_step_says_how_it_was_checked(name):
    folds = list(tree(page(name)).iter("details"))
    found = [block for block in blocks(name) if isinstance(block, Folded)]
    assert len(folds) == len(found)
    for fold, block in zip(folds, found, strict=True):
        text = "".join(fold.find("summary").itertext())
        assert "Holds: error" in text and "Holds: error" in block.remark
        assert fold.find("div[@class='formula']") is not None


@pytest.mark.quick("a skip connection", "two outputs")
@pytest.mark.parametrize("name", ACTIONS)
def test_symbols_lead_to_their_rows(name):
    root = tree(page(name))
    rows = {row.get("id"): row for row in root.find(".//table").iter("tr") if row.get("id")}
    linked = {link.get("href")[1:] for math in root.iter("mtext") for link in math.iter("a")}
    assert linked == set(rows)
    assert all("".join(row[1].itertext()) and row[2].find("a") is not None for row in rows.values())
    of_first = next(row for row in rows.values() if "".join(row[0].itertext()) == "U1")
    assert "order parameter of layer 1" in "".join(of_first[1].itertext())


def test_a_transpose_is_no_temperature():
    text = as_html([Equation("K", r"\Phi^{T} T")], [Definition("T", "temperature"), Definition(r"\Phi", "features")])
    assert text.count('href="#symbol-1"') == 1 and text.count('href="#symbol-2"') == 1


def test_markup_in_words_is_text():
    text = as_html([Heading("<b> & $a<b$", 1), Text("`<script>` **bold**"), Items(('"',)), Folded("$x$", (), "a < b")])
    words = "".join(tree(text).find(".//main").itertext())
    assert "<b>" in words and "<script>" in words and "a < b" in words and "<strong>bold</strong>" in text


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\frac12", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        (r"x_{1}^{2}", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"),
        (r"\sqrt[3]{x}", "<mroot><mi>x</mi><mn>3</mn></mroot>"),
        (r"\hat{x}", '<mover accent="true"><mi>x</mi><mo>^</mo></mover>'),
        (r"\mathcal{L} \mathbf{x}", "<mi>ℒ</mi><mi>𝐱</mi>"),
        (r"\sum_{i}^{n} x", "<munderover><mo>∑</mo><mi>i</mi><mi>n</mi></munderover><mi>x</mi>"),
        ("-1", '<mo form="prefix">−</mo><mn>1</mn>'),
        (r"a < b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
    ],
)
def test_latex_is_read(latex, expected):
    assert "".join(map(as_text, mathml(latex))) == expected


@pytest.mark.parametrize(
    "latex", ["{", "}", "x_", r"\left(x", r"x \right)", "a & b", r"\frac{1}", "x^{1}^{2}", r"\sqrt[2"]
)
def test_a_formula_that_is_not_whole_is_refused(latex):
    with pytest.raises(ValueError, match="cannot be read"):
        mathml(latex)


@pytest.mark.parametrize("latex", [r"\unknown x"])
def test_a_command_that_is_not_known_is_named(latex):
    with pytest.raises(NotImplementedError, match=r"command \\unknown|environment cases"):
        mathml(latex)


def test_lines_may_break_before_signs_in_no_bracket():
    parts = broken(mathml(r"S = a + \left(b + c\right) - d e^{-x}"))
    assert ["".join(each for element in part for each in element.itertext()) for part in parts] == [
        *("S", "=a", "+(b+c)", "−de−x")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page(width, scheme, tmp_path):
    path = tmp_path / "action.html"
    path.write_text(page("a skip connection"))
    with chromium() as browser:
        shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        said = complaints(shown, "file:")
        shown.goto(path.as_uri())
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        formula = shown.locator(".formula math").first
        assert formula.evaluate("it => it instanceof MathMLElement")
        assert formula.bounding_box()["height"] > 5
        assert_steps_fold_and_symbols_lead_to_their_meaning(shown)
        light = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", light)[:3])) > 380) == (scheme == "light")
    assert said == []
    assert unescape(page("a skip connection")).count("FAILS") == 0
