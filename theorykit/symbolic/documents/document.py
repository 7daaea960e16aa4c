"""Documents of headings, text, equations and lists, written as Markdown, as LaTeX or as text for a terminal.

As in Markdown, text may contain inline mathematics between dollar signs, `code` in backquotes, and **bold** words. A
backslash before a punctuation mark makes it an ordinary character. Names that a user chose go through `verbatim`.
"""

import html
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, get_args

from ...checks import check_fields, checked_instance, checked_sequence, checked_whole_number
from ..notation import escaped
from .lines import NUMBER, TEXT_WIDTH, broken, width

# In Markdown, break an equation before its relation if its left side is longer than this, in characters of LaTeX.
_LONG_LEFT = 60
# Width of text in a terminal, in characters.
_COLUMNS = 100
# An escaped character, code, a formula, bold words, or other text. Stars after a word or a bracket denote a power.
_MARKUP = re.compile(
    r"\\([!-/:-@[-`{-~])|`([^`]+)`|\$((?:\\.|[^\\$])+)\$|(?<![\w)\]])\*\*(.+?)\*\*(?!\w)|([^\\`$*]+|.)", re.DOTALL
)
_Level = Annotated[int, partial(checked_whole_number, least=1, most=6)]


class Part:
    """Part of a document. Its fields are checked."""

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Heading(Part):
    """Heading. Level 1 is the title of the document.

    Example:
        >>> from theorykit.symbolic import Heading, Text, as_markdown
        >>> as_markdown([Heading("Result", level=1), Text("The kernel is $K$.")])
        '# Result\\n\\nThe kernel is $K$.\\n'
    """

    text: str
    level: "_Level" = 2


@dataclass(frozen=True)
class Text(Part):
    """Paragraph."""

    text: str


@dataclass(frozen=True)
class Equation(Part):
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
        """Return the relation and the right side, with the equation number of the source."""
        return rf"{self.relation} {self.right}" + (rf" \qquad ({self.source})" if self.source else "")


@dataclass(frozen=True)
class Items(Part):
    """List of short texts."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Folded(Part):
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
class Table(Part):
    """Rows of short texts under a `header`. Without a header, the first column contains the names of the rows."""

    rows: tuple[tuple[str, ...], ...]
    header: tuple[str, ...] = ()


@dataclass(frozen=True)
class Code(Part):
    """Source code, shown verbatim."""

    text: str


Block = Heading | Text | Equation | Items | Folded | Table | Code
"""Union of all parts of a document."""


def checked_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Return a list of blocks after checking that it is a non-empty sequence of parts."""
    found = checked_sequence("blocks", blocks, "parts of a document")
    if not found:
        raise ValueError("blocks must not be empty")
    return [checked_instance(f"blocks[{i}]", value, get_args(Block)) for i, value in enumerate(found)]


def verbatim(text: object) -> str:
    """Return text that is shown as it is: no character of a user's name or message is read as markup."""
    return re.sub(r"[\\`*_$<>|\[\]#~&]", r"\\\g<0>", re.sub(r"\s*[\r\n]\s*", " ", str(text)))


def code(text: str) -> str:
    """Return text that is shown as code. Text with backquotes is shown as it is."""
    return verbatim(text) if set(text) & set("`\n") else f"`{text}`"


def inline(
    text: str,
    plain: Callable[[str], str],
    code: Callable[[str], str],
    formula: Callable[[str], str],
    bold: str,
    literal: Callable[[str], str] | None = None,
) -> str:
    """Write text with a function for each kind of markup. `bold` has a place {} for the words."""

    def bold_words(words: str) -> str:
        return bold.format(inline(words, plain, code, formula, bold, literal))

    kinds = (literal or plain, code, formula, bold_words, plain)
    return _MARKUP.sub(lambda found: kinds[found.lastindex - 1](found[found.lastindex]), text)


def write(blocks: Iterable[Block], form: Mapping[type, Callable[[Any], str]]) -> Iterator[str]:
    """Yield the written parts of a document. `form` has a function for each kind of part.

    Without a function for folded parts, these are written in full.
    """
    for block in blocks:
        if isinstance(block, Folded) and Folded not in form:
            yield from write((Text(block.summary), *block.parts), form)
        else:
            yield form[type(block)](block)


def as_markdown(blocks: "Iterable[Block]", fold: bool = False) -> str:
    """Write the document as Markdown, with equations between double dollar signs.

    Set `fold` to hide folded parts, as a notebook can.
    """

    def written(text: str) -> str:
        # A dollar sign inside an element cannot begin a formula, in notebooks and on GitHub.
        literal = lambda each: "<span>$</span>" if each == "$" else f"\\{each}"  # noqa: E731
        return inline(text, str, "`{}`".format, "${}$".format, "**{}**", literal)

    def equation(block: Equation) -> str:
        if len(block.left) <= _LONG_LEFT:
            return f"$${block.left} {block.numbered}$$"
        return rf"$$\begin{{aligned}}& {block.left} \\ &\quad {block.numbered}\end{{aligned}}$$"

    def table(block: Table) -> str:
        columns = len(block.rows[0])
        rows = [block.header or ("",) * columns, ("---",) * columns, *block.rows]
        return "\n".join(f"| {' | '.join(map(written, row))} |" for row in rows)

    def folded(block: Folded) -> str:
        # Markdown is not read within the line of the summary.
        code = lambda text: f"<code>{html.escape(text)}</code>"  # noqa: E731
        summary = inline(block.summary, html.escape, code, lambda latex: f"${html.escape(latex)}$", "<b>{}</b>")
        parts = "\n\n".join(write(block.parts, form))
        return f"<details{' open' if block.is_open else ''}><summary>{summary}</summary>\n\n{parts}\n\n</details>"

    form = {
        Heading: lambda block: f"{'#' * block.level} {written(block.text)}",
        Text: lambda block: written(block.text),
        Items: lambda block: "\n".join(f"- {written(item)}" for item in block.items),
        Equation: equation,
        Table: table,
        Code: lambda block: f"```python\n{block.text}```",
    }
    if checked_instance("fold", fold, bool):
        form[Folded] = folded
    return "\n\n".join(write(checked_blocks(blocks), form)) + "\n"


def as_latex(blocks: "Iterable[Block]", fragment: bool = False) -> str:
    """Write the document as a LaTeX article that needs only amsmath. Each equation has a label.

    Equations are broken into lines that fit the text width of an article. Set `fragment` to get only the body of the
    document, for `\\input`.
    """

    def formula(latex: str) -> str:
        # Use plain brackets, because LaTeX does not break lines between \left and \right.
        return "${}$".format(re.sub(r"\\(left|right)(?=[()\[\]])", "", latex))

    def written(text: str) -> str:
        return inline(text, escaped, lambda code: rf"\texttt{{{escaped(code)}}}", formula, r"\textbf{{{}}}")

    def heading(block: Heading) -> str:
        command = {1: "section*", 2: "subsection*"}.get(block.level, "subsubsection*")
        return f"\n\\{command}{{{written(block.text)}}}\n"

    def items(block: Items) -> str:
        lines = "\n".join(rf"\item {written(text)}" for text in block.items)
        return f"\n\\begin{{itemize}}\n{lines}\n\\end{{itemize}}\n"

    def table(block: Table) -> str:
        rows = [block.header, *block.rows] if block.header else block.rows
        lines = " \\\\\n".join(" & ".join(map(written, row)) for row in rows)
        return f"\n\\begin{{tabular}}{{{'l' * len(rows[0])}}}\n{lines}\n\\end{{tabular}}\n"

    form = {
        Heading: heading,
        Text: lambda block: f"\n{written(block.text)}\n",
        Items: items,
        # Write an equation in the preceding paragraph, so that no page break separates the two.
        Equation: lambda block: align_environment([block]),
        Table: table,
        Code: lambda block: f"\\begin{{verbatim}}\n{block.text}\\end{{verbatim}}\n",
    }
    met: Counter[str] = Counter()

    def unique(label: re.Match[str]) -> str:
        met[label[1]] += 1
        return label[0] if met[label[1]] == 1 else rf"\label{{{label[1]}:{met[label[1]]}}}"

    body = "".join(write(checked_blocks(blocks), form))
    body = re.sub(r"\\label\{([^}]*)\}", unique, body)
    return body.lstrip() if checked_instance("fragment", fragment, bool) else f"{_PREAMBLE}{body}\\end{{document}}\n"


_PREAMBLE = r"""\documentclass{article}
\usepackage{amsmath}
\allowdisplaybreaks
\setlength{\parindent}{0pt}
\setlength{\parskip}{1ex}
\emergencystretch=4em
\begin{document}
"""


def align_environment(equations: Iterable[Equation]) -> str:
    """Write all equations, with labels, as one LaTeX `align` environment that fits the text width of an article."""
    equations = list(equations)
    aligned = max((left for each in equations if (left := width(each.left)) <= TEXT_WIDTH / 3), default=0.0)
    found = [_lines(each, aligned) for each in equations]
    if any(width(line.partition("&")[2]) > TEXT_WIDTH - aligned for lines in found for line in lines):
        # Do not align. An equation that is wide and cannot break leaves no space next to the left sides.
        found = [_lines(each, 0.0) for each in equations]
    labels = (rf" \label{{eq:{each.label or _label(each.left)}}}" for each in equations)
    rows = [" \\notag \\\\\n  &\\quad ".join(lines) + label for lines, label in zip(found, labels, strict=True)]
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
    words = re.findall(r"[A-Za-z0-9]+", re.sub(r"\\(frac|left|right|operatorname|[lr]angle|log)\b", " ", left))
    return "-".join(words) if 0 < len(words) < 9 else "equation"


def as_terminal_text(blocks: Iterable[Block]) -> str:
    """Write the document as plain text for a terminal, with tables in columns, formulas in LaTeX, and no markup."""

    def formula(latex: str) -> str:
        # Remove the braces and commands of LaTeX, for example in N_1 x N_2.
        for command, text in ((r"\times", "x"), (r"\mathbb", ""), (r"\succeq", ">="), (r"\succ", ">")):
            latex = latex.replace(command, text)
        return re.sub(r"\\(?:left|right)|[{}\\]", "", latex)

    def plain(text: str) -> str:
        return inline(text, str, str, formula, "{}")

    def wrapped(text: str, indent: str = "") -> str:
        unbroken = {"break_long_words": False, "break_on_hyphens": False}
        return textwrap.fill(plain(text), _COLUMNS, subsequent_indent=indent, **unbroken)

    def table(block: Table) -> str:
        rows = [tuple(map(plain, row)) for row in ((block.header, *block.rows) if block.header else block.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    form = {
        Heading: lambda block: plain(block.text),
        Text: lambda block: wrapped(block.text),
        Items: lambda block: "\n".join(wrapped(f"- {item}", "  ") for item in block.items),
        Equation: lambda block: block.plain or f"{block.left} {block.relation} {block.right}",
        Table: table,
        Code: lambda block: block.text,
        Folded: lambda block: plain(block.summary),
    }
    return "\n".join(write(checked_blocks(blocks), form))
