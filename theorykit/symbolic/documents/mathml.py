"""LaTeX of formulas, as `rendering` writes it, in MathML: what browsers show without any program of a page's own.

The LaTeX is read token by token. Only commands that are listed here are known: those of the printer, Greek letters and
the accents that SymPy makes of symbols' names.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element, tostring

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?|\s+|.", re.DOTALL)
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "zeta", "eta", "theta", "iota", "kappa", "mu", "nu", "xi", "pi", "rho"),
    *("sigma", "tau", "upsilon", "chi", "psi", "omega"),
)
_LETTERS = {
    **{name: unicodedata.lookup(f"GREEK SMALL LETTER {name}") for name in _GREEK},
    **{"lambda": "λ", "Lambda": "Λ", "epsilon": "ϵ", "varepsilon": "ε", "phi": "ϕ", "varphi": "φ"},
    **{"Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Upsilon": "Υ", "Phi": "Φ"},
    **{"Psi": "Ψ", "Omega": "Ω", "partial": "∂", "infty": "∞", "ell": "ℓ"},
}
_OPERATORS = {
    **{"otimes": "⊗", "odot": "⊙", "circ": "∘", "cdot": "⋅", "times": "×", "pm": "±", "sim": "∼", "in": "∈"},
    **{"propto": "∝", "to": "→", "mid": "∣", "Rightarrow": "⇒", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥"},
    **{"approx": "≈", "neq": "≠", "langle": "⟨", "rangle": "⟩", "{": "{", "}": "}", "dots": "…", "ldots": "…"},
    **{"mapsto": "↦", "wedge": "∧", "vee": "∨", "neg": "¬", "bmod": "mod"},
    **{"lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉"},
}
_LARGE = {"sum": "∑", "prod": "∏", "int": "∫"}
_FUNCTIONS = (
    *("log", "det", "exp", "max", "min", "sin", "cos", "tan", "sec", "csc", "cot"),
    *("sinh", "cosh", "tanh", "coth"),
)
_SPACES = {",": "0.167em", ":": "0.222em", ";": "0.278em", "quad": "1em", "qquad": "2em", " ": "0.25em", "!": "0em"}
_ACCENTS = {"hat": "^", "bar": "¯", "tilde": "~", "dot": "˙", "ddot": "¨", "vec": "→"}
_VARIANTS = {"mathbf": "BOLD", "boldsymbol": "BOLD", "mathcal": "SCRIPT", "mathbb": "DOUBLE-STRUCK"}
_DIGITS = ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")
_CLOSING = ")]}⟩"
_BREAKS = "=+−∝⇒∼→"


def mathml(latex: str, wrap: Callable[[Element], Element] = lambda element: element) -> list[Element]:
    """The elements that stand in a row for `latex`; `wrap` may put another in the place of any one of a symbol.

    Raises `NotImplementedError` for a command that is not known, and `ValueError` where a brace or bracket is not
    closed.
    """
    return _Reader(latex, wrap).whole()


def as_text(element: Element) -> str:
    """An element as text."""
    return tostring(element, encoding="unicode")


def broken(row: Sequence[Element]) -> list[list[Element]]:
    """The elements of a row in parts between which a line may break: before a relation or sign in no bracket."""
    parts: list[list[Element]] = [[]]
    for element in row:
        starts = element.tag == "mo" and element.text is not None and element.text in _BREAKS
        if starts and parts[-1] and parts[-1][-1].tag != "mo" and element.get("form") != "prefix":
            # not a sign of what follows, as it would be at the beginning
            element.set("form", "infix")
            parts.append([])
        parts[-1].append(element)
    return parts


class _Reader:
    """The tokens of a formula, and how far they have been read."""

    def __init__(self, latex: str, wrap: Callable[[Element], Element]):
        self.latex, self.wrap = latex, wrap
        self.tokens = _TOKEN.findall(latex)
        self.next = 0

    def whole(self) -> list[Element]:
        row = self.row(())
        if self.next < len(self.tokens):
            raise self.mistake(f"{self.tokens[self.next]} stands where nothing was opened")
        return row

    def peek(self) -> str | None:
        while self.next < len(self.tokens) and self.tokens[self.next].isspace():
            self.next += 1
        return self.tokens[self.next] if self.next < len(self.tokens) else None

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if token is None or (expected is not None and token != expected):
            raise self.mistake(f"it lacks {expected or 'an argument'}")
        self.next += 1
        return token

    def mistake(self, what: str) -> ValueError:
        return ValueError(f"the formula {self.latex} cannot be read: {what}")

    def row(self, stops: Sequence[str]) -> list[Element]:
        """Elements up to one of `stops`, which is left, or what closes something."""
        found: list[Element] = []
        while (token := self.peek()) is not None and token not in (*stops, "}", r"\right", r"\end"):
            if token == "-" and (not found or (found[-1].tag == "mo" and found[-1].text not in _CLOSING)):
                self.take()
                found.append(_element("mo", "−", form="prefix"))
            else:
                elements = self.with_scripts()
                if found and found[-1].tag not in ("mo", "mspace") and _is_function(elements[0]):
                    found.append(_element("mspace", None, width=_SPACES[","]))
                found.extend(elements)
        return found

    def with_scripts(self) -> list[Element]:
        """One element with its subscript and superscript; of what is more than one, the last gets them."""
        *others, base = self.atom()
        scripts: dict[str, Element] = {}
        while (token := self.peek()) in ("_", "^", "'"):
            self.take()
            sign = "^" if token == "'" else token
            if sign in scripts:
                raise self.mistake(f"it has two of {token}")
            scripts[sign] = _element("mo", "′") if token == "'" else self.script(sign)
        below, above = scripts.get("_"), scripts.get("^")
        # names have their indices already
        if base.tag == "mo" and base.text in _LARGE.values():
            return [*others, _with_limits(base, below, above)]
        if base.get("class") == "function":
            return [*others, base if above is None else _element("msup", None, base, above)]
        symbol = self.wrap(base if below is None else _element("msub", None, base, below))
        if above is None:
            return [*others, symbol]
        if symbol.tag == "msub":
            return [*others, self.wrap(_element("msubsup", None, base, below, above))]
        return [*others, _element("msup", None, symbol, above)]

    def script(self, sign: str) -> Element:
        """A subscript or superscript; T as the latter is for a transpose, and no symbol."""
        if sign == "^" and "".join(self.tokens[self.next : self.next + 3]) == "{T}":
            self.next += 3
            return _element("mi", "T")
        return self.argument()

    def argument(self) -> Element:
        """What a command or a script applies to: a group, or one element."""
        token = self.peek()
        if token == "{":
            return _grouped(self.group())
        if token is not None and token.isdigit():
            # one digit, where there are no braces
            self.tokens[self.next] = token[1:]
            self.next += token[1:] == ""
            return _element("mn", token[0])
        return _grouped(self.atom())

    def group(self) -> list[Element]:
        self.take("{")
        row = self.row(())
        self.take("}")
        return row

    def words(self) -> str:
        """The text of a group, as it is written."""
        self.take("{")
        start = self.next
        while self.next < len(self.tokens) and self.tokens[self.next] != "}":
            self.next += 1
        text = "".join(self.tokens[start : self.next])
        self.take("}")
        return text

    def atom(self) -> list[Element]:
        if self.peek() == "{":
            return [_element("mrow", None, *self.group())]
        token = self.take()
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0].isdigit():
            return [_element("mn", token)]
        if token.isalpha():
            return [_element("mi", token)]
        if token in "&_^":
            raise self.mistake(f"{token} stands alone")
        fence = {"stretchy": "false"} if token in "()[]|" else {}
        return [_element("mo", {"-": "−", "*": "∗"}.get(token, token), **fence)]

    def command(self, name: str) -> list[Element]:
        if name in _LETTERS:
            return [_element("mi", _LETTERS[name])]
        if name in _LARGE:
            return [_element("mo", _LARGE[name])]
        if name in _OPERATORS:
            fence = {"stretchy": "false"} if name in ("langle", "rangle", "{", "}", "mid") else {}
            return [_element("mo", _OPERATORS[name], **fence)]
        if name in _SPACES:
            return [_element("mspace", None, width=_SPACES[name])]
        if name in _FUNCTIONS or name == "operatorname":
            return self.function(self.words() if name == "operatorname" else name)
        if name in _ACCENTS:
            return [_element("mover", None, self.argument(), _element("mo", _ACCENTS[name]), accent="true")]
        if name in _VARIANTS:
            return [self.variant(_VARIANTS[name])]
        rule = getattr(self, f"_{name}", None)
        if rule is None:
            raise NotImplementedError(f"there is no MathML of the LaTeX command \\{name}, which is in {self.latex}")
        return rule()

    def function(self, name: str) -> list[Element]:
        """A name in upright letters, with its index, and a thin space before what it is of."""
        named = _element("mi", name, **{"class": "function"})
        if len(name) == 1:
            named.set("mathvariant", "normal")
        if self.peek() == "_":
            self.take()
            named = _element("msub", None, named, self.argument())
        if self.peek() in ("^", "_", None) or self.peek() in (r"\left", "}", ")", "]"):
            return [named]
        return [named, _element("mspace", None, width=_SPACES[","])]

    def variant(self, variant: str) -> Element:
        text = self.words() if self.peek() == "{" else self.take()
        return _element("mi" if text.isalpha() else "mn", "".join(_in_variant(each, variant) for each in text))

    def _frac(self) -> list[Element]:
        return [_element("mfrac", None, self.argument(), self.argument())]

    def _binom(self) -> list[Element]:
        fraction = _element("mfrac", None, self.argument(), self.argument(), linethickness="0")
        return [_element("mo", "("), fraction, _element("mo", ")")]

    def _sqrt(self) -> list[Element]:
        if self.peek() != "[":
            return [_element("msqrt", None, self.argument())]
        self.take("[")
        degree = _grouped(self.row("]"))
        self.take("]")
        return [_element("mroot", None, self.argument(), degree)]

    def _text(self) -> list[Element]:
        return [_element("mtext", self.words().replace(" ", "\N{NO-BREAK SPACE}"))]

    def _underset(self) -> list[Element]:
        below = self.argument()
        return [_element("munder", None, self.argument(), below)]

    def _left(self) -> list[Element]:
        opened = self.delimiter()
        row = self.row(())
        self.take(r"\right")
        return [_element("mrow", None, opened, *row, self.delimiter())]

    def delimiter(self) -> Element:
        token = self.take()
        name = token.removeprefix("\\")
        text = "" if token == "." else _OPERATORS.get(name, name)
        return _element("mo", text, fence="true", stretchy="true")

    def _begin(self) -> list[Element]:
        kind = self.words()
        if kind not in ("cases", "matrix"):
            raise NotImplementedError(f"there is no MathML of the LaTeX environment {kind}, which is in {self.latex}")
        table = _element("mtable", None)
        line: list[Element] = []
        while self.peek() is not None:
            line.append(_element("mtd", None, *self.row(("&", r"\\"))))
            separator = self.take()
            if separator != "&":
                table.append(_element("mtr", None, *line))
                line = []
            if separator == r"\end":
                self.words()
                return [_element("mo", "{", fence="true"), table] if kind == "cases" else [table]
        raise self.mistake(f"its {kind} does not end")


def _element(tag: str, text: str | None, *children: Element | None, **attributes: str) -> Element:
    made = Element(tag, attributes)
    made.text = text
    made.extend(child for child in children if child is not None)
    return made


def _is_function(element: Element) -> bool:
    """Whether an element is a name in upright letters, with or without an index."""
    named = element[0] if element.tag in ("msub", "msup", "munder") else element
    return named.get("class") == "function"


def _grouped(row: list[Element]) -> Element:
    return row[0] if len(row) == 1 else _element("mrow", None, *row)


def _with_limits(base: Element, below: Element | None, above: Element | None) -> Element:
    tag = {(True, True): "munderover", (True, False): "munder", (False, True): "mover"}.get(
        (below is not None, above is not None)
    )
    return base if tag is None else _element(tag, None, base, below, above)


def _in_variant(character: str, variant: str) -> str:
    """A character in bold or script letters, which have places of their own in Unicode."""
    if character.isdigit():
        return unicodedata.lookup(f"MATHEMATICAL {variant} DIGIT {_DIGITS[int(character)]}")
    name = f"{variant} {'CAPITAL' if character.isupper() else 'SMALL'} {character.upper()}"
    for place in (f"MATHEMATICAL {name}", name):
        try:
            return unicodedata.lookup(place)
        except KeyError:
            continue
    return character
