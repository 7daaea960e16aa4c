"""The outcome of a solve, or of a batch of them, in words: whether it converged, and what to do if not."""

import abc
import warnings
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Int

from ..checks import is_traced

# the likely cause for each part of the action's uncertainty
_CAUSES = {
    "order_parameters": (
        "the order parameters are nearly singular: widths below the number of paths, variances or labels of extreme "
        "magnitude"
    ),
    "kernel": "the kernel is nearly singular: a temperature tiny beside it, and examples that depend on each other",
    "labels": "the labels are large beside what the kernel and the temperature explain of them",
}
# a gradient norm that is small by any measure but that of the tolerance
_USUAL_TOLERANCE = 1e-9
# the number of failures of a batch that are described
_TOLD = 3


class ConvergenceWarning(UserWarning):
    """A solve ended at a point that is not stationary to its tolerance, or is not a minimum."""


class AbstractOutcome(eqx.Module):
    """The outcome of a solve, with its `result`; under `vmap` every leaf has the batch's axes."""

    result: eqx.AbstractVar[optx.RESULTS]

    @abc.abstractmethod
    def describe(self) -> str:
        """The outcome of one solve in words, and what to do about it if it did not converge."""

    @property
    def converged(self) -> bool | Bool[Array, "..."]:
        """Whether `result` is success; of a batch, or of traced values, an array."""
        successful = self.result == optx.RESULTS.successful
        return successful if is_traced(successful) or np.ndim(successful) else bool(successful)

    @property
    def failures(self) -> int | Int[Array, ""]:
        """How many solves of a batch, or of this one, did not converge."""
        failed = jnp.sum(~jnp.asarray(self.converged))
        return failed if is_traced(failed) else int(failed)

    @property
    def diagnosis(self) -> str:
        """The outcome in words, and what to do about it if it did not converge; of a batch, the first failures."""
        return _of_batch(self, lambda one: one.describe())


Outcome = TypeVar("Outcome", bound=AbstractOutcome)


def report(outcome: Outcome, throw: bool, stacklevel: int, more: str = "") -> Outcome:
    """`outcome`, with a warning if a solve failed and values are known; with an error if `throw`."""
    if is_traced(outcome):
        failed = outcome.result != optx.RESULTS.successful
        return outcome.result.error_if(outcome, failed) if throw else outcome
    if np.all(outcome.converged):
        return outcome
    if throw:
        raise RuntimeError(outcome.diagnosis + more)
    warn_of_failures(outcome, stacklevel + 2, more)
    return outcome


def _of_batch(outcome: Any, describe: Any) -> str:
    converged = np.asarray(outcome.converged)
    if converged.ndim == 0:
        return describe(outcome)
    failed = [tuple(map(int, at)) for at in np.argwhere(~converged)]
    if not failed:
        return f"all {converged.size} solves converged"
    told = []
    for index in failed[:_TOLD]:
        # fields without batch axes stay as they are
        one = jax.tree.map(lambda leaf, at=index: leaf[at] if jnp.ndim(leaf) >= len(at) else leaf, outcome)
        told.append(f"{list(index)}: {describe(one)}")
    more = [f"and {len(failed) - _TOLD} more"] if len(failed) > _TOLD else []
    return f"{len(failed)} of {converged.size} solves did not converge; " + "; ".join([*told, *more])


def warn_of_failures(outcome: Any, stacklevel: int, more: str = "") -> None:
    """A `ConvergenceWarning` if any solve of `outcome` did not converge."""
    if not np.all(outcome.converged):
        what = "solves did not converge" if np.ndim(outcome.converged) else "the solve did not converge"
        warnings.warn(f"{what}: {outcome.diagnosis}{more}", ConvergenceWarning, stacklevel=stacklevel)


def diagnosis_of(saddle: Any) -> str:
    """The outcome of the solve or solves of a theory's `saddle` in words, and what to do about those that failed."""
    return _of_batch(saddle, _diagnosis_of_one)


def _diagnosis_of_one(saddle: Any) -> str:
    norm, tolerance = float(saddle.gradient_norm), float(saddle.stats["tolerance"])
    steps, curvature = int(saddle.stats["steps"]), float(saddle.min_hessian_eigenvalue)
    if saddle.converged:
        least = f"smallest eigenvalue of the Hessian {curvature:.3g} per width"
        return f"converged: gradient norm {norm:.3g}, {least}, after {steps} steps"
    if norm <= tolerance:
        return (
            f"stationary (gradient norm {norm:.3g}) but not a minimum: the smallest eigenvalue of the Hessian is "
            f"{curvature:.3g} per width. Start from elsewhere (initial=...)"
        )
    reached = f"gradient norm {norm:.3g} exceeds the tolerance {tolerance:.3g} after {steps} steps"
    if saddle.result == optx.RESULTS.nonlinear_max_steps_reached:
        # if S is not known to 1, exp(-S/2) is not resolved, however many steps there are
        hopeless = float(saddle.action_error) > 1
        more = "Raise it, or start from a neighbouring solution (initial=...)"
        return f"{reached}, all that max_steps allows. {_rounding_of(saddle) if hopeless else more}"
    if saddle.stats["content"]:
        return f"{reached}: the solver stopped at its own tolerance (rtol, atol). Tighten that, or loosen this"
    return f"{reached}, and no step lowers the action beyond rounding. {_rounding_of(saddle)}"


def _rounding_of(saddle: Any) -> str:
    remaining = float(saddle.stats["remaining"])
    left = f", and a Newton step would lower it by {remaining:.1g}" if np.isfinite(remaining) else ""
    known = f"The action, {float(saddle.action):.6g}, is known to about {float(saddle.action_error):.1g}{left}"
    if float(saddle.gradient_norm) <= _USUAL_TOLERANCE:
        return f"{known}. Likely cause: the tolerance, which is less than rounding leaves of a gradient. Loosen it"
    cause = _CAUSES[max(_CAUSES, key=lambda name: float(saddle.stats[f"error_of_{name}"]))]
    return f"{known}. Likely cause: {cause}. Rescale them, or loosen the tolerance"
