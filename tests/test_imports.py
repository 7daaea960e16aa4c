"""Data flows one way: a room imports rooms below it, and the two theories never each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "theorykit"
FLOORS = {
    "annotations": 0,
    "arguments": 0,
    "atomic_files": 0,
    "precision": 0,
    "workers": 0,
    "symbolic": 0,
    "codegen": 1,
    "derivation": 2,
    "dynamics": 2,
    "bpkr": 3,
    "dmft": 3,
    "tasks": 4,
    "store": 5,
    "plots": 5,
    "sweeps": 6,
    "training": 6,
    "diagrams": 6,
    "sampling": 7,
    "reproduce": 8,
    "cli": 9,
    "__main__": 10,
}
APART = {frozenset({"bpkr", "dmft"}), frozenset({"store", "plots"})}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[str]:
    """Rooms of the package that the module at `path` imports, by absolute or relative import."""
    package = ["theorykit", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = [*base, *(node.module or "").split(".")] if node.module else base
            names = [[*stem, alias.name] for alias in node.names]
        else:
            continue
        yield from (name[1] for name in names if name[0] == "theorykit" and len(name) > 1 and name[1] in FLOORS)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_rooms_below_it(path):
    if path == PACKAGE / "__init__.py":
        return
    here = room(path)
    for there in imported_rooms(path):
        assert there == here or FLOORS[there] <= FLOORS[here], f"{here} imports {there}"
        assert frozenset({here, there}) not in APART, f"{here} and {there} are to know nothing of each other"


def test_every_room_has_a_floor():
    rooms = {room(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert rooms <= set(FLOORS)


def test_relative_imports_are_seen():
    assert "bpkr" in set(imported_rooms(PACKAGE / "reproduce" / "hidden_markov.py"))
    assert "codegen" in set(imported_rooms(PACKAGE / "bpkr" / "action.py"))
