"""Check that a version can be built and released: python release/checks.py

The version is in theorykit/__init__.py. A copy of the source without git or without tags has it too, and workers that
share a source tree agree on it. A tag makes it a release: v0.1.0 is the only commit whose version is 0.1.0. Between
releases the version is the next one with ".dev0" at its end.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)


def version_of(root: Path) -> str:
    """Read the version from the source."""
    return _version_in((root / "theorykit" / "__init__.py").read_text())


def problems(root: Path) -> list[str]:
    """Return the reasons, in words, not to release the commit that is checked out; an empty list if there are none."""
    version, found = version_of(root), wrong_tags(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        found.append(f"theorykit/__init__.py says {version}, which is not a version to release")
    newest = re.search(r"^## (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if newest is None or not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", newest[1]):
        found.append(f"the newest heading of CHANGELOG.md is not '## {version} (YEAR-MONTH-DAY)'")
    if f"\nversion: {version}\n" not in (root / "CITATION.cff").read_text():
        found.append(f"CITATION.cff does not have version {version}")
    if changed := _git(root, "status", "--porcelain"):
        found.append(f"not committed:\n{changed}")
    return found


def wrong_tags(root: Path) -> list[str]:
    """Return messages about tags on commits of another version, and about a tag of this version on another commit."""
    found, version = [], version_of(root)
    for tag in _git(root, "tag", "--list", "v[0-9]*").splitlines():
        tagged = _version_in(_git(root, "show", f"{tag}:theorykit/__init__.py"))
        if tag != f"v{tagged}":
            found.append(f"tag {tag} is of a commit whose version is {tagged}")
        if tag == f"v{version}" and _git(root, "rev-parse", f"{tag}^{{commit}}") != _git(root, "rev-parse", "HEAD"):
            found.append(f"{version} is released from another commit: raise the version in theorykit/__init__.py")
    return found


def _version_in(text: str) -> str:
    (version,) = VERSION.findall(text)
    return version


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    if found := problems(ROOT):
        sys.exit("\n".join(["Not ready for a release:", *found]))
    print(f"{version_of(ROOT)} is ready for a release")
