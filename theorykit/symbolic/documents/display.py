"""Display of objects: one list of blocks per object, as text in a terminal and as Markdown in a notebook."""

import abc
from collections.abc import Iterable

from ...checks import refuse_traced
from .document import Block, as_markdown, as_terminal_text

# Maximum number of lines of a repr. Longer output belongs in a summary.
_LINES = 15
# A repr must never fail. Views raise these errors for traced and deleted arrays, and for placeholders.
_UNUSUAL = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class View:
    """Document that displays itself at a prompt, with `print`, or in a notebook."""

    def __init__(self, blocks: Iterable[Block]):
        self.blocks = tuple(blocks)

    def __repr__(self) -> str:
        return as_terminal_text(self.blocks)

    def _repr_markdown_(self) -> str:
        return as_markdown(self.blocks, fold=True)


class DisplayMixin:
    """Base of classes that display themselves, through the document that `_view` returns.

    Decorate dataclasses with `dataclass(repr=False)`, so that they do not replace `__repr__`.
    """

    @abc.abstractmethod
    def _view(self) -> Iterable[Block]:
        """Return the document, with the most important blocks first."""

    def summary(self) -> View:
        """Return all information as a table. The table displays itself."""
        refuse_traced("summary", self, reason="shows values", anywhere=False)
        return View(self._view())

    def __repr__(self) -> str:
        try:
            lines = repr(self.summary()).splitlines()
        except _UNUSUAL:
            return super().__repr__()
        if len(lines) > _LINES:
            lines[_LINES - 1 :] = [f"... {len(lines) - _LINES + 1} more lines: summary()"]
        return "\n".join(lines)

    def _repr_markdown_(self) -> str | None:
        try:
            return self.summary()._repr_markdown_()
        except _UNUSUAL:
            # Let the notebook use the repr.
            return None
