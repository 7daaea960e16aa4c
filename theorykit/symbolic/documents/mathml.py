"""Convert LaTeX formulas to MathML with latex2mathml. Three kinds of symbols are corrected for browsers."""

import html
import re
from xml.etree import ElementTree

from ..notation import unescaped


def mathml(latex: str) -> str:
    """Return the formula as the content of a `math` element.

    Raises:
        NotImplementedError: If the formula contains an unknown command.
        ValueError: If the formula is incomplete.
    """
    from latex2mathml.converter import convert

    words = []

    def numbered(found: re.Match[str]) -> str:
        words.append((found[1], unescaped(found[2])))
        return rf"\text{{@{len(words) - 1}}}"

    # latex2mathml reads special characters in text, and names of functions, as formulas.
    named = re.sub(r"\\(text|operatorname)\{((?:\\.|\{\}|[^{}\\])*)\}", numbered, latex)
    try:
        # Remove the namespace, because HTML has none.
        whole = ElementTree.fromstring(convert(named).replace(" xmlns=", " data-namespace="))
    except Exception as error:  # latex2mathml raises many kinds of errors
        raise ValueError(f"the formula {latex} cannot be read: {type(error).__name__}") from error
    for element in whole.iter():
        text, command = html.unescape(element.text or ""), ""
        if element.tag == "mtext" and text.startswith("@"):
            command, element.text = words[int(text[1:])]
        if command == "operatorname" or (element.tag in ("mi", "mo") and re.fullmatch("[A-Za-z]{2,}", text)):
            # Make the name of a function an operator, which has space around it.
            element.tag = "mo"
            element.attrib.update(lspace="0.17em", rspace="0.17em")
        elif text.startswith("\\") and len(text) > 1:
            raise NotImplementedError(f"the LaTeX command {text} in {latex} cannot be converted to MathML")
        elif (element.tag, text) == ("mi", "~"):
            element.tag, element.text = "mo", "∼"
        elif element.attrib.pop("mathvariant", "") == "bold":
            # Browsers have no bold digits in MathML, but Unicode has.
            element.text = re.sub("[0-9]", lambda digit: chr(ord("𝟎") + int(digit[0])), text)
    return "".join(ElementTree.tostring(child, encoding="unicode") for child in whole)
