"""The table of replica actions for docs/own-action.md, from the results of replicas.py."""

import kept_results


def table() -> str:
    """Of 256 parameters each: how many are missed, how many wrong unsaid, and the seconds of both ways."""
    rows = (
        (
            name,
            *(f"{of[way]['missed']}, {of[way]['silently wrong']}" for way in ("certified", "fixed point")),
            f"{of['certified']['first']:.1f} s",
            *(f"{1000 * of[way]['seconds']:.3g} ms" for way in ("certified", "fixed point")),
        )
        for name, of in kept_results.read("replicas").items()
    )
    head = ("action", "ours: missed, wrong", "iteration: missed, wrong", "ours, first", "ours", "iteration")
    return kept_results.markdown(head, rows)
