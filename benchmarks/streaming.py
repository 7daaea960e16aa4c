"""Measure the cost of a million examples: one pass over them, and then each evaluation of energy and gradient.

    python benchmarks/streaming.py [examples] [threads]

The examples have 4 paths with 231 features each. They are made in chunks of 4096, rounded up to whole chunks, and are
never in memory all at once. Prints seconds and the peak resident memory of the process, and fails if the peak is 2 GiB
or more. With two threads or more, set OPENBLAS_NUM_THREADS=1, so that threads of linear algebra do not compete with
them.
"""

import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import theorykit
from theorykit import bpkr
from theorykit.bpkr import Data, Problem, predict
from theorykit.bpkr.evaluation.bound_action import bind
from theorykit.bpkr.evaluation.energies import DualEnergy

PATHS, FEATURES, CHUNK = 4, 231, 4096
LIMIT = 2.0  # GiB


def seconds(work) -> float:
    """Return the wall-clock time of a call."""
    start = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - start


def peak_memory() -> float:
    """Return the peak resident memory of this process so far, in GiB."""
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / 2 ** (30 if sys.platform == "darwin" else 20)


def load(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Make chunk `number` of the data: random features, and labels that depend on them."""
    rng = np.random.default_rng(number)
    features = rng.normal(scale=(PATHS * FEATURES) ** -0.5, size=(CHUNK, PATHS, FEATURES))
    return features, np.sign(features[:, 0, 0] + features[:, 1, 1])


def main(examples: int, threads: int) -> None:
    theorykit.enable_float64()
    architecture = bpkr.Architecture((2, 2), widths=100, temperature=0.1)
    chunks = -(-examples // CHUNK)
    start, before = time.perf_counter(), peak_memory()
    with ThreadPoolExecutor(threads) as executor:
        batches = [partial(load, number) for number in range(chunks)]
        statistics = bpkr.Data.of_batches(batches, executor=executor, in_flight=threads, progress=True).moments
    passed, peak = time.perf_counter() - start, peak_memory()
    print(f"{int(statistics.examples)} examples, {PATHS * FEATURES} columns, {threads} threads")
    print(f"one pass                       {passed:8.1f} s, peak {peak:.2f} GiB, {before:.2f} GiB before the pass")

    bound, point = bind(architecture), bpkr.gp_limit(architecture)
    energy = DualEnergy(bound, statistics)
    at = jax.jit(lambda energy, first: energy.at(first))
    first = point.matrices[0]
    print(f"energy and gradient, compiling {seconds(lambda: at(energy, first)):8.3f} s")
    print(f"energy and gradient            {min(seconds(lambda: at(energy, first)) for _ in range(5)):8.3f} s")
    features, labels = load(chunks)
    prediction = predict(Problem(architecture, Data(moments=statistics)), point, features)
    accuracy = jnp.mean(jnp.sign(prediction.mean) == labels)
    print(f"accuracy on other examples     {accuracy:8.3f}, peak {peak_memory():.2f} GiB in total")
    if peak_memory() >= LIMIT:
        raise SystemExit(f"peak resident memory was {LIMIT} GiB or more")


if __name__ == "__main__":
    main(*(int(argument) for argument in [*sys.argv[1:], *("1000000", "2")[len(sys.argv) - 1 :]]))
