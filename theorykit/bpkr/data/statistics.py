"""Second moments of features and labels, from which the dual form is computed for any number of examples.

They are the values of the symbols M, b, y2 and P of `Action.dual`. They are sums over examples, so they can be computed
in parts.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import (
    Requirement,
    checked_array,
    checked_instance,
    checked_symmetric,
    checked_whole_number,
    counted,
    finite_entries,
    float64_array,
    is_traced,
    on_host,
    real_array,
    require,
    shown,
)
from ...compilation import jit_and_keep
from ...precision import require_float64
from ...sharding import check_finite, is_sharded, outside_meshes, sharding_of, sum_by_blocks
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text
from ...symbolic.documents.values import data_size, number
from ..specification.architecture import Architecture, counted_paths
from .examples import labels_beside, layout_of_examples

# Size of the features of one block of examples, which are summed at a time.
_BLOCK_BYTES = 2**25


def _sum_of(name: str, axes: int) -> Any:
    return eqx.field(converter=lambda value: float64_array(name, value, axes))


class FeatureStatistics(DisplayMixin, eqx.Module):
    """Sums over the examples of a training set. Add the sums of two parts of a data set with `+`.

    - `gram` (columns, columns): sum of phi phi^T, with columns = paths x features of a path, the features fastest.
    - `projection` (columns, outputs): sum of phi y^T.
    - `label_square`: sum of y^T y.
    - `examples`: number of examples.
    - `paths`: number of paths in a row of `gram`.
    """

    gram: Float[Array, "_ _"] = _sum_of("gram", 2)
    projection: Float[Array, "_ _"] = _sum_of("projection", 2)
    label_square: Float[Array, ""] = _sum_of("label_square", 0)
    examples: Float[Array, ""] = _sum_of("examples", 0)
    paths: int = eqx.field(static=True)

    def __check_init__(self):
        columns = len(self.gram)
        if self.gram.shape != (columns, columns) or len(self.projection) != columns:
            raise ValueError(
                f"gram must have shape (columns, columns) and projection (columns, outputs), got {self.gram.shape} "
                f"and {self.projection.shape}"
            )
        if columns % checked_whole_number("paths", self.paths, least=1):
            raise ValueError(
                f"gram has {counted(columns, 'column')}, which is not a multiple of {counted(self.paths, 'path')}"
            )

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Second moments** of {counted(int(self.examples), 'example')}")
        sizes = f"{self.paths:,} x {self.features:,}, {counted(self.outputs, 'output')}"
        mean = self.label_square / self.examples
        rows = (("paths x features", sizes), ("mean square of the labels", number(mean)))
        yield Table((*rows, ("memory", data_size(self.gram.nbytes + self.projection.nbytes))))

    @property
    def features(self) -> int:
        """Number of features per path."""
        return len(self.gram) // self.paths

    @property
    def outputs(self) -> int:
        """Number of outputs, the columns of the labels."""
        return self.projection.shape[1]

    def __add__(self, other: "FeatureStatistics") -> "FeatureStatistics":
        checked_instance("other", other, FeatureStatistics)
        mine, others = ((s.paths, s.features, s.outputs) for s in (self, other))
        if mine != others:
            raise ValueError(f"statistics of (paths, features, outputs) = {mine} and {others} cannot be added")
        return jax.tree.map(jnp.add, self, other)


def summed(
    features: Float[Array, "examples paths features"], labels: Float[Array, "..."], examples: Any = None
) -> FeatureStatistics:
    """Return the statistics of a data set in JAX arrays, some of which may be zeros if `examples` is their number.

    The function is differentiable.
    """
    examples = len(features) if examples is None else examples
    return FeatureStatistics(**_sums(features, labels), examples=examples, paths=features.shape[1])


sum_examples = jit_and_keep(summed)


def summed_on_devices(features: Array, labels: ArrayLike) -> FeatureStatistics:
    """Return the statistics of a JAX array, summed on its devices: see `Data.of_devices`."""
    require_float64()
    if not isinstance(features, jax.Array) or is_traced(features, labels):
        raise TypeError(
            f"features must be a JAX array on devices, got {shown(features)}; use bpkr.Data.of_arrays for other arrays"
        )
    with outside_meshes():
        features = layout_of_examples("features", features, "examples paths features")
        labels = labels if is_sharded(labels) else real_array("labels", labels)
        labels = labels_beside(features, labels, "examples" if labels.ndim == 1 else "examples outputs")
        columns = features.shape[1] * features.shape[2]
        # Sum at least as many examples as columns at a time, so that the additions cost less than the products.
        block = max(columns, _BLOCK_BYTES // (8 * columns))
        sums = jax.tree.map(np.asarray, _summed_by_blocks(features, labels, block, sharding_of(features)))
        if not all(np.all(np.isfinite(value)) for value in sums.values()):
            (check_finite if is_sharded(features) else checked_array)("features", features)
            raise ValueError("products of features and labels exceed the range of double precision: rescale them")
    return FeatureStatistics(**sums, examples=len(features), paths=features.shape[1])


@partial(jax.jit, static_argnames=("block", "sharding"))
def _summed_by_blocks(features, labels, block, sharding):
    return sum_by_blocks(_sums, block, sharding, features, labels)


def _sums(features, labels):
    # Convert other data types here, so that only one block is copied.
    flat, columns = features.reshape(len(features), -1).astype(jnp.float64), labels.reshape(len(labels), -1)
    return {"gram": flat.T @ flat, "projection": flat.T @ columns, "label_square": jnp.sum(columns**2)}


def checked_statistics(architecture: Architecture, statistics: FeatureStatistics) -> FeatureStatistics:
    """Require finite `statistics` that fit the architecture, and a positive temperature."""
    checked_instance("statistics", statistics, FeatureStatistics, "which bpkr.Data.of_arrays sums")
    if statistics.paths != architecture.paths:
        raise ValueError(f"statistics are for {counted(statistics.paths, 'path')}, but {counted_paths(architecture)}")
    if statistics.outputs != architecture.outputs:
        raise ValueError(
            f"statistics have {counted(statistics.outputs, 'output')}, but the architecture has {architecture.outputs}"
        )
    temperature = on_host(architecture.temperature)
    positive = "the dual form divides by the temperature: use a positive temperature"
    conditions = [Requirement(positive, temperature > 0, lambda: f"{positive}, not temperature={temperature}")]
    for name in ("gram", "projection", "label_square", "examples"):
        conditions.append(finite_entries(f"statistics: {name}", on_host(getattr(statistics, name))))
    for name, least in {"label_square": 0, "examples": 1}.items():
        value, message = on_host(getattr(statistics, name)), f"statistics: {name} must be at least {least}"
        told = lambda message=message, value=value: f"{message}, got {value}"  # noqa: E731
        conditions.append(Requirement(message, value >= least, told))
    statistics = require(statistics, conditions)
    gram = checked_symmetric("statistics: gram", statistics.gram)
    return eqx.tree_at(lambda at: at.gram, statistics, gram) if is_traced(gram) else statistics
