"""A written document: headings, text, equations and lists, as Markdown or LaTeX. What it says is the caller's.

Text holds inline mathematics between dollar signs, `code` in backquotes and **bold** words, as Markdown has them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from ...checks import check_fields, checked_instance, checked_sequence, checked_whole_number

# equations with a left side and a whole longer than this, in characters of LaTeX, are broken before their relation
_LONG_LEFT, _LONG = 60, 120


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the document's title."""

    text: str
    level: Annotated[int, partial(checked_whole_number, least=1, most=6)] = 2

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Equation:
    """One displayed equation, both sides in LaTeX."""

    left: str
    right: str
    relation: str = "="

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Items:
    """A list of short texts."""

    items: tuple[str, ...]

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Folded:
    """Parts under a line of text, `summary`, behind which a page can hide them; `remark` is said on a page alone."""

    summary: str
    parts: tuple[Text | Equation | Items, ...]
    remark: str = ""

    def __post_init__(self):
        check_fields(self)


Block = Heading | Text | Equation | Items | Folded
"""What a document is made of."""


def checked_blocks(name: str, values: Iterable[Block]) -> list[Block]:
    """`values`, at least one part of a document."""
    found = checked_sequence(name, values, "parts of a document")
    if not found:
        raise ValueError(f"{name} must not be empty")
    return [
        checked_instance(f"{name}[{i}]", value, (Heading, Text, Equation, Items, Folded))
        for i, value in enumerate(found)
    ]


def align_environment(equations: Iterable[Equation]) -> str:
    """All equations as one LaTeX `align*` environment."""
    rows = " \\\\\n  ".join(f"{e.left} &{e.relation} {e.right}" for e in equations)
    return f"\\begin{{align*}}\n  {rows}\n\\end{{align*}}\n"


def as_markdown(blocks: Iterable[Block]) -> str:
    """The document as Markdown, its equations between double dollar signs."""
    parts = []
    for block in _unfolded(blocks):
        match block:
            case Heading(text, level):
                parts.append(f"{'#' * level} {text}")
            case Text(text):
                parts.append(text)
            case Items(items):
                parts.append("\n".join(f"- {item}" for item in items))
            case Equation():
                parts.append(f"$${_display(block)}$$")
    return "\n\n".join(parts) + "\n"


def as_latex(blocks: Iterable[Block]) -> str:
    """The document as a LaTeX article that needs no packages but amsmath, amssymb, geometry and graphicx.

    Equations wider than the page are scaled down to its width.
    """
    parts = []
    for block in _unfolded(blocks):
        match block:
            case Heading(text, level):
                command = {1: "section*", 2: "subsection*"}.get(level, "subsubsection*")
                parts.append(f"\n\\{command}{{{_latex_text(text)}}}\n")
            case Text(text):
                parts.append(f"\n{_latex_text(text)}\n")
            case Items(items):
                lines = "\n".join(rf"\item {_latex_text(item)}" for item in items)
                parts.append(f"\n\\begin{{itemize}}\n{lines}\n\\end{{itemize}}\n")
            case Equation():
                # in the paragraph before it, so that no page breaks between
                parts.append(f"\\begin{{equation*}}\n\\fitted{{{_display(block)}}}\n\\end{{equation*}}\n")
    return f"{_PREAMBLE}{''.join(parts)}\\end{{document}}\n"


def _unfolded(blocks: Iterable[Block]) -> Iterator[Heading | Text | Equation | Items]:
    for block in checked_blocks("blocks", blocks):
        yield from (Text(block.summary), *block.parts) if isinstance(block, Folded) else (block,)


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
