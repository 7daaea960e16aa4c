"""Convert LaTeX formulas from `rendering` to MathML with latex2mathml, and correct the result for browsers."""

import html
import re
import unicodedata
from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element, tostring

_BREAKS = "=+−∝⇒∼→"
_KEPT = ("accent", "fence", "form", "linethickness", "maxsize", "minsize", "stretchy", "width")
_TEXTS = {"·": "⋅", "*": "∗"}
# Function names are passed as text with this prefix, because latex2mathml accepts only letters in names.
_FUNCTION = "\N{FUNCTION APPLICATION}"
_THIN = "0.167em"
_CHILDREN = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "msubsup": 3, "munder": 2, "mover": 2, "munderover": 3}


def mathml(latex: str, wrap: Callable[[Element], Element] = lambda element: element) -> list[Element]:
    """Return the row of MathML elements for `latex`. `wrap` may replace the element of any symbol.

    Raises:
        NotImplementedError: If the formula contains an unknown command.
        ValueError: If the formula is incomplete.
    """
    from latex2mathml.converter import convert_to_element

    try:
        text = lambda name: rf"\text{{{_FUNCTION}{name[1]}}}".replace(r"\_", "_")  # noqa: E731
        named = re.sub(r"\\operatorname\{([^}]*)\}", text, latex)
        whole = convert_to_element(named, display="block")
    except Exception as error:  # latex2mathml raises many kinds of errors
        raise ValueError(f"the formula {latex} cannot be read: {type(error).__name__}") from error
    for element in whole.iter():
        text = html.unescape(element.text or "")
        if text.startswith("\\") and len(text) > 1:
            raise NotImplementedError(f"the LaTeX command {text} in {latex} cannot be converted to MathML")
        # Check here, because latex2mathml displays unmatched closing brackets and leaves out missing arguments.
        if element.tag == "mi" and text in ("{", "}", "&", "_", "^", "\\"):
            raise ValueError(f"the formula {latex} cannot be read: {text} is unexpected")
        if len(element) < _CHILDREN.get(element.tag, 0):
            raise ValueError(f"the formula {latex} cannot be read: an argument is missing")
    return _row(whole[0], wrap)


def as_text(element: Element) -> str:
    """Return an element as text."""
    return tostring(element, encoding="unicode")


def broken(row: Sequence[Element]) -> list[list[Element]]:
    """Split a row of elements at allowed line breaks: before relations and signs outside brackets."""
    parts: list[list[Element]] = [[]]
    for element in row:
        starts = element.tag == "mo" and element.text is not None and element.text in _BREAKS
        if starts and parts[-1] and parts[-1][-1].tag != "mo" and element.get("form") != "prefix":
            # Declare the sign as infix. At the beginning of a part, browsers would treat it as a prefix.
            element.set("form", "infix")
            parts.append([])
        parts[-1].append(element)
    return parts


def _row(parent: Element, wrap: Callable[[Element], Element]) -> list[Element]:
    """Return the children of an element, with the spaces that TeX puts around function names."""
    row: list[Element] = []
    for child in parent:
        made = _mended(child, wrap)
        before = row[-1] if row else None
        if made.tag == "mo" and made.text == "−" and (before is None or _is_open(before)):
            made.set("form", "prefix")
        elif before is not None and (
            (_is_function(before) and not _is_bracket(made))
            or (_is_function(made) and before.tag not in ("mo", "mspace"))
        ):
            row.append(Element("mspace", {"width": _THIN}))
        row.append(made)
    return row


def _mended(element: Element, wrap: Callable[[Element], Element]) -> Element:
    """Correct an element. latex2mathml writes entities as text and many operators as identifiers."""
    tag, text = element.tag, html.unescape(element.text or "")
    if tag in ("msub", "msup", "msubsup"):
        return _with_scripts(element, wrap)
    if text.startswith(_FUNCTION):
        name = text.removeprefix(_FUNCTION)
        return _element("mi", name, **({"mathvariant": "normal"} if len(name) == 1 else {}))
    if tag in ("mi", "mo", "mn"):
        if tag != "mn" and text not in ("", "mod"):
            is_name = text in "∂∞" or text[0].isalpha()
            # Use another character, because browsers treat this operator as an accent.
            text = "∼" if (tag, text) == ("mi", "~") else _TEXTS.get(text, text)
            tag = "mi" if is_name else "mo"
        variant = element.get("mathvariant", "").upper().replace("-", " ")
        # Use Unicode characters for variants, because browsers do not support the attribute.
        text = "".join(_in_variant(each, variant) for each in text) if variant else text
        kept = {key: value for key, value in element.items() if tag == "mo" and key in _KEPT}
        made = _element(tag, text, **kept)
        return wrap(made) if tag == "mi" and not _is_function(made) else made
    if tag in ("mrow", "mtd", "msqrt", "mstyle"):
        children = _row(element, wrap)
        if tag == "mrow" and len(children) == 1:
            return children[0]
    else:
        children = [_mended(child, wrap) for child in element]
    kept = {key: value.replace("negativethinmathspace", f"-{_THIN}") for key, value in element.items() if key in _KEPT}
    # Declare marks above a symbol as accents. Otherwise browsers place them too high.
    return _element(tag, text or None, *children, **kept | ({"accent": "true"} if tag == "mover" else {}))


def _in_variant(character: str, variant: str) -> str:
    if character.isdigit():
        return chr(ord("𝟎") + int(character))
    size = "CAPITAL" if character.isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"MATHEMATICAL {variant} {size} {character.upper()}")
    except KeyError:
        return character


def _with_scripts(element: Element, wrap: Callable[[Element], Element]) -> Element:
    """Return an element with its scripts. A symbol with a subscript is one symbol."""
    base, *scripts = element
    base = _mended(base, lambda symbol: symbol)
    below = _mended(scripts[0], wrap) if element.tag != "msup" else None
    above = None
    if element.tag != "msub":
        above = _mended(scripts[-1], lambda symbol: symbol)
        # This T denotes a transpose and is not a symbol.
        above = above if above.tag == "mi" and above.text == "T" else _mended(scripts[-1], wrap)
    symbol = base if below is None else _element("msub", None, base, below)
    if not _is_function(base):
        symbol = wrap(symbol)
    if above is None:
        return symbol
    if symbol.tag == "msub":
        return wrap(_element("msubsup", None, *symbol, above))
    return _element("msup", None, symbol, above)


def _element(tag: str, text: str | None, *children: Element, **attributes: str) -> Element:
    made = Element(tag, attributes)
    made.text = text
    made.extend(children)
    return made


def _is_function(element: Element) -> bool:
    """Return whether an element is a name in upright letters, with or without scripts."""
    named = element[0] if element.tag in ("msub", "msup", "msubsup", "munder") else element
    is_long = named.text is not None and len(named.text) > 1 and named.text.isascii()
    return named.tag == "mi" and (is_long or named.get("mathvariant") == "normal")


def _is_open(element: Element) -> bool:
    return element.tag == "mo" and element.text not in (*")]}⟩",) and element.get("form") != "postfix"


def _is_bracket(element: Element) -> bool:
    leaves = [leaf for leaf in element.iter() if leaf.text]
    return not leaves or leaves[0].text in (*"([{⟨|^",) or element.tag == "mo"
