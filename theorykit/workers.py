"""Executors that work may be handed to."""

from concurrent.futures import Executor


def refuse_forks(executor: Executor | None) -> None:
    """Raise `ValueError` for an executor whose processes are forks of this one, in which JAX has threads."""
    # the only sign of how a pool starts its processes
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "the executor forks its processes, which may hang once JAX has run; give it "
            'mp_context=multiprocessing.get_context("spawn")'
        )
