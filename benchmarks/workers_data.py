"""Time one pass over files on disk with one worker and with several, and measure the memory of every process.

    python benchmarks/workers_data.py [--examples 10000000] [--files 100] [--workers 1 4] [--data FOLDER]
                                      [--output FOLDER]

The examples have 4 paths with 231 features each. They are written as pairs of npy files in single precision into the
folder of --data (by default a temporary one), and removed at the end. Every worker is a process with one core. Each
pass has a separate driver process that hands out work, and starts with none of the files in the system's cache. For
comparison, the script measures the rate of a plain read from the disk, and the rate at which one core adds up examples
in memory. Prints a table. With --output, also writes workers_data.json into that folder; results for other numbers of
examples stay there.
"""

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import theorykit
from theorykit import bpkr
from theorykit.bpkr.data.reading import sum_batch
from theorykit.workers import local_workers

PATHS, FEATURES, CHUNK = 4, 231, 4096
BLOCK = 2**24
Pair = tuple[Path, Path]


def write(folder: Path, examples: int, files: int) -> list[Pair]:
    """Write pairs of files with random features, and labels that depend on them."""
    counts = np.diff(np.linspace(0, examples, files + 1).astype(int))
    return [write_pair(folder, number, int(count)) for number, count in enumerate(counts)]


def write_pair(folder: Path, number: int, examples: int) -> Pair:
    pair = folder / f"features-{number:05}.npy", folder / f"labels-{number:05}.npy"
    draw = np.random.default_rng(number)
    features = np.lib.format.open_memmap(pair[0], "w+", np.float32, (examples, PATHS, FEATURES))
    for start in range(0, examples, CHUNK):
        rows = features[start : start + CHUNK]
        rows[:] = draw.standard_normal(rows.shape, np.float32) / np.float32(np.sqrt(PATHS * FEATURES))
    np.save(pair[1], np.sign(features[:, 0, 0] + features[:, 1, 1]))
    return pair


def forget(paths: Sequence[Path]) -> None:
    """Drop these files from the system's cache."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_rate(paths: Sequence[Path], most: float = 20.0) -> float:
    """Return bytes per second when one process reads these files, for at most `most` seconds."""
    forget(paths)
    start, count = time.perf_counter(), 0
    for block in blocks(paths):
        count += len(block)
        if time.perf_counter() - start > most:
            break
    return count / (time.perf_counter() - start)


def blocks(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while block := file.read(BLOCK):
                yield block


def memory_rate(seconds: float = 10.0) -> float:
    """Return examples per second when this process adds up examples in memory."""
    draw = np.random.default_rng(0)
    batch = draw.normal(size=(CHUNK, PATHS, FEATURES)), draw.normal(size=CHUNK)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        sum_batch(0, batch, False)
        count += CHUNK
    return count / (time.perf_counter() - start)


def peak() -> tuple[int, float]:
    """Return the id of this process and its peak resident memory so far, in GiB."""
    # Sleep, so that another worker takes the next of these calls.
    time.sleep(0.2)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return os.getpid(), largest / 2 ** (30 if sys.platform == "darwin" else 20)


def one_pass(folder: Path, workers: int) -> dict:
    """Time a pass with `workers` workers; equal `sums` mean bit-for-bit equal results."""
    theorykit.enable_float64()
    pairs = list(zip(sorted(folder.glob("features-*.npy")), sorted(folder.glob("labels-*.npy")), strict=True))
    forget([path for pair in pairs for path in pair])
    with local_workers(workers) as executor:
        # Start the workers before the clock.
        list(executor.map(abs, range(workers)))
        start = time.perf_counter()
        found = bpkr.Data.of_files(pairs, chunk=CHUNK, executor=executor, in_flight=2 * workers).moments
        seconds = time.perf_counter() - start
        after = dict(future.result() for future in [executor.submit(peak) for _ in range(4 * workers)])
    sums = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in (found.gram, found.projection)))
    return {
        "workers": workers,
        "seconds": seconds,
        "examples": int(found.examples),
        "worker_gib": sorted(after.values()),
        "driver_gib": peak()[1],
        "sums": sums.hexdigest(),
    }


def apart(*arguments: str) -> dict:
    """Run this script with these arguments in a fresh process, and return the last line that it prints."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *arguments]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(finished.stdout.splitlines()[-1])


def measured(folder: Path, arguments: argparse.Namespace) -> dict:
    start = time.perf_counter()
    pairs = write(folder, arguments.examples, arguments.files)
    paths = [path for pair in pairs for path in pair]
    size, written = sum(path.stat().st_size for path in paths), time.perf_counter() - start
    print(
        f"{arguments.examples} examples, {PATHS * FEATURES} columns, {size / 1e9:.1f} GB in {len(pairs)} pairs of files"
    )
    print(f"written in {written:.0f} s; this process may use {len(os.sched_getaffinity(0))} cores")
    results = {
        "examples": arguments.examples,
        "columns": PATHS * FEATURES,
        "files": len(pairs),
        "bytes": size,
        "cores": len(os.sched_getaffinity(0)),
        "disk_bytes_per_second": disk_rate(paths),
        "memory_examples_per_second": apart("--memory")["rate"],
    }
    width = size / arguments.examples
    print(f"{'':>14} {'seconds':>9} {'examples/s':>11} {'MB/s':>8}  GiB of each worker, GiB of the driver")
    rates = {"disk": results["disk_bytes_per_second"] / width, "memory, 1 core": results["memory_examples_per_second"]}
    for name, rate in rates.items():
        print(f"{name:>14} {'':>9} {rate:11.0f} {rate * width / 1e6:8.0f}")
    results["passes"] = []
    for workers in arguments.workers:
        found = apart("--pass", str(folder), str(workers))
        results["passes"].append(found)
        rate = found["examples"] / found["seconds"]
        memory = f"{' '.join(f'{each:.2f}' for each in found['worker_gib'])}, {found['driver_gib']:.2f}"
        print(f"{workers:>6} workers {found['seconds']:9.1f} {rate:11.0f} {rate * width / 1e6:8.0f}  {memory}")
    if len(results["passes"]) > 1:
        print(f"sums are bit-for-bit equal: {len({found['sums'] for found in results['passes']}) == 1}")
    return results


def main() -> None:
    if sys.argv[1:2] == ["--pass"]:
        print(json.dumps(one_pass(Path(sys.argv[2]), int(sys.argv[3]))))
        return
    if sys.argv[1:2] == ["--memory"]:
        print(json.dumps({"rate": memory_rate()}))
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--examples", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        results = measured(Path(folder), arguments)
    if arguments.output is not None:
        path = arguments.output / "workers_data.json"
        others = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**others, f"{arguments.examples} examples": results}, indent=1) + "\n")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
