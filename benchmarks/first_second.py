"""Time imports, a first solve in a fresh process, another size, and repeated solves.

Hidden Markov chains, heads (2, 2), 100 examples.

    python benchmarks/first_second.py [--repeats 5]

Each row is the median over fresh processes, with the cache off, and as an earlier
process has filled it. On a busy machine, compare the processor seconds. Writes
results/first_second.json.
"""

import json
import tempfile

from problems import fresh, medians, parser_of

PROGRAM = """
import json, time
begun, busy = time.perf_counter(), time.process_time()
rows = {}

def lap(name):
    global begun, busy
    rows[name] = time.perf_counter() - begun, time.process_time() - busy
    begun, busy = time.perf_counter(), time.process_time()
    return rows[name]

import jax
import theorykit
from theorykit import bpkr
theorykit.enable_float64()
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

def solve(architecture, data):
    jax.block_until_ready(bpkr.solve(architecture, data).action)

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
    arch, times = bpkr.Architecture((2, 2), width, temperature=0.01), []
    for _ in range(50):
        solve(arch, data)
        times.append(lap("again"))
    rows[f"again, N = {width}"] = [sorted(column)[25] for column in zip(*times)]
print(json.dumps(rows))
"""


def main() -> None:
    parser = parser_of(__doc__, "first_second")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, cache in (("nothing cached", "off"), ("cached", folder)):
            if kind == "cached":
                fresh(PROGRAM, cache)
            runs = [fresh(PROGRAM, cache) for _ in range(options.repeats)]
            found[kind] = medians(runs)
            for part, row in found[kind].items():
                print(f"{kind}; {part}: {row}", flush=True)
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
