"""Time the same computations on the GPU and on the CPU, in double precision.

    python benchmarks/gpu.py [--json PATH] [--parts NAME ...] [--platforms cuda cpu] [--limit SECONDS]

Parts:

- `solves`: saddle points from the P x P kernel of P examples, with 4, 16 or 27 paths.
- `orbits`: the map of self-attention and its 3 leading Lyapunov exponents, for many orbits in one call.
- `diagrams`: an orbit diagram as users call it, computed in blocks of orbits.
- `factorisations`: `cholesky`, and `eigh` with and without eigenvectors, of P x P matrices and of the small matrices
  that a solve factorises in each step.

Each part runs in a separate process, first on the GPU if there is one (`pip install '.[cuda]'`), then on the CPU.
Compile times and run times are reported separately. A run time is the median of three runs, or a single run if it takes
5 s or more. Memory is the amount that XLA plans for the program, and the peak of the device so far if the device
reports it. A size is left out, with a note in its row, if the previous size suggests that it would take longer than
--limit. Rows are written to PATH as soon as they are measured, and rows of parts that are not measured again are kept.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

import theorykit
from theorykit import bpkr, dmft, dynamics

sys.path.insert(0, str(Path(__file__).parent))
import problems
import self_attention

# 16 paths, and the pairs of 16 and of 27 paths: sizes of the matrices that every step of a solve factorises.
SMALL = (16, 136, 378)
EXAMPLES = (600, 2000, 5000, 10_000, 20_000)
ORBITS, DIAGRAMS = (256, 1024, 4096, 16_384, 65_536), (1024, 16_384)
STEPS, WINDOW = 1000, 4
DIAGRAM = {"transient": 2000, "recorded": 1000, "exponents": 3, "levels": np.linspace(-1, 1, 2001)}
# Runs longer than this are timed once.
LONG, REPETITIONS = 5.0, 3


class Case(NamedTuple):
    """A timed call `program(*arguments)`, and a number from its result on which all devices should agree.

    The work grows as `size` to the power `order`. The arguments are made on the device just before the case runs.
    """

    name: str
    size: int
    order: int
    program: Callable[..., Any]
    arguments: Callable[[], tuple]
    number: Callable[[Any], float | None] = lambda _: None
    # True if the benchmark compiles the whole program, False if the program compiles its parts itself.
    whole: bool = True


def solves() -> Iterator[Case]:
    """Yield the solves. The smallest has the size of the paper's first task; labels are random."""
    yield _solve("4 paths", (2, 2), 100, 10.0, 0.01)
    yield _solve("27 paths", (3, 3, 3), 600, 100.0, 0.1)
    yield _solve("16 paths, N = 10", (4, 4), 600, 10.0, 0.1)
    for examples in EXAMPLES:
        yield _solve("16 paths", (4, 4), examples, 100.0, 0.1)


def _solve(name: str, heads: tuple[int, ...], examples: int, width: float, temperature: float) -> Case:
    def arguments() -> tuple:
        architecture = bpkr.Architecture(heads, width, temperature=temperature)
        architecture = jax.tree.map(lambda number: jnp.asarray(number, dtype=jnp.float64), architecture)
        # With fewer features of all paths than examples, the solve would switch to the space of features.
        features = max(192, -(-examples // architecture.paths))
        return architecture, bpkr.Data(*problems.random_features(examples, architecture.paths, features))

    return Case(name, examples, 3, partial(bpkr.solve, tolerance=1e-8), arguments, lambda saddle: float(saddle.action))


def factorisations() -> Iterator[Case]:
    """Yield the factorisations. Their number is the logarithm of the determinant."""
    programs = {
        "cholesky": (jnp.linalg.cholesky, lambda factor: 2 * float(jnp.sum(jnp.log(jnp.diag(factor))))),
        "eigh, values": (jnp.linalg.eigvalsh, lambda values: float(jnp.sum(jnp.log(values)))),
        "eigh": (jnp.linalg.eigh, lambda found: float(jnp.sum(jnp.log(found.eigenvalues)))),
    }
    for name, (program, number) in programs.items():
        for size in (*SMALL, *EXAMPLES):
            yield Case(name, size, 3, program, partial(_positive, size), number)


def _positive(size: int) -> tuple:
    """Return a random symmetric matrix; by the semicircle law its eigenvalues are between 1 and 3."""
    draw = jax.random.normal(jax.random.key(0), (size, size), dtype=jnp.float64)
    return ((draw + draw.T) / jnp.sqrt(8.0 * size) + 2 * jnp.eye(size),)


def orbits() -> Iterator[Case]:
    for name, program in {"map": _advance, "leading 3": _leading_exponents}.items():
        for count in ORBITS:
            yield Case(name, count, 1, program, partial(_networks, count), whole=False)


def _networks(count: int) -> tuple:
    weights, model = self_attention.network(WINDOW)
    parameters = dmft.Parameters(
        jnp.linspace(*self_attention.BETAS, count), self_attention.GAMMA, self_attention.EPSILON
    )
    return model, parameters, dmft.start(model, parameters, dmft.pattern_prompt(weights), "window")


def _advance(model, parameters, start):
    return dmft.advance(model, parameters, start, jnp.asarray(STEPS))


def _leading_exponents(model, parameters, start):
    settled = dmft.advance(model, parameters, start, WINDOW)
    return dmft.lyapunov_spectrum(model, parameters, settled, steps=STEPS, exponents=3).exponents


def _begin(model, prompt, parameters):
    return dmft.start(model, parameters, prompt, "window")


def diagrams() -> Iterator[Case]:
    prompt = dmft.pattern_prompt(self_attention.network(WINDOW)[0])
    functions = {"observe": lambda state, _: state.latest, "coordinates": lambda state: state.attention}

    def program(model, parameters, _):
        return dynamics.orbits(
            model, parameters, partial(_begin, model, prompt), **functions, **DIAGRAM, progress=False
        )

    for count in DIAGRAMS:
        yield Case("orbit diagram", count, 1, program, partial(_networks, count), whole=False)


PARTS = {"solves": solves, "orbits": orbits, "diagrams": diagrams, "factorisations": factorisations}


def about() -> dict[str, Any]:
    """Describe the machine and the versions."""
    device = jax.devices()[0]
    return {
        "platform": jax.default_backend(),
        "device": device.device_kind,
        "cores": len(os.sched_getaffinity(0)),
        "processor": platform.processor() or platform.machine(),
        "load_before": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "jaxlib": jaxlib.__version__},
        "theorykit": theorykit.__version__,
    }


def timed(case: Case) -> dict[str, Any]:
    """Return seconds to compile and to run, memory in bytes, and the number of the case."""
    arguments = jax.block_until_ready(case.arguments())
    row: dict[str, Any] = {}
    start = time.perf_counter()
    if case.whole:
        call = eqx.filter_jit(case.program).lower(*arguments).compile()
        row["compile_s"] = time.perf_counter() - start
        planned = call.compiled.memory_analysis()
        row["planned_bytes"] = None if planned is None else planned.temp_size_in_bytes + planned.argument_size_in_bytes
    else:
        call = case.program
        jax.block_until_ready(call(*arguments))
        first = time.perf_counter() - start
    runs: list[float] = []
    while len(runs) < REPETITIONS and (not runs or runs[0] < LONG):
        start = time.perf_counter()
        found = jax.block_until_ready(call(*arguments))
        runs.append(time.perf_counter() - start)
    row["run_s"] = statistics.median(runs)
    row.setdefault("compile_s", None if case.whole else max(first - row["run_s"], 0.0))
    stats = jax.devices()[0].memory_stats() or {}
    return {**row, "peak_bytes": stats.get("peak_bytes_in_use"), "number": case.number(found)}


def measure(part: str, limit: float, first: int) -> None:
    """Measure the cases of a part in this process, starting at number `first`, and print rows as lines of JSON."""
    theorykit.enable_float64()
    # The cache is off so that compile times are as in a first run.
    jax.config.update("jax_enable_compilation_cache", False)
    latest: dict[str, tuple[int, float]] = {}
    for case in list(PARTS[part]())[first:]:
        row = {"part": part, "name": case.name, "size": case.size, "platform": jax.default_backend()}
        row["load"] = os.getloadavg()[0]
        size, seconds = latest.get(case.name, (case.size, 0.0))
        expected = seconds * (case.size / size) ** case.order
        if expected > limit:
            row["left_out"] = f"about {expected:.0f} s expected"
        else:
            try:
                row |= timed(case)
                latest[case.name] = case.size, row["run_s"]
            # Devices report a lack of memory by many kinds of errors.
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"[:2000]
                latest[case.name] = case.size, float("inf")
        print(json.dumps(row), flush=True)


def told(part: str, name: str, limit: float, first: int = 0) -> Iterator[dict[str, Any]]:
    """Yield what `measure` prints in a process on that platform, or `about` if `part` is empty, and any final error."""
    command = [sys.executable, __file__, "--one", part, "--first", str(first), "--limit", str(limit)]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **({"JAX_PLATFORMS": name} if name else {})}
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process:
            yield from (json.loads(line) for line in process.stdout if line.startswith("{"))
        if process.returncode:
            errors.seek(0)
            said = errors.read().strip()[-2000:]
            yield {"part": part, "platform": name, "error": f"exit {process.returncode}: {said}"}


def told_of_all(part: str, name: str, limit: float) -> Iterator[dict[str, Any]]:
    """Yield the rows of all cases of a part. If a case kills its process, the rest run in a new process."""
    cases, count = list(PARTS[part]()), 0
    while count < len(cases):
        begun = count
        for row in told(part, name, limit, count):
            yield row if "name" in row else {**row, "name": cases[count].name, "size": cases[count].size}
            count += 1
        # The first and only row is an error, so the platform is missing.
        if begun == 0 and count == 1 and "name" not in row:
            return


def compared(row: dict[str, Any], before: list[dict[str, Any]]) -> dict[str, Any]:
    """Add to `row` its ratio to the same case on another platform, if there is one."""
    same = [other for other in before if all(other.get(key) == row.get(key) for key in ("part", "name", "size"))]
    for other in same:
        if "run_s" in row and "run_s" in other:
            row["times_as_long"] = row["run_s"] / other["run_s"]
        if row.get("number") is not None and other.get("number") is not None:
            row["relative_difference"] = abs(row["number"] / other["number"] - 1)
    return row


def line(row: dict[str, Any]) -> str:
    """Format a row as text."""
    start = f"{row.get('platform', ''):5} {row.get('name', row['part']):18} {row.get('size', ''):>6} "
    if "run_s" not in row:
        return start + (row.get("left_out") or row["error"].splitlines()[-1][:90])
    planned, peak = (
        f"{bytes_ / 2**30:7.2f}" if bytes_ else "      -" for bytes_ in (row.get("planned_bytes"), row["peak_bytes"])
    )
    text = f"{start} {row['compile_s']:8.2f}s {row['run_s']:9.4f}s {planned} {peak}"
    if "times_as_long" in row:
        text += f"  {row['times_as_long']:8.2f}"
    if "relative_difference" in row:
        text += f"  {row['relative_difference']:.0e}"
    return text


def keep(results: dict[str, Any], path: Path | None) -> None:
    if path is not None:
        path.write_text(json.dumps(results, indent=1) + "\n")


def rows_of_others(parts: list[str], path: Path | None) -> list[dict[str, Any]]:
    """Return the rows in the file for parts that are not measured now."""
    if path is None or not path.exists():
        return []
    return [row for row in json.loads(path.read_text())["rows"] if row["part"] not in parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--platforms", nargs="*", help="by default the platform that JAX prefers, and cpu")
    parser.add_argument("--limit", type=float, default=60.0, help="longest expected run, in seconds")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        return measure(arguments.one, arguments.limit, arguments.first) if arguments.one else print(json.dumps(about()))
    (found,) = told("", "", arguments.limit)
    results = {"about": found, "rows": rows_of_others(arguments.parts, arguments.json)}
    keep(results, arguments.json)
    print(json.dumps(found))
    print(f"{'':32} {'compile':>9} {'run':>10} {'planned':>8} {'peak/GiB':>8}  times as long, difference")
    preferred = "cuda" if found.get("platform") == "gpu" else "cpu"
    for name in arguments.platforms or dict.fromkeys([preferred, "cpu"]):
        for part in arguments.parts:
            for row in told_of_all(part, name, arguments.limit):
                results["rows"].append(compared(row, results["rows"]))
                print(line(row), flush=True)
                keep(results, arguments.json)


if __name__ == "__main__":
    main()
