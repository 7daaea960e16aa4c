"""No part of the repository grows past its budget, `tests/budget.toml`: lines and characters of its files.

python -m tests.test_budget    writes the table of what is there

The table falls with the code, and is raised only in a commit that says why.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = "tests/budget.toml"
# how far an entry may be above what is there, so that small changes need no new table
SLACK = 0.05
Sizes = Mapping[str, Mapping[str, int]]


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """The files that count, each with the part that it is of."""
    for path in sorted((root / "theorykit").rglob("*.py*")):
        if path.suffix in (".py", ".pyi"):
            room, *inner = path.relative_to(root / "theorykit").parts
            yield (f"theorykit/{room}" if inner else "theorykit/*.py"), path
    for part in ("tests", "examples/papers", "docs", "benchmarks"):
        endings = (".py", ".md") if part == "docs" else (".py",)
        yield from ((part, path) for path in sorted((root / part).rglob("*")) if path.suffix in endings)
    yield "tests", root / "conftest.py"


def sizes(root: Path) -> Sizes:
    """Lines and characters of every part."""
    found: dict[str, dict[str, int]] = {}
    for part, path in files(root):
        text = path.read_text()
        so_far = found.setdefault(part, {"lines": 0, "characters": 0})
        so_far["lines"] += len(text.splitlines())
        so_far["characters"] += len(text)
    return found


def complaints(root: Path) -> list[str]:
    """What is above its budget, and which entries are too far above what is there."""
    found, budget = sizes(root), tomllib.loads((root / TABLE).read_text())
    said = [f"{part} has no budget in {TABLE}" for part in found if part not in budget]
    said += [f"{TABLE} has {part}, which is no more" for part in budget if part not in found]
    for part in found.keys() & budget.keys():
        for unit, there in found[part].items():
            most = budget[part][unit]
            if there > most:
                said.append(
                    f"{part} has {there} {unit}, and its budget is {most}: make it smaller, or raise the table in a "
                    "commit that says why"
                )
            elif most > (1 + SLACK) * there:
                said.append(f"{part} has {there} {unit}, and its budget is {most}: python -m tests.test_budget")
    return sorted(said)


def write(root: Path) -> None:
    """Write the table of what is there."""
    entries = [
        f'"{part}" = {{ lines = {size["lines"]}, characters = {size["characters"]} }}'
        for part, size in sorted(sizes(root).items())
    ]
    (root / TABLE).write_text("\n".join(["# python -m tests.test_budget; see tests/test_budget.py", *entries]) + "\n")


def test_every_part_is_within_its_budget():
    said = complaints(ROOT)
    assert not said, "\n".join(said)


@pytest.fixture
def tree(tmp_path):
    """A small repository within its budget."""
    for name, lines in {"theorykit/a/b.py": 100, "theorykit/c.py": 50, "docs/d.md": 20, "conftest.py": 1}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n" * lines)
    (tmp_path / "tests").mkdir()
    write(tmp_path)
    assert set(sizes(tmp_path)) == {"theorykit/a", "theorykit/*.py", "docs", "tests"}
    assert complaints(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("theorykit/a/b.py", "x = 1\n" * 99 + "x = 12\n", ["theorykit/a has 601 characters"]),
        ("theorykit/a/b.py", "x = 1\n" * 95, ["theorykit/a has 570 characters", "theorykit/a has 95 lines"]),
        ("theorykit/a/b.py", "x = 1\n" * 96, []),
        ("theorykit/e/f.py", "", ["theorykit/e has no budget"]),
        ("docs/g.md", "x", ["docs has 121 characters", "docs has 21 lines"]),
    ],
)
def test_a_tree_over_its_budget_or_far_below_it_is_told_of(tree, name, text, said):
    """A control: sizes are seen, and in both directions."""
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text(text)
    found = complaints(tree)
    assert len(found) == len(said) and all(
        each.startswith(start) for each, start in zip(found, sorted(said), strict=True)
    )
    write(tree)
    assert complaints(tree) == []


if __name__ == "__main__":
    write(ROOT)
