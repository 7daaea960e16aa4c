"""What a release says of itself, in every place the same."""

import re
from pathlib import Path

import theorykit

ROOT = Path(__file__).parents[1]


def test_the_citation_is_of_this_version():
    (version,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version == theorykit.__version__


def test_the_newest_entry_of_the_changelog_is_of_this_version():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == theorykit.__version__


def test_the_licence_is_the_one_that_is_named():
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    assert "Apache License" in (ROOT / "LICENSE").read_text() and "END OF TERMS" in (ROOT / "LICENSE").read_text()
