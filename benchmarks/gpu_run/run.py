"""All that is to be measured on a machine with a GPU, in one call that needs no network.

    python benchmarks/gpu_run/run.py OUTPUT [--wheels FOLDER] [--minutes 9.5] [--skip NAME ...]

The Python that runs it has JAX with CUDA; the wheels of collect_wheels.py bring the rest, installed into a folder that
is removed at the end. Without --wheels everything must be there. Parts, each a process with a time limit of its own, of
which none stops the others:

- the parts of benchmarks/gpu.py, on the GPU and then on the CPU as long as there is time;
- the tests against numbers of the published programs, and those of code that batches on an accelerator, on the GPU;
- benchmarks/self_attention.py, the rates of orbits beside the published algorithm.

What a part does not use of its time is for those after it. OUTPUT/results.json has the device, versions, times, memory,
differences and failures with their text, and is written after each part; logs are beside it.
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
# against numbers that the published programs produced
REFERENCE_TESTS = (
    "bpkr/evaluation/test_reference.py",
    "bpkr/nonlinear/test_reference.py",
    "dmft/test_lyapunov.py",
    "dmft/test_map.py",
    "dmft/test_published_algorithm.py",
    "dmft/test_weights.py",
)
# code that takes another branch on an accelerator: starts and chains as one batch
BATCH_TESTS = ("saddle/test_textbook.py", "saddle/test_solvers.py", "bpkr/sampling/test_runs.py")
# one process per two cores: each test process has threads that compile, and a CUDA context
TEST_PROCESSES = max(2, min(12, (os.cpu_count() or 1) // 2))
# seconds that a part has to write down what it has, once its time is over
GRACE = 15.0
LONGEST_TEXT = 4000


@dataclass(frozen=True)
class Part:
    """A command, the weight by which it and the parts after it divide the time that is left, and what it writes."""

    name: str
    weight: float
    command: list[str]
    written: Path
    read: Callable[[Path], Any]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def read_tests(path: Path) -> Mapping[str, Any]:
    """How many tests there were of each outcome, and the text of those that failed."""
    suite = xml.parse(path).getroot().find("testsuite")
    failures = {}
    for case in suite.iter("testcase"):
        for wrong in (*case.findall("failure"), *case.findall("error")):
            failures[f"{case.get('classname')}::{case.get('name')}"] = (wrong.text or "")[-LONGEST_TEXT:]
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    return {**counts, "seconds": float(suite.get("time")), "failed": failures}


def parts(folder: Path, limit: float) -> list[Part]:
    """In the order of what one would miss most."""
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
    """The fast tests of these files."""
    path = folder / f"{name}.xml"
    options = ["-m", "not slow", "-n", str(TEST_PROCESSES), "-q", "--tb=short", "--durations=20"]
    options += ["-p", "no:cacheprovider", f"--junitxml={path}"]
    command = ["-m", "pytest", *options, *(str(ROOT / "tests" / file) for file in files)]
    return Part(name, weight, command, path, read_tests)


def run(part: Part, seconds: float, environment: Mapping[str, str], log: Path) -> dict[str, Any]:
    """What came of a part: the exit code, whether its time was over, what it wrote, and the end of what it said."""
    start, ended = time.monotonic(), False
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *part.command], stdout=output, stderr=output, env=environment, cwd=ROOT, process_group=0
        )
        # an interruption has pytest report what it has
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
    """The wheels into `site`, with nothing of what is there replaced."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    every = sorted(map(str, wheels.glob("*.whl")))
    finished = subprocess.run([*command, "--target", str(site), *every], capture_output=True, text=True, check=False)
    return {"returncode": finished.returncode, "wheels": len(every), "said": finished.stderr[-LONGEST_TEXT:]}


def unmet(site: Path) -> list[str]:
    """What pyproject.toml asks for and this Python, with the wheels before its own packages, does not have."""
    versions: dict[str, str] = {}
    for found in metadata.distributions(path=[str(site), *sys.path]):
        versions.setdefault(canonicalize_name(found.name), found.version)
    asked = map(Requirement, requirements())
    return [str(each) for each in asked if versions.get(canonicalize_name(each.name), "0") not in each.specifier]


def driver() -> str | None:
    """The GPU and its driver, as the system names them."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything")
    parser.add_argument("--limit", type=float, default=40.0, help="seconds that one run of a benchmark may take")
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
            sys.exit(f"too old, or not there: {', '.join(missing)}")
        path = os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")])
        # dozens of processes import the same
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
