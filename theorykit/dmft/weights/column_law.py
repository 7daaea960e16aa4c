"""What the limit of many neurons keeps of the weights: one tanh for each distinct column of output weights.

The mean of w^alpha tanh(beta w^o . A) over neurons is a sum over the classes of neurons that have the same output
weights up to a sign, for tanh is odd: never more than 2^(patterns - 1) of them. A law may also be given by correlations
alone, through the Walsh expansion of tanh, with or without a network that has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from jaxtyping import Float

from ...checks import checked_array, checked_instance, checked_sequence, checked_whole_number
from .weights import FAMILIES, Columns, Weights, columns

Subset = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ColumnLaw:
    """The law of a neuron's weights, as far as the mean field knows it; Eq. (6).

    - `directions`: `(classes, patterns)`, distinct output weights w^o of +-1, the first one +1.
    - `moments`: `(families, classes, patterns)`, for each class the mean over all neurons of its members' weights.
    """

    directions: Float[np.ndarray, "classes patterns"]
    moments: Float[np.ndarray, "families classes patterns"]

    def __post_init__(self):
        for name, axes in (("directions", "classes patterns"), ("moments", "families classes patterns")):
            object.__setattr__(self, name, checked_array(name, getattr(self, name), axes))
        if not np.isin(self.directions, (-1, 1)).all():
            raise ValueError("directions must be +1 or -1, as output weights are")
        if self.moments.shape != (len(FAMILIES), *self.directions.shape):
            raise ValueError(f"moments are {self.moments.shape}, directions {self.directions.shape}")


def column_law(weights: Weights | Columns) -> ColumnLaw:
    """The law of the columns of `weights`; exact for them, and kept as neurons are added in proportion."""
    checked_instance("weights", weights, (Weights, Columns))
    distinct = columns(weights) if isinstance(weights, Weights) else weights
    signs = distinct.signs.astype(float)
    signs = signs * signs[:, :1, :1]  # tanh is odd: a column and its negative are of one class
    directions, of_column = np.unique(signs[:, 0], axis=0, return_inverse=True)
    moments = np.zeros((len(directions), *signs.shape[1:]))
    np.add.at(moments, of_column.ravel(), distinct.counts[:, None, None] / distinct.counts.sum() * signs)
    return ColumnLaw(directions, np.swapaxes(moments, 0, 1))  # Eq. (6)


def odd_subsets(patterns: int) -> tuple[Subset, ...]:
    """Subsets of an odd number of patterns, small ones first: (0,), (1,), ..., (0, 1, 2), ..."""
    return tuple(subset for size in range(1, patterns + 1, 2) for subset in combinations(range(patterns), size))


def correlations(weights: Weights) -> Mapping[Subset, Float[np.ndarray, "families patterns"]]:
    """C, the mean over neurons of a weight times the output weights of every odd subset of patterns; Eq. (7)."""
    semantic = checked_instance("weights", weights, Weights).semantic.astype(float)
    return {
        subset: semantic @ np.prod(semantic[0, list(subset)], axis=0) / weights.neurons
        for subset in odd_subsets(weights.patterns)
    }


def law_from_correlations(given: Mapping[Subset, Float[np.ndarray, "families patterns"]]) -> ColumnLaw:
    """The law with given correlations `(families, patterns)` by subset of patterns; Eq. (7).

    Subsets that are not given have correlation zero; pairs alone, (0,), (1,), ..., are enough for one or two patterns.
    Raises `ValueError` for a subset of even size, which the mean field cannot see, and for shapes that do not fit.
    """
    given = {
        _checked_subset(subset): checked_array("given", value, "families patterns")
        for subset, value in checked_instance("given", given, Mapping).items()
    }
    shapes = {subset: value.shape for subset, value in given.items()}
    if len(set(shapes.values())) != 1 or next(iter(shapes.values()))[0] != len(FAMILIES):
        raise ValueError(f"correlations given must all be ({len(FAMILIES)}, patterns), got {shapes}")
    patterns = next(iter(shapes.values()))[1]
    known = odd_subsets(patterns)
    if unknown := [subset for subset in given if subset not in known]:
        raise ValueError(f"{unknown[0]} given is not an odd subset, in order, of patterns 0 to {patterns - 1}")
    directions = np.array([(1, *signs) for signs in product((1, -1), repeat=patterns - 1)], dtype=float)
    moments = sum(
        np.prod(directions[:, list(subset)], axis=1)[None, :, None] * value[:, None, :]
        for subset, value in given.items()
    )
    return ColumnLaw(directions, moments / len(directions))  # Eq. (7)


def _checked_subset(subset: Subset) -> Subset:
    patterns = checked_sequence("given", subset, "patterns")
    return tuple(checked_whole_number("given", pattern) for pattern in patterns)
