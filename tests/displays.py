"""What is wrong with how an object shows itself."""

import re
from html.parser import HTMLParser

from theorykit.symbolic.documents.display import DisplayMixin
from theorykit.symbolic.documents.document import as_latex, as_markdown

_LINES, _CHARACTERS = 15, 1500
# HTML elements without an end tag
_VOID = ("br", "hr", "img", "meta")
# arrays by type and shape, or number by number, and addresses
_DUMP = re.compile(r"\b[fi](32|64)\[| object at 0x|\barray\(")
_NOUNS = (
    "arrays arguments boundaries chains classes columns cycles draws entries examples features heads layers outputs"
)
_NOUNS += " paths points rows seeds solves steps tokens"
MISCOUNTED = re.compile(rf"(?<![\w.,_-])1 ({_NOUNS.replace(' ', '|')})\b")


class _Nesting(HTMLParser):
    """Raises `ValueError` for a tag that does not close the last open one."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        self.close()
        if self.open:
            raise ValueError(f"{self.open[-1]} is not closed")

    def handle_starttag(self, tag, attrs):
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"{tag} closes what is not open")


def display_complaint(value: object) -> str | None:
    """What is wrong with the repr, the view or the HTML of `value`; None if nothing is."""
    text = repr(value)
    if len(text.splitlines()) > _LINES or len(text) > _CHARACTERS:
        return f"{len(text.splitlines())} lines, {len(text)} characters"
    if found := _DUMP.search(text):
        return f"it prints {found[0]}"
    if found := MISCOUNTED.search(text):
        return f"it says {found[0]}"
    if not re.search(r"\w", text):
        return "it says nothing"
    if isinstance(value, DisplayMixin):
        view = value.summary()
        as_latex(view.blocks)
        as_markdown(view.blocks)
        if not text.startswith(repr(view).splitlines()[0]):
            return "its repr is not its view"
    try:
        _Nesting(value._repr_html_() if hasattr(value, "_repr_html_") else "")
    except ValueError as error:
        return f"its HTML is not well-formed: {error}"
    return None
