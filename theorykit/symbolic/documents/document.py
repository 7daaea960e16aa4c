"""Documents of headings, text, equations and lists, written as Markdown, LaTeX or text for a terminal.

Text may contain inline mathematics between dollar signs, `code` in backquotes, and **bold** words. A backslash before a
punctuation mark makes it an ordinary character. Names that a user chose go through `verbatim`.
"""

import html
import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ...checks import checked_sequence, shown
from ..notation import escaped
from .lines import NUMBER, TEXT_WIDTH, broken, width

# In Markdown, break an equation before its relation if its left side has more characters of LaTeX.
_LONG_LEFT = 60
# Width of text in a terminal, in characters.
_COLUMNS = 100
# An escaped character, code, a formula, bold words, or other text. Stars after a word or a bracket denote a power.
_MARKUP = re.compile(
    r"\\([!-/:-@[-`{-~])|`([^`]+)`|\$((?:\\.|[^\\$])+)\$|(?<![\w)\]])\*\*(.+?)\*\*(?!\w)|([^\\`$*]+|.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Heading:
    """Heading of a level from 1 to 6. Level 1 is the title of the document.

    Example:
        >>> from theorykit.symbolic import Heading, Text, as_markdown
        >>> as_markdown([Heading("Result", level=1), Text("The kernel is $K$.")])
        '# Result\\n\\nThe kernel is $K$.\\n'
    """

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """Paragraph."""

    text: str


@dataclass(frozen=True)
class Equation:
    """Displayed equation.

    - `left`, `right`: both sides, in LaTeX.
    - `relation`: the symbol between them.
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

    @property
    def numbered(self) -> str:
        """Return the relation and the right side, with the number in the paper."""
        source = rf" \qquad ({self.source})" if self.source else ""
        return f"{self.relation} {self.right}{source}"


@dataclass(frozen=True)
class Items:
    """List of short texts."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Folded:
    """Parts that a page or a notebook hides under one line of text. A terminal always hides them.

    - `summary`: the line of text.
    - `parts`: the hidden parts.
    - `remark`: text next to the summary, on pages only.
    - `is_open`: whether the parts are shown at first.
    """

    summary: str
    parts: tuple["Block", ...]
    remark: str = ""
    is_open: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of short texts. Without a `header`, the first column contains the names of the rows."""

    rows: tuple[tuple[str, ...], ...]
    header: tuple[str, ...] = ()


@dataclass(frozen=True)
class Code:
    """Source code, shown verbatim."""

    text: str


Block = Heading | Text | Equation | Items | Folded | Table | Code
"""Union of all parts of a document."""


def verbatim(text: object) -> str:
    """Return text that is shown as it is: no character is read as markup."""
    one_line = re.sub(r"\s*[\r\n]\s*", " ", str(text))
    return re.sub(r"[\\`*_$<>|\[\]#~&]", r"\\\g<0>", one_line)


def code(text: str) -> str:
    """Return text that is shown as code. Text with backquotes is shown as it is."""
    return verbatim(text) if set(text) & set("`\n") else f"`{text}`"


class Format:
    """A format: one method per kind of part and per kind of markup. By default, markup is removed."""

    between, bold = "\n", "{}"

    def plain(self, text: str) -> str:
        """Write ordinary text."""
        return text

    def literal(self, character: str) -> str:
        """Write an escaped character."""
        return self.plain(character)

    code = formula = plain

    def inline(self, text: str) -> str:
        """Write text with markup."""
        kinds = self.literal, self.code, self.formula, self._bold, self.plain
        return _MARKUP.sub(lambda found: kinds[found.lastindex - 1](found[found.lastindex]), text)

    def _bold(self, words):
        return self.bold.format(self.inline(words))

    def write(self, blocks: Iterable[Block]) -> str:
        """Write parts of a document."""
        blocks = checked_sequence("blocks", blocks, "parts of a document")
        for each in blocks:
            if not isinstance(each, Block):
                raise TypeError(f"blocks must be parts of a document, got {shown(each)}")
        return self.between.join(getattr(self, type(each).__name__)(each) for each in blocks)

    def Text(self, block):
        return self.inline(block.text)

    def Folded(self, block):
        return self.write((Text(block.summary), *block.parts))


class _Summary(Format):
    """The line of an element of HTML, in which Markdown is not read."""

    bold = "<b>{}</b>"
    plain = staticmethod(html.escape)
    code = staticmethod(lambda text: f"<code>{html.escape(text)}</code>")
    formula = staticmethod(lambda latex: f"${html.escape(latex)}$")


class _Markdown(Format):
    between, bold = "\n\n", "**{}**"
    code = staticmethod("`{}`".format)
    formula = staticmethod("${}$".format)

    def literal(self, character):
        # A dollar sign inside an element cannot begin a formula, in notebooks and on GitHub.
        return "<span>$</span>" if character == "$" else f"\\{character}"

    def Heading(self, block):
        return f"{'#' * block.level} {self.inline(block.text)}"

    def Items(self, block):
        return "\n".join(f"- {self.inline(item)}" for item in block.items)

    def Equation(self, block):
        if len(block.left) <= _LONG_LEFT:
            return f"$${block.left} {block.numbered}$$"
        return rf"$$\begin{{aligned}}& {block.left} \\ &\quad {block.numbered}\end{{aligned}}$$"

    def Table(self, block):
        columns = len(block.rows[0])
        rows = [block.header or ("",) * columns, ("---",) * columns, *block.rows]
        return "\n".join(f"| {' | '.join(map(self.inline, row))} |" for row in rows)

    def Code(self, block):
        return f"```python\n{block.text}```"


class _Notebook(_Markdown):
    def Folded(self, block):
        is_open = " open" if block.is_open else ""
        summary = f"<summary>{_Summary().inline(block.summary)}</summary>"
        return f"<details{is_open}>{summary}\n\n{self.write(block.parts)}\n\n</details>"


def as_markdown(blocks: Iterable[Block], fold: bool = False) -> str:
    """Write the document as Markdown. Set `fold` to hide folded parts, as a notebook can."""
    return (_Notebook() if fold else _Markdown()).write(blocks) + "\n"


class _Latex(Format):
    between, bold = "", r"\textbf{{{}}}"
    plain = staticmethod(escaped)

    def code(self, text):
        return rf"\texttt{{{escaped(text)}}}"

    def formula(self, latex):
        # Use plain brackets, because LaTeX does not break lines between \left and \right.
        return "${}$".format(re.sub(r"\\(left|right)(?=[()\[\]])", "", latex))

    def Heading(self, block):
        command = {1: "section*", 2: "subsection*"}.get(block.level, "subsubsection*")
        return f"\n\\{command}{{{self.inline(block.text)}}}\n"

    def Text(self, block):
        return f"\n{self.inline(block.text)}\n"

    def Items(self, block):
        lines = "\n".join(rf"\item {self.inline(text)}" for text in block.items)
        return f"\n\\begin{{itemize}}\n{lines}\n\\end{{itemize}}\n"

    def Equation(self, block):
        # No empty line before, so that no page break separates the equation from its paragraph.
        return align_environment([block])

    def Table(self, block):
        rows = [block.header, *block.rows] if block.header else block.rows
        lines = " \\\\\n".join(" & ".join(map(self.inline, row)) for row in rows)
        return f"\n\\begin{{tabular}}{{{'l' * len(rows[0])}}}\n{lines}\n\\end{{tabular}}\n"

    def Code(self, block):
        return f"\\begin{{verbatim}}\n{block.text}\\end{{verbatim}}\n"


_PREAMBLE = r"""\documentclass{article}
\usepackage{amsmath}
\allowdisplaybreaks
\setlength{\parindent}{0pt}
\setlength{\parskip}{1ex}
\emergencystretch=4em
\begin{document}
"""


def as_latex(blocks: Iterable[Block], fragment: bool = False) -> str:
    """Write the document as a LaTeX article that needs only amsmath, with labels and lines that fit its width.

    Set `fragment` to get only the body of the document, for `\\input`.
    """
    met: Counter[str] = Counter()

    def unique(label: re.Match[str]) -> str:
        met[label[1]] += 1
        return label[0] if met[label[1]] == 1 else rf"\label{{{label[1]}:{met[label[1]]}}}"

    body = re.sub(r"\\label\{([^}]*)\}", unique, _Latex().write(blocks))
    return body.lstrip() if fragment else f"{_PREAMBLE}{body}\\end{{document}}\n"


def align_environment(equations: Iterable[Equation]) -> str:
    """Write equations, with labels, as one LaTeX `align` environment that fits the text width of an article."""
    equations = list(equations)
    aligned = max((left for each in equations if (left := width(each.left)) <= TEXT_WIDTH / 3), default=0.0)
    found = [_lines(each, aligned) for each in equations]
    if any(width(line.partition("&")[2]) > TEXT_WIDTH - aligned for lines in found for line in lines):
        # An equation that is wide and cannot break leaves no space next to the left sides.
        found = [_lines(each, 0.0) for each in equations]
    rows = [
        " \\notag \\\\\n  &\\quad ".join(lines) + rf" \label{{eq:{each.label or _label(each.left)}}}"
        for lines, each in zip(found, equations, strict=True)
    ]
    return "\\begin{align}\n  " + " \\\\\n  ".join(rows) + "\n\\end{align}\n"


def _lines(equation: Equation, aligned: float) -> list[str]:
    """Break an equation into lines. Align it at its relation if its left side is at most `aligned` wide."""
    source = rf" \quad [\text{{Eq.\,{equation.source}}}]" if equation.source else ""
    left, right = equation.left, f"{equation.relation} {equation.right}{source}"
    if width(left) > aligned:
        left, right = "", f" {left} {right}"
    first, *others = broken(right, TEXT_WIDTH - NUMBER - aligned)
    return [f"{left} &{first}".lstrip(), *others]


def _label(left: str) -> str:
    left = re.sub(r"\\(frac|left|right|operatorname|[lr]angle|log)\b", " ", left)
    words = re.findall(r"[A-Za-z0-9]+", left)
    return "-".join(words) if 0 < len(words) < 9 else "equation"


class _Terminal(Format):
    def formula(self, latex):
        # Remove the braces and commands of LaTeX, for example in N_1 x N_2.
        for command, text in ((r"\times", "x"), (r"\mathbb", ""), (r"\succeq", ">="), (r"\succ", ">")):
            latex = latex.replace(command, text)
        return re.sub(r"\\(?:left|right)|[{}\\]", "", latex)

    def wrapped(self, text, indent=""):
        unbroken = {"break_long_words": False, "break_on_hyphens": False}
        return textwrap.fill(self.inline(text), _COLUMNS, subsequent_indent=indent, **unbroken)

    def Heading(self, block):
        return self.inline(block.text)

    def Text(self, block):
        return self.wrapped(block.text)

    def Items(self, block):
        return "\n".join(self.wrapped(f"- {item}", "  ") for item in block.items)

    def Equation(self, block):
        return block.plain or f"{block.left} {block.relation} {block.right}"

    def Table(self, block):
        rows = [block.header, *block.rows] if block.header else block.rows
        rows = [tuple(map(self.inline, row)) for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def Code(self, block):
        return block.text

    def Folded(self, block):
        return self.inline(block.summary)


def as_terminal_text(blocks: Iterable[Block]) -> str:
    """Write the document as plain text: tables in columns, formulas in LaTeX, no markup."""
    return _Terminal().write(blocks)
