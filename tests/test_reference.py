"""The API reference lists every public name of the package once."""

import importlib
import inspect
import pkgutil
import re
from collections import Counter
from pathlib import Path

import theorykit

PAGES = Path(__file__).parents[1] / "docs" / "site" / "api"
BLOCK = re.compile(r"^```\{api\} (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def listed() -> Counter:
    """Count the names of the reference, which may have descriptions after a colon."""
    blocks = [block for page in PAGES.glob("*.md") for block in BLOCK.findall(page.read_text())]
    return Counter(f"{module}.{line.partition(':')[0]}" for module, lines in blocks for line in lines.splitlines())


def public(name: str) -> set[str]:
    """Return the names in `__all__` of a module, and those of modules in it, or else what the module defines."""
    module, found = importlib.import_module(name), set()
    exported = getattr(module, "__all__", None)
    if exported is None:
        defined = inspect.getmembers(module, lambda each: getattr(each, "__module__", None) == name)
        exported = [each for each, value in defined if inspect.isroutine(value) or inspect.isclass(value)]
    for each in exported:
        value = getattr(module, each)
        if inspect.ismodule(value):
            found |= public(value.__name__)
        elif not each.startswith("_"):
            found.add(f"{name}.{each}")
    return found


def test_the_reference_lists_every_public_name_once():
    packages = [each.name for each in pkgutil.walk_packages(theorykit.__path__, "theorykit.") if each.ispkg]
    faces = [each for each in ["theorykit", *packages] if hasattr(importlib.import_module(each), "__all__")]
    names, expected = listed(), set().union(*map(public, faces))
    assert [name for name, times in names.items() if times > 1] == []
    assert expected <= set(names)
    # Types of results are listed where they are defined.
    assert all(inspect.isclass(pkgutil.resolve_name(name)) for name in set(names) - expected)
    assert len(expected) > 100
