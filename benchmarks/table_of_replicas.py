"""The table of replica actions for docs/own-action.md, from the results of replicas.py."""

import kept_results
from table_of_sizes import shown


def table() -> str:
    """Answers that are missed and silently wrong among 256, and times, for both ways."""
    rows = (
        (
            name,
            *(f"{of[way]['missed']}, {of[way]['silently wrong']}" for way in ("certified", "fixed point")),
            shown(of["certified"]["first"]),
            *(shown(of[way]["seconds"]) for way in ("certified", "fixed point")),
        )
        for name, of in kept_results.read("replicas").items()
    )
    head = ("action", "ours: missed, wrong", "iteration: missed, wrong", "ours, first", "ours", "iteration")
    return kept_results.markdown(head, rows)
