"""Write the tables about workers from the results of `workers.py` and `many_workers.py`."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from kept_results import markdown, read

WORK = {
    "grid": "a grid of 7 widths, 10 temperatures and 5 seeds, 120 examples",
    "orbit diagram": "an orbit diagram of 1000 values",
    "chains": "8 chains of `sample_order_parameters`",
    "batches": "200 batches of 4000 examples and 400 columns",
}


def measured(case: str) -> list[Mapping[str, Any]]:
    return read("workers")[case]["rows"]


def by_job(rows: list[Mapping[str, Any]]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for job, of_job in groupby(rows, lambda row: row["job"]):
        yield job, list(of_job)


def times() -> str:
    head = ("task", "1 worker", "2", "4", "use of two cores, with 2 and with 4", "identical results")
    return markdown(head, map(_time, by_job(measured("times"))))


def _time(of_job: tuple[str, list[Mapping[str, Any]]]) -> tuple[str, ...]:
    job, rows = of_job
    seconds = [f"{row['seconds']:.1f} s" for row in rows]
    used = ", ".join(f"{row['efficiency']:.0%}" for row in rows[1:])
    return WORK[job], *seconds, used, yes(rows)


def overhead() -> str:
    head = ("workers", "overhead per task", "time of a single task", "100 MB to all")
    rows = (
        (
            f"{row['workers']}",
            f"{1000 * row['seconds_a_task']:.1f} ms",
            f"{1000 * row['seconds_of_one']:.0f} ms",
            f"{1e8 * row['seconds_a_byte'] * row['workers']:.1f} s",
        )
        for row in measured("overhead")
    )
    return markdown(head, rows)


def sizes() -> str:
    head = ("examples", "one solve", "eight solves, one process", "two workers", "ratio")
    rows = (
        (
            f"{row['examples']}",
            f"{1000 * row['seconds_of_a_solve']:.0f} ms",
            f"{row['here']:.2f} s",
            f"{row['by_two_workers']:.2f} s",
            f"{row['ratio']:.2f}",
        )
        for row in measured("sizes")
    )
    return markdown(head, rows)


def kills() -> str:
    head = ("task", "undisturbed", "with a killed worker", "repetitions", "identical results")
    return markdown(head, map(_kills, by_job(measured("kills"))))


def _kills(of_job: tuple[str, list[Mapping[str, Any]]]) -> tuple[str, ...]:
    job, rows = of_job
    seconds = [row["seconds"] for row in rows]
    disturbed = f"{min(seconds):.1f} s to {max(seconds):.1f} s"
    return WORK[job], f"{rows[0]['undisturbed']:.1f} s", disturbed, f"{len(rows)}", yes(rows)


def simulation() -> str:
    found = read("many_workers")
    head = ("mean time per task", "total", "workers busy", "lost to scheduling", "to starting", "to last tasks")
    rows = (
        (
            f"{row['mean_seconds']:g} s",
            f"{row['seconds']:,.0f} s",
            *(f"{row[part]:.0%}" for part in ("utilisation", "handing_out", "starting", "last_tasks")),
        )
        for row in found["rows"]
    )
    return markdown(head, rows)


def yes(rows: list[Mapping[str, Any]]) -> str:
    """Return "yes" if all runs agree bit for bit."""
    return "yes" if all(row["identical"] for row in rows) else "**no**"
