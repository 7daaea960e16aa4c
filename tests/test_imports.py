"""A package imports only packages below it, and no modules import each other in a circle."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from theorykit._compat import needed

ROOT = Path(__file__).parent.parent
# Parts of each package, lowest first, on one height if separated by a space; "" is its own `__init__`.
ORDERS = {
    "theorykit": "_compat/checks/_jit/runs//symbolic/codegen curve/derivation dynamics/saddle/bpkr dmft/"
    "theories/plots/testing/cli/__main__",
    "theorykit.bpkr": "specification/features/data action/order_parameters/network evaluation/saddle/model//"
    "sweeps/sampling",
    "theorykit.dmft": "derivation/weights/map/network/",
}
# Methods that import packages above their class when they are called.
UPWARD = {"plot", "sweep"}
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "theorykit").rglob("*.py"))
}


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements of a module except methods that may import upward."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        may_import_upward = isinstance(tree, ast.ClassDef) and getattr(node, "name", "") in UPWARD
        if not (isinstance(node, ast.expr) or may_import_upward):
            yield from nodes(node)


def imported(name: str) -> set[str]:
    """Return the modules of the package that a module imports; a stub lists what a package imports on first use."""
    path, found = FILES[name], set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    stubs = [path.with_suffix(".pyi")] if name != "theorykit" else []
    for node in (node for each in (path, *stubs) if each.exists() for node in nodes(ast.parse(each.read_text()))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*above, *([node.module] if node.module else [])])
            inner = [f"{stem}.{alias.name}" for alias in node.names]
            found |= {module if module in FILES else stem for module in inner}
    return found & set(FILES) - {name}


@cache
def imports() -> dict[str, set[str]]:
    """Return the imports of every module."""
    return {name: imported(name) for name in FILES}


@pytest.mark.parametrize("package", ORDERS)
def test_a_part_imports_only_parts_below_it(package):
    heights = {part: height for height, parts in enumerate(ORDERS[package].split("/")) for part in parts.split(" ")}
    parts = {name: name[len(package) + 1 :].split(".")[0] for name in FILES if f"{name}.".startswith(f"{package}.")}
    assert set(parts.values()) == set(heights)
    for name, part in parts.items():
        for other in imports()[name] & set(parts):
            assert parts[other] == part or heights[parts[other]] < heights[part], f"{name} imports {other}"


def test_no_modules_import_each_other_in_a_circle():
    left = dict(imports())
    assert sum(map(len, left.values())) > len(left)
    while ready := [name for name, needed in left.items() if not needed & set(left)]:
        for name in ready:
            del left[name]
    assert not left, {name: sorted(needed & set(left)) for name, needed in left.items()}


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(ImportError, match=r"sampling needs numpyro: .*\[sampling\]"):
        needed("numpyro", "sampling")
