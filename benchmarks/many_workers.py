"""How busy many workers are kept, by simulation from what one machine measures.

    python benchmarks/many_workers.py [--output FOLDER] [--tasks NUMBER] [--workers NUMBER] [--spread NUMBER]

Tasks have independent lognormal costs, whose logarithms have a standard deviation of `--spread`. One process hands them
out and takes their results in, one after another, each for as long as `benchmarks/workers.py` has measured a task that
computes nothing; a worker first waits for what all tasks have in common, and compiles. Free workers take the next task.
Prints, for every mean cost, the share of the workers' time that is spent on tasks, and what the rest is lost to:

- `handing out`: the scheduler is busy while workers wait for tasks.
- `starting`: workers wait for data and compile.
- `last tasks`: the others have ended.

Writes many_workers.json into FOLDER (benchmarks/results by default), from the workers.json that is there.
"""

import argparse
import heapq
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
MEAN_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 100.0)
# of data that all tasks have in common: 600 examples of 16 paths and 192 features
COMMON_BYTES = 600 * 16 * 192 * 8


@dataclass(frozen=True)
class Overheads:
    """Seconds, as measured: of a task beside its cost, of a byte that is sent, and until a worker has compiled."""

    a_task: float
    a_byte: float
    compiling: float


@dataclass(frozen=True)
class Outcome:
    """Shares of the time of all workers, from the first task to the last result."""

    seconds: float
    utilisation: float
    handing_out: float
    starting: float
    last_tasks: float


def measured(path: Path) -> Overheads:
    """From the results of `benchmarks/workers.py`."""
    results = json.loads(path.read_text())
    overhead, times = results["overhead"]["rows"], results["times"]["rows"]
    # two workers on two cores, of which none waits for a core
    of_two = next(row for row in overhead if row["workers"] == 2)
    grid = next(row for row in times if row["job"] == "grid" and row["workers"] == 2)
    compiling = grid["first_seconds"] - grid["seconds"]
    return Overheads(of_two["seconds_a_task"], of_two["seconds_a_byte"], compiling)


def simulate(costs: np.ndarray, workers: int, overheads: Overheads) -> Outcome:
    """Tasks in their order, each to the worker that is free first, no sooner than it has been handed out."""
    # the data leave one process after another
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
    """Costs whose mean is this."""
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
    print(f"{'seconds a task':>15} {'seconds':>10} {'busy':>7} {'handing out':>12} {'starting':>9} {'last tasks':>11}")
    for mean, one in outcomes.items():
        lost = f"{one.handing_out:12.1%} {one.starting:9.1%} {one.last_tasks:11.1%}"
        print(f"{mean:15g} {one.seconds:10.1f} {one.utilisation:7.1%} {lost}")
    about = {"tasks": arguments.tasks, "workers": arguments.workers, "spread": arguments.spread}
    rows = [{"mean_seconds": mean, **asdict(one)} for mean, one in outcomes.items()]
    results = {**about, "overheads": asdict(overheads), "rows": rows}
    (arguments.output / "many_workers.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
