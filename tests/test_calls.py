"""Calls of the package in benchmarks, examples, derivations and pages are calls that its functions take."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "derivations", "docs", "examples", "release")
CODE = re.compile(r"^```(?:python|\{code-cell\}.*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SESSION = re.compile(r"^\s*(?:>>>|\.\.\.) ?(.*)$", re.MULTILINE)


def programs(path: Path) -> Iterator[str]:
    """The code of a file: of a page its blocks and sessions, of a script itself and the programs in its strings."""
    text = path.read_text()
    if path.suffix == ".md":
        yield from CODE.findall(text)
        yield "\n".join(SESSION.findall(text))
        return
    yield text
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import theorykit" in node.value:
            yield textwrap.dedent(node.value)


def imported(tree: ast.AST) -> dict[str, Any]:
    """What names stand for that come from the package."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "theorykit":
                    names[alias.asname or "theorykit"] = importlib.import_module(
                        alias.name if alias.asname else "theorykit"
                    )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "theorykit":
            for alias in node.names:
                try:
                    found = getattr(importlib.import_module(node.module), alias.name)
                except AttributeError:
                    found = importlib.import_module(f"{node.module}.{alias.name}")
                names[alias.asname or alias.name] = found
    return names


def called(node: ast.expr, names: dict[str, Any]) -> Any:
    """The object that an expression of dots names, or None; the error of a name that is gone."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        inside = called(node.value, names)
        return None if inside is None else getattr(inside, node.attr)
    return None


def wrong_calls(program: str) -> list[str]:
    """Calls that the signature of what is called refuses, each with the reason."""
    try:
        tree = ast.parse(program)
    except SyntaxError:
        # a page shows pieces, and output among them
        return []
    names, wrong = imported(tree), []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        try:
            function = called(node.func, names)
            if function is None or not callable(function):
                continue
            signature = inspect.signature(function)
            positional = [None for each in node.args if not isinstance(each, ast.Starred)]
            keywords = {each.arg: None for each in node.keywords if each.arg is not None}
            whole = len(positional) == len(node.args) and len(keywords) == len(node.keywords)
            (signature.bind if whole else signature.bind_partial)(*positional, **keywords)
        except (TypeError, AttributeError) as error:
            wrong.append(f"{ast.unparse(node)}: {error}")
        except ValueError:
            # something of Python's own, which has no signature
            continue
    return wrong


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_call_of_the_package_is_one_that_it_takes(folder):
    paths = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
    wrong = {str(path): found for path in paths for program in programs(path) if (found := wrong_calls(program))}
    assert paths and not wrong


def test_a_call_that_it_does_not_take_is_seen():
    start = "from theorykit import bpkr\n"
    assert not wrong_calls(f"{start}bpkr.solve(1, bpkr.Data(2, 3))")
    (too_many,) = wrong_calls(f"{start}bpkr.solve(1, 2, 3)")
    assert "too many positional arguments" in too_many
    assert len(wrong_calls(f"{start}bpkr.solve(1, nothing=2)")) == len(wrong_calls(f"{start}bpkr.solve_all(1)")) == 1
    assert wrong_calls(f"{start}bpkr.solve(*many)") == []
