"""Write a document as one self-contained HTML page with MathML formulas, foldable steps and a table of symbols.

The page does not load fonts, pictures or styles from elsewhere, and contains no script.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from string import Template

from ...checks import checked_instance, checked_sequence
from .document import Block, Code, Equation, Folded, Heading, Items, Part, Table, Text, checked_blocks, inline, write
from .lines import broken
from .mathml import mathml

# Width of a line of a formula, in points at font size 10. Wider pages leave space at the right.
_WIDTH = 500.0


@dataclass(frozen=True)
class Definition(Part):
    """Symbol in LaTeX, and its meaning as document text."""

    symbol: str
    meaning: str


def as_html(blocks: Iterable[Block], definitions: Iterable[Definition] = ()) -> str:
    """Write the document as an HTML page.

    Args:
        blocks: The parts of the document.
        definitions: Meanings of symbols. A table lists those that occur in a formula.

    Raises:
        NotImplementedError: If a formula contains an unknown LaTeX command.
    """
    rows = checked_sequence("definitions", definitions, "definitions of symbols")
    for number, row in enumerate(rows):
        checked_instance(f"definitions[{number}]", row, Definition)
    titles, contents, formulas, steps = [], [], [], count(1)

    def formula(latex: str) -> str:
        formulas.append(latex)
        return f'<span data-latex="{html.escape(latex)}"><math>{mathml(latex)}</math></span>'

    def written(text: str) -> str:
        escape = lambda piece: html.escape(piece, quote=False)  # noqa: E731
        return inline(text, escape, lambda code: f"<code>{escape(code)}</code>", formula, "<strong>{}</strong>")

    def heading(block: Heading) -> str:
        if block.level == 1:
            titles.append(inline(block.text, str, str, str, "{}"))
            return f'<h1 id="top">{written(block.text)}</h1>'
        anchor, text = f"section-{len(contents) + 1}", written(block.text)
        contents.append(f'<li><a href="#{anchor}">{text}</a></li>')
        return f'<h{block.level} id="{anchor}">{text}</h{block.level}>'

    def equation(block: Equation) -> str:
        latex = f"{block.left} {block.numbered}"
        formulas.append(latex)
        lines = broken(latex, _WIDTH)
        lines = "".join(f'<div><math displaystyle="true">{mathml(line)}</math></div>' for line in lines)
        return f'<div class="formula" data-latex="{html.escape(latex)}">{lines}</div>'

    def table(block: Table) -> str:
        head = "".join(f'<th scope="col">{written(name)}</th>' for name in block.header)
        head = f"<thead><tr>{head}</tr></thead>" if head else ""
        body = ("<tr>" + "".join(f"<td>{written(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
        return f'<div class="wide"><table>{head}<tbody>{"".join(body)}</tbody></table></div>'

    def fold(block: Folded) -> str:
        anchor = f"step-{next(steps)}"
        remark = f'<span class="remark">{written(block.remark)}</span>' if block.remark else ""
        is_open = ' open="open"' if block.is_open else ""
        parts = "\n".join(write(block.parts, form))
        summary = f"<summary>{written(block.summary)}{remark}</summary>"
        return f'<details id="{anchor}"{is_open}>{summary}\n{parts}\n</details>'

    form = {
        Heading: heading,
        Text: lambda block: f"<p>{written(block.text)}</p>",
        Items: lambda block: "<ul>" + "".join(f"<li>{written(item)}</li>" for item in block.items) + "</ul>",
        Equation: equation,
        Table: table,
        Code: lambda block: f"<pre><code>{html.escape(block.text)}</code></pre>",
        Folded: fold,
    }
    body = "\n".join(write(checked_blocks(blocks), form))
    met = [row for row in rows if any(_occurs(row.symbol, latex) for latex in formulas)]
    lines = [
        f'<tr><th scope="row" data-latex="{html.escape(row.symbol)}"><math>{mathml(row.symbol)}</math></th>'
        f"<td>{written(row.meaning)}</td></tr>"
        for row in met
    ]
    if met:
        symbols = '<div class="wide"><table><tbody>\n' + "\n".join(lines) + "\n</tbody></table></div>"
        body += f"\n{heading(Heading('Symbols'))}\n{symbols}"
    template = Template(Path(__file__).with_suffix(".html").read_text("utf-8"))
    listed = "<ol>\n" + "\n".join(contents) + "\n</ol>" if contents else ""
    return template.substitute(title=html.escape(titles[0] if titles else "A derivation"), contents=listed, body=body)


def _occurs(symbol: str, latex: str) -> bool:
    """Return whether a formula contains a symbol. A T in an exponent denotes a transpose."""
    return bool(re.search(rf"(?<![A-Za-z\\])(?<!\^\{{){re.escape(symbol)}(?![A-Za-z])", latex))
