"""Check and sum JAX arrays that are sharded over examples, their first axis, without gathering them.

Devices exchange only sums over examples.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .checks import counted, is_traced


def is_sharded(value: Any) -> bool:
    """Check whether `value` is a concrete JAX array that is split over several devices."""
    return isinstance(value, jax.Array) and not is_traced(value) and not value.is_fully_replicated


def sharding_of(array: Array) -> NamedSharding | None:
    """Return the sharding of `array`, or None if it is not sharded."""
    return array.sharding if is_sharded(array) else None


def outside_meshes() -> AbstractContextManager:
    """Return a context without the caller's mesh, whose explicit axes would constrain every operation."""
    if jax.sharding.get_abstract_mesh().empty:
        return nullcontext()
    return jax.set_mesh(Mesh(np.empty((), dtype=object), ()))


def over_examples(name: str, array: Array) -> Array:
    """Return `array` on a mesh with automatic axes; raise `ValueError` unless only its first axis is sharded."""
    found = array.sharding
    spec = found.spec if isinstance(found, NamedSharding) else None
    if spec is None or not spec or spec[0] is None or any(axis is not None for axis in spec[1:]):
        raise ValueError(
            f"{name} of shape {array.shape} is sharded by {found}, but must be sharded only over examples, its first "
            "axis: use jax.device_put(array, NamedSharding(mesh, PartitionSpec('examples'))), where 'examples' is an "
            "axis of the mesh"
        )
    if AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types:
        raise ValueError(
            f"{name} is sharded, and jax.set_mesh has set a mesh with explicit axes: call this function outside it"
        )
    # A mesh with explicit axes would require every operation to state the sharding of its result.
    sharding = NamedSharding(Mesh(found.mesh.devices, found.mesh.axis_names), PartitionSpec(spec[0]))
    shards = [shard.data for shard in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(array.shape, sharding, shards)


def check_finite(name: str, array: Array) -> None:
    """Raise `ValueError` unless all entries of a sharded array are finite."""
    if all_finite(array):
        return
    count, row, entries = map(np.asarray, _not_finite(array, NamedSharding(array.sharding.mesh, PartitionSpec())))
    place = tuple(int(i) for i in np.argwhere(~np.isfinite(entries))[0])
    raise ValueError(
        f"{name} is not finite in {counted(count, 'entry')}, the first {entries[place]} at index {(int(row), *place)}; "
        "check the data for missing values or a division by zero"
    )


@jax.jit
def all_finite(array: Array) -> Array:
    """Check whether all entries are finite."""
    return jnp.all(jnp.isfinite(array))


@partial(jax.jit, static_argnames="everywhere")
def _not_finite(array, everywhere):
    """Return the number of entries that are not finite, the index of the first such example, and its entries."""
    bad = ~jnp.isfinite(array)
    row = jnp.argmax(jnp.any(bad, axis=tuple(range(1, array.ndim))))
    # Select the row by a masked sum: for an index, the compiler would gather all examples on one device.
    is_row = jnp.expand_dims(jnp.arange(len(array)) == row, tuple(range(1, array.ndim)))
    entries = jnp.sum(jnp.where(is_row, array, 0.0), axis=0)
    return jax.lax.with_sharding_constraint((jnp.sum(bad), row, entries), everywhere)


def by_shard(
    function: Callable[..., Any], sharding: NamedSharding | None, *arrays: Array, whole: Sequence[Array] = ()
) -> Any:
    """Apply `function` on every device to its rows of `arrays`, one row per example, and to the arrays `whole`."""
    if sharding is None:
        return function(*arrays, *whole)
    rows = PartitionSpec(sharding.spec[0])
    given = (*(rows for _ in arrays), *(PartitionSpec() for _ in whole))
    return jax.shard_map(function, mesh=sharding.mesh, in_specs=given, out_specs=rows)(*arrays, *whole)


def sum_by_blocks(function: Callable[..., Any], block: int, sharding: NamedSharding | None, *arrays: Array) -> Any:
    """Sum `function` over blocks of `block` examples: first on every device, then over devices in one all-reduce."""

    def of_device(*own):
        count = min(block, len(own[0]))
        blocks, rest = divmod(len(own[0]), count)
        first = rest or count
        total = function(*(array[:first] for array in own))

        def add(number, total):
            start = first + number * count
            return jax.tree.map(
                jnp.add, total, function(*(jax.lax.dynamic_slice_in_dim(array, start, count) for array in own))
            )

        return jax.lax.fori_loop(0, blocks if rest else blocks - 1, add, total)

    if sharding is None:
        return of_device(*arrays)
    rows = PartitionSpec(sharding.spec[0])
    summed = jax.shard_map(
        lambda *own: jax.lax.psum(of_device(*own), sharding.spec[0]),
        mesh=sharding.mesh,
        in_specs=rows,
        out_specs=PartitionSpec(),
    )
    return summed(*arrays)


def shard_like(array: Array, sharding: NamedSharding | None) -> Array:
    """Place `array`, with one row per example, on the devices that hold the examples. Call this within a jit."""
    return array if sharding is None else jax.lax.with_sharding_constraint(array, sharding)


def replicate(tree: Any, sharding: NamedSharding | None) -> Any:
    """Place every array of `tree` on every device, so that every process can read it. Call this within a jit."""
    if sharding is None:
        return tree
    everywhere = NamedSharding(sharding.mesh, PartitionSpec())

    def held(leaf):
        return jax.lax.with_sharding_constraint(leaf, everywhere) if isinstance(leaf, jax.Array) else leaf

    return jax.tree.map(held, tree)


def of_this_process(tree: Any, sharding: NamedSharding | None) -> Any:
    """Copy replicated arrays to one device, so that later operations involve no other process."""
    if sharding is None:
        return tree
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)) if isinstance(leaf, jax.Array) else leaf, tree)
