"""Run all GPU benchmarks and GPU tests in one call that needs no network.

    python benchmarks/gpu_run/run.py OUTPUT [--wheels FOLDER] [--minutes 9.5] [--skip NAME ...]

Use a Python that has JAX with CUDA. The other packages come from the wheels of collect_wheels.py, installed into a
folder that is removed at the end. Without --wheels they must be installed already. The parts are:

- the parts of benchmarks/gpu.py, on the GPU and then on the CPU while there is time;
- on the GPU, the tests against numbers of the published programs and the tests of code that batches on an accelerator;
- benchmarks/self_attention.py: rates of orbits, compared with the published algorithm.

Each part is a process with a separate time limit. A part that fails does not stop the others, and time that it does not
use goes to the parts after it. OUTPUT/results.json is written after each part and has the device, versions, times,
memory, differences, and failures with their text. Logs are next to it.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).parent))
from collect_wheels import requirements

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
# Tests against numbers that the published programs produced.
REFERENCE_TESTS = (
    "bpkr/evaluation/test_reference.py",
    "bpkr/nonlinear/test_reference.py",
    "dmft/test_lyapunov.py",
    "dmft/test_map.py",
    "dmft/test_published_algorithm.py",
    "dmft/test_weights.py",
)
# Code with a separate branch for accelerators: starts and chains run as one batch.
BATCH_TESTS = ("saddle/test_textbook.py", "saddle/test_solvers.py", "bpkr/sampling/test_runs.py")
# One process per two cores, because each test process has compiler threads and a CUDA context.
TEST_PROCESSES = max(2, min(12, (os.cpu_count() or 1) // 2))
# Seconds that a part has to write its results after its time is over.
GRACE = 15.0
LONGEST_TEXT = 4000


@dataclass(frozen=True)
class Part:
    """A command, its weight when the remaining time is divided among the remaining parts, and the file it writes."""

    name: str
    weight: float
    command: list[str]
    written: Path
    read: Callable[[Path], Any]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def read_tests(path: Path) -> Mapping[str, Any]:
    """Return the number of tests by outcome, and the text of the failures."""
    suite = xml.parse(path).getroot().find("testsuite")
    failures = {}
    for case in suite.iter("testcase"):
        for wrong in (*case.findall("failure"), *case.findall("error")):
            failures[f"{case.get('classname')}::{case.get('name')}"] = (wrong.text or "")[-LONGEST_TEXT:]
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    return {**counts, "seconds": float(suite.get("time")), "failed": failures}


def parts(folder: Path, limit: float) -> list[Part]:
    """Return the parts, the most important first."""
    found = []
    for name, weight in {"solves": 6.0, "orbits": 2.0, "diagrams": 1.0, "factorisations": 1.5}.items():
        path = folder / f"{name}.json"
        command = [str(BENCHMARKS / "gpu.py"), "--parts", name, "--json", str(path), "--limit", str(limit)]
        found.append(Part(name, weight, command, path, read_json))
    found.insert(2, tests("tests", 3.0, REFERENCE_TESTS, folder))
    found.insert(3, tests("batch_tests", 1.5, BATCH_TESTS, folder))
    options = ["--only", "gpu", "--seconds", "0.5", "--output", str(folder)]
    path = folder / "self_attention.json"
    return [*found, Part("published", 1.5, [str(BENCHMARKS / "self_attention.py"), *options], path, read_json)]


def tests(name: str, weight: float, files: Sequence[str], folder: Path) -> Part:
    """Return the part that runs the fast tests of these files."""
    path = folder / f"{name}.xml"
    options = ["-m", "not slow", "-n", str(TEST_PROCESSES), "-q", "--tb=short", "--durations=20"]
    options += ["-p", "no:cacheprovider", f"--junitxml={path}"]
    command = ["-m", "pytest", *options, *(str(ROOT / "tests" / file) for file in files)]
    return Part(name, weight, command, path, read_tests)


def run(part: Part, seconds: float, environment: Mapping[str, str], log: Path) -> dict[str, Any]:
    """Run a part; return its exit code, whether its time was over, its results, and the end of its log."""
    start, ended = time.monotonic(), False
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *part.command], stdout=output, stderr=output, env=environment, cwd=ROOT, process_group=0
        )
        # On an interrupt, pytest still reports the tests that have finished.
        for sent, wait in ((signal.SIGINT, seconds), (signal.SIGKILL, GRACE)):
            try:
                process.wait(wait)
                break
            except subprocess.TimeoutExpired:
                ended = True
                os.killpg(process.pid, sent)
        process.wait()
    outcome = {"returncode": process.returncode, "time_was_over": ended, "seconds": time.monotonic() - start}
    try:
        outcome["found"] = part.read(part.written)
    except Exception as error:
        outcome["found"], outcome["unread"] = None, f"{type(error).__name__}: {error}"
    return {**outcome, "said": log.read_text()[-LONGEST_TEXT:]}


def install(wheels: Path, site: Path) -> dict[str, Any]:
    """Install the wheels into `site` without replacing installed packages."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    every = sorted(map(str, wheels.glob("*.whl")))
    finished = subprocess.run([*command, "--target", str(site), *every], capture_output=True, text=True, check=False)
    return {"returncode": finished.returncode, "wheels": len(every), "said": finished.stderr[-LONGEST_TEXT:]}


def unmet(site: Path) -> list[str]:
    """Return the requirements of pyproject.toml that neither the wheels nor this Python's packages meet."""
    versions: dict[str, str] = {}
    for found in metadata.distributions(path=[str(site), *sys.path]):
        versions.setdefault(canonicalize_name(found.name), found.version)
    asked = map(Requirement, requirements())
    return [str(each) for each in asked if versions.get(canonicalize_name(each.name), "0") not in each.specifier]


def driver() -> str | None:
    """Return the names of the GPU and its driver, as the system reports them."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--minutes", type=float, default=9.5, help="time for all parts together")
    parser.add_argument("--limit", type=float, default=40.0, help="longest expected run of a benchmark, in seconds")
    parser.add_argument("--skip", nargs="*", default=[], help="parts to leave out")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    arguments.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"driver": driver(), "python": platform.python_version(), "parts": {}}
    with tempfile.TemporaryDirectory() as folder:
        site, written = Path(folder) / "site", Path(folder) / "written"
        written.mkdir()
        if arguments.wheels is not None:
            results["install"] = install(arguments.wheels, site)
        if missing := unmet(site):
            sys.exit(f"missing or too old: {', '.join(missing)}")
        path = os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")])
        # Dozens of processes import the same modules, so they share one bytecode cache.
        compiled = {"PYTHONPYCACHEPREFIX": str(Path(folder) / "pycache"), "PYTHONDONTWRITEBYTECODE": ""}
        environment = {**os.environ, **compiled, "PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        chosen = [part for part in parts(written, arguments.limit) if part.name not in arguments.skip]
        for number, part in enumerate(chosen):
            share = part.weight / sum(other.weight for other in chosen[number:])
            seconds = max(share * (end - time.monotonic() - GRACE), 1.0)
            results["parts"][part.name] = run(part, seconds, environment, arguments.output / f"{part.name}.log")
            (arguments.output / "results.json").write_text(json.dumps(results, indent=1) + "\n")
            outcome = results["parts"][part.name]
            over = ", its time was over" if outcome["time_was_over"] else ""
            print(f"{part.name:15} {outcome['seconds']:6.0f} s  exit {outcome['returncode']}{over}", flush=True)
    print(f"wrote {arguments.output / 'results.json'}")


if __name__ == "__main__":
    main()
