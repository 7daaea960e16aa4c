"""The API reference lists every public name of the package once."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "theorykit"
BLOCK = re.compile(r"^```\{api\} (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def lines_of_the_reference() -> list[str]:
    """Names from the package's on, a description after a colon where there is one."""
    pages = sorted((ROOT / "docs" / "site" / "api").glob("*.md"))
    blocks = [block for page in pages for block in BLOCK.findall(page.read_text())]
    return [f"{module}.{line}" for module, lines in blocks for line in lines.splitlines()]


def listed() -> Counter:
    return Counter(line.partition(":")[0] for line in lines_of_the_reference())


def public(path: Path, name: str) -> set[str]:
    """The names of a module, or of a package's face; those of modules that a face lists."""
    if path.is_dir():
        faces = [path / file for file in ("__init__.pyi", "__init__.py") if (path / file).exists()]
        exported = next((names for face in faces if (names := exports(face)) is not None), None)
        if exported is None:
            exported = [each.stem for each in path.iterdir() if not each.name.startswith("_")]
    else:
        exported = exports(path)
        if exported is None:
            return {f"{name}.{each}" for each in defined(path)}
    found = set()
    for each in exported:
        inner = [place for place in (path / each, path / f"{each}.py") if path.is_dir() and place.exists()]
        found |= public(inner[0], f"{name}.{each}") if inner and each not in imported(path) else {f"{name}.{each}"}
    return found


def exports(path: Path) -> list[str] | None:
    """What `__all__` lists; None where there is none that is written out."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return None


def imported(package: Path) -> set[str]:
    """What a face imports from its modules: these names are not those of modules, though there may be one."""
    faces = [package / file for file in ("__init__.pyi", "__init__.py") if (package / file).exists()]
    nodes = [node for face in faces for node in ast.parse(face.read_text()).body if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes if node.module for alias in node.names}


def defined(path: Path) -> list[str]:
    nodes = ast.parse(path.read_text()).body
    return [
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]


def faces() -> dict[str, Path]:
    """Packages with `__all__`."""
    with_face = [path.parent for path in sorted(PACKAGE.rglob("__init__.py")) if "__all__" in path.read_text()]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in with_face}


def test_the_reference_lists_every_public_name_once():
    names = listed()
    assert [name for name, times in names.items() if times > 1] == []
    expected = set().union(*(public(path, name) for name, path in faces().items()))
    assert len(expected) > 100
    assert set(names) == expected
