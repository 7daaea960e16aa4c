"""A written document: headings, text, equations and lists, as Markdown or LaTeX. What it says is the caller's.

Text holds inline mathematics between dollar signs, `code` in backquotes and **bold** words, as Markdown has them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

from ...checks import check_fields, checked_instance, checked_sequence, checked_whole_number

# equations with a left side and a whole longer than this, in characters of LaTeX, are broken before their relation
_LONG_LEFT, _LONG = 60, 120


class Part:
    """Text whose fields are checked."""

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Heading(Part):
    """A heading; level 1 is the document's title."""

    text: str
    level: Annotated[int, partial(checked_whole_number, least=1, most=6)] = 2


@dataclass(frozen=True)
class Text(Part):
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Equation(Part):
    """One displayed equation, both sides in LaTeX."""

    left: str
    right: str
    relation: str = "="


@dataclass(frozen=True)
class Items(Part):
    """A list of short texts."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Folded(Part):
    """Parts under a line of text, `summary`, behind which a page can hide them; `remark` is said on a page alone."""

    summary: str
    parts: tuple["Text | Equation | Items | Table | Picture", ...]
    remark: str = ""


@dataclass(frozen=True)
class Table(Part):
    """Rows of short texts under a `header`; without one, the first column names what the others are."""

    rows: tuple[tuple[str, ...], ...]
    header: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture(Part):
    """A small drawing as SVG, and the text that stands for it if it cannot be drawn."""

    svg: str
    text: str


Block = Heading | Text | Equation | Items | Folded | Table | Picture
"""What a document is made of."""
_BLOCKS = (Heading, Text, Equation, Items, Folded, Table, Picture)


def checked_blocks(name: str, values: Iterable[Block]) -> list[Block]:
    """`values`, at least one part of a document."""
    found = checked_sequence(name, values, "parts of a document")
    if not found:
        raise ValueError(f"{name} must not be empty")
    return [checked_instance(f"{name}[{i}]", value, _BLOCKS) for i, value in enumerate(found)]


def align_environment(equations: Iterable[Equation]) -> str:
    """All equations as one LaTeX `align*` environment."""
    rows = " \\\\\n  ".join(f"{e.left} &{e.relation} {e.right}" for e in equations)
    return f"\\begin{{align*}}\n  {rows}\n\\end{{align*}}\n"


class Writer(NamedTuple):
    """How a kind of document has each kind of part; folded parts are unfolded if it has no `fold`."""

    heading: Callable[[str, int], str]
    text: Callable[[str], str]
    items: Callable[[tuple[str, ...]], str]
    equation: Callable[[Equation], str]
    table: Callable[[Table], str]
    picture: Callable[[Picture], str]
    fold: Callable[[Folded], str] | None = None

    def parts(self, blocks: Iterable[Block]) -> Iterator[str]:
        """The parts of a document one by one."""
        for block in blocks:
            match block:
                case Heading(text, level):
                    yield self.heading(text, level)
                case Text(text):
                    yield self.text(text)
                case Items(items):
                    yield self.items(items)
                case Equation():
                    yield self.equation(block)
                case Table():
                    yield self.table(block)
                case Picture():
                    yield self.picture(block)
                case Folded(summary, parts):
                    yield from [self.fold(block)] if self.fold else self.parts((Text(summary), *parts))


def as_markdown(blocks: Iterable[Block]) -> str:
    """The document as Markdown, its equations between double dollar signs."""
    writer = Writer(
        heading=lambda text, level: f"{'#' * level} {text}",
        text=str,
        items=lambda items: "\n".join(f"- {item}" for item in items),
        equation=lambda equation: f"$${_display(equation)}$$",
        table=_markdown_table,
        picture=lambda picture: picture.text,
    )
    return "\n\n".join(writer.parts(checked_blocks("blocks", blocks))) + "\n"


def as_latex(blocks: Iterable[Block]) -> str:
    """The document as a LaTeX article that needs no packages but amsmath, amssymb, geometry and graphicx.

    Equations wider than the page are scaled down to its width.
    """

    def heading(text: str, level: int) -> str:
        command = {1: "section*", 2: "subsection*"}.get(level, "subsubsection*")
        return f"\n\\{command}{{{_latex_text(text)}}}\n"

    def items(texts: tuple[str, ...]) -> str:
        lines = "\n".join(rf"\item {_latex_text(text)}" for text in texts)
        return f"\n\\begin{{itemize}}\n{lines}\n\\end{{itemize}}\n"

    def equation(equation: Equation) -> str:
        # in the paragraph before it, so that no page breaks between
        return f"\\begin{{equation*}}\n\\fitted{{{_display(equation)}}}\n\\end{{equation*}}\n"

    def table(table: Table) -> str:
        rows = [table.header, *table.rows] if table.header else table.rows
        lines = " \\\\\n".join(" & ".join(map(_latex_text, row)) for row in rows)
        return f"\n\\begin{{tabular}}{{{'l' * len(rows[0])}}}\n{lines}\n\\end{{tabular}}\n"

    def text(text: str) -> str:
        return f"\n{_latex_text(text)}\n"

    writer = Writer(heading, text, items, equation, table, lambda picture: text(picture.text))
    return f"{_PREAMBLE}{''.join(writer.parts(checked_blocks('blocks', blocks)))}\\end{{document}}\n"


_PREAMBLE = r"""\documentclass[a4paper]{article}
\usepackage{amsmath,amssymb,graphicx}
\usepackage[margin=15mm,landscape]{geometry}
\setlength{\parindent}{0pt}
\setlength{\parskip}{1ex}
\newsavebox{\formula}
\newcommand{\fitted}[1]{\sbox{\formula}{$\displaystyle #1$}%
  \ifdim\wd\formula>\linewidth\resizebox{\linewidth}{!}{\usebox{\formula}}\else\usebox{\formula}\fi}
\begin{document}
\small
"""


def _markdown_table(table: Table) -> str:
    header = table.header or ("",) * len(table.rows[0])
    rows = [header, ("---",) * len(header), *table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def as_terminal_text(blocks: Iterable[Block]) -> str:
    """The document as plain text for a terminal: tables in columns, formulas by their LaTeX, no markup."""

    def plain(text: str) -> str:
        return re.sub(r"\*\*|[$`]", "", text)

    def table(table: Table) -> str:
        rows = [tuple(map(plain, row)) for row in ((table.header, *table.rows) if table.header else table.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    writer = Writer(
        heading=lambda text, level: plain(text),
        text=plain,
        items=lambda items: "\n".join(f"- {plain(item)}" for item in items),
        equation=lambda each: f"{each.left} {each.relation} {each.right}",
        table=table,
        picture=lambda picture: picture.text,
        fold=lambda block: plain(block.summary),
    )
    return "\n".join(writer.parts(checked_blocks("blocks", blocks)))


def _display(equation: Equation) -> str:
    if len(equation.left) <= _LONG_LEFT or len(equation.left) + len(equation.right) <= _LONG:
        return f"{equation.left} {equation.relation} {equation.right}"
    lines = f"& {equation.left} \\\\ &\\quad {equation.relation} {equation.right}"
    return rf"\begin{{aligned}}{lines}\end{{aligned}}"


def _latex_text(text: str) -> str:
    """Text, escaped outside mathematics, with its bold words and code."""

    def escaped(piece: str) -> str:
        piece = re.sub(r"([%&_#])", r"\\\1", piece)
        piece = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", piece)
        return re.sub(r"`(.+?)`", r"\\texttt{\1}", piece)

    pieces = re.split(r"(\$[^$]*\$)", text)
    return "".join(piece if piece.startswith("$") else escaped(piece) for piece in pieces)
