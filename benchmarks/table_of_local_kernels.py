"""Write the table of local kernel renormalisation with both programs, from the results of local_kernels.py."""

from collections.abc import Mapping
from typing import Any

import kept_results

HEAD = (
    "patches",
    "examples",
    "channels",
    "`bpkr.solve`",
    "published program",
    "ratio",
    "result of the published program",
)


def table() -> str:
    """Return the table of cases, times of both programs, and the result of the published program."""
    found = kept_results.read("local_kernels")
    return kept_results.markdown(HEAD, (row(case, found["limit_gibibytes"]) for case in found["cases"]))


def row(case: Mapping[str, Any], gibibytes: float) -> tuple[str, ...]:
    """Return the cells of one case. `gibibytes` is the memory limit of the published program."""
    return (
        f"{case['patches']}",
        f"{case['examples']}",
        f"{case['channels']:g}",
        f"{case['own']['seconds']:.2f} s",
        _time(case["published"]),
        _ratio(case),
        _solution(case["published"], gibibytes),
    )


def _time(published: Mapping[str, Any]) -> str:
    ended = {"memory": "", "time": f"> {published['seconds']:.0f} s"}
    return ended.get(published.get("error"), f"{published['seconds']:.1f} s")


def _ratio(case: Mapping[str, Any]) -> str:
    """Return the ratio of times, or a lower bound if the published program was stopped."""
    error = case["published"].get("error")
    if error == "memory":
        return ""
    return f"{'> ' if error else ''}{case['published']['seconds'] / case['own']['seconds']:.0f}"


def _solution(published: Mapping[str, Any], gibibytes: float) -> str:
    if published.get("error") == "memory":
        return f"more than {gibibytes:g} GiB"
    if "error" in published:
        return f"stopped after {published['evaluations']} gradients"
    if not published["converged"]:
        return f"not converged: gradient {published['largest_gradient']:.0e}"
    return f"converged, Q differs by {published['difference']:.0e}"
