"""Training and test data in any form. `check_data` checks them against an architecture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from ...checks import (
    Count,
    Requirement,
    array_module,
    check_aligned,
    checked_arguments,
    checked_instance,
    counted,
    has_entries,
    on_host,
    refuse_traced,
    require,
    shown,
)
from ...precision import require_float64
from ...sharding import is_sharded
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import data_size, number
from ...workers import Workers
from ..features.implicit import Features, ImplicitFeatures, PathFeatures
from ..specification.architecture import Architecture, checked_architecture, counted_paths
from . import reading
from .classes import Classes, Coding, Labels, encode_labels, find_classes
from .examples import computable, examples_array, labels_beside
from .statistics import FeatureStatistics, checked_statistics, summed_on_devices


class Data(DisplayMixin, eqx.Module):
    """Training data and optional test data. `bpkr.Problem` checks them against an architecture.

    - `features`: path features (examples, paths, features), as `bpkr.path_features` returns them. Arrays may be sharded
      over examples, but only the matrix-free solver takes sharded arrays.
    - `labels`: (examples,), or (examples, outputs) for several outputs. `bpkr.kernel` does not need labels.
    - `test_features`, `test_labels`: the same for test examples.
    - `classes`: the classes that the labels encode, if the data are from `Data.of_classes`.
    - `moments`: second moments of features and labels, which replace the training arrays. `Data.of_arrays`,
      `of_batches`, `of_files` and `of_devices` sum them in one pass. The cost of a solve then does not depend on the
      number of examples. Moments of two data sets can be added.

    Example:
        >>> import numpy as np
        >>> from theorykit import bpkr
        >>> rng = np.random.default_rng(0)
        >>> bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        Data: 20 training examples
        form             array, 20 examples x 2 paths x 5 features
        training labels  1 output, -1 to 1
        memory           1.76 kB
    """

    features: Any = None
    labels: Any = None
    test_features: Any = None
    test_labels: Any = None
    classes: Classes | None = eqx.field(static=True, default=None)
    moments: FeatureStatistics | None = None

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Data**: {data_line(self)}")
        yield Table(tuple(data_rows(self)))

    @property
    def training(self) -> "Data":
        """The training data alone."""
        return Data(self.features, self.labels, moments=self.moments)

    @classmethod
    def of_classes(
        cls,
        features: ArrayLike | ImplicitFeatures,
        labels: Labels,
        test_features: ArrayLike | ImplicitFeatures | None = None,
        test_labels: Labels | None = None,
        *,
        coding: Coding | None = None,
    ) -> "Data":
        """Make data from class labels.

        Args:
            features: path features (examples, paths, features).
            labels: classes of any type that can be sorted, (examples,).
            test_features: path features of test examples.
            test_labels: classes of test examples, all of which must occur in `labels`.
            coding: how outputs encode the classes; see `bpkr.Classes`.

        Raises:
            ValueError: a label is missing, there is only one class, or a test label is not one of the classes.
        """
        check_aligned(features=features, labels=labels)
        check_aligned(test_features=test_features, test_labels=test_labels)
        classes = find_classes(labels, coding)
        tested = None if test_labels is None else encode_labels("test_labels", classes, test_labels)
        return cls(features, classes.encode(labels), test_features, tested, classes)

    @classmethod
    @checked_arguments
    def of_batches(
        cls,
        batches: Any,
        *,
        executor: Workers = None,
        batches_per_task: Count = 4,
        in_flight: Count = 4,
        checkpoint: Path | str | None = None,
        progress: bool = True,
    ) -> "Data":
        """Sum the moments of batches in one pass, optionally in parallel.

        A batch is a pair (features, labels), or a function that returns one. Workers call these functions, so
        `[partial(load, i) for i in range(n)]` also reads data in parallel.

        Args:
            batches: an iterable of batches, with features (examples, paths, features) and labels (examples,) or
                (examples, outputs).
            executor: where to sum batches: a thread pool, a process pool that spawns, or a dask `Client`. The default
                is this process. The result does not depend on the executor.
            batches_per_task: number of batches that a worker sums at a time. It affects the last digits of the sums.
            in_flight: largest number of unfinished tasks. Use at least the number of workers to keep all busy.
            checkpoint: a file for the sums so far, from which a pass resumes. It is written every 20 seconds and at the
                end. When a pass resumes, finished batches are compared with the file: all batches in memory, and the
                first and last of the others.
            progress: whether to show a bar.

        Raises:
            TypeError: `batches` is not an iterable, or a batch contains something other than arrays of real numbers.
            ValueError: a batch is not a pair, is not finite, has other sizes, or differs from the checkpoint. The
                message contains the file or the number of the batch, from 0.
        """
        if not has_entries(batches) or isinstance(batches, (str, bytes, Mapping)):
            raise TypeError(f"batches must be an iterable of pairs (features, labels), got {shown(batches)}")
        return cls._summed(batches, {"batches_per_task": batches_per_task}, executor, in_flight, checkpoint, progress)

    @classmethod
    @checked_arguments
    def of_files(
        cls,
        files: Iterable[Path | str | tuple[Path | str, Path | str]],
        *,
        variables: tuple[str, str] = ("features", "labels"),
        chunk: Count = 4096,
        files_per_task: Count = 1,
        executor: Workers = None,
        in_flight: Count = 4,
        checkpoint: Path | str | None = None,
        progress: bool = True,
    ) -> "Data":
        """Sum the moments of many files. Workers read the files, so every worker must have access to all of them.

        The other arguments are described in `of_batches`.

        Args:
            files: npz, netCDF or HDF5 files, zarr stores (which need the extra `zarr`), or pairs of npy files
                (features, labels). The named dimensions examples, paths, features and outputs may be in any order.
            variables: names of the arrays of features and labels in a file.
            chunk: number of examples of a file in memory at a time. It affects the last digits of the sums.
            files_per_task: number of files that a worker sums at a time. It also affects the last digits.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: a file cannot be read, or its arrays do not fit; see also `of_batches`.
        """
        pairs = (entry if isinstance(entry, tuple) else (entry,) for entry in files)
        sources = [reading.File(tuple(str(path.absolute()) for path in pair), variables, chunk) for pair in pairs]
        if not sources:
            raise ValueError("files must name at least one file")
        paths = [Path(path) for source in sources for path in source.paths]
        missing = [path for path in paths if not path.exists()]
        # If no file exists here, the workers may still see them.
        if missing and (executor is None or len(missing) < len(paths)):
            more = f", and {len(missing) - 1} more are missing" if len(missing) > 1 else ""
            raise FileNotFoundError(f"there is no file {missing[0]}{more}, of {len(paths)}")
        grouping = {"files_per_task": files_per_task, "chunk": chunk}
        return cls._summed(sources, grouping, executor, in_flight, checkpoint, progress)

    @classmethod
    @checked_arguments
    def of_arrays(
        cls,
        features: Any,
        labels: Any,
        *,
        chunk: Count = 4096,
        executor: Workers = None,
        batches_per_task: Count = 4,
        in_flight: Count = 4,
        checkpoint: Path | str | None = None,
        progress: bool = True,
    ) -> "Data":
        """Sum the moments of two arrays that can be sliced, in memory or on disk.

        Workers read memory maps and h5py datasets that were opened for reading, zarr arrays, and DataArrays and dask
        arrays that are not computed yet. This process reads all other arrays and sends their rows to the workers. The
        other arguments are described in `of_batches`.

        Args:
            features: path features (examples, paths, features). Named dimensions may be in any order.
            labels: (examples,) or (examples, outputs).
            chunk: number of examples per batch. It affects the last digits of the sums.

        Raises:
            TypeError: an array cannot be sliced, or `features` are kernels between paths.
            ValueError: the numbers of examples differ, or an array is sharded over devices; see also `of_batches`.
        """
        refuse_traced("Data.of_arrays", features, labels, reason="reads the arrays batch by batch", anywhere=False)
        reading.refuse_kernels(features, "Data.of_arrays")
        features, labels = reading.in_order(features, labels)
        for name, array in {"features": features, "labels": labels}.items():
            if not isinstance(getattr(array, "shape", None), tuple) or not hasattr(array, "__getitem__"):
                raise TypeError(f"{name} must be an array that can be sliced, got {shown(array)}")
            if is_sharded(array):
                raise ValueError(f"{name} are sharded over devices: use bpkr.Data.of_devices")
        if features.shape[:1] != labels.shape[:1] or features.shape[:1] in ((), (0,)):
            raise ValueError(
                f"features of shape {features.shape} and labels of shape {labels.shape} need equal numbers of examples"
            )
        starts = range(0, features.shape[0], chunk)
        chunks = [reading.Chunk(features, labels, slice(start, start + chunk)) for start in starts]
        return cls._summed(chunks, {"batches_per_task": batches_per_task}, executor, in_flight, checkpoint, progress)

    @classmethod
    def of_devices(cls, features: Array, labels: ArrayLike) -> "Data":
        """Sum the moments of a JAX array on its devices, in one process or several. Every process gets the result.

        Args:
            features: path features (examples, paths, features), optionally sharded over examples.
            labels: (examples,) or (examples, outputs). Labels that are not sharded must be the same in every process.

        Raises:
            TypeError: `features` is not a JAX array, or is traced.
            ValueError: an array is not finite, or is sharded over another axis.
        """
        reading.refuse_kernels(features, "Data.of_devices")
        return cls(moments=summed_on_devices(features, labels))

    @classmethod
    def _summed(cls, *arguments: Any) -> "Data":
        return cls(moments=FeatureStatistics(**reading.sum_batches(*arguments)))


def data_line(data: Data) -> str:
    """Return the numbers of training and test examples, in words."""
    of_arrays = [0 if each is None else np.shape(each)[0] for each in (data.features, data.test_features)]
    train = of_arrays[0] if data.moments is None else int(data.moments.examples)
    tested = f", {counted(of_arrays[1], 'test example')}" if of_arrays[1] else ""
    return f"{counted(train, 'training example')}{tested}"


def data_rows(data: Data) -> Iterator[tuple[str, str]]:
    """Yield the form of the data, the labels or classes, and the memory in bytes as rows of a table."""
    if data.moments is not None:
        form = f"second moments of {counted(data.moments.paths, 'path')} x {counted(data.moments.features, 'feature')}"
    else:
        kind = "kernels of tokens" if isinstance(data.features, ImplicitFeatures) else "array"
        devices = f", on {len(data.features.sharding.device_set)} devices" if is_sharded(data.features) else ""
        sizes = zip(np.shape(data.features), ("example", "path", "feature"), strict=True)
        form = f"{kind}, {' x '.join(counted(*size) for size in sizes)}{devices}"
    yield "form", form
    for name, labels in (("training labels", data.labels), ("test labels", data.test_labels)):
        if labels is None or is_sharded(labels):
            continue
        if data.classes is None:
            shape = np.shape(labels)
            yield name, f"{counted(shape[1] if len(shape) > 1 else 1, 'output')}, {number(labels)}"
        else:
            yield name, verbatim(data.classes._shares(labels))
    yield "memory", data_size(sum(getattr(leaf, "nbytes", 8) for leaf in jax.tree.leaves(data)))


def check_data(architecture: Architecture, data: Data) -> Data:
    """Return `data` as float64 arrays that fit the architecture and each other."""
    require_float64()
    checked_architecture(architecture)
    checked_instance("data", data, Data, "such as bpkr.Data(features, labels)")
    classes, moments = data.classes, data.moments
    if classes is not None:
        checked_instance("classes", classes, Classes, "as bpkr.Data.of_classes makes them")
        if classes.outputs != architecture.outputs:
            raise ValueError(
                f"{len(classes.names)} classes with coding {classes.coding} need {classes.outputs} outputs, but the "
                f"architecture has outputs={architecture.outputs}"
            )
    if moments is None:
        features, labels = _checked_examples(architecture, data.features, data.labels)
        width = features.shape[2]
    elif data.features is not None or data.labels is not None:
        raise ValueError("moments replace the training data: pass either moments, or features and labels")
    else:
        features, labels, moments = None, None, checked_statistics(architecture, moments)
        width = moments.features
    test_features, test_labels = data.test_features, data.test_labels
    if test_features is not None:
        test_features, test_labels = _checked_examples(architecture, test_features, test_labels, "test_")
        check_same_width(width, test_features, "test_features")
    elif test_labels is not None:
        raise ValueError("test_labels need test_features: pass both or neither")
    return Data(features, labels, test_features, test_labels, classes, moments)


def _checked_examples(architecture: Architecture, features: Any, labels: Any, prefix: str = "") -> tuple[Any, Any]:
    """Return checked path features and labels, if any. Errors name them with a `prefix` such as "test_"."""
    check_aligned(**{f"{prefix}features": features, f"{prefix}labels": labels})
    checked = checked_features(architecture, features, f"{prefix}features")
    if labels is None:
        return checked, None
    axes = "examples" if architecture.outputs == 1 else "examples outputs"
    labels = labels_beside(checked, labels, axes, f"{prefix}labels")
    if architecture.outputs not in (1, *labels.shape[1:]):
        raise ValueError(
            f"{prefix}labels of shape {labels.shape} have {labels.shape[1]} outputs, but the architecture has "
            f"outputs={architecture.outputs}"
        )
    return checked, labels


def check_same_width(width: int, others: Features, name: str) -> None:
    """Raise `ValueError` unless `others` have `width` input features."""
    if others.shape[2] != width:
        raise ValueError(f"features have {width} input features, but {name} have {others.shape[2]}")


def check_solvable(architecture: Architecture, data: Data) -> Data:
    """Require that the kernel of checked `data` has a Cholesky factor at the temperature."""
    if data.labels is None or is_sharded(data.features):
        return data
    features, labels = computable(architecture, data.features, data.labels)
    return replace(data, features=features, labels=labels)


def checked_features(
    architecture: Architecture, features: ArrayLike | ImplicitFeatures, name: str = "features"
) -> PathFeatures:
    """Return path features (examples, paths, features) that fit the architecture; sharded ones stay sharded."""
    activations = [activation.name for activation in architecture.activations]
    if isinstance(features, ImplicitFeatures):
        require_float64()
        if architecture.activations != features.activations:
            there = ", ".join(activation.name for activation in features.activations)
            raise ValueError(
                f"{name} are for the activations {there}, but the architecture has the activations "
                f"{', '.join(activations)}: compute them again with bpkr.path_features"
            )
        parts = {part: on_host(getattr(features, part)) for part in ("tokens", "readings", "variances")}
        message = "{} are not finite: entries of {} are infinite or not a number".format
        checked = require(
            features,
            [Requirement(message(name, part), array_module(each).isfinite(each)) for part, each in parts.items()],
        )
    else:
        checked = examples_array(name, features, "examples paths features")
        if not architecture.is_linear:
            raise ValueError(
                f"{name} are an array, but the architecture has nonlinear hidden units ({', '.join(activations)}): "
                "pass the result of bpkr.path_features for this architecture"
            )
    if checked.shape[1] != architecture.paths:
        raise ValueError(
            f"{name} has {counted(checked.shape[1], 'path')} (axis 1 of shape {checked.shape}), but "
            f"{counted_paths(architecture)}; the layout is (examples, paths, features), as bpkr.path_features returns "
            "it"
        )
    return checked
