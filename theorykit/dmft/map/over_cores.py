"""A batch of orbits in parts, one a core: XLA runs a step of the map, whose operations are small, on one core alone."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...checks import is_traced
from ...settings import usual_settings
from .self_attention import Parameters, State, map_batch
from .starts import Window

# orbits of a part, which are worth a thread
_FEWEST = 64

Found = TypeVar("Found")


def over_cores(
    compute: Callable[[Parameters, Window | State], Found], parameters: Parameters, start: Window | State
) -> Found:
    """`compute(parameters, start)`, whose arrays have the batch for their last axes, on all cores of a CPU.

    Whole, where the batch is small, within `jax.jit`, on an accelerator, and in a thread that others run beside. What
    is computed must be such as can run in several threads at once, which LAPACK of many matrices cannot.
    """
    of_start = start.batch_shape if isinstance(start, State) else start.attention.shape[2:]
    batch = jnp.broadcast_shapes(parameters.batch_shape, of_start)
    orbits = max(batch, default=1)
    parts = min(os.cpu_count() or 1, orbits // _FEWEST)
    is_beside_others = threading.current_thread() is not threading.main_thread()
    if parts < 2 or is_beside_others or jax.default_backend() != "cpu" or is_traced(parameters, start):
        return compute(parameters, start)
    axis = batch.index(orbits) - len(batch)
    # of one size, so that they are one program
    numbers = np.pad(np.arange(orbits), (0, -orbits % parts), mode="edge").reshape(parts, -1)

    @usual_settings()
    def of_part(part: np.ndarray) -> Found:
        def cut(values: Array, leading: int = 0) -> Array:
            is_same = values.ndim - leading < -axis or values.shape[axis] == 1
            return values if is_same else jnp.take(values, part, axis=axis)

        mine = map_batch(start, cut) if isinstance(start, State) else Window(cut(start.attention, 2), start.position)
        return compute(jax.tree.map(cut, parameters), mine)

    with ThreadPoolExecutor(parts) as threads:
        found = list(threads.map(of_part, numbers))
    return jax.tree.map(lambda *arrays: _joined(arrays, axis, orbits), *found)


def _joined(arrays: tuple[Array, ...], axis: int, orbits: int) -> Array:
    """The arrays of all parts as one; what has no batch, such as the position, is the same in all."""
    if arrays[0].ndim < -axis:
        return arrays[0]
    return jax.lax.slice_in_dim(jnp.concatenate(arrays, axis=axis), 0, orbits, axis=axis % arrays[0].ndim)
