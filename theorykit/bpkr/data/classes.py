"""Class labels as outputs of a network, and scores."""

import math
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri_exp

from ... import checks
from ..._compat import require_float64

Labels = Iterable[Any]

# Largest number of class numbers.
_MOST_NUMBERED = 20
# Smallest relative standard deviation: divisions do not overflow.
_CERTAIN = 1e-60
# Edges of panels in standard deviations: the density beyond nine is negligible.
_EDGES = np.arange(-9.0, 9.1, 3.0)
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(14)
# Smallest standard deviation relative to the largest number of an example.
_LEAST = 1e-11
# Values of the integrand in memory at a time.
_HELD = 2**20
# Draws of correlated outputs.
_DRAWS = 512
# Edges of panels about a peak that is narrower than the output by an unknown factor.
_GROWING = np.outer([-1, 1], 3.0 ** np.arange(-25, 3)).ravel()


def are_classes(labels: Any) -> bool:
    entries = np.asarray(labels).ravel().tolist()
    return any(isinstance(each, (str, bytes, bool)) for each in entries)


def vector_of_table(labels: Any) -> Any:
    """Return the column of a table that has one, as of pandas, or else `labels`."""
    columns = getattr(labels, "columns", ())
    return labels[columns[0]] if len(columns) == 1 else labels


class LabelsWarning(UserWarning):
    """Numbers as labels look like classes."""


@dataclass(frozen=True)
class Classes:
    """The classes of a task and their coding as outputs of a network.

    Two classes are one output, -1 or 1. More have one output per class, 1 or 0.

    - `names`: the sorted classes, of the same type as the labels.
    """

    names: tuple[Any, ...]

    def __post_init__(self):
        if not 2 <= len(self.names) == len(set(self.names)):
            raise ValueError(f"labels must be of two or more classes, got {checks.shown(self.names)}")

    @property
    def outputs(self) -> int:
        return 1 if len(self.names) == 2 else len(self.names)

    def encode(self, labels: Labels, name: str = "labels") -> Float[Array, "examples *outputs"]:
        """Encode labels (examples,) as outputs."""
        require_float64()
        return jnp.asarray(self.encoded(self.indices_of(labels, name)))

    def encoded(self, indices: np.ndarray) -> np.ndarray:
        return 2.0 * indices - 1.0 if self.outputs == 1 else np.eye(self.outputs)[indices]

    def indices_of(self, labels: Labels, name: str = "labels") -> Int[np.ndarray, " examples"]:
        places = {known: i for i, known in enumerate(self.names)}
        entries = class_labels(name, labels)
        for i, label in enumerate(entries):
            if label not in places:
                raise ValueError(f"{name}[{i}] is {label!r}, not one of the classes {checks.shown(self.names)}")
        return np.array([places[label] for label in entries])

    def decode(self, outputs: ArrayLike) -> NDArray[Any]:
        """Return the classes (examples,) nearest to `outputs`."""
        return np.array(self.names)[self.nearest(self._checked("outputs", outputs))]

    def probabilities(self, mean: ArrayLike, variance: ArrayLike) -> np.ndarray:
        """Return the probability that each class is nearest to Gaussian outputs, to 2e-4.

        Args:
            mean: (examples,) or (examples, outputs).
            variance: in the shape of `mean`, or covariances (examples, outputs, outputs).
                `Prediction.with_noise` includes noise.
        """
        mean, deviation, covariance = self._moments(mean, variance)
        if self.outputs == 1:
            return np.stack([ndtr(-mean / deviation), ndtr(mean / deviation)], axis=1)
        return np.exp(log_largest(mean, deviation, covariance=covariance))

    def log_probability(self, labels: Labels, mean: ArrayLike, variance: ArrayLike) -> np.ndarray:
        """Return the log probability of each example's class, to 0.005 if outputs are correlated."""
        indices = self.indices_of(labels)
        mean, deviation, covariance = self._moments(mean, variance)
        if self.outputs == 1:
            return log_ndtr(np.where(indices == 1, mean, -mean) / deviation)
        return log_largest(mean, deviation, indices, covariance)

    def score(self, labels: Labels, mean: ArrayLike, variance: ArrayLike) -> dict[str, float]:
        """Score how well Gaussian predictions of outputs predict classes.

        Args:
            labels: true classes (examples,).
            mean, variance: as in `probabilities`.

        Returns:
            - `accuracy`: fraction of examples with the right class.
            - `log_loss`: mean of -ln P(true class).
            - `accuracy_error`, `log_loss_error`: standard errors.
        """
        losses = -self.log_probability(labels, mean, variance)
        hits = self.nearest(np.asarray(mean)) == self.indices_of(labels)
        scores = {}
        for name, values in (("accuracy", hits), ("log_loss", losses)):
            scores[name] = float(np.mean(values))
            scores[f"{name}_error"] = float(np.std(values) / np.sqrt(len(values)))
        return scores

    def _moments(self, mean, variance) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return means, standard deviations that are all positive, and any covariances."""
        mean, given = self._checked("mean", mean), checks.checked_array("variance", variance)
        covariance = given if given.ndim == 3 else None
        diagonal = given if covariance is None else np.diagonal(given, axis1=1, axis2=2)
        if mean.shape != diagonal.shape or np.any(diagonal < 0):
            raise ValueError(f"variance must be at least 0 and of the shape {mean.shape} of mean, or covariances")
        return mean, np.maximum(np.sqrt(diagonal), _CERTAIN * np.maximum(np.abs(mean), 1.0)), covariance

    def nearest(self, outputs: np.ndarray) -> Int[np.ndarray, " examples"]:
        return (outputs > 0).astype(int) if self.outputs == 1 else outputs.argmax(axis=1)

    def _checked(self, name, outputs) -> np.ndarray:
        array = checks.checked_array(name, outputs)
        if array.shape != array.shape[:1] + (self.outputs,) * (self.outputs > 1):
            raise ValueError(f"{name} must have {self.outputs} outputs, got shape {array.shape}")
        return array


def class_labels(name, labels) -> list[Any]:
    """Return labels as Python objects of one type."""
    # Without objects, NumPy converts numbers among text to text. Masked entries are None.
    array = np.ma.asarray(vector_of_table(labels), dtype=object)
    if array.ndim != 1 or not array.size:
        raise TypeError(f"{name} must be class labels (examples,), got {checks.shown(labels)}")
    entries = [each.item() if isinstance(each, np.generic) else each for each in array.tolist()]
    for i, label in enumerate(entries):
        is_number = isinstance(label, (int, float)) and math.isfinite(label)
        if not is_number and not isinstance(label, (str, bytes)):
            raise ValueError(f"{name}[{i}] is {checks.shown(label)}, but must be text or finite")
    kinds = {type(label) for label in entries}
    if len(kinds) > 1 and kinds != {int, float}:
        known = sorted(each.__name__ for each in kinds)
        raise TypeError(f"{name} must be of one type, got {known}")
    return entries


def r_squared(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Return the explained fraction of the variance, averaged over outputs, NaN if all labels of one are equal."""
    missed = np.mean((labels - predicted) ** 2, axis=0)
    spread = np.where(np.ptp(labels, axis=0) > 0, np.var(labels, axis=0), np.nan)
    return float(np.mean(1 - missed / spread))


def warn_of_class_numbers(labels: Any) -> None:
    """Warn of labels 0, 1, 2, ... of one output, which are treated as numbers."""
    if checks.is_traced(labels) or np.ndim(labels) != 1:
        return
    values, counts = np.unique(np.asarray(labels), return_counts=True)
    is_numbered = 2 <= len(values) <= _MOST_NUMBERED and counts.min() >= 2
    if is_numbered and np.array_equal(values, np.arange(len(values))):
        said = f"labels 0 to {len(values) - 1} of one output are treated as numbers"
        said += "; for classes use Data.of_classes or Model(classes=True)"
        # The user's call is above our functions and those that wrap them.
        wrappers = "theorykit.", "equinox.", "contextlib"
        frame, level = sys._getframe(), 1
        while frame.f_back and frame.f_globals["__name__"].startswith(wrappers):
            frame, level = frame.f_back, level + 1
        warnings.warn(said, LabelsWarning, stacklevel=level)


def outputs_as_classes(labels: ArrayLike | None) -> tuple[Classes | None, np.ndarray]:
    """Return numbered classes, None if labels are numbers, and the index of each label."""
    array = np.zeros(1) if labels is None else np.asarray(labels)
    classes = Classes((-1, 1) if array.ndim == 1 else tuple(range(array.shape[1])))
    truth = classes.nearest(array)
    # Two classes would be one output.
    is_coded = array.shape[1:] != (2,) and np.array_equal(array, classes.encoded(truth))
    return (classes if is_coded else None), truth


def log_largest(mean, deviation, output=None, covariance=None) -> np.ndarray:
    """Return log P that each of several Gaussian outputs, or `output`, is the largest."""
    scale = np.max(np.abs(mean) + deviation, axis=1, keepdims=True)
    deviation = np.maximum(deviation, _LEAST * np.where(scale > 0, scale, 1.0))
    mean = mean - np.max(mean, axis=1, keepdims=True)
    edges = (mean[:, :, None] + deviation[:, :, None] * _EDGES).reshape(len(mean), -1)
    if output is None:
        found = _log_integrals(mean, deviation, edges)
        if covariance is not None:
            found += _log_of_correlation(mean[:, None], deviation[:, None], covariance[:, None], range(len(mean.T)))
        return found - logsumexp(found, axis=1, keepdims=True)
    # Newton's method finds the peak of the integrand if each distribution function above
    # it is replaced by a Gaussian. Panels that grow from there resolve every width.
    own, peak = output[:, None] == np.arange(mean.shape[1]), np.zeros((len(mean), 1))
    for _ in range(mean.shape[1]):
        precision = np.where(own | (mean > peak), deviation**-2, 0.0)
        total = np.sum(precision, axis=1, keepdims=True)
        peak = np.sum(precision * mean, axis=1, keepdims=True) / total
    edges = np.hstack([edges, peak, peak + deviation[own][:, None] * _GROWING])
    found = _log_integrals(mean, deviation, edges)[own]
    if covariance is not None:
        found += _log_of_correlation(mean, deviation, covariance, output)
    # Rounding can make the log probability positive.
    return np.minimum(found, 0.0)


@partial(np.vectorize, signature="(n),(n),(n,n),()->()")
def _log_of_correlation(mean, deviation, covariance, output) -> float:
    """Return log P that `output` is the largest minus that of independent outputs.

    Draw one output after the other from values below `output` (A. Genz, J. Comput.
    Graph. Stat. 1 (1992) 141). With the same numbers, most errors of both cancel.
    """
    lead = mean[output] - mean
    lead[output] = np.inf
    # Draw outputs that are rarely below first.
    order, unit = np.argsort(lead)[:-1], np.eye(len(mean))
    away, found = unit[output] - unit[order], []
    independent = np.diag(deviation**2)
    for each in (np.where(unit, independent, covariance), independent):
        ahead, between, total = lead[order][:, None], away @ each @ away.T, 0.0
        for i, drawn in enumerate(_log_points(len(order))):
            # Rounding can make the variance negative, given the outputs before.
            root = np.sqrt(max(between[i, i], _LEAST * (away[i] ** 2 @ deviation**2)))
            column = between[:, i, None] / root
            below = log_ndtr(ahead[i] / root)
            total = total + below
            ahead = ahead - column * ndtri_exp(drawn + below)
            between = between - column * column.T
        found.append(logsumexp(total))
    return found[0] - found[1]


@lru_cache
def _log_points(count: int) -> Float[np.ndarray, "count draws"]:
    from scipy.stats import qmc

    # Points are multiples of 2^-30.
    return np.log(qmc.Sobol(count, seed=0).random(_DRAWS) + 2.0**-31).T


def _log_integrand(mean, deviation, values) -> np.ndarray:
    """Return the log density of each output times P of the others below it."""
    away = (values[:, :, None] - mean[:, None]) / deviation[:, None]
    below = log_ndtr(away)
    own = away**2 / 2 + np.log(deviation * np.sqrt(2 * np.pi))[:, None]
    return np.sum(below, axis=2, keepdims=True) - below - own


def _log_integrals(mean, deviation, edges) -> np.ndarray:
    found, nodes = np.empty_like(mean), len(_POINTS) * edges.shape[1]
    batch = max(1, _HELD // (mean.shape[1] * nodes))
    for first in range(0, len(mean), batch):
        some = slice(first, first + batch)
        ends = np.sort(edges[some], axis=1)[:, :, None]
        left, half = ends[:, :-1], np.diff(ends, axis=1) / 2
        values = (left + half * (1 + _POINTS)).reshape(len(left), -1)
        weights = (half * _WEIGHTS).reshape(len(left), -1, 1)
        terms = _log_integrand(mean[some], deviation[some], values)
        found[some] = logsumexp(terms, b=weights, axis=1)
    return found
