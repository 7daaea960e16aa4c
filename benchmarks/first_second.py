"""Time imports, a first solve in a fresh process, another size, and repeated solves.

    python benchmarks/first_second.py [--repeats 5]

Each row is the median over fresh processes, with the cache off, and as an earlier
process has filled it. On a busy machine, compare the processor seconds. Writes
results/first_second.json.
"""

import argparse
import json
import tempfile
from pathlib import Path

from problems import fresh, medians

BEFORE = """
import json, time
begun, busy = time.perf_counter(), time.process_time()
rows = {}

def lap(name):
    global begun, busy
    rows[name] = time.perf_counter() - begun, time.process_time() - busy
    begun, busy = time.perf_counter(), time.process_time()

import jax, numpy as np
import theorykit
from theorykit import bpkr
theorykit.enable_float64()
theorykit.enable_cache()

def solve(architecture, data):
    jax.block_until_ready(bpkr.solve(architecture, data).action)

def repeat(name, count, *problem):
    global begun, busy
    times = []
    for _ in range(count):
        begun, busy = time.perf_counter(), time.process_time()
        solve(*problem)
        times.append((time.perf_counter() - begun, time.process_time() - busy))
    rows[name] = [sorted(column)[count // 2] for column in zip(*times)]
"""

CHAINS = """
bpkr.Architecture, bpkr.attention, bpkr.path_features, bpkr.solve, bpkr.predict
lap("import")
from papers.tasks import HiddenMarkovTask
task, (data_key, heads_key) = HiddenMarkovTask(), jax.random.split(jax.random.key(0))
inputs, labels = task(100, key=data_key)
key_query = jax.block_until_ready(task.heads(key=heads_key))
lap("data")
arch = bpkr.Architecture((2, 2), 10, temperature=0.01)
attention = bpkr.attention(inputs, key_query=key_query)
features = bpkr.path_features(inputs, attention, arch, "last")
data = bpkr.Data(jax.block_until_ready(features), labels)
lap("features")
solve(arch, data)
lap("solve")
problem, limit = bpkr.Problem(arch, data), bpkr.gp_limit(arch)
jax.block_until_ready(bpkr.predict(problem, limit, features[:50]).mean)
lap("predict")
solve(arch, bpkr.Data(features[:99], labels[:99]))
lap("one example fewer")
names = ("import", "data", "features", "solve")
rows["import to solution"] = [sum(each) for each in zip(*map(rows.get, names))]
for width in (10, 1000):
    arch = bpkr.Architecture((2, 2), width, temperature=0.01)
    repeat(f"again, N = {width}", 50, arch, data)
print(json.dumps(rows))
"""

RANDOM = """
heads, examples, outputs, repeats = {}
arch = bpkr.Architecture(heads, 10, temperature=0.01, outputs=outputs)

def data(examples):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(examples, arch.paths, 50)) / np.sqrt(50)
    signs = rng.choice([-1.0, 1.0], size=examples)
    classes = np.eye(outputs)[np.arange(examples) % outputs]
    return bpkr.Data(features, signs if outputs == 1 else classes)

jax.numpy.zeros(3).block_until_ready()  # starts threads
whole, fewer = data(examples), data(examples - 1)
lap("import")
solve(arch, whole)
lap("first")
solve(arch, fewer)
lap("one example fewer")
repeat("again", repeats, arch, whole)
print(json.dumps(rows))
"""

PROGRAMS = {
    "hidden Markov chains, heads (2, 2), P = 100": BEFORE + CHAINS,
    "heads (2, 3, 2), P = 150": BEFORE + RANDOM.format(((2, 3, 2), 150, 1, 9)),
    "12 paths, 3 classes, P = 100": BEFORE + RANDOM.format(((2, 3, 2), 100, 3, 5)),
    "64 paths, P = 200, N = 10": BEFORE + RANDOM.format(((8, 8), 200, 1, 3)),
    "10 classes, heads (2, 2), P = 100": BEFORE + RANDOM.format(((2, 2), 100, 10, 3)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    results = Path(__file__).parent / "results" / "first_second.json"
    parser.add_argument("--json", type=Path, default=results)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            for kind, cache in (("nothing cached", "off"), ("cached", folder)):
                if kind == "cached":
                    fresh(PROGRAMS[name], cache)
                runs = [fresh(PROGRAMS[name], cache) for _ in range(options.repeats)]
                found[f"{name}; {kind}"] = rows = medians(runs)
                for part, row in rows.items():
                    print(f"{name}; {kind}; {part}: {row}", flush=True)
                options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
