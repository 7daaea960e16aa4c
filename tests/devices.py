"""Processes with several devices, and several processes with one each, on this machine: what sharded arrays need."""

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import theorykit

Call = Callable[..., Any]


@contextmanager
def process_of_devices(count: int) -> Iterator[Call]:
    """Calls functions of modules in a process that sees so many devices, and returns what they do."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    with _process(theorykit.enable_float64) as pool:
        with patch.dict(os.environ, XLA_FLAGS=flags):
            assert pool.submit(jax.device_count).result() == count
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


@contextmanager
def processes_together(count: int) -> Iterator[Call]:
    """Calls functions of modules in so many processes, which are one computation of JAX; a list of what they return."""
    address = free_address()
    with ExitStack() as stack:
        pools = [stack.enter_context(_process(_join, address, count, number)) for number in range(count)]

        def call(function: Callable, *arguments: Any) -> list:
            return [future.result() for future in [pool.submit(function, *arguments) for pool in pools]]

        try:
            yield call
        finally:
            # which each waits for the others to do
            call(jax.distributed.shutdown)


def free_address() -> str:
    """Host and port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


def _process(initialise: Callable, *arguments: Any) -> ProcessPoolExecutor:
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=spawn, initializer=initialise, initargs=arguments)


def _join(address: str, count: int, number: int) -> None:
    theorykit.enable_float64()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, count, number)


def over_examples(*arrays: np.ndarray) -> list[jax.Array]:
    """Sharded over their first axis, by all devices of all processes; every process keeps its own part."""
    sharding = NamedSharding(jax.make_mesh((jax.device_count(),), ("examples",)), PartitionSpec("examples"))
    return [jax.make_array_from_callback(array.shape, sharding, lambda rows, a=array: a[rows]) for array in arrays]
