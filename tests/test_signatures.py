"""Signatures, as `help` and `?` show them, name the types that the source names."""

import inspect
import json
import pkgutil
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator

from .test_reference import lines_of_the_reference

# characters of a signature
_MOST = 460


def public_callables() -> Iterator[tuple[str, Callable]]:
    """Functions, classes, and methods of classes, that the reference describes."""
    for name in (line for line in lines_of_the_reference() if ":" not in line):
        value = pkgutil.resolve_name(name)
        if not inspect.isclass(value):
            yield name, value
        elif not issubclass(value, BaseException):
            yield name, value
            methods = [each for each in vars(value) if not each.startswith("_") and callable(getattr(value, each))]
            yield from ((f"{name}.{each}", getattr(value, each)) for each in methods)


def test_signatures_show_aliases_and_fit_on_a_screen():
    # tests hold functions to their annotations by wrapping them, so that theirs are seen in another process
    module = [sys.executable, "-W", "ignore", "-m", "tests.test_signatures"]
    shown = json.loads(subprocess.run(module, capture_output=True, text=True, check=True).stdout)
    assert len(shown) > 350
    assert {name: text for name, text in shown.items() if len(text) > _MOST} == {}
    expanded = ("Union[", "jaxlib", "Annotated[")
    assert {name: text for name, text in shown.items() if any(each in text for each in expanded)} == {}
    assert "test_features: 'ArrayLike" in shown["theorykit.bpkr.predict"]


def test_annotations_that_are_strings_can_be_resolved():
    """By whoever checks arguments, in the module that they are written in."""
    for _, value in public_callables():
        hints = typing.get_type_hints(value.__init__ if inspect.isclass(value) else value, include_extras=True)
        assert not any(isinstance(hint, str) for hint in hints.values())


if __name__ == "__main__":
    print(json.dumps({name: str(inspect.signature(value)) for name, value in public_callables()}))
