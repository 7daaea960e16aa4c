"""Write a document as one self-contained HTML page with MathML formulas, foldable steps and a table of symbols.

The page loads no fonts, pictures or styles from elsewhere, and contains no script.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from string import Template
from xml.etree import ElementTree

from ...checks import checked_instance, checked_sequence
from ..notation import unescaped
from .document import Block, Format, Heading
from .lines import broken

# Width of a line of a formula, in points at font size 10. Wider pages leave space at the right.
_WIDTH = 500.0


@dataclass(frozen=True)
class Definition:
    """Symbol in LaTeX, and its meaning as document text."""

    symbol: str
    meaning: str


def mathml(latex: str) -> str:
    """Return the formula as the content of a `math` element, by latex2mathml with three corrections for browsers.

    Raises:
        NotImplementedError: If the formula contains an unknown command.
        ValueError: If the formula is incomplete.
    """
    from latex2mathml.converter import convert

    words = []

    def numbered(found: re.Match[str]) -> str:
        words.append((found[1], unescaped(found[2])))
        return rf"\text{{@{len(words) - 1}}}"

    # latex2mathml reads special characters in text, and names of functions, as formulas.
    named = re.sub(r"\\(text|operatorname)\{((?:\\.|\{\}|[^{}\\])*)\}", numbered, latex)
    try:
        # Remove the namespace, because HTML has none.
        whole = ElementTree.fromstring(convert(named).replace(" xmlns=", " data-namespace="))
    except Exception as error:  # latex2mathml raises many kinds of errors
        raise ValueError(f"the formula {latex} cannot be read: {type(error).__name__}") from error
    for element in whole.iter():
        text, command = html.unescape(element.text or ""), ""
        if element.tag == "mtext" and text.startswith("@"):
            command, element.text = words[int(text[1:])]
        if command == "operatorname" or (element.tag in ("mi", "mo") and re.fullmatch("[A-Za-z]{2,}", text)):
            # Make the name of a function an operator, which has space around it.
            element.tag = "mo"
            element.attrib.update(lspace="0.17em", rspace="0.17em")
        elif text.startswith("\\") and len(text) > 1:
            raise NotImplementedError(f"the LaTeX command {text} in {latex} cannot be converted to MathML")
        elif (element.tag, text) == ("mi", "~"):
            element.tag, element.text = "mo", "∼"
        elif element.attrib.pop("mathvariant", "") == "bold":
            # Browsers have no bold digits in MathML, but Unicode has.
            element.text = re.sub("[0-9]", lambda digit: chr(ord("𝟎") + int(digit[0])), text)
    return "".join(ElementTree.tostring(child, encoding="unicode") for child in whole)


class _Page(Format):
    bold = "<strong>{}</strong>"

    def __init__(self):
        self.title, self.contents, self.formulas, self.steps = "", [], [], 0

    def plain(self, text):
        return html.escape(text, quote=False)

    def code(self, text):
        return f"<code>{self.plain(text)}</code>"

    def formula(self, latex):
        self.formulas.append(latex)
        return f'<span data-latex="{html.escape(latex)}"><math>{mathml(latex)}</math></span>'

    def Heading(self, block):
        text = self.inline(block.text)
        if block.level == 1:
            self.title = self.title or Format().inline(block.text)
            return f'<h1 id="top">{text}</h1>'
        anchor = f"section-{len(self.contents) + 1}"
        self.contents.append(f'<li><a href="#{anchor}">{text}</a></li>')
        return f'<h{block.level} id="{anchor}">{text}</h{block.level}>'

    def Text(self, block):
        return f"<p>{self.inline(block.text)}</p>"

    def Items(self, block):
        return "<ul>" + "".join(f"<li>{self.inline(item)}</li>" for item in block.items) + "</ul>"

    def Equation(self, block):
        latex = f"{block.left} {block.numbered}"
        self.formulas.append(latex)
        lines = "".join(f'<div><math displaystyle="true">{mathml(line)}</math></div>' for line in broken(latex, _WIDTH))
        return f'<div class="formula" data-latex="{html.escape(latex)}">{lines}</div>'

    def Table(self, block):
        head = "".join(f'<th scope="col">{self.inline(name)}</th>' for name in block.header)
        head = f"<thead><tr>{head}</tr></thead>" if head else ""
        rows = ("".join(f"<td>{self.inline(cell)}</td>" for cell in row) for row in block.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'

    def Code(self, block):
        return f"<pre><code>{html.escape(block.text)}</code></pre>"

    def Folded(self, block):
        self.steps += 1
        is_open = ' open="open"' if block.is_open else ""
        begin = f'<details id="step-{self.steps}"{is_open}>'
        remark = f'<span class="remark">{self.inline(block.remark)}</span>' if block.remark else ""
        parts = self.write(block.parts)
        return f"{begin}<summary>{self.inline(block.summary)}{remark}</summary>\n{parts}\n</details>"


def as_html(blocks: Iterable[Block], definitions: Iterable[Definition] = ()) -> str:
    """Write the document as an HTML page.

    Args:
        blocks: The parts of the document.
        definitions: Meanings of symbols. A table lists those that occur in a formula.

    Raises:
        NotImplementedError: If a formula contains an unknown LaTeX command.
    """
    definitions = checked_sequence("definitions", definitions, "definitions of symbols")
    for i, each in enumerate(definitions):
        checked_instance(f"definitions[{i}]", each, Definition)
    page = _Page()
    body = page.write(blocks)
    formulas = tuple(page.formulas)
    lines = [
        f'<tr><th scope="row" data-latex="{html.escape(each.symbol)}"><math>{mathml(each.symbol)}</math></th>'
        f"<td>{page.inline(each.meaning)}</td></tr>"
        for each in definitions
        if any(_occurs(each.symbol, latex) for latex in formulas)
    ]
    if lines:
        symbols = "\n".join(['<div class="wide"><table><tbody>', *lines, "</tbody></table></div>"])
        body += f"\n{page.Heading(Heading('Symbols'))}\n{symbols}"
    template = Template(Path(__file__).with_suffix(".html").read_text("utf-8"))
    listed = "\n".join(["<ol>", *page.contents, "</ol>"]) if page.contents else ""
    return template.substitute(title=html.escape(page.title or "A derivation"), contents=listed, body=body)


def _occurs(symbol: str, latex: str) -> bool:
    """Return whether a formula contains a symbol. A T in an exponent denotes a transpose."""
    return bool(re.search(rf"(?<![A-Za-z\\])(?<!\^\{{){re.escape(symbol)}(?![A-Za-z])", latex))
