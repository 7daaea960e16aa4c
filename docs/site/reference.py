"""The pages of the API reference: names by task, in `docs/site/api`, with what autodoc is to say of each.

A block

    ```{api} theorykit.dynamics
    find_cycle
    FOLD: the name of a bifurcation
    ```

lists names of a module; constants and names of types, which have no docstring, are described after a colon.
"""

import inspect
import pkgutil
import re
from pathlib import Path

_BLOCK = re.compile(r"^```\{api\} (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def write_reference(folder: Path) -> None:
    """Expand the blocks of the pages in `folder`."""
    for page in folder.glob("*.md"):
        page.write_text(_BLOCK.sub(_expanded, page.read_text()))


def listed(text: str) -> list[str]:
    """The names that a page lists, from the package's on."""
    return [f"{module}.{name}" for module, lines in _BLOCK.findall(text) for name, _ in _entries(lines)]


def _entries(lines: str) -> list[tuple[str, str]]:
    return [(name.strip(), said.strip()) for name, _, said in (line.partition(":") for line in lines.splitlines())]


def _expanded(block: re.Match) -> str:
    directives = (_directive(f"{block[1]}.{name}", said) for name, said in _entries(block[2]))
    return "```{eval-rst}\n" + "\n".join(directives) + "\n```"


def _directive(name: str, said: str) -> str:
    value = pkgutil.resolve_name(name)
    if said:
        return f".. py:data:: {name}\n{_value(value)}\n   {said}\n"
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        return f".. {kind}:: {name}\n   :members:\n"
    return f".. autofunction:: {name}\n"


def _value(value: object) -> str:
    """What is shown of a constant: all of a short text, number or tuple of these."""
    return f"   :value: {value!r}\n" if isinstance(value, str | float | tuple) and len(repr(value)) < 90 else ""
