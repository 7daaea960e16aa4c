"""Executors that work may be handed to."""

from concurrent.futures import Executor

from .arguments import shown


def check_executor(executor: Executor | None) -> None:
    """Raise `TypeError` for what is no executor, and `ValueError` for one that forks this process.

    JAX has threads here, which forks of the process would lack.
    """
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor must be a concurrent.futures.Executor, got {shown(executor)}")
    # the only sign of how a pool starts its processes
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "the executor forks its processes, which may hang once JAX has run; give it "
            'mp_context=multiprocessing.get_context("spawn")'
        )
