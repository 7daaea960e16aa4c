"""Break LaTeX formulas into lines that fit the text width of an article, by estimated widths of symbols.

Lines break before relations and signs, preferably outside brackets. A bracket that spans lines is closed by `\\right.`
and opened again by `\\left.`. Lines break between factors only if nothing else helps.
"""

import math
import re
from itertools import accumulate
from typing import NamedTuple

# Text width of an article in points at font size 10, less the error of the estimates.
TEXT_WIDTH = 333.0
# Width of an equation number in points.
NUMBER = 28.0
# Indentation of continuation lines in points.
INDENT = 10.0
_TOKEN = re.compile(r"\s*(\\[A-Za-z]+|\\.|\S)", re.DOTALL)
_RELATIONS = ("=", "<", ">", r"\sim", r"\in", r"\propto", r"\to", r"\Rightarrow", r"\mid", r"\succ")
_SIGNS = ("+", "-", r"\otimes", r"\circ", r"\cdot", r"\pm")
# Commands that change the symbols after them.
_FONTS = (r"\mathbb", r"\mathbf", r"\mathcal", r"\mathrm", r"\operatorname", r"\text", r"\hat", r"\bar", r"\tilde")
_KINDS = {
    **dict.fromkeys(_RELATIONS, "relation"),
    **dict.fromkeys(_SIGNS, "sign"),
    **{r"\left": "open", r"\right": "close", r"\quad": "space", r"\qquad": "space", r"\sum": "sum"},
}
_WIDTHS = {
    **dict.fromkeys(_RELATIONS, 13.4),
    **dict.fromkeys(_SIGNS, 12.3),
    **dict.fromkeys(_FONTS, 0.0),
    **{r"\sum": 16.2, r"\int": 11.7, r"\log": 14.5, r"\det": 15.3, r"\exp": 17.0, r"\infty": 10.0},
    **{r"\quad": 10.0, r"\qquad": 20.0, r"\,": 1.7, r"\;": 2.8, r"\!": -1.7, r"\ ": 3.4},
    **{r"\langle": 4.0, r"\rangle": 4.0, ",": 4.5, "|": 2.8, "(": 3.9, ")": 3.9, "'": 2.5},
    **{"i": 3.5, "j": 4.1, "l": 3.0, "m": 8.8, "w": 7.2},
}


class _Item(NamedTuple):
    """Part of a formula that is not broken: its depth in brackets, the cost of a break before it, and its end."""

    kind: str
    depth: int
    cost: float
    width: float
    end: int


def width(latex: str) -> float:
    """Estimate the width of the formula in points."""
    return sum((item.width for item in _items(latex)), start=0.0)


def broken(latex: str, most: float) -> list[str]:
    """Break the formula into lines of at most this width, if possible. Lines after the first will be indented."""
    if width(latex) <= most:
        return [latex]
    most -= INDENT
    latex = _on_the_line(latex, 0.7 * most)
    items = _items(latex)
    before = list(accumulate((item.width for item in items), initial=0.0))

    def cost(start: int, end: int) -> float:
        wide = before[end] - before[start]
        return items[start].cost + ((1 - wide / most) ** 2 if wide <= most else 20 * (wide - most))

    # Dynamic programming: for each position, the least cost of the lines up to it, and the start of the last line.
    best: dict[int, tuple[float, int]] = {0: (0.0, 0)}
    for end in [*(i for i, item in enumerate(items) if 0 < item.cost < math.inf), len(items)]:
        best[end] = min((best[start][0] + cost(start, end), start) for start in best)
    lines, end = [], len(items)
    while end > 0:
        start = best[end][1]
        text = latex[items[start - 1].end if start else 0 : items[end - 1].end].strip()
        if start and items[start].kind in ("open", "symbol"):
            text = rf"\cdot {text}"
        opened, closed = (items[i].depth if 0 < i < len(items) else 0 for i in (start, end))
        lines.append(r"\left. " * opened + ("{} " if opened else "") + text + r" \right." * closed)
        end = start
    return lines[::-1]


def _on_the_line(latex: str, most: float) -> str:
    """Write powers of e and numerators that are wider than `most` as exp(...) and (...), which can be broken."""
    for begin in re.finditer(r"(?<![A-Za-z\\])e\^(?=\{)|\\frac(?=\{)", latex):
        inside = _group(latex, begin.end())
        if width(inside) > most:
            name, after = r"\exp", begin.end() + len(inside)
            if begin[0] != "e^":
                denominator = _group(latex, after)
                name, after = rf"\frac{{1}}{denominator} ", after + len(denominator)
            # Start again, because the new text may contain more of them.
            text = rf"{latex[: begin.start()]}{name}\left({inside[1:-1]}\right){latex[after:]}"
            return _on_the_line(text, most)
    return latex


def _group(latex: str, begin: int) -> str:
    """Return the group in braces, or the symbol, at this position."""
    depth = 0
    for token in _TOKEN.finditer(latex, begin):
        depth += {"{": 1, "}": -1}.get(token[1], 0)
        if depth == 0:
            return latex[begin : token.end()]
    return latex[begin:]


def _items(latex: str) -> list[_Item]:
    end = 0

    def read():
        nonlocal end
        for token in _TOKEN.finditer(latex):
            end = token.end()
            yield token[1]

    def until(stop: str) -> float:
        wide = 0.0
        while (token := next(tokens, stop)) != stop:
            wide += width_of(token)
        return wide

    def argument() -> float:
        return width_of(next(tokens, ""))

    def width_of(token: str) -> float:
        """Read the arguments of this token, and return the width."""
        if token == "{":
            return until("}")
        if token in ("^", "_"):
            return 0.7 * argument()
        if token in (r"\frac", r"\underset"):
            return max(argument(), argument()) + 2.4
        if token == r"\sqrt":
            return argument() + 9
        if token in (r"\left", r"\right"):
            return 1.2 if next(tokens, "") == "." else 6.0
        if token == r"\begin":
            # The rows of a matrix count as one row.
            wide = until(r"\end")
            argument()
            return wide
        is_capital = token.removeprefix("\\")[:1].isupper()
        return _WIDTHS.get(token, 5.0 if token.isdigit() else 7.6 if is_capital else 5.7)

    tokens, items, depth, last = read(), [], 0, "open"
    for token in tokens:
        kind, wide = _KINDS.get(token, "symbol"), width_of(token)
        if token in ("^", "_") and items:
            # Limits of a sum are below and above it.
            total = max(items[-1].width, wide) if last == "sum" else items[-1].width + wide
            items[-1] = items[-1]._replace(width=total, end=end)
            continue
        depth -= kind == "close"
        cost = math.inf
        if kind in ("relation", "space") or (kind == "sign" and last not in ("relation", "sign", "open")):
            cost = 1.0 + (2 * depth + (kind == "sign")) ** 2
        elif last == "close" and kind in ("open", "symbol"):
            cost = 1.0 + (2 * depth + 2) ** 2
        items.append(_Item(kind, depth, cost if items else 0.0, wide, end))
        depth += kind == "open"
        last = kind
    return items
