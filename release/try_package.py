"""Test a wheel in fresh environments, one per Python: python -m release.try_package dist PYTHON ...

First checks that the wheel has exactly the files of theorykit that git tracks, and that its description does not link
to files of the repository. Then installs the wheel with the extras of users, and nothing else, in each environment. The
README's session runs there, outside the repository.

Run this in the root of the repository, with a Python that can run the tests.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from email.parser import HeaderParser
from pathlib import Path

from release.checks import ROOT

LOCAL_LINK = re.compile(r"\]\((?!https?:|mailto:|#)[^)]*\)")
# Variables of the calling environment that the tested environment must not see.
OUTSIDE = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "XLA_FLAGS")


def wrong_in(wheel: Path) -> list[str]:
    """Return what is wrong with the files of a wheel and with its description."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(about).decode())
    information = about.removesuffix("METADATA")
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "theorykit"], capture_output=True, text=True, check=True)
    expected = set(listed.stdout.split())
    files = {name for name in names if not name.startswith(information)}
    found = [f"{name} is not in the wheel" for name in sorted(expected - files)]
    found += [f"{name} is in the wheel but not in git" for name in sorted(files - expected)]
    found += [
        f"the wheel has no {name}"
        for name in ("theorykit/py.typed", f"{information}licenses/LICENSE")
        if name not in names
    ]
    description = metadata.get_payload()
    return found + [f"the description links to a file: {link}" for link in LOCAL_LINK.findall(description)]


def try_in(python: str, wheel: Path, folder: Path) -> str:
    """Install the wheel into a fresh environment of `python` in `folder`, run the README there, and report what ran."""
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    run([python, "-m", "venv", environment], folder)
    there = environment / "bin" / "python"
    run([there, "-m", "pip", "install", "--quiet", f"{wheel}[cluster,plots,sampling,testing]"], folder)
    run([there, "-m", "pip", "check"], folder)
    shutil.copy(ROOT / "README.md", work)
    run([there, "-m", "doctest", "README.md"], work)
    version = run([environment / "bin" / "theorykit", "--version"], work)
    place = run([there, "-c", "import theorykit; print(theorykit.__file__)"], work)
    if wheel.name.split("-")[1] != version.split()[-1] or not Path(place).is_relative_to(environment):
        raise RuntimeError(f"{python}: the installed version is {version}, from {place}")
    return f"{run([there, '--version'], work)}: {version}, the README's session"


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command in `folder` without this environment's variables, and return its output; raise if it fails."""
    variables = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
    variables |= {"MPLBACKEND": "Agg", "THEORYKIT_CACHE": "off"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout[-5000:]}{done.stderr[-5000:]}")
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    arguments = parser.parse_args()
    (wheel,) = arguments.folder.resolve().glob("*.whl")
    if wrong := wrong_in(wheel):
        sys.exit("\n".join(wrong))
    for python in arguments.pythons:
        with tempfile.TemporaryDirectory(prefix="theorykit-package-") as folder:
            print(try_in(python, wheel, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
