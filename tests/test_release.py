"""What a release says of itself, in every place the same."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import theorykit
from release import checks
from release.try_package import LOCAL_LINK

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# of the release that this is, or will be
RELEASE = theorykit.__version__.removesuffix(".dev0")


def test_the_citation_is_of_this_version():
    (version,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version == RELEASE


def test_the_newest_entry_of_the_changelog_is_of_this_version():
    newest = re.search(
        r"^## (\S+) \((not released|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert newest is not None and newest[1] == RELEASE
    assert (newest[2] == "not released") == (theorykit.__version__ != RELEASE)


def test_the_licence_is_the_one_that_is_named():
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text() and "END OF TERMS" in (ROOT / "LICENSE").read_text()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="tags are looked at, and this copy of the source has none")
def test_a_version_that_is_tagged_is_that_of_one_commit():
    assert checks.version_of(ROOT) == theorykit.__version__
    assert checks.wrong_tags(ROOT) == []


def test_the_description_for_a_package_index_links_to_no_file_and_has_no_formulas():
    text = readme = (ROOT / "README.md").read_text()
    for each in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert LOCAL_LINK.search(readme) and not LOCAL_LINK.search(text) and "$" not in text
    blocks = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    assert blocks.findall(text) == blocks.findall(readme)
    assert re.findall("^#.*", text, re.MULTILINE) == re.findall("^#.*", readme, re.MULTILINE)


@pytest.fixture
def released(tmp_path):
    """A repository whose one commit is tagged as version 0.1.0, and a function that runs git there."""

    def git(*arguments):
        who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@localhost", "-c", "tag.gpgSign=false")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "theorykit").mkdir()
    write_version(tmp_path, "0.1.0")
    git("init")
    git("add", ".")
    git("commit", "--no-gpg-sign", "-m", "0.1.0")
    git("tag", "v0.1.0")
    return tmp_path, git


def write_version(root: Path, version: str) -> None:
    (root / "theorykit" / "__init__.py").write_text(f'"""A package."""\n\n__version__ = "{version}"\n')
    (root / "CHANGELOG.md").write_text(f"# Changes\n\n## {version} (2030-01-02)\n\n- Something.\n")
    (root / "CITATION.cff").write_text(f"cff-version: 1.2.0\nversion: {version}\nlicense: Apache-2.0\n")


def test_a_commit_may_be_released_whose_files_all_say_so(released):
    root, _ = released
    assert checks.problems(root) == []


def test_what_stands_against_a_release_is_named(released):
    root, git = released
    (root / "CHANGELOG.md").write_text("# Changes\n\n## 0.1.0 (not released)\n")
    (root / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 0.0.9\n")
    changelog, citation, changed = checks.problems(root)
    assert "CHANGELOG.md" in changelog and "CITATION.cff" in citation and "not committed" in changed
    git("commit", "--no-gpg-sign", "-am", "Another commit")
    assert "raise the version" in checks.problems(root)[0]
    write_version(root, "0.2.0.dev0")
    git("commit", "--no-gpg-sign", "-am", "0.2.0 begins")
    git("tag", "v0.2.0")
    wrong_tag, development = checks.problems(root)
    assert (
        "v0.2.0 is of a commit whose version is 0.2.0.dev0" in wrong_tag and "not a version to release" in development
    )
