"""Write the table of threads from the results of threads.py."""

import kept_results


def table() -> str:
    """Return ratios of the default time to the time with one thread, on an idle and a busy machine."""
    ratios, seconds = {}, {}
    for version, rows in kept_results.read("threads").items():
        for row in rows:
            case = row["function"], row["examples"]
            ratios[case, row["busy"], version] = row["default"] / row["one"]
            if version == "now" and not row["busy"]:
                seconds[case] = row["one"]
    columns = [(busy, version) for busy in (False, True) for version in ("before", "now")]
    body = []
    for name, examples in seconds:
        of_case = (f"{ratios[(name, examples), *column]:.2f}" for column in columns)
        body.append((f"`{name}`", str(examples), f"{1e3 * seconds[name, examples]:.3g} ms", *of_case))
    head = ("function", "examples", "one thread", "idle, before", "idle, now", "busy, before", "busy, now")
    return kept_results.markdown(head, body)
