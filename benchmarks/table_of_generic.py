"""Write the table that compares both minimisers, from the results of generic.py."""

import kept_results


def table() -> str:
    """Return the table of problems, times of the specialised and the generic solver, and differences of minima."""
    rows = (
        (
            row["problem"],
            f"{row['paths']}",
            f"{row['width']:g}",
            f"{1000 * row['own_seconds']:.0f} ms",
            f"{1000 * row['generic_seconds']:.0f} ms",
            f"{row['ratio']:.1f}",
            f"{row['action_difference']:.0e}",
        )
        for row in kept_results.read("generic")["rows"]
    )
    head = ("problem", "paths", "width", "`bpkr.solve`", "`saddle.minimise`", "ratio", "difference of actions")
    return kept_results.markdown(head, rows)
