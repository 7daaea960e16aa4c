"""Second moments of features and labels, for more examples than memory holds.

They are sums over examples, so they can be computed in batches: `sum(map(Moments.of, batches))`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...checks import checked_instance, checked_whole_number, counted, finite_array, float64_array
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text
from ...symbolic.documents.values import data_size, number


def _sum_of(name: str, axes: int) -> Any:
    return eqx.field(converter=lambda value: float64_array(name, value, axes))


class Moments(DisplayMixin, eqx.Module):
    """Sums over the examples of a training set. Add the sums of two parts of a data set with `+`.

    Kernels from moments are less accurate than kernels from features: numbers below 1e-8 of the largest are rounding.
    At tiny temperatures use features.

    - `gram` (columns, columns): sum of phi phi^T, with columns = paths x features of a path, the features fastest.
    - `projection` (columns, outputs): sum of phi y^T.
    - `label_square`: sum of y^T y.
    - `examples`: number of examples.
    - `paths`: number of paths in a row of `gram`.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> batches = ((rng.normal(size=(100, 2, 5)), rng.normal(size=100)) for _ in range(3))
        >>> bpkr.Data.of_moments(sum(map(bpkr.Moments.of, batches)))
        Data: 300 training examples
        form             array, 11 examples x 2 paths x 5 features, which replace 300 examples
        training labels  1 output, -1.75 to 17
        memory           976 bytes
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

    @classmethod
    def of(cls, batch: tuple[Any, Any]) -> Moments:
        """Sum over a batch, a pair (features, labels).

        Args:
            batch: path features (examples, paths, features), and labels (examples,) or (examples, outputs).

        Raises:
            ValueError: the batch is not a pair, an array is not finite, or the numbers of examples differ.
        """
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise ValueError(f"batch must be a pair (features, labels), got {type(batch).__name__}")
        features, labels = batch
        features = finite_array("features", features, "examples paths features")
        labels = finite_array("labels", labels, "examples" if np.ndim(labels) == 1 else "examples outputs")
        if len(features) != len(labels):
            raise ValueError(f"features has {counted(len(features), 'example')}, but labels has {len(labels)}")
        flat, targets = features.reshape(len(features), -1), labels.reshape(len(labels), -1)
        sums = flat.T @ flat, flat.T @ targets, jnp.sum(targets**2), len(features)
        return cls(*sums, features.shape[1])

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Second moments** of {counted(int(self.examples), 'example')}")
        sizes = f"{self.paths:,} x {len(self.gram) // self.paths:,}, {counted(self.projection.shape[1], 'output')}"
        mean = self.label_square / self.examples
        rows = (("paths x features", sizes), ("mean square of the labels", number(mean)))
        yield Table((*rows, ("memory", data_size(self.gram.nbytes + self.projection.nbytes))))

    def __add__(self, other: Moments) -> Moments:
        checked_instance("other", other, Moments)
        mine, others = ((s.paths, len(s.gram) // s.paths, s.projection.shape[1]) for s in (self, other))
        if mine != others:
            raise ValueError(f"moments of (paths, features, outputs) = {mine} and {others} cannot be added")
        return jax.tree.map(jnp.add, self, other)

    def __radd__(self, other: Any) -> Moments:
        # `sum` starts with zero.
        return self if isinstance(other, int) and other == 0 else NotImplemented


def equivalent_examples(moments: Moments) -> tuple[np.ndarray, np.ndarray, float]:
    """Return features F, labels z and the number of omitted labels of a set with these moments: F^T F = M, F^T z = b.

    The kernel of these at most D + 1 examples is that of the data, up to a rotation of the examples. The last row is
    the part of the labels that no feature explains. Features and labels of all omitted rows are zero.
    """
    gram, projection = np.asarray(moments.gram), np.asarray(moments.projection)
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    kept = values > len(values) * np.finfo(float).eps * values[-1]
    root = np.sqrt(values[kept])[:, None]
    rows, labels = root * vectors[:, kept].T, vectors[:, kept].T @ projection / root
    rest = np.zeros((1, labels.shape[1]))
    rest[0, 0] = np.sqrt(max(float(moments.label_square) - np.sum(labels**2), 0.0))
    rows, labels = np.vstack([rows, np.zeros(len(gram))]), np.vstack([labels, rest])
    omitted = (float(moments.examples) - len(rows)) * labels.shape[1]
    features = rows.reshape(len(rows), moments.paths, -1)
    return features, labels[:, 0] if labels.shape[1] == 1 else labels, omitted
