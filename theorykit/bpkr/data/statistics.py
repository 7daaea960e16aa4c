"""Second moments of features and labels: all that the dual form needs of the data, whatever the number of examples.

Numbers for the symbols M, b, y2 and P of `Action.dual`. They are sums over examples, so parts of a data set may be
summed anywhere, in any order, and added; `theorykit.bpkr.data.streaming` does so batch by batch.
"""

from collections.abc import Iterator
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import (
    Requirement,
    array_module,
    checked_instance,
    checked_symmetric,
    checked_whole_number,
    float64_array,
    is_traced,
    on_host,
    real_array,
    require,
    shown,
)
from ...precision import require_float64
from ...sharding import is_sharded, outside_meshes, sharding_of, sum_by_blocks
from ..specification.architecture import Architecture, checked_architecture, counted_paths
from .batches import refuse_kernels
from .examples import check_finite_examples, labels_beside, layout_of_examples

_BLOCK_BYTES = 2**25


class FeatureStatistics(eqx.Module):
    """Sums over the examples of a training set.

    - `gram`: sum of phi phi^T (columns, columns), columns = paths x features of a path, the features fastest.
    - `projection`: sum of phi y^T (columns, outputs).
    - `label_square`: sum of y^T y, a number.
    - `examples`: how many there are, a number.
    - `paths`: how many paths a row of `gram` runs over.

    Statistics of two parts of a data set are added by `+`. Raises `ValueError` where shapes do not fit.
    """

    gram: Float[Array, "_ _"] = eqx.field(converter=lambda value: float64_array("gram", value, 2))
    projection: Float[Array, "_ _"] = eqx.field(converter=lambda value: float64_array("projection", value, 2))
    label_square: Float[Array, ""] = eqx.field(converter=lambda value: float64_array("label_square", value, 0))
    examples: Float[Array, ""] = eqx.field(converter=lambda value: float64_array("examples", value, 0))
    paths: int = eqx.field(static=True)

    def __check_init__(self):
        columns = len(self.gram)
        if self.gram.shape != (columns, columns) or len(self.projection) != columns:
            raise ValueError(
                f"gram must have shape (columns, columns) and projection (columns, outputs), got {self.gram.shape} "
                f"and {self.projection.shape}"
            )
        if columns % checked_whole_number("paths", self.paths, least=1):
            raise ValueError(f"gram has {columns} columns, which are not those of {self.paths} paths")

    @property
    def features(self) -> int:
        """Features of a path."""
        return len(self.gram) // self.paths

    @property
    def outputs(self) -> int:
        """Outputs of the network: columns of the labels."""
        return self.projection.shape[1]

    def __add__(self, other: "FeatureStatistics") -> "FeatureStatistics":
        checked_instance("other", other, FeatureStatistics)
        mine, others = ((s.paths, s.features, s.outputs) for s in (self, other))
        if mine != others:
            raise ValueError(f"statistics of (paths, features, outputs) = {mine} and {others} cannot be added")
        return FeatureStatistics(
            gram=self.gram + other.gram,
            projection=self.projection + other.projection,
            label_square=self.label_square + other.label_square,
            examples=self.examples + other.examples,
            paths=self.paths,
        )


def summed(features: Float[Array, "examples paths features"], labels: Float[Array, "..."]) -> FeatureStatistics:
    """The statistics of a data set that JAX holds; differentiable."""
    examples, paths, _ = features.shape
    flat, columns = features.reshape(examples, -1), labels.reshape(examples, -1)
    return FeatureStatistics(flat.T @ flat, flat.T @ columns, jnp.sum(labels**2), examples, paths)


def sum_on_devices(features: Array, labels: ArrayLike) -> FeatureStatistics:
    """The statistics of a training set that devices hold, summed where it lies: an array of JAX, sharded or not.

    `features` (examples, paths, features) as `path_features` returns them, and `labels` (examples,), or (examples,
    outputs). Sharded features are so over examples, on devices of one process or of many: every device sums its own
    examples, a block at a time, and these sums are added up by all-reduces; every process gets the result. Labels that
    are not sharded are the same in every process.

    Raises `TypeError` for features that are no array of JAX, which `Data.of_arrays` takes; `ValueError` for
    shapes that do not fit, values that are not finite, and arrays that are sharded otherwise.
    """
    require_float64()
    refuse_kernels(features, "Data.of_devices")
    if not isinstance(features, jax.Array) or is_traced(features, labels):
        raise TypeError(
            f"features must be an array of JAX that devices hold, got {shown(features)}; bpkr.Data.of_arrays "
            "takes others"
        )
    with outside_meshes():
        features = layout_of_examples("features", features, "examples paths features")
        labels = labels if is_sharded(labels) else real_array("labels", labels)
        labels = labels_beside(features, labels, "examples" if labels.ndim == 1 else "examples outputs")
        sums = jax.tree.map(np.asarray, _summed_by_blocks(features, labels, _block(features), sharding_of(features)))
        if not all(np.all(np.isfinite(value)) for value in sums.values()):
            check_finite_examples("features", features)
            raise ValueError("products of features and labels are beyond double precision")
    return FeatureStatistics(**sums, examples=len(features), paths=features.shape[1])


def _block(features: Array) -> int:
    """How many examples are summed at a time: as many as columns at least, so that adding up is the lesser work."""
    columns = features.shape[1] * features.shape[2]
    return max(columns, _BLOCK_BYTES // (8 * columns))


@partial(jax.jit, static_argnames=("block", "sharding"))
def _summed_by_blocks(features, labels, block, sharding):
    def of_block(features, labels):
        # numbers of other types are converted here, where a block is all that is copied
        flat, columns = features.reshape(len(features), -1).astype(jnp.float64), labels.reshape(len(labels), -1)
        return {"gram": flat.T @ flat, "projection": flat.T @ columns, "label_square": jnp.sum(columns**2)}

    return sum_by_blocks(of_block, block, sharding, features, labels)


def checked_statistics(architecture: Architecture, statistics: FeatureStatistics) -> FeatureStatistics:
    """`statistics`, refused unless they fit the architecture, are finite, and its temperature is positive."""
    made_by = "which bpkr.Data.of_arrays returns"
    checked_instance("statistics", statistics, FeatureStatistics, made_by)
    if statistics.paths != checked_architecture(architecture).paths:
        raise ValueError(f"statistics are of {statistics.paths} paths, but {counted_paths(architecture)}")
    if statistics.outputs != architecture.outputs:
        raise ValueError(f"statistics are of labels of {statistics.outputs} outputs, not {architecture.outputs}")
    statistics = require(statistics, _usable(architecture, statistics))
    gram = checked_symmetric("statistics: gram", statistics.gram)
    return eqx.tree_at(lambda at: at.gram, statistics, gram) if is_traced(gram) else statistics


def _usable(architecture: Architecture, statistics: FeatureStatistics) -> Iterator[Requirement]:
    temperature = on_host(architecture.temperature)
    divides = "the dual form divides by the temperature"
    yield Requirement(
        f"{divides}: use a positive one",
        temperature > 0,
        lambda: f"{divides}, and temperature={temperature}; use a positive one",
    )
    for name in ("gram", "projection", "label_square", "examples"):
        value = on_host(getattr(statistics, name))
        is_finite = array_module(value).isfinite(value)
        message = f"statistics: {name} has {{}}entries that are not finite".format
        yield Requirement(message(""), is_finite, lambda finite=is_finite, say=message: say(f"{np.sum(~finite)} "))
    square, examples = on_host(statistics.label_square), on_host(statistics.examples)
    negative = "statistics: label_square must not be negative"
    yield Requirement(negative, square >= 0, lambda: f"{negative}, got {square}")
    yield Requirement("statistics are of no examples", examples >= 1, lambda: f"statistics are of {examples} examples")
