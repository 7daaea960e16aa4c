"""Convert LaTeX formulas to MathML with latex2mathml. Three kinds of symbols are corrected for browsers."""

import html
import re
from xml.etree import ElementTree

# Mark of a function name that is passed as text.
_FUNCTION = "\N{FUNCTION APPLICATION}"
# Beginning of a range of private characters in Unicode.
_HIDDEN = 0xE000
# First characters of the bold alphabets of Unicode. Browsers do not support bold letters in MathML otherwise.
_BOLD = {"A": "𝐀", "a": "𝐚", "0": "𝟎"}


def mathml(latex: str) -> str:
    """Return the formula as the content of a `math` element.

    Raises:
        NotImplementedError: If the formula contains an unknown command.
        ValueError: If the formula is incomplete.
    """
    from latex2mathml.converter import convert

    # latex2mathml reads names of functions as formulas. It shows text as it is, but for special characters.
    named = re.sub(r"\\(text|operatorname)\{((?:\\.|\{\}|[^{}\\])*)\}", _as_plain_text, latex)
    try:
        # Remove the namespace, because HTML has none.
        whole = ElementTree.fromstring(convert(named).replace(" xmlns=", " data-namespace="))
    except Exception as error:  # latex2mathml raises many kinds of errors
        raise ValueError(f"the formula {latex} cannot be read: {type(error).__name__}") from error
    for element in whole.iter():
        text = html.unescape(element.text or "")
        if element.tag == "mtext":
            element.text = re.sub("[\ue000-\ue07f]", lambda found: chr(ord(found[0]) - _HIDDEN), text)
            if element.text.startswith(_FUNCTION):
                element.text = element.text.removeprefix(_FUNCTION)
                _make_function(element)
        elif element.tag in ("mi", "mo") and len(text) > 1 and text.isalpha() and text.isascii():
            _make_function(element)
        elif text.startswith("\\") and len(text) > 1:
            raise NotImplementedError(f"the LaTeX command {text} in {latex} cannot be converted to MathML")
        elif (element.tag, text) == ("mi", "~"):
            element.tag, element.text = "mo", "∼"
        elif element.attrib.pop("mathvariant", "") == "bold":
            element.text = "".join(map(_bold, text))
    return "".join(ElementTree.tostring(child, encoding="unicode") for child in whole)


def _make_function(element: ElementTree.Element) -> None:
    """Make a name an operator, which has space around it."""
    element.tag = "mo"
    element.attrib.update(lspace="0.17em", rspace="0.17em")


def _as_plain_text(found: re.Match[str]) -> str:
    """Replace special characters, escaped by `notation.escaped`, by private ones that mean nothing to LaTeX."""
    names = {"textbackslash": "\\", "textasciicircum": "^", "textasciitilde": "~"}
    hide = lambda each: chr(_HIDDEN + ord(names.get(each[1]) or each[2] or each[3]))  # noqa: E731
    text = re.sub(r"\\(text[a-z]+)\{\}|\\([{}$%&#_])|([<>&])", hide, found[2])
    return rf"\text{{{_FUNCTION if found[1] == 'operatorname' else ''}{text}}}"


def _bold(character: str) -> str:
    if not (character.isascii() and character.isalnum()):
        return character
    first = "0" if character.isdigit() else "A" if character.isupper() else "a"
    return chr(ord(_BOLD[first]) + ord(character) - ord(first))
