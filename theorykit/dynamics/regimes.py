"""Classify the regime of an orbit, from its Lyapunov exponents or from the number of distinct values that it visits.

The functions use NumPy on finished runs. Every axis but the last is a batch axis.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from ..checks import Positive, checked_arguments, checked_array, real_array

PERIODIC = "periodic"
QUASI_PERIODIC = "quasi-periodic"
DOUBLY_QUASI_PERIODIC = "quasi-periodic (double)"
CHAOTIC = "chaotic"
HYPERCHAOTIC = "hyperchaotic"
UNDECIDED = "undecided"
REGIMES = (PERIODIC, QUASI_PERIODIC, DOUBLY_QUASI_PERIODIC, CHAOTIC, HYPERCHAOTIC, UNDECIDED)


def _leading(name: str, exponents: Any, *, least: int = 1) -> Float[np.ndarray, "*batch exponents"]:
    """Return exponents (..., exponents) after checking that there are at least `least`, all finite or -inf."""
    array = real_array(name, exponents)
    if array.ndim == 0 or array.shape[-1] < least or 0 in array.shape:
        raise ValueError(
            f"{name} must have at least {least} along their last axis, got shape {array.shape}; pass a "
            "LyapunovSpectrum itself, not its `exponents`, whose axis of exponents comes first"
        )
    bad = np.argwhere(np.isnan(array) | (array == np.inf))
    if len(bad):
        index = tuple(bad[0].tolist())
        raise ValueError(
            f"{name}: {array[index]} at index {index} is neither finite nor -inf; the run may have diverged"
        )
    return array


Exponents = Annotated[Any, _leading]


@checked_arguments
def kaplan_yorke_dimension(exponents: Exponents) -> Float[np.ndarray, "*batch"]:
    """Return the Kaplan-Yorke dimension j + (lambda_1 + ... + lambda_j) / |lambda_{j+1}| of exponents (..., exponents).

    j is the largest number of leading exponents with a non-negative sum, or 0. Exponents may be -inf and in any order.
    For `dmft`, use the exponents of the attentions only: the zero exponents of the positions add no direction in which
    the orbit spreads. `kaplan_yorke_lower_bound` accepts fewer exponents.

    Raises:
        ValueError: If the exponents of an orbit do not sum to a negative number.

    Example:
        >>> import numpy as np
        >>> from theorykit import dynamics
        >>> float(dynamics.kaplan_yorke_dimension(np.array([0.5, 0.0, -1.0])))
        2.5
    """
    ordered = -np.sort(-exponents, axis=-1)
    short = np.argwhere(np.cumsum(ordered, axis=-1)[..., -1] >= 0)
    if len(short):
        index = tuple(short[0].tolist())
        raise ValueError(
            f"exponents {ordered[index].tolist()} at index {index} do not sum to a negative number, so the dimension "
            "needs more exponents; kaplan_yorke_lower_bound accepts these"
        )
    return kaplan_yorke_lower_bound(exponents)


@checked_arguments
def kaplan_yorke_lower_bound(exponents: Exponents) -> Float[np.ndarray, "*batch"]:
    """Return the `kaplan_yorke_dimension`, or the number of exponents if they do not sum to a negative number.

    In the second case, the dimension is at least that number, and equal to it if there are no other exponents.
    """
    ordered = -np.sort(-exponents, axis=-1)
    sums = np.cumsum(ordered, axis=-1)
    # Partial sums of a descending sequence cross zero once.
    kept = np.sum(sums >= 0, axis=-1, keepdims=True)
    reached = np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)
    following = np.concatenate([ordered, np.full_like(sums[..., :1], -np.inf)], axis=-1)
    share = np.take_along_axis(reached, kept, axis=-1) / -np.take_along_axis(following, kept, axis=-1)
    return np.asarray((kept + share)[..., 0])


@checked_arguments
def classify(exponents: Any, errors: Any = None, threshold: Positive = 1e-4) -> Shaped[np.ndarray, "*batch"]:
    """Classify the regime of every orbit from its two largest Lyapunov exponents.

    - "periodic": lambda_1 < -threshold.
    - "quasi-periodic": |lambda_1| <= threshold.
    - "quasi-periodic (double)": |lambda_1| and |lambda_2| are both at most the threshold.
    - "chaotic": lambda_1 > threshold.
    - "hyperchaotic": lambda_1 and lambda_2 are both above the threshold.
    - "undecided": an error bar contains the decisive threshold.

    Args:
        exponents: Either a spectrum from `dmft.lyapunov_spectrum`, which includes the errors and marks exponents hidden
            by rounding, or an array (..., exponents) with at least two exponents per orbit on the last axis. If there
            is only one, append -inf. (In `LyapunovSpectrum.exponents`, exponents are on the first axis.)
        errors: Half-widths of error bars, with the shape of `exponents`. Without errors, the published rule applies,
            which never returns "undecided".
        threshold: Largest absolute value of an exponent that counts as zero. In T steps, the zero exponent of a
            quasi-periodic orbit is computed as a number of order 1/T.
    """
    unresolved = None
    if hasattr(exponents, "exponents"):
        parts = (exponents.exponents, exponents.errors, exponents.unresolved)
        exponents, own_errors, unresolved = (np.moveaxis(np.asarray(part), 0, -1) for part in parts)
        errors = own_errors if errors is None else errors
    exponents = _leading("exponents", exponents, least=2)
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
    if unresolved is not None:  # unresolved exponents may have any value
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


@checked_arguments
def classify_by_levels(
    counts: Annotated[Any, checked_array], periodic: int = 80, quasi_periodic: int = 625
) -> Shaped[np.ndarray, "*batch"]:
    """Classify orbits by the number of visited levels out of 5001: periodic, quasi-periodic, or otherwise chaotic.

    The published phase diagram uses this rule with the default thresholds, and the published bifurcation diagram uses
    79 and 2499. It is a rule of thumb, because counts grow with the length of an orbit and the range that it fills. The
    rule takes a small chaotic orbit for quasi-periodic, and a slow transient for chaotic. `classify` uses exponents
    instead.

    Args:
        counts: Number of visited levels of each orbit.
        periodic: Largest number of levels of a periodic orbit.
        quasi_periodic: Largest number of levels of a quasi-periodic orbit.
    """
    return np.select([counts <= periodic, counts <= quasi_periodic], [PERIODIC, QUASI_PERIODIC], default=CHAOTIC)


def differ(regimes: np.ndarray, by_levels: np.ndarray) -> Bool[np.ndarray, "*batch"]:
    """Mask orbits whose regime from `classify` is decided and differs from `classify_by_levels`, with fewer kinds."""
    conditions = [regimes == DOUBLY_QUASI_PERIODIC, regimes == HYPERCHAOTIC]
    coarse = np.select(conditions, [QUASI_PERIODIC, CHAOTIC], default=regimes)
    return np.asarray((regimes != UNDECIDED) & (coarse != by_levels))
