"""Parts that have been rebuilt stay below their ceilings of lines, characters per line and public names.

python -m tests.test_ceilings    prints every part with its ceilings
"""

import importlib
import pkgutil
import tomllib
from pathlib import Path

import pytest

import theorykit

ROOT = Path(__file__).parents[1]
TABLE = tomllib.loads((ROOT / "tests" / "ceilings.toml").read_text())
# Mean characters per line of the package. A part that became shorter by longer lines is not smaller.
CHARACTERS = 46


def public_names() -> int:
    """Count the entries of every `__all__` in the package."""
    found = pkgutil.walk_packages(theorykit.__path__, "theorykit.")
    names = ["theorykit", *(module.name for module in found if module.name != "theorykit.__main__")]
    return sum(len(getattr(importlib.import_module(name), "__all__", ())) for name in names)


def row(part: str) -> tuple[str, list[str]]:
    """Return a line about a part, and what is above its ceilings."""
    entry = TABLE[part]
    if "names" in entry:
        count, most = public_names(), entry["names"]
        return f"{part}: {count} of {most}", [f"{count} names, ceiling {most}"] if count > most else []
    patterns = [place if place.endswith(".py") else f"{place}/**/*.py" for place in entry["python"]]
    texts = [path.read_text() for pattern in patterns for path in ROOT.glob(pattern)]
    lines, most = sum(len(text.splitlines()) for text in texts), entry["lines"]
    mean = sum(map(len, texts)) / max(lines, 1)
    above = [f"{lines} lines, ceiling {most}"] if lines > most else []
    if mean > CHARACTERS and patterns[0].startswith("theorykit"):
        above.append(f"{mean:.1f} characters per line, ceiling {CHARACTERS}")
    return f"{part}: {lines} of {most} lines, {mean:.1f} characters per line", above


@pytest.mark.parametrize("part", TABLE)
def test_a_rebuilt_part_is_below_its_ceilings(part):
    _, above = row(part)
    assert not (TABLE[part]["rebuilt"] and above), above


if __name__ == "__main__":
    for part, entry in TABLE.items():
        line, above = row(part)
        print(line, "(rebuilt)" if entry["rebuilt"] else "(not rebuilt)", "ABOVE" if above else "")
