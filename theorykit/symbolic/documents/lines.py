"""Break LaTeX formulas into lines that fit the text width of an article, by estimated widths of symbols.

Lines break before relations and signs, preferably outside brackets. A bracket that spans lines is closed by `\\right.`
and opened again by `\\left.`. Lines break between factors only if nothing else helps.
"""

import re
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

# Text width of an article in points at font size 10, less the error of the estimates.
TEXT_WIDTH = 333.0
# Width of an equation number in points.
NUMBER = 28.0
# Indentation of continuation lines in points.
INDENT = 10.0
# Size of scripts relative to the line.
_SCRIPT = 0.7
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)
_RELATIONS = frozenset(["=", "<", ">", r"\sim", r"\in", r"\propto", r"\to", r"\Rightarrow", r"\mid", r"\succ"])
_SIGNS = frozenset(["+", "-", r"\otimes", r"\circ", r"\cdot", r"\pm"])
_WIDTHS = {
    **dict.fromkeys(_RELATIONS, 13.4),
    **dict.fromkeys(_SIGNS, 12.3),
    **{r"\sum": 16.2, r"\int": 11.7, r"\log": 14.5, r"\det": 15.3, r"\exp": 17.0, r"\infty": 10.0},
    **{r"\quad": 10.0, r"\qquad": 20.0},
    **{r"\,": 1.7, r"\;": 2.8, r"\!": -1.7, r"\ ": 3.4, ",": 4.5, "|": 2.8, "(": 3.9, ")": 3.9, "'": 2.5, "i": 3.5},
    **{r"\Phi": 7.2, r"\Omega": 7.2, r"\langle": 4.0, r"\rangle": 4.0, "j": 4.1, "l": 3.0, "m": 8.8, "w": 7.2},
}
_KINDS = {
    **dict.fromkeys((r"\sum", r"\int"), "operator"),
    **dict.fromkeys((r"\quad", r"\qquad"), "space"),
    **dict.fromkeys((r"\log", r"\det", r"\exp"), "name"),
}


class _Item(NamedTuple):
    """Part of a formula that is not broken, with the end of its text, its width, and its depth in brackets."""

    kind: str
    end: int
    width: float
    depth: int


def width(latex: str) -> float:
    """Estimate the width of the formula in points."""
    return sum((item.width for item in _items(latex)), start=0.0)


def broken(latex: str, first: float, others: float) -> list[str]:
    """Break the formula into lines of at most the widths `first` and `others` (later lines), if possible."""
    if width(latex) <= first:
        return [latex]
    latex = _on_the_line(latex, 0.7 * others)
    items = _items(latex)
    places = [0, *(i for i in range(1, len(items)) if _cost(items, i) is not None), len(items)]
    before = [0.0]
    for item in items:
        before.append(before[-1] + item.width)
    # Dynamic programming: for each position, the least cost of the lines up to it, and the start of the last line.
    best: dict[int, tuple[float, int]] = {0: (0.0, 0)}
    for number, end in enumerate(places[1:], 1):
        choices = []
        for start in places[:number]:
            most, wide = (first if start == 0 else others), before[end] - before[start]
            cost = (_cost(items, start) or 0.0) + ((1 - wide / most) ** 2 if wide <= most else 20 * (wide - most))
            choices.append((best[start][0] + cost, start))
        best[end] = min(choices)
    lines, end = [], len(items)
    while end > 0:
        start = best[end][1]
        lines.append(_line(latex, items, start, end))
        end = start
    return lines[::-1]


def _on_the_line(latex: str, most: float) -> str:
    """Write powers of e and numerators that are wider than `most` as exp(...) and (...), which can be broken."""
    for begin in re.finditer(r"(?<![A-Za-z\\])e\^\{|\\frac\{", latex):
        end = _end_of_group(latex, begin.end())
        inside = latex[begin.end() : end]
        if width(inside) > most:
            # The text after the argument. A fraction has two: write its denominator as 1/... before the numerator.
            name, after = r"\exp", end + 1
            if begin[0] != "e^{":
                after = _end_of_group(latex, end + 2) + 1
                name = rf"\frac{{1}}{latex[end + 1 : after]} "
            # Start again, because the new text may contain more of them.
            return _on_the_line(rf"{latex[: begin.start()]}{name}\left({inside}\right){latex[after:]}", most)
    return latex


def _end_of_group(latex: str, begin: int) -> int:
    """Return the position of the brace that closes the brace at `begin`."""
    depth = 1
    for end in range(begin, len(latex)):
        depth += {"{": 1, "}": -1}.get(latex[end], 0)
        if depth == 0:
            return end
    raise ValueError(f"a brace is not closed in {latex}")


def _cost(items: list[_Item], i: int) -> float | None:
    """Return the cost of a break before item `i`, or None if no break is allowed."""
    kind, last, depth = items[i].kind, items[i - 1].kind, items[i].depth
    if kind in ("relation", "space") or (kind == "sign" and last not in ("relation", "sign", "open")):
        return 1.0 + (2 * depth + (kind == "sign")) ** 2
    if last == "close" and kind in ("open", "symbol"):
        return 1.0 + (2 * depth + 2) ** 2
    return None


def _line(latex: str, items: list[_Item], start: int, end: int) -> str:
    text = latex[items[start - 1].end if start else 0 : items[end - 1].end].strip()
    opened, closed = (items[i].depth if 0 < i < len(items) else 0 for i in (start, end))
    if start and items[start].kind not in ("relation", "sign", "space"):
        text = rf"\cdot {text}"
    return r"\left. " * opened + ("{} " if opened else "") + text + r" \right." * closed


@lru_cache(maxsize=4096)
def _items(latex: str) -> list[_Item]:
    tokens = [(match[0], match.end()) for match in _TOKEN.finditer(latex)]
    items: list[_Item] = []
    i = depth = 0

    def group() -> str:
        """Return the argument that begins at token i, without braces."""
        nonlocal i
        while i < len(tokens) and tokens[i][0].isspace():
            i += 1
        start, level = i, 0
        while i < len(tokens):
            level += {"{": 1, "}": -1}.get(tokens[i][0], 0)
            i += 1
            if level == 0:
                break
        text = "".join(token for token, _ in tokens[start:i])
        return text[1:-1] if text.startswith("{") else text

    while i < len(tokens):
        token = tokens[i][0]
        i += 1
        kind = "relation" if token in _RELATIONS else "sign" if token in _SIGNS else "symbol"
        if token in ("^", "_"):
            size, last = _SCRIPT * width(group()), items.pop() if items else _Item("symbol", 0, 0.0, depth)
            wide = max(last.width, size) if last.kind == "operator" else last.width + size
            items.append(last._replace(end=tokens[i - 1][1], width=wide))
            continue
        if token.isspace():
            if items:
                items[-1] = items[-1]._replace(end=tokens[i - 1][1])
            continue
        if token in (r"\operatorname", r"\text", r"\mathrm"):
            kind, wide = "name", 5.0 * len(group()) + 2
        elif token in (r"\frac", r"\underset"):
            wide = max(width(group()), width(group())) + 2.4
        elif token == r"\sqrt":
            wide = width(group()) + 9
        elif token in (r"\left", r"\right"):
            kind, wide = ("open" if token == r"\left" else "close"), 1.2 if tokens[i][0] == "." else 6.0
            i += 1
        elif token == r"\begin":
            group()
            # Count only rows and columns of the outer matrix. Entries may be matrices too.
            rows, level = [[""]], 0
            while level or tokens[i][0] != r"\end":
                part = tokens[i][0]
                level += {r"\begin": 1, r"\end": -1}.get(part, 0)
                if level or part not in (r"\\", "&"):
                    rows[-1][-1] += part
                elif part == "&":
                    rows[-1].append("")
                else:
                    rows.append([""])
                i += 1
            i += 1
            group()
            wide = sum(10 + max(map(width, column)) for column in zip_longest(*rows, fillvalue=""))
        elif token == "{":
            i -= 1
            wide = width(group())
        elif token.startswith("\\") and i < len(tokens) and tokens[i][0] == "{":
            wide = width(group())
        else:
            kind = _KINDS.get(token, kind)
            wide = _WIDTHS.get(token, 5.0 if token.isdigit() else 7.6 if token.isupper() else 5.7)
        depth -= kind == "close"
        items.append(_Item(kind, tokens[i - 1][1], wide, depth))
        depth += kind == "open"
    return items
