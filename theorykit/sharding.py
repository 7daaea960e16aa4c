"""Arrays of JAX that are sharded over examples, their first axis: checked and summed where they lie.

Only sums over examples travel between devices.
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

from .checks import is_traced


def is_sharded(value: Any) -> bool:
    """Whether `value` is a known array of JAX that no single device holds whole."""
    return isinstance(value, jax.Array) and not is_traced(value) and not value.is_fully_replicated


def sharding_of(array: Array) -> NamedSharding | None:
    """How `array` is sharded, if it is."""
    return array.sharding if is_sharded(array) else None


def outside_meshes() -> AbstractContextManager:
    """A context without the caller's mesh, whose explicit axes would bind every operation in it."""
    if jax.sharding.get_abstract_mesh().empty:
        return nullcontext()
    return jax.set_mesh(Mesh(np.empty((), dtype=object), ()))


def over_examples(name: str, array: Array) -> Array:
    """The same shards of `array`, the compiler splitting work; `ValueError` unless its first axis alone is sharded."""
    found = array.sharding
    spec = found.spec if isinstance(found, NamedSharding) else None
    if spec is None or not spec or spec[0] is None or any(axis is not None for axis in spec[1:]):
        raise ValueError(
            f"{name} of shape {array.shape} is sharded by {found}, and must be over examples, its first axis, alone: "
            "jax.device_put(array, NamedSharding(mesh, PartitionSpec('examples'))) makes it so, 'examples' being an "
            "axis of the mesh"
        )
    if AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types:
        raise ValueError(f"{name} is sharded, and a mesh of explicit axes is set by jax.set_mesh: call this without it")
    # meshes of explicit axes have every operation say how its result is sharded
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
        f"{name} has {count} entries that are not finite, the first {entries[place]} at index {(int(row), *place)}; "
        "check the data for missing values or a division by zero"
    )


@jax.jit
def all_finite(array: Array) -> Array:
    """Whether all entries are finite."""
    return jnp.all(jnp.isfinite(array))


@partial(jax.jit, static_argnames="everywhere")
def _not_finite(array, everywhere):
    """How many entries are not finite, the first example that has one, and this example's entries."""
    bad = ~jnp.isfinite(array)
    row = jnp.argmax(jnp.any(bad, axis=tuple(range(1, array.ndim))))
    # summed rather than looked up, for which the compiler would bring all examples together
    is_row = jnp.expand_dims(jnp.arange(len(array)) == row, tuple(range(1, array.ndim)))
    entries = jnp.sum(jnp.where(is_row, array, 0.0), axis=0)
    return jax.lax.with_sharding_constraint((jnp.sum(bad), row, entries), everywhere)


def by_shard(
    function: Callable[..., Any], sharding: NamedSharding | None, *arrays: Array, whole: Sequence[Array] = ()
) -> Any:
    """`function` of `arrays` with a row per example, applied by every device to its own rows and to all of `whole`."""
    if sharding is None:
        return function(*arrays, *whole)
    rows = PartitionSpec(sharding.spec[0])
    given = (*(rows for _ in arrays), *(PartitionSpec() for _ in whole))
    return jax.shard_map(function, mesh=sharding.mesh, in_specs=given, out_specs=rows)(*arrays, *whole)


def sum_by_blocks(function: Callable[..., Any], block: int, sharding: NamedSharding | None, *arrays: Array) -> Any:
    """The sum of `function` over blocks of so many examples: every device its own blocks, and one all-reduce."""

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
    """In a function being compiled: `array`, with a row per example, on the devices that hold the examples."""
    return array if sharding is None else jax.lax.with_sharding_constraint(array, sharding)


def replicate(tree: Any, sharding: NamedSharding | None) -> Any:
    """In a function being compiled: every array of `tree` on every device, so that every process can read it."""
    if sharding is None:
        return tree
    everywhere = NamedSharding(sharding.mesh, PartitionSpec())

    def held(leaf):
        return jax.lax.with_sharding_constraint(leaf, everywhere) if isinstance(leaf, jax.Array) else leaf

    return jax.tree.map(held, tree)


def of_this_process(tree: Any, sharding: NamedSharding | None) -> Any:
    """Replicated arrays as arrays of this process on one device, so that later operations are of this process alone."""
    if sharding is None:
        return tree
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)) if isinstance(leaf, jax.Array) else leaf, tree)
