"""Write a document as one self-contained HTML page with MathML formulas, foldable steps and a table of symbols.

The page does not load fonts, pictures or styles from elsewhere, and contains no script.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element

from ...checks import checked_instance, checked_sequence
from .document import BOLD, Block, Folded, Part, Table, Writer, checked_blocks
from .mathml import as_text, broken, mathml


@dataclass(frozen=True)
class Definition(Part):
    """Symbol in LaTeX, and its meaning as document text."""

    symbol: str
    meaning: str


def as_html(blocks: Iterable[Block], definitions: Iterable[Definition] = ()) -> str:
    """Write the document as an HTML page.

    Args:
        blocks: The parts of the document.
        definitions: Meanings of symbols, for a table. Each symbol in a formula links to its row.

    Raises:
        NotImplementedError: If a formula contains an unknown LaTeX command.
    """
    rows = checked_sequence("definitions", definitions, "definitions of symbols")
    for number, row in enumerate(rows):
        checked_instance(f"definitions[{number}]", row, Definition)
    page = _Page(rows)
    body = page.body(checked_blocks("blocks", blocks)) + page.table()
    contents = "\n".join(
        f'<li class="level-{level}"><a href="#{anchor}">{html.escape(_plain(text))}</a></li>'
        for level, text, anchor in page.headings
    )
    contents = f"<ol>\n{contents}\n</ol>" if contents else ""
    template, style = (Path(__file__).with_suffix(suffix).read_text("utf-8") for suffix in (".html", ".css"))
    return template.format(title=html.escape(page.title), style=f"\n{style}", contents=contents, body=body)


def as_fragment(blocks: Iterable[Block]) -> str:
    """Write the document as one HTML element for the output of a notebook, in the colours of the notebook."""
    style = Path(__file__).with_name("fragment.css").read_text("utf-8")
    # Remove anchors, which could clash with anchors in other outputs of the notebook.
    body = re.sub(r' id="[^"]*"', "", _Page(()).body(checked_blocks("blocks", blocks)))
    return f'<div class="theorykit"><style>{style}</style>{body}</div>'


@dataclass
class _Page:
    """State of a page while it is written."""

    definitions: Sequence[Definition]
    title: str = "A derivation"
    # Headings so far, as (level, text, anchor).
    headings: list[tuple[int, str, str]] = field(default_factory=list)
    folds: int = 0
    # Anchor and name of the current place on the page.
    place: tuple[str, str] = ("top", "the beginning")
    # Anchor of each symbol, by the MathML of the symbol.
    anchors: dict[str, str] = field(default_factory=dict)
    # Place where each symbol first occurs, by anchor.
    first: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self):
        for number, definition in enumerate(self.definitions, 1):
            row = mathml(definition.symbol)
            if len(row) == 1:
                self.anchors.setdefault(as_text(row[0]), f"symbol-{number}")

    def body(self, blocks: Iterable[Block]) -> str:
        writer = Writer(
            heading=self.heading,
            text=lambda text: f"<p>{self.text(text)}</p>",
            items=lambda items: "<ul>" + "".join(f"<li>{self.text(item)}</li>" for item in items) + "</ul>",
            equation=lambda each: self.formula(f"{each.left} {each.numbered}", "div", 'class="formula" ', "true"),
            table=self.values,
            picture=lambda picture: picture.svg,
            code=lambda text: f"<pre><code>{html.escape(text)}</code></pre>",
            fold=self.fold,
        )
        return "\n".join(writer.parts(blocks))

    def heading(self, text: str, level: int) -> str:
        if level == 1:
            self.title = text
            return f'<h1 id="top">{self.text(text)}</h1>'
        anchor = f"section-{len(self.headings) + 1}"
        self.headings.append((level, text, anchor))
        self.place = (anchor, _plain(text))
        return f'<h{level} id="{anchor}">{self.text(text)}</h{level}>'

    def fold(self, block: Folded) -> str:
        self.folds += 1
        anchor = f"step-{self.folds}"
        name = re.match(r"\*\*(.+?)\*\*", block.summary)
        self.place = (anchor, _plain(name[1] if name else block.summary))
        remark = f'<span class="remark">{self.text(block.remark)}</span>' if block.remark else ""
        summary = f"<summary>{self.text(block.summary)}{remark}</summary>"
        return (
            f'<details id="{anchor}"{" open" if block.is_open else ""}>{summary}\n{self.body(block.parts)}\n</details>'
        )

    def values(self, block: Table) -> str:
        head = "".join(f'<th scope="col">{self.text(name)}</th>' for name in block.header)
        first = "td" if head else 'th scope="row"'
        rows = [
            f"<tr><{first}>{self.text(name)}</{first[:2]}>"
            + "".join(f"<td>{self.text(cell)}</td>" for cell in cells)
            + "</tr>"
            for name, *cells in block.rows
        ]
        head = f"<thead><tr>{head}</tr></thead>" if head else ""
        return f'<div class="wide"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'

    def text(self, text: str) -> str:
        pieces = re.split(r"\$([^$]*)\$", text)
        for i, piece in enumerate(pieces):
            marked = BOLD.sub(r"<strong>\1</strong>", html.escape(piece, quote=False))
            marked = re.sub(r"`(.+?)`", r"<code>\1</code>", marked)
            pieces[i] = self.formula(piece, "span", "", "false") if i % 2 else marked
        return "".join(pieces)

    def formula(self, latex: str, tag: str, attributes: str, displaystyle: str) -> str:
        """Write a formula in parts, because browsers break lines only between parts."""
        texts = ("".join(map(as_text, part)) for part in broken(mathml(latex, self.linked)))
        parts = _MAY_BREAK.join(f'<math displaystyle="{displaystyle}">{text}</math>' for text in texts)
        return f'<{tag} {attributes}data-latex="{html.escape(latex)}">{parts}</{tag}>'

    def linked(self, element: Element) -> Element:
        """Link a symbol to its row in the table."""
        anchor = self.anchors.get(as_text(element))
        if anchor is None:
            return element
        self.first.setdefault(anchor, self.place)
        # Use an HTML link, because not every browser supports links in MathML.
        text, link, inner = Element("mtext", {"class": "link"}), Element("a", {"href": f"#{anchor}"}), Element("math")
        inner.append(element)
        link.append(inner)
        text.append(link)
        return text

    def table(self) -> str:
        met = dict(self.first)
        if not met:
            return ""
        title = self.heading("Symbols", 2)
        # Link only to symbols that occurred in the document, because only these have a row.
        self.anchors = {symbol: anchor for symbol, anchor in self.anchors.items() if anchor in met}
        rows = []
        for number, definition in enumerate(self.definitions, 1):
            if (anchor := f"symbol-{number}") in met:
                place, called = met[anchor]
                symbol = "".join(map(as_text, mathml(definition.symbol)))
                rows.append(
                    f'<tr id="{anchor}"><th scope="row" data-latex="{html.escape(definition.symbol)}">'
                    f"<math>{symbol}</math></th><td>{self.text(definition.meaning)}</td>"
                    f'<td><a href="#{place}">{html.escape(called)}</a></td></tr>'
                )
        head = "".join(f'<th scope="col">{name}</th>' for name in ("symbol", "meaning", "first in"))
        body = "\n".join(rows)
        table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        return f'\n{title}\n<div class="wide">{table}</div>'


_MAY_BREAK = "\N{ZERO WIDTH SPACE}"


def _plain(text: str) -> str:
    return re.sub(r"[$*`\\]", "", text)
