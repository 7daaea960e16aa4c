"""Which regime an orbit is in, from its Lyapunov exponents or from how many distinct values it visits.

Plain functions of finished runs in NumPy; every axis but the last is a batch.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Shaped

from ..checks import (
    check_fields,
    checked_arguments,
    checked_array,
    checked_number,
    checked_whole_number,
    real_array,
    shown,
)

PERIODIC = "periodic"
QUASI_PERIODIC = "quasi-periodic"
DOUBLY_QUASI_PERIODIC = "quasi-periodic (double)"
CHAOTIC = "chaotic"
HYPERCHAOTIC = "hyperchaotic"
UNDECIDED = "undecided"
REGIMES = (PERIODIC, QUASI_PERIODIC, DOUBLY_QUASI_PERIODIC, CHAOTIC, HYPERCHAOTIC, UNDECIDED)

Number = Annotated[Any, checked_number]
Values = Annotated[Any, checked_array]


def kaplan_yorke_dimension(exponents: ArrayLike) -> Float[np.ndarray, "*batch"]:
    """Kaplan-Yorke dimension j + (lambda_1 + ... + lambda_j) / |lambda_{j+1}| from leading exponents (..., exponents).

    j is the largest number of exponents whose sum is not negative; 0 if there is none. Exponents may be -inf and in any
    order; those of the attentions only, since the zeros of the positions add no direction in which the orbit spreads.

    Raises `ValueError` if those of any orbit do not sum to a negative number: more exponents are needed, and
    `kaplan_yorke_lower_bound` takes these.

        >>> import numpy as np
        >>> from theorykit import dynamics
        >>> float(dynamics.kaplan_yorke_dimension(np.array([0.5, 0.0, -1.0])))
        2.5
    """
    ordered = _descending(exponents)
    short = np.argwhere(np.cumsum(ordered, axis=-1)[..., -1] >= 0)
    if len(short):
        index = tuple(short[0].tolist())
        raise ValueError(
            f"the {ordered.shape[-1]} exponents {ordered[index].tolist()} at index {index} do not sum to a negative "
            "number: more exponents are needed for the dimension (kaplan_yorke_lower_bound takes these)"
        )
    return kaplan_yorke_lower_bound(ordered)


def kaplan_yorke_lower_bound(exponents: ArrayLike) -> Float[np.ndarray, "*batch"]:
    """As `kaplan_yorke_dimension`, and the number of exponents where these do not sum to a negative number.

    The dimension is then that number or more; it is exactly that number if these are all exponents there are.
    """
    ordered = _descending(exponents)
    sums = np.cumsum(ordered, axis=-1)
    # partial sums of a descending sequence cross zero once
    kept = np.sum(sums >= 0, axis=-1, keepdims=True)
    reached = np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)
    following = np.concatenate([ordered, np.full_like(sums[..., :1], -np.inf)], axis=-1)
    share = np.take_along_axis(reached, kept, axis=-1) / -np.take_along_axis(following, kept, axis=-1)
    return np.asarray((kept + share)[..., 0])


@checked_arguments
def classify(
    exponents: Any, errors: Any = None, threshold: Annotated[Any, partial(checked_number, above=0.0)] = 1e-4
) -> Shaped[np.ndarray, "*batch"]:
    """The regime, one of `REGIMES`, of every orbit with leading exponents (..., exponents), two at least.

    `exponents` may be a spectrum, as `dmft.lyapunov_spectrum` returns it, whose axis of exponents comes first. It has
    the errors, and what it says of exponents that rounding hides is taken into account.

    By the two largest: lambda_1 below -threshold is periodic, within it quasi-periodic (double if lambda_2 is, too),
    above it chaotic (hyperchaotic if lambda_2 is, too). `errors`, of the shape of `exponents`, are the half widths of
    their error bars, say three times `block_error`; where a bar contains the threshold on which the answer hangs, it is
    "undecided". Without errors this is the published rule, which answers always, however short the run. The exponent 0
    of a quasi-periodic orbit of T steps comes out as a number of order 1/T.
    To a single exponent that is all there is, append -inf.
    """
    unresolved = None
    if hasattr(exponents, "exponents"):
        parts = (exponents.exponents, exponents.errors, exponents.unresolved)
        exponents, own_errors, unresolved = (np.moveaxis(np.asarray(part), 0, -1) for part in parts)
        errors = own_errors if errors is None else errors
    exponents = _leading(exponents, 2)
    if errors is None:
        errors = np.zeros_like(exponents)
    else:
        errors = real_array("errors", errors)
        if errors.shape != exponents.shape:
            raise ValueError(f"errors of shape {errors.shape} do not fit exponents of shape {exponents.shape}")
        errors = np.where(np.isneginf(exponents), 0.0, errors)  # an exponent of -inf has no error
        if (bad := np.argwhere(~(errors >= 0))).size:
            index = tuple(bad[0].tolist())
            raise ValueError(f"errors: {errors[index]} at index {index} is not a number >= 0")
    largest = np.argsort(-exponents, axis=-1)[..., :2]
    values, bars = np.take_along_axis(exponents, largest, axis=-1), np.take_along_axis(errors, largest, axis=-1)
    above = values + bars
    if unresolved is not None:  # may be any
        above = np.where(np.take_along_axis(unresolved, largest, axis=-1), np.inf, above)
    lowest, highest = np.moveaxis(values - bars, -1, 0), np.moveaxis(above, -1, 0)
    negative, positive = highest < -threshold, lowest > threshold
    not_negative, not_positive = lowest >= -threshold, highest <= threshold
    zero = not_negative & not_positive
    cases = {
        PERIODIC: negative[0],
        QUASI_PERIODIC: zero[0] & negative[1],
        DOUBLY_QUASI_PERIODIC: zero[0] & not_negative[1],
        CHAOTIC: positive[0] & not_positive[1],
        HYPERCHAOTIC: positive[0] & positive[1],
    }
    return np.select(list(cases.values()), list(cases), default=UNDECIDED)


@dataclass(frozen=True)
class LevelRule:
    """Up to how many distinct levels an orbit passes for periodic, and up to how many for quasi-periodic."""

    periodic: int
    quasi_periodic: int

    def __post_init__(self):
        check_fields(self)
        if not 1 <= self.periodic < self.quasi_periodic:
            raise ValueError(
                f"a rule needs 1 <= periodic < quasi_periodic, got periodic={self.periodic}, "
                f"quasi_periodic={self.quasi_periodic}"
            )


# the published rules, both for 5001 levels
BIFURCATION_DIAGRAM = LevelRule(79, 2499)
PHASE_DIAGRAM = LevelRule(80, 625)


@checked_arguments
def count_levels(
    series: Values,
    levels: Annotated[int, partial(checked_whole_number, least=2)] = 5001,
    between: tuple[Number, Number] = (-1.0, 1.0),
) -> Int[np.ndarray, "*batch"]:
    """How many of `levels` evenly spaced levels, both ends of the range included, each series (..., time) visits.

    A value counts for the level next to it. Overlaps and attentions lie within the default range.
    """
    lowest, highest = between
    if not lowest < highest:
        raise ValueError(f"between must be a range from low to high, got {between}")
    values = series
    if values.ndim == 0 or 0 in values.shape:
        raise ValueError(f"series must have a last axis of time that is not empty, got shape {values.shape}")
    outside = np.argwhere(~((values >= lowest) & (values <= highest)))
    if len(outside):
        index = tuple(outside[0].tolist())
        raise ValueError(f"series: the value {values[index]} at index {index} is outside the range {between} of levels")
    visited = np.sort(np.rint((values - lowest) / (highest - lowest) * (levels - 1)), axis=-1)
    return np.asarray(1 + np.sum(np.diff(visited, axis=-1) > 0, axis=-1))


@checked_arguments
def classify_by_levels(counts: Values, rule: LevelRule) -> Shaped[np.ndarray, "*batch"]:
    """Periodic, quasi-periodic or chaotic, from the `counts` (...) of `count_levels`: how the published diagrams judge.

    A rule of thumb: counts grow with the share of the range that an orbit fills and with its length, so that a small
    chaotic orbit passes for quasi-periodic and a slow transient for chaos. `classify` judges by the exponents.
    """
    if np.any(counts < 1):
        raise ValueError(f"counts: an orbit visits at least one level, got a count of {np.min(counts):g}")
    conditions = [counts <= rule.periodic, counts <= rule.quasi_periodic]
    return np.select(conditions, [PERIODIC, QUASI_PERIODIC], default=CHAOTIC)


def differ(regimes: ArrayLike, by_levels: ArrayLike) -> Bool[np.ndarray, "*batch"]:
    """Where the regimes (...) that `classify` finds are decided, and `classify_by_levels` says another one.

    That knows one sort of quasi-periodic orbits and one of chaotic ones only.
    """
    found, other = np.asarray(regimes), np.asarray(by_levels)
    if found.shape != other.shape:
        raise ValueError(f"regimes of shape {found.shape} and by_levels of shape {other.shape} are not of one batch")
    for name, values in (("regimes", found), ("by_levels", other)):
        if unknown := set(values.ravel().tolist()) - set(REGIMES):
            raise ValueError(f"{name} must be of {', '.join(map(repr, REGIMES))}; got {shown(unknown.pop())}")
    coarse = np.select(
        [found == DOUBLY_QUASI_PERIODIC, found == HYPERCHAOTIC], [QUASI_PERIODIC, CHAOTIC], default=found
    )
    return np.asarray((found != UNDECIDED) & (coarse != other))


def _descending(exponents: ArrayLike) -> Float[np.ndarray, "*batch exponents"]:
    return -np.sort(-_leading(exponents, 1), axis=-1)


def _leading(exponents: ArrayLike, at_least: int) -> Float[np.ndarray, "*batch exponents"]:
    """Exponents (..., exponents) that are finite or -inf, at least so many."""
    array = real_array("exponents", exponents)
    if array.ndim == 0 or array.shape[-1] < at_least or 0 in array.shape:
        raise ValueError(f"exponents must have at least {at_least} along their last axis, got shape {array.shape}")
    bad = np.argwhere(np.isnan(array) | (array == np.inf))
    if len(bad):
        index = tuple(bad[0].tolist())
        raise ValueError(f"exponents: {array[index]} at index {index} is neither finite nor -inf: did the run diverge?")
    return array
