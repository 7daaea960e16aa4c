"""Documents of headings, text, equations and lists, written as Markdown, as LaTeX or as text for a terminal.

As in Markdown, text may contain inline mathematics between dollar signs, `code` in backquotes, and **bold** words. A
backslash before a punctuation mark makes it an ordinary character. Names that a user chose go through `verbatim`.
"""

import html
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Annotated, NamedTuple

from ...checks import check_fields, checked_instance, checked_sequence, checked_whole_number
from .lines import INDENT, NUMBER, TEXT_WIDTH, broken, width
from .notation import escaped

# Break an equation before its relation only if its left side is longer than this, in characters of LaTeX.
_LONG_LEFT = 60
# The whole equation must also be longer than this, in characters of LaTeX.
_LONG = 122
# Width of text in a terminal, in characters.
_COLUMNS = 100
# An escaped character, code, a formula, or bold words. Stars after a word or a bracket denote a power.
_MARKUP = re.compile(r"\\([!-/:-@[-`{-~])|`([^`]+)`|\$((?:\\.|[^\\$])+)\$|(?<![\w)\]])\*\*(.+?)\*\*(?!\w)", re.DOTALL)
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
_BLOCKS = (Heading, Text, Equation, Items, Folded, Table, Code)


def checked_blocks(name: str, values: Iterable[Block]) -> list[Block]:
    """Return `values` as a list after checking that it is a non-empty sequence of parts."""
    found = checked_sequence(name, values, "parts of a document")
    if not found:
        raise ValueError(f"{name} must not be empty")
    return [checked_instance(f"{name}[{i}]", value, _BLOCKS) for i, value in enumerate(found)]


def verbatim(text: object) -> str:
    """Return text that is shown as it is: no character of a user's name or message is read as markup."""
    return re.sub(r"[\\`*_$<>|\[\]#~&]", r"\\\g<0>", re.sub(r"\s*[\r\n]\s*", " ", str(text)))


def inline(
    text: str,
    plain: Callable[[str], str],
    code: Callable[[str], str],
    formula: Callable[[str], str],
    bold: str,
    literal: Callable[[str], str] | None = None,
) -> str:
    """Write text with a function for each kind of markup. `bold` has a place {} for the words."""
    written, end = [], 0
    for found in _MARKUP.finditer(text):
        character, words_of_code, latex, words = found.groups()
        written.append(plain(text[end : found.start()]))
        if character:
            written.append((literal or plain)(character))
        elif words_of_code:
            written.append(code(words_of_code))
        elif latex:
            written.append(formula(latex))
        else:
            written.append(bold.format(inline(words, plain, code, formula, bold, literal)))
        end = found.end()
    return "".join([*written, plain(text[end:])])


class Writer(NamedTuple):
    """Functions that write each kind of part. If there is no `fold`, folded parts are written in full."""

    heading: Callable[[str, int], str]
    text: Callable[[str], str]
    items: Callable[[tuple[str, ...]], str]
    equation: Callable[[Equation], str]
    table: Callable[[Table], str]
    code: Callable[[str], str]
    fold: Callable[[Folded], str] | None = None

    def parts(self, blocks: Iterable[Block]) -> Iterator[str]:
        """Yield the written parts of a document."""
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
                case Code(text):
                    yield self.code(text)
                case Folded(summary, parts):
                    yield from [self.fold(block)] if self.fold else self.parts((Text(summary), *parts))


def as_markdown(blocks: "Iterable[Block]") -> str:
    """Write the document as Markdown, with equations between double dollar signs."""
    return "\n\n".join(_markdown().parts(checked_blocks("blocks", blocks))) + "\n"


def as_notebook_markdown(blocks: Iterable[Block]) -> str:
    """Write the document as Markdown for the output of a notebook, which can fold parts."""

    def fold(block: Folded) -> str:
        formula = lambda latex: f"${html.escape(latex)}$"  # noqa: E731
        code = lambda text: f"<code>{html.escape(text)}</code>"  # noqa: E731
        summary = inline(block.summary, html.escape, code, formula, "<b>{}</b>")
        parts = "\n\n".join(writer.parts(block.parts))
        return f"<details{' open' if block.is_open else ''}><summary>{summary}</summary>\n\n{parts}\n\n</details>"

    writer = _markdown()._replace(fold=fold)
    return "\n\n".join(writer.parts(checked_blocks("blocks", blocks))) + "\n"


def _markdown() -> Writer:
    def written(text: str) -> str:
        # A dollar sign inside an element cannot begin a formula, in notebooks and on GitHub.
        literal = lambda each: "<span>$</span>" if each == "$" else f"\\{each}"  # noqa: E731
        return inline(text, str, "`{}`".format, "${}$".format, "**{}**", literal)

    def display(equation: Equation) -> str:
        left, right = equation.left, equation.numbered
        if len(left) <= _LONG_LEFT or len(left) + len(right) <= _LONG:
            return f"$${left} {right}$$"
        return rf"$$\begin{{aligned}}& {left} \\ &\quad {right}\end{{aligned}}$$"

    def table(table: Table) -> str:
        header = table.header or ("",) * len(table.rows[0])
        rows = [header, ("---",) * len(header), *table.rows]
        return "\n".join(f"| {' | '.join(map(written, row))} |" for row in rows)

    return Writer(
        heading=lambda text, level: f"{'#' * level} {written(text)}",
        text=written,
        items=lambda items: "\n".join(f"- {written(item)}" for item in items),
        equation=display,
        table=table,
        code=lambda text: f"```python\n{text}```",
    )


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

    def heading(text: str, level: int) -> str:
        command = {1: "section*", 2: "subsection*"}.get(level, "subsubsection*")
        return f"\n\\{command}{{{written(text)}}}\n"

    def items(texts: tuple[str, ...]) -> str:
        lines = "\n".join(rf"\item {written(text)}" for text in texts)
        return f"\n\\begin{{itemize}}\n{lines}\n\\end{{itemize}}\n"

    def table(table: Table) -> str:
        rows = [table.header, *table.rows] if table.header else table.rows
        lines = " \\\\\n".join(" & ".join(map(written, row)) for row in rows)
        return f"\n\\begin{{tabular}}{{{'l' * len(rows[0])}}}\n{lines}\n\\end{{tabular}}\n"

    # Write an equation in the preceding paragraph, so that no page break separates the two.
    writer = Writer(
        heading=heading,
        text=lambda text: f"\n{written(text)}\n",
        items=items,
        equation=lambda each: align_environment([each]),
        table=table,
        code=lambda text: f"\\begin{{verbatim}}\n{text}\\end{{verbatim}}\n",
    )
    met: set[str] = set()

    def unique(match: re.Match[str]) -> str:
        label = next(each for each in chain([match[1]], (f"{match[1]}-{n}" for n in count(2))) if each not in met)
        met.add(label)
        return rf"\label{{{label}}}"

    body = "".join(writer.parts(checked_blocks("blocks", blocks)))
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
    rows = [" \\notag \\\\\n  ".join(lines) + label for lines, label in zip(found, labels, strict=True)]
    body = " \\\\\n  ".join(rows)
    return f"\\begin{{align}}\n  {body}\n\\end{{align}}\n"


def _lines(equation: Equation, aligned: float) -> list[str]:
    """Break an equation into lines. Align it at its relation if its left side is at most `aligned` wide."""
    left, most = equation.left, TEXT_WIDTH - NUMBER - aligned
    source = rf" \quad [\text{{Eq.\,{equation.source}}}]" if equation.source else ""
    right = f"{equation.relation} {equation.right}{source}"
    if width(left) <= aligned:
        first, *others = broken(right, most, most - INDENT)
        return [f"{left} &{first}", *(rf"&\quad {line}" for line in others)]
    if width(left) <= TEXT_WIDTH / 3 or width(f"{left} {right}") <= most:
        first, *others = broken(f"{left} {right}", most, most - INDENT)
        return [f"& {first}", *(rf"&\quad {line}" for line in others)]
    first, *others = broken(left, most, most - INDENT)
    second, *more = broken(right, most - INDENT, most - 2 * INDENT)
    return [f"& {first}", *(rf"&\quad {line}" for line in [*others, second]), *(rf"&\qquad {line}" for line in more)]


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

    def table(table: Table) -> str:
        rows = [tuple(map(plain, row)) for row in ((table.header, *table.rows) if table.header else table.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    writer = Writer(
        heading=lambda text, level: plain(text),
        text=wrapped,
        items=lambda items: "\n".join(wrapped(f"- {item}", "  ") for item in items),
        equation=lambda each: each.plain or f"{each.left} {each.relation} {each.right}",
        table=table,
        code=str,
        fold=lambda block: plain(block.summary),
    )
    return "\n".join(writer.parts(checked_blocks("blocks", blocks)))
