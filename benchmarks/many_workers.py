"""Simulate how busy many workers are, from overheads measured on one machine.

    python benchmarks/many_workers.py [--output FOLDER] [--tasks NUMBER] [--workers NUMBER] [--spread NUMBER]

Tasks have independent lognormal costs; their logarithms have standard deviation `--spread`. One process hands out
tasks and collects results, one after another. Each takes as long as an empty task in `benchmarks/workers.py`. A worker
first waits for the data that all tasks share, and compiles. Free workers take the next task. For every mean cost, the
script prints the share of the workers' time that is spent on tasks, and the shares that are lost:

- `handing out`: workers wait for tasks because the scheduler is busy.
- `starting`: workers wait for data and compile.
- `last tasks`: workers are idle while the last tasks finish.

Reads workers.json in FOLDER (benchmarks/results by default), and writes many_workers.json there.
"""

import argparse
import heapq
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
MEAN_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 100.0)
# Data that all tasks share: 600 examples of 16 paths and 192 features.
COMMON_BYTES = 600 * 16 * 192 * 8


@dataclass(frozen=True)
class Overheads:
    """Measured overheads in seconds: per task, per byte sent, and for a worker to compile."""

    a_task: float
    a_byte: float
    compiling: float


@dataclass(frozen=True)
class Outcome:
    """Total seconds, and shares of the time of all workers from the first task to the last result."""

    seconds: float
    utilisation: float
    handing_out: float
    starting: float
    last_tasks: float


def measured(path: Path) -> Overheads:
    """Read the overheads from the results of `benchmarks/workers.py`."""
    results = json.loads(path.read_text())
    overhead, times = results["overhead"]["rows"], results["times"]["rows"]
    # No worker waits for a core if there are two of each.
    of_two = next(row for row in overhead if row["workers"] == 2)
    grid = next(row for row in times if row["job"] == "grid" and row["workers"] == 2)
    compiling = grid["first_seconds"] - grid["seconds"]
    return Overheads(of_two["seconds_a_task"], of_two["seconds_a_byte"], compiling)


def simulate(costs: np.ndarray, workers: int, overheads: Overheads) -> Outcome:
    """Give each task in turn to the worker that is free first, once the scheduler has handed it out."""
    # One process sends the data to the workers one after another.
    sent = overheads.a_byte * COMMON_BYTES * np.arange(1, workers + 1)
    free = [(seconds + overheads.compiling, number) for number, seconds in enumerate(sent)]
    starting = sum(seconds for seconds, _ in free)
    heapq.heapify(free)
    scheduler, waited, ends = 0.0, 0.0, np.array([seconds for seconds, _ in sorted(free, key=lambda each: each[1])])
    for cost in costs:
        at, number = heapq.heappop(free)
        scheduler += overheads.a_task
        begins = max(at, scheduler)
        waited += begins - at
        ends[number] = begins + cost
        heapq.heappush(free, (ends[number], number))
    seconds = float(ends.max())
    whole = workers * seconds
    return Outcome(
        seconds=seconds,
        utilisation=float(costs.sum()) / whole,
        handing_out=waited / whole,
        starting=starting / whole,
        last_tasks=float(np.sum(seconds - ends)) / whole,
    )


def lognormal(mean: float, spread: float, count: int) -> np.ndarray:
    """Draw lognormal costs with exactly this mean."""
    costs = np.exp(spread * np.random.default_rng(0).normal(size=count))
    return mean * costs / costs.mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--spread", type=float, default=1.0, help="standard deviation of the costs' logarithms")
    arguments = parser.parse_args()
    overheads = measured(arguments.output / "workers.json")
    print(f"{arguments.tasks} tasks, {arguments.workers} workers, {overheads}")
    outcomes = {
        mean: simulate(lognormal(mean, arguments.spread, arguments.tasks), arguments.workers, overheads)
        for mean in MEAN_SECONDS
    }
    print(f"{'s per task':>15} {'seconds':>10} {'busy':>7} {'handing out':>12} {'starting':>9} {'last tasks':>11}")
    for mean, one in outcomes.items():
        lost = f"{one.handing_out:12.1%} {one.starting:9.1%} {one.last_tasks:11.1%}"
        print(f"{mean:15g} {one.seconds:10.1f} {one.utilisation:7.1%} {lost}")
    about = {"tasks": arguments.tasks, "workers": arguments.workers, "spread": arguments.spread}
    rows = [{"mean_seconds": mean, **asdict(one)} for mean, one in outcomes.items()]
    results = {**about, "overheads": asdict(overheads), "rows": rows}
    (arguments.output / "many_workers.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
