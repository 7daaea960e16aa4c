"""A written document: headings, text, equations and lists, as Markdown or LaTeX. What it says is the caller's.

Text holds inline mathematics between dollar signs, `code` in backquotes and **bold** words, as Markdown has them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...checks import check_fields, checked_instance, checked_sequence, checked_text, checked_whole_number

# equations with a left side and a whole longer than this, in characters of LaTeX, are broken before their relation
_LONG_LEFT, _LONG = 60, 120


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the document's title."""

    text: str
    level: int = 2

    def __post_init__(self):
        checked_text("text", self.text)
        checked_whole_number("level", self.level, least=1, most=6)


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
_BLOCKS = (Heading, Text, Equation, Items, Folded)


def _checked_all(name: str, values: Iterable[Block], kind: type | tuple[type, ...]) -> list[Block]:
    """`values`, at least one, each of `kind`."""
    found = checked_sequence(name, values, "parts of a document")
    if not found:
        raise ValueError(f"{name} must not be empty")
    return [checked_instance(f"{name}[{i}]", value, kind) for i, value in enumerate(found)]


def checked_blocks(name: str, values: Iterable[Block]) -> list[Block]:
    """`values`, at least one part of a document."""
    return _checked_all(name, values, _BLOCKS)


def align_environment(equations: Iterable[Equation]) -> str:
    """All equations as one LaTeX `align*` environment."""
    rows = " \\\\\n  ".join(f"{e.left} &{e.relation} {e.right}" for e in _checked_all("equations", equations, Equation))
    return f"\\begin{{align*}}\n  {rows}\n\\end{{align*}}\n"


def as_markdown(blocks: Iterable[Block]) -> str:
    """The document as Markdown, its equations between double dollar signs."""
    return "\n\n".join(_markdown_block(block) for block in _unfolded(blocks)) + "\n"


def _unfolded(blocks: Iterable[Block]) -> Iterator[Heading | Text | Equation | Items]:
    for block in checked_blocks("blocks", blocks):
        yield from (Text(block.summary), *block.parts) if isinstance(block, Folded) else (block,)


def _markdown_block(block: Heading | Text | Equation | Items) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Items(items):
            return "\n".join(f"- {item}" for item in items)
        case Equation():
            return f"$${_display(block)}$$"


def as_latex(blocks: Iterable[Block]) -> str:
    """The document as a LaTeX article that needs no packages but amsmath, amssymb, geometry and graphicx.

    Equations wider than the page are scaled down to its width.
    """
    # an equation stands in the paragraph before it, so that no page breaks between
    body = "".join(
        ("" if isinstance(block, Equation) else "\n") + _latex_block(block) + "\n" for block in _unfolded(blocks)
    )
    return f"{_PREAMBLE}{body}\\end{{document}}\n"


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


def _latex_block(block: Heading | Text | Equation | Items) -> str:
    match block:
        case Heading(text, level):
            command = {1: "section*", 2: "subsection*"}.get(level, "subsubsection*")
            return f"\\{command}{{{_latex_text(text)}}}"
        case Text(text):
            return _latex_text(text)
        case Items(items):
            lines = "\n".join(rf"\item {_latex_text(item)}" for item in items)
            return f"\\begin{{itemize}}\n{lines}\n\\end{{itemize}}"
        case Equation():
            return f"\\begin{{equation*}}\n\\fitted{{{_display(block)}}}\n\\end{{equation*}}"


def _display(equation: Equation) -> str:
    if len(equation.left) <= _LONG_LEFT or len(equation.left) + len(equation.right) <= _LONG:
        return f"{equation.left} {equation.relation} {equation.right}"
    lines = f"& {equation.left} \\\\ &\\quad {equation.relation} {equation.right}"
    return rf"\begin{{aligned}}{lines}\end{{aligned}}"


def _latex_text(text: str) -> str:
    """Text outside mathematics, escaped."""
    pieces = re.split(r"(\$[^$]*\$)", text)
    return "".join(piece if piece.startswith("$") else _escape(piece) for piece in pieces)


def _escape(text: str) -> str:
    text = re.sub(r"([%&_#])", r"\\\1", text)
    text = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)
    return re.sub(r"`(.+?)`", r"\\texttt{\1}", text)
