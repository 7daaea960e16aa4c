"""Start processes for tests, forked from one process that has imported the large libraries."""

import multiprocessing
from collections.abc import Callable
from typing import Any

# theorykit itself is imported by each process, as by a new process of a user.
LIBRARIES = ["equinox", "h5netcdf", "jax", "lineax", "optimistix", "sympy", "xarray"]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(LIBRARIES)
# Seconds that a process may take on a busy machine.
PATIENCE = 300


def start(function: Callable[..., Any], *arguments: Any) -> multiprocessing.Process:
    """Start a process that calls a function of a module."""
    process = CONTEXT.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def exit_code(process: multiprocessing.Process) -> int | None:
    """Wait for the end of a process, and return its exit code, or minus the signal that ended it."""
    process.join(PATIENCE)
    return process.exitcode


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function of a module in a new process."""
    here, there = CONTEXT.Pipe()
    process = start(_send, there, function, arguments)
    there.close()
    assert here.poll(PATIENCE), "the process does not answer"
    found = here.recv()
    assert exit_code(process) == 0
    return found


def _send(pipe: Any, function: Callable[..., Any], arguments: tuple) -> None:
    pipe.send(function(*arguments))
