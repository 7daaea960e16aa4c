"""Time imports, the first solve in a fresh process, solves of other data sets, and repeated solves.

    python benchmarks/first_second.py [--output FOLDER] [--repeats 5]

Each row is the median over fresh processes, run one after another, with the cache turned off, and with the cache as a
user finds it. Both wall-clock and processor seconds are recorded; on a busy machine, compare the processor seconds.
Writes first_second.json into FOLDER (benchmarks/results by default).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_PROCESS = """
import json, time
begun, busy = time.perf_counter(), time.process_time()
rows = {}

def lap(name):
    global begun, busy
    rows[name] = [time.perf_counter() - begun, time.process_time() - busy]
    begun, busy = time.perf_counter(), time.process_time()

import theorykit
from theorykit import bpkr
theorykit.enable_float64()
bpkr.Architecture, bpkr.attention, bpkr.path_features, bpkr.solve, bpkr.predict
lap("import")
import jax
from papers.tasks import hidden_markov
task = hidden_markov.HiddenMarkovTask()
data_key, heads_key = jax.random.split(jax.random.key(0))
sample = hidden_markov.sample_examples(task, 100, key=data_key)
key_query = hidden_markov.good_and_random_heads(task, key=heads_key)
jax.block_until_ready((sample, key_query))
lap("data")
arch = bpkr.Architecture((2, 2), 10, temperature=0.01)
attention = bpkr.attention(sample.inputs, key_query=key_query)
features = jax.block_until_ready(bpkr.path_features(sample.inputs, attention, arch, "last"))
data = bpkr.Data(features, sample.labels)
lap("features")
jax.block_until_ready(bpkr.solve(arch, data).action)
lap("solve")
jax.block_until_ready(bpkr.predict(bpkr.Problem(arch, data), bpkr.gp_limit(arch), features[:50]).mean)
lap("predict")
jax.block_until_ready(bpkr.solve(arch, bpkr.Data(features[:99], sample.labels[:99])).action)
lap("one example fewer")
for width in (10, 1000):
    arch, taken = bpkr.Architecture((2, 2), width, temperature=0.01), []
    for _ in range(50):
        begun, busy = time.perf_counter(), time.process_time()
        jax.block_until_ready(bpkr.solve(arch, data).action)
        taken.append((time.perf_counter() - begun, time.process_time() - busy))
    rows[f"again, N = {width}"] = [sorted(column)[25] for column in zip(*taken)]
print(json.dumps(rows))
"""

# Data of random features, with several numbers of paths and outputs.
_RANDOM = """
import json, sys, time
import numpy as np
import jax, jax.numpy as jnp
import theorykit
from theorykit import bpkr
theorykit.enable_float64()
heads, examples, width, outputs, repeats = json.loads(sys.argv[1])
paths = int(np.prod(heads))

def solve(examples):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(examples, paths, 50)) / np.sqrt(50)
    labels = rng.choice([-1.0, 1.0], size=examples) if outputs == 1 else np.eye(outputs)[np.arange(examples) % outputs]
    arch = bpkr.Architecture(tuple(heads), width, temperature=0.01, outputs=outputs)
    begun, busy = time.perf_counter(), time.process_time()
    jax.block_until_ready(bpkr.solve(arch, bpkr.Data(features, labels)).action)
    return time.perf_counter() - begun, time.process_time() - busy

# A first operation of JAX, which starts its threads.
jnp.zeros(3).block_until_ready()
rows = {"first": solve(examples)}
if repeats > 1:
    rows["one example fewer"] = solve(examples - 1)
    rows["again"] = [sorted(column)[repeats // 2] for column in zip(*(solve(examples) for _ in range(repeats)))]
print(json.dumps(rows))
"""

# Heads, examples, width, outputs, and the number of repeated solves.
_PROBLEMS = {
    "heads (2, 3, 2), P = 150": ((2, 3, 2), 150, 10, 1, 9),
    "12 paths, 3 classes, P = 100": ((2, 3, 2), 100, 10, 3, 5),
    "64 paths, P = 200, N = 10": ((8, 8), 200, 10, 1, 3),
    "10 classes, heads (2, 2), P = 100": ((2, 2), 100, 10, 10, 3),
}


def run(program: str, argument: str, folder: str) -> dict[str, list[float]]:
    """Return wall-clock and processor seconds for every part of one fresh process. `folder` is its cache, or "off"."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "THEORYKIT_"))}
    path = [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[1] / "examples")]
    environment |= {"THEORYKIT_CACHE": folder, "PYTHONPATH": os.pathsep.join(path)}
    arguments = [sys.executable, "-c", program, argument or ("fresh" if folder == "off" else "cached")]
    return json.loads(subprocess.run(arguments, env=environment, check=True, capture_output=True, text=True).stdout)


def medians(runs: list[dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    """Return the median of every part, and of the time from import to the first solution."""
    for each in runs if "import" in runs[0] else ():
        parts = [each[name] for name in ("import", "data", "features", "solve")]
        each["import to solution"] = [sum(column) for column in zip(*parts, strict=True)]
    return {
        name: {
            "seconds": statistics.median(each[name][0] for each in runs),
            "processor_seconds": statistics.median(each[name][1] for each in runs),
        }
        for name in runs[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    programs = {"hidden Markov chains, heads (2, 2), P = 100": (_PROCESS, "")}
    programs |= {name: (_RANDOM, json.dumps(problem)) for name, problem in _PROBLEMS.items()}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, program in programs.items():
            for kind, cache in (("nothing cached", "off"), ("cached", folder)):
                if kind == "cached":
                    run(*program, cache)
                rows = medians([run(*program, cache) for _ in range(arguments.repeats)])
                found[f"{name}; {kind}"] = rows
                for part, row in rows.items():
                    times = f"{row['seconds']:8.4f} s, {row['processor_seconds']:8.4f} s processor time"
                    print(f"{name + '; ' + kind:60s} {part:20s} {times}", flush=True)
                # Write after every problem, so that an interrupted run loses nothing.
                (arguments.output / "first_second.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
