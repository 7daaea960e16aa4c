"""Documents of headings, text, equations and lists, written as Markdown, LaTeX or text for a terminal.

Text may contain inline mathematics between dollar signs, `code` in backquotes, and **bold** words. A backslash before a
punctuation mark makes it an ordinary character. Names that a user chose go through `verbatim`.
"""

import abc
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...checks import checked_sequence, refuse_traced, shown
from ..notation import escaped

# In Markdown, break an equation before its relation if its left side has more characters of LaTeX.
_LONG_LEFT = 60
# Symbols of LaTeX that have a width, and the largest number of them in a line of an article.
_SYMBOLS = re.compile(r"\\(?!left|right|frac|operatorname|text|math)[A-Za-z]+|[^\s{}_^\\]")
_LONGEST = 60
# Width of text in a terminal, in characters.
_COLUMNS = 100
# Maximum number of lines of a repr. Longer output belongs in a summary.
_LINES = 15
# A repr must never fail. Views raise these errors for traced and deleted arrays, and for placeholders.
_UNUSUAL = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
# An escaped character, code, a formula, bold words, or other text. Stars after a word or a bracket denote a power.
_MARKUP = re.compile(
    r"\\([!-/:-@[-`{-~])|`([^`]+)`|\$((?:\\.|[^\\$])+)\$|(?<![\w)\]])\*\*(.+?)\*\*(?!\w)|([^\\`$*]+|.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Heading:
    """Heading of a level from 1 to 6. Level 1 is the title of the document."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Equation:
    """Displayed equation.

    - `left`, `relation`, `right`: LaTeX.
    - `source`: number of the equation in the paper.
    - `label`: name of the equation in the document.
    - `plain`: text for a terminal.
    """

    left: str
    right: str
    relation: str = "="
    source: str = ""
    label: str = ""
    plain: str = ""


@dataclass(frozen=True)
class Items:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Folded:
    """Parts that a notebook hides under a `summary`. A terminal always hides them.

    - `is_open`: whether the parts are shown at first.
    """

    summary: str
    parts: tuple["Block", ...]
    is_open: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of short texts. Without a `header`, the first column contains the names of the rows."""

    rows: tuple[tuple[str, ...], ...]
    header: tuple[str, ...] = ()


Block = Heading | Text | Equation | Items | Folded | Table
"""Union of all parts of a document."""


def verbatim(text: object) -> str:
    """Return text that is shown as it is: no character is read as markup."""
    one_line = re.sub(r"\s*[\r\n]\s*", " ", str(text))
    return re.sub(r"[\\`*_$<>|\[\]#~&]", r"\\\g<0>", one_line)


def code(text: str) -> str:
    """Return text that is shown as code. Text with backquotes is shown as it is."""
    return verbatim(text) if set(text) & set("`\n") else f"`{text}`"


@dataclass(frozen=True)
class Format:
    """How a format writes markup, and parts whose text is already written. By default, without markup."""

    plain: Callable[[str], str] = str
    literal: Callable[[str], str] = str
    code: Callable[[str], str] = str
    formula: Callable[[str], str] = str
    bold: str = "{}"
    heading: Callable[[int, str], str] = lambda level, text: text
    text: Callable[[str], str] = str
    items: Callable[[list[str]], str] = "\n".join
    table: Callable[[list[str], list[list[str]]], str] = lambda header, rows: ""
    equation: Callable[[Equation], str] = str
    folded: Callable[["Format", Folded], str] = lambda form, block: form.write((Text(block.summary), *block.parts))
    between: str = "\n"

    def inline(self, text: str) -> str:
        kinds = self.literal, self.code, self.formula, lambda words: self.bold.format(self.inline(words)), self.plain
        return _MARKUP.sub(lambda found: kinds[found.lastindex - 1](found[found.lastindex]), text)

    def write(self, blocks: Iterable[Block]) -> str:
        return self.between.join(map(self._part, checked_sequence("blocks", blocks, "parts of a document")))

    def _part(self, block: Block) -> str:
        match block:
            case Heading():
                return self.heading(block.level, self.inline(block.text))
            case Text():
                return self.text(self.inline(block.text))
            case Items():
                return self.items([self.inline(each) for each in block.items])
            case Table():
                header, *rows = [[self.inline(each) for each in row] for row in (block.header, *block.rows)]
                return self.table(header, rows)
            case Equation():
                return self.equation(block)
            case Folded():
                return self.folded(self, block)
        raise TypeError(f"blocks must be parts of a document, got {shown(block)}")


def _markdown_equation(block: Equation) -> str:
    source = rf" \qquad ({block.source})" if block.source else ""
    right = f"{block.relation} {block.right}{source}"
    if len(block.left) <= _LONG_LEFT:
        return f"$${block.left} {right}$$"
    return rf"$$\begin{{aligned}}& {block.left} \\ &\quad {right}\end{{aligned}}$$"


def _markdown_table(header: list[str], rows: list[list[str]]) -> str:
    columns = len(rows[0])
    return "\n".join(f"| {' | '.join(row)} |" for row in [header or [""] * columns, ["---"] * columns, *rows])


_MARKDOWN = Format(
    # A dollar sign inside an element cannot begin a formula, in notebooks and on GitHub.
    literal=lambda character: "<span>$</span>" if character == "$" else f"\\{character}",
    code="`{}`".format,
    formula="${}$".format,
    bold="**{}**",
    heading=lambda level, text: f"{'#' * level} {text}",
    items=lambda items: "\n".join(f"- {item}" for item in items),
    table=_markdown_table,
    equation=_markdown_equation,
    between="\n\n",
)


def _details(form: Format, block: Folded) -> str:
    # The caption is outside the element, because Markdown is not read within a summary.
    begin = f"{form.inline(block.summary)}\n\n<details{' open' if block.is_open else ''}><summary>Details</summary>"
    return f"{begin}\n\n{form.write(block.parts)}\n\n</details>"


def as_markdown(blocks: Iterable[Block], fold: bool = False) -> str:
    """Write the document as Markdown. Set `fold` to hide folded parts, as a notebook can."""
    return (replace(_MARKDOWN, folded=_details) if fold else _MARKDOWN).write(blocks) + "\n"


def _latex_table(header: list[str], rows: list[list[str]]) -> str:
    lines = " \\\\\n".join(map(" & ".join, [header, *rows] if header else rows))
    return f"\n\\begin{{tabular}}{{{'l' * len(rows[0])}}}\n{lines}\n\\end{{tabular}}\n"


def _latex_equation(block: Equation) -> str:
    """Write an equation with a label. TeX breaks lines of formulas in paragraphs only, before relations and signs."""
    source = rf" \quad [\text{{Eq.\,{block.source}}}]" if block.source else ""
    formula = f"{block.left} {block.relation} {block.right}{source}"
    label = rf"\label{{eq:{block.label or _label(block.left)}}}"
    if len(_SYMBOLS.findall(formula)) <= _LONGEST:
        return f"\\begin{{equation}}\n  {formula} {label}\n\\end{{equation}}\n"
    formula = rf"$\displaystyle {_breakable(formula)}$\hfill(\theequation)"
    return f"\\begin{{flushleft}}\\refstepcounter{{equation}}{label}\n  {formula}\n\\end{{flushleft}}\n"


def _breakable(latex: str) -> str:
    r"""Write brackets around long formulas as \bigl and \bigr, because TeX breaks no lines between \left and \right."""
    parts, opened = re.split(r"(\\left|\\right)\b", latex), []
    for i, part in enumerate(parts):
        if part == r"\left":
            opened.append(i)
        elif part == r"\right":
            start = opened.pop()
            if len(_SYMBOLS.findall("".join(parts[start:i]))) > _LONGEST / 2:
                parts[start], parts[i] = r"\allowbreak\bigl", r"\bigr"
    return "".join(parts)


def _label(left: str) -> str:
    left = re.sub(r"\\(frac|left|right|operatorname|[lr]angle|log)\b", " ", left)
    words = re.findall(r"[A-Za-z0-9]+", left)
    return "-".join(words) if 0 < len(words) < 9 else "equation"


_COMMANDS = {1: "section*", 2: "subsection*"}
_LATEX = Format(
    plain=escaped,
    literal=escaped,
    code=lambda text: rf"\texttt{{{escaped(text)}}}",
    # Use plain brackets, because LaTeX does not break lines between \left and \right.
    formula=lambda latex: "${}$".format(re.sub(r"\\(left|right)(?=[()\[\]])", "", latex)),
    bold=r"\textbf{{{}}}",
    heading=lambda level, text: f"\n\\{_COMMANDS.get(level, 'subsubsection*')}{{{text}}}\n",
    text="\n{}\n".format,
    items=lambda items: "\n\\begin{itemize}\n\\item " + "\n\\item ".join(items) + "\n\\end{itemize}\n",
    table=_latex_table,
    # No empty line before, so that no page break separates the equation from its paragraph.
    equation=_latex_equation,
    between="",
)
_PREAMBLE = r"""\documentclass{article}
\usepackage{amsmath}
\setlength{\parindent}{0pt}
\setlength{\parskip}{1ex}
\emergencystretch=4em
\begin{document}
"""


def as_latex(blocks: Iterable[Block], fragment: bool = False) -> str:
    """Write the document as a LaTeX article that needs only amsmath, or as a `fragment` of one for `\\input`."""
    met: Counter[str] = Counter()

    def unique(label: re.Match[str]) -> str:
        met[label[1]] += 1
        return label[0] if met[label[1]] == 1 else rf"\label{{{label[1]}:{met[label[1]]}}}"

    body = re.sub(r"\\label\{([^}]*)\}", unique, _LATEX.write(blocks))
    return body.lstrip() if fragment else f"{_PREAMBLE}{body}\\end{{document}}\n"


def _terminal_formula(latex: str) -> str:
    # Remove the braces and commands of LaTeX, for example in N_1 x N_2.
    for command, text in ((r"\times", "x"), (r"\mathbb", ""), (r"\succeq", ">="), (r"\succ", ">")):
        latex = latex.replace(command, text)
    return re.sub(r"\\(?:left|right)|[{}\\]", "", latex)


def _terminal_table(header: list[str], rows: list[list[str]]) -> str:
    rows = [header, *rows] if header else rows
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


_WRAPPED = partial(textwrap.fill, width=_COLUMNS, break_long_words=False, break_on_hyphens=False)
_TERMINAL = Format(
    formula=_terminal_formula,
    text=_WRAPPED,
    items=lambda items: "\n".join(_WRAPPED(f"- {item}", subsequent_indent="  ") for item in items),
    table=_terminal_table,
    equation=lambda block: block.plain or f"{block.left} {block.relation} {block.right}",
    folded=lambda form, block: form.inline(block.summary),
)


def as_terminal_text(blocks: Iterable[Block]) -> str:
    """Write the document as plain text: tables in columns, formulas in LaTeX, no markup."""
    return _TERMINAL.write(blocks)


class View:
    """Document that displays itself at a prompt, with `print`, or in a notebook."""

    def __init__(self, blocks: Iterable[Block]):
        self.blocks = tuple(blocks)

    def __repr__(self) -> str:
        return as_terminal_text(self.blocks)

    def _repr_markdown_(self) -> str:
        return as_markdown(self.blocks, fold=True)


class DisplayMixin:
    """Base of classes that display themselves, through the document that `_view` returns.

    Decorate dataclasses with `dataclass(repr=False)`, so that they do not replace `__repr__`.
    """

    @abc.abstractmethod
    def _view(self) -> Iterable[Block]:
        """Return the document, with the most important blocks first."""

    def summary(self) -> View:
        """Return all information as a table. The table displays itself."""
        refuse_traced("summary", self, reason="shows values", anywhere=False)
        return View(self._view())

    def __repr__(self) -> str:
        try:
            lines = repr(self.summary()).splitlines()
        except _UNUSUAL:
            return super().__repr__()
        if len(lines) > _LINES:
            lines[_LINES - 1 :] = [f"... {len(lines) - _LINES + 1} more lines: summary()"]
        return "\n".join(lines)

    def _repr_markdown_(self) -> str | None:
        try:
            return self.summary()._repr_markdown_()
        except _UNUSUAL:
            # Let the notebook use the repr.
            return None


def number(value: Any, digits: int = 6) -> str:
    """Write a number with `digits` significant digits, or several numbers as their range."""
    array = np.asarray(value, dtype=float).ravel()
    if not len(array):
        return "none"
    finite = array[np.isfinite(array)]
    ends = (finite.min(), finite.max()) if len(finite) else (array[0], array[0])
    least, most = (f"{each:,.0f}" if abs(each) < 1e9 and each == round(each) else f"{each:.{digits}g}" for each in ends)
    lost = f", {len(array) - len(finite)} not finite" if 0 < len(finite) < len(array) else ""
    return f"{least if least == most else f'{least} to {most}'}{lost}"


def brief(values: Any, most: int = 6) -> str:
    """Write the first `most` numbers of an array, or the range of an array with several axes."""
    array = np.asarray(values)
    if array.ndim > 1:
        return f"{np.min(array):.4g} to {np.max(array):.4g}, shape {array.shape}"
    flat = array.ravel()
    more = f", ... ({flat.size} in all)" if flat.size > most else ""
    return ", ".join(f"{value:.4g}" for value in flat[:most]) + more
