"""Write the table of replica actions from the results of replicas.py."""

import kept_results
from table_of_sizes import shown


def table() -> str:
    """Return the table of missed and silently wrong answers among 256, and the times of both methods."""
    rows = (
        (
            name,
            *(f"{of[way]['missed']}, {of[way]['silently wrong']}" for way in ("certified", "fixed point")),
            shown(of["certified"]["first"]),
            *(shown(of[way]["seconds"]) for way in ("certified", "fixed point")),
        )
        for name, of in kept_results.read("replicas").items()
    )
    head = (
        "action",
        "theorykit: missed, wrong",
        "iteration: missed, wrong",
        "theorykit, first",
        "theorykit",
        "iteration",
    )
    return kept_results.markdown(head, rows)
