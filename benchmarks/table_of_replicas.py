"""Write the table of replica actions from the results of replicas.py."""

import kept_results
from replicas import MANY
from table_of_sizes import shown


def table() -> str:
    """Return the table of missed and silently wrong answers among 256, and the processor times of all methods."""
    rows = (
        (
            name,
            *(f"{of[way]['missed']}, {of[way]['silently wrong']}" for way in ("certified", "JAX")),
            shown(of["certified"]["first"]["processor_seconds"]),
            *(shown(of[way]["again"]["processor_seconds"]) for way in ("certified", "NumPy", "JAX")),
            _with_more_nodes(of),
        )
        for name, of in kept_results.read("replicas").items()
    )
    head = (
        "action",
        "theorykit: missed, wrong",
        "iteration: missed, wrong",
        "theorykit, first",
        "theorykit",
        "iteration, NumPy",
        "iteration, JAX",
        f"iteration, {MANY} nodes: missed, wrong; NumPy",
    )
    return kept_results.markdown(head, rows)


def _with_more_nodes(of: dict) -> str:
    found = of.get(f"NumPy, {MANY} nodes")
    if found is None:
        return ""
    return f"{found['missed']}, {found['silently wrong']}; {shown(found['again']['processor_seconds'])}"
