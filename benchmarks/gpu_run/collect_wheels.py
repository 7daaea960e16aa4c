"""Download the wheels that theorykit, its tests and its benchmarks need on a machine with JAX and without a network.

    python benchmarks/gpu_run/collect_wheels.py FOLDER [--jax 0.11.2] [--python 3.12] [--there NAME ...] [--limit MIB]

pip resolves the requirements of pyproject.toml for the given version of JAX and the given Python on x86-64 Linux. If a
package does not support that version of JAX, the command ends with pip's message. Wheels are saved in FOLDER, except
for packages that the machine already has: by default JAX and its dependencies. If the wheels are too large to
transfer, name more such packages with `--there`.

Needs a recent pip. Version 26 works; version 23 resolves the requirements for its own Python.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
EXTRAS = ("test", "benchmarks")
THERE = ("jax", "jaxlib", "ml-dtypes", "numpy", "opt-einsum", "scipy")
# The run needs no figures, images or checkpoints, and deepbays depends on PyTorch.
LEFT_OUT = ("deepbays", "matplotlib", "pillow", "scikit-learn")
# pip accepts only the tags that it is given, not older compatible ones.
GLIBC = (*range(39, 23, -1), 17, 12, 5)
OLDER = ("manylinux2014", "manylinux2010", "manylinux1")
MIB = 2**20


def requirements(extras: Sequence[str] = EXTRAS) -> list[str]:
    """Return the requirements of the package and of these extras, without the packages in LEFT_OUT."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    optional = project["optional-dependencies"]
    lines, left = list(project["dependencies"]), list(extras)
    for name in left:
        for line in optional[name]:
            # An extra that includes other extras of this package, which is not on a package index.
            if own := re.fullmatch(rf"{project['name']}\[([\w,-]+)\]", line):
                left += [extra for extra in own[1].split(",") if extra not in left]
            else:
                lines.append(line)
    return [line for line in lines if re.match(r"[\w-]+", line)[0] not in LEFT_OUT]


def of_target(python: str) -> list[str]:
    """Return the options with which pip takes only wheels, for that Python on x86-64 Linux."""
    platforms = [f"manylinux_2_{minor}" for minor in GLIBC] + list(OLDER)
    tags = [option for platform in platforms for option in ("--platform", f"{platform}_x86_64")]
    return ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *tags]


def resolve(python: str, jax: str) -> dict[str, str]:
    """Return the version of every required package by its normalised name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--target", folder, "--report", str(report)]
        pip("install", *options, *of_target(python), *requirements(), f"jax=={jax}")
        found = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    return {normalised(package["name"]): package["version"] for package in found}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pip(command: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", command, "--quiet", *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jax", default="0.11.2")
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--there", nargs="*", default=[], help="packages that the machine has besides JAX's own")
    parser.add_argument("--limit", type=float, default=64.0, help="largest total size of the wheels in MiB")
    arguments = parser.parse_args()
    if arguments.folder.exists() and any(arguments.folder.iterdir()):
        sys.exit(f"{arguments.folder} is not empty")
    there = {normalised(name) for name in (*THERE, *arguments.there)}
    needed = {name: version for name, version in resolve(arguments.python, arguments.jax).items() if name not in there}
    named = [f"{name}=={version}" for name, version in needed.items()]
    pip("download", "--no-deps", "--dest", str(arguments.folder), *of_target(arguments.python), *named)
    sizes = {path.name: path.stat().st_size / MIB for path in arguments.folder.glob("*.whl")}
    for name, size in sorted(sizes.items(), key=lambda entry: -entry[1])[:12]:
        print(f"{size:6.1f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{total:6.1f} MiB  {len(sizes)} wheels in {arguments.folder}")
    if total > arguments.limit:
        sys.exit(f"more than {arguments.limit:g} MiB: use --there NAME ... for packages that the machine has")


if __name__ == "__main__":
    main()
