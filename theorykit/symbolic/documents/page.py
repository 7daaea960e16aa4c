"""Write a document as one self-contained HTML page with MathML formulas, foldable steps and a table of symbols.

The page loads no fonts, pictures or styles from elsewhere, and contains no script.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from string import Template
from xml.etree import ElementTree

from ...checks import checked_instance, checked_sequence
from ..notation import unescaped
from .document import Block, Equation, Folded, Format, Heading
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


def as_html(blocks: Iterable[Block], definitions: Iterable[Definition] = ()) -> str:
    """Write the document as an HTML page.

    Args:
        blocks: The parts of the document.
        definitions: Meanings of symbols. A table lists those that occur in a formula.

    Raises:
        NotImplementedError: If a formula contains an unknown LaTeX command.
    """
    blocks = checked_sequence("blocks", blocks, "parts of a document")
    definitions = checked_sequence("definitions", definitions, "definitions of symbols")
    for i, each in enumerate(definitions):
        checked_instance(f"definitions[{i}]", each, Definition)
    contents, formulas, steps = [], [], count(1)

    def math(latex: str) -> str:
        formulas.append(latex)
        return f'<span data-latex="{html.escape(latex)}"><math>{mathml(latex)}</math></span>'

    def heading(level: int, text: str) -> str:
        if level == 1:
            return f'<h1 id="top">{text}</h1>'
        anchor = f"section-{len(contents) + 1}"
        contents.append(f'<li><a href="#{anchor}">{text}</a></li>')
        return f'<h{level} id="{anchor}">{text}</h{level}>'

    def equation(block: Equation) -> str:
        latex = f"{block.left} {block.numbered}"
        formulas.append(latex)
        lines = (f'<div><math displaystyle="true">{mathml(line)}</math></div>' for line in broken(latex, _WIDTH))
        return f'<div class="formula" data-latex="{html.escape(latex)}">{"".join(lines)}</div>'

    def table(header: list[str], rows: list[list[str]]) -> str:
        names = "".join(f'<th scope="col">{name}</th>' for name in header)
        head = f"<thead><tr>{names}</tr></thead>" if header else ""
        lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
        return f'<div class="wide"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>'

    def folded(form: Format, block: Folded) -> str:
        begin = f'<details id="step-{next(steps)}"' + (' open="open">' if block.is_open else ">")
        remark = f'<span class="remark">{form.inline(block.remark)}</span>' if block.remark else ""
        parts = form.write(block.parts)
        return f"{begin}<summary>{form.inline(block.summary)}{remark}</summary>\n{parts}\n</details>"

    escape = partial(html.escape, quote=False)
    form = Format(
        plain=escape,
        literal=escape,
        code=lambda text: f"<code>{escape(text)}</code>",
        formula=math,
        bold="<strong>{}</strong>",
        heading=heading,
        text="<p>{}</p>".format,
        items=lambda items: "<ul>" + "".join(map("<li>{}</li>".format, items)) + "</ul>",
        table=table,
        equation=equation,
        source=lambda text: f"<pre><code>{html.escape(text)}</code></pre>",
        folded=folded,
    )
    body = form.write(blocks)
    met = [each for each in definitions if any(_occurs(each.symbol, latex) for latex in formulas)]
    lines = [
        f'<tr><th scope="row" data-latex="{html.escape(each.symbol)}"><math>{mathml(each.symbol)}</math></th>'
        f"<td>{form.inline(each.meaning)}</td></tr>"
        for each in met
    ]
    if lines:
        symbols = "\n".join(['<div class="wide"><table><tbody>', *lines, "</tbody></table></div>"])
        body += f"\n{heading(2, 'Symbols')}\n{symbols}"
    template = Template(Path(__file__).with_suffix(".html").read_text("utf-8"))
    listed = "\n".join(["<ol>", *contents, "</ol>"]) if contents else ""
    title = next((each.text for each in blocks if isinstance(each, Heading) and each.level == 1), "A derivation")
    return template.substitute(title=html.escape(Format().inline(title)), contents=listed, body=body)


def _occurs(symbol: str, latex: str) -> bool:
    """Return whether a formula contains a symbol. A T in an exponent denotes a transpose."""
    return bool(re.search(rf"(?<![A-Za-z\\])(?<!\^\{{){re.escape(symbol)}(?![A-Za-z])", latex))
