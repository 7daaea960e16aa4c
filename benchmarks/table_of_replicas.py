"""The table of replica actions for docs/own-action.md, from the results of replicas.py."""

import kept_results


def table() -> str:
    """Points missed and silently wrong, and seconds for a grid, by the package and by the damped fixed point."""
    rows = []
    for name, row in kept_results.read("replicas").items():
        ours, theirs = row["certified"], row["fixed point"]
        counts = [f"{each['missed']} / {each['silently wrong']}" for each in (ours, theirs)]
        rows.append((name, *counts, *(f"{1000 * each['seconds']:.0f} ms" for each in (ours, theirs))))
    head = ("model", "`saddle`: missed / wrong", "fixed point: missed / wrong", "`saddle`", "fixed point")
    return kept_results.markdown(head, rows)
