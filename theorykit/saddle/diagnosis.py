"""The outcome of a solve, or of a batch of them, in words: whether it converged, and what to do if not."""

import abc
import warnings
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Int

from ..checks import is_traced

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
        converged = np.asarray(self.converged)
        if converged.ndim == 0:
            return self.describe()
        failed = [tuple(map(int, at)) for at in np.argwhere(~converged)]
        if not failed:
            return f"all {converged.size} solves converged"
        told = []
        for index in failed[:_TOLD]:
            # fields without batch axes stay as they are
            one = jax.tree.map(lambda leaf, at=index: leaf[at] if jnp.ndim(leaf) >= len(at) else leaf, self)
            told.append(f"{list(index)}: {one.describe()}")
        more = [f"and {len(failed) - _TOLD} more"] if len(failed) > _TOLD else []
        return f"{len(failed)} of {converged.size} solves did not converge; " + "; ".join([*told, *more])


Outcome = TypeVar("Outcome", bound=AbstractOutcome)


def report(outcome: Outcome, throw: bool, stacklevel: int, more: str = "") -> Outcome:
    """`outcome`, with a warning if a solve failed and values are known; with an error if `throw`."""
    if is_traced(outcome):
        failed = outcome.result != optx.RESULTS.successful
        return outcome.result.error_if(outcome, failed) if throw else outcome
    if throw and not np.all(outcome.converged):
        raise RuntimeError(outcome.diagnosis + more)
    warn_of_failures(outcome, stacklevel + 2, more)
    return outcome


def warn_of_failures(outcome: AbstractOutcome, stacklevel: int, more: str = "") -> None:
    """A `ConvergenceWarning` if any solve of `outcome` did not converge."""
    if not np.all(outcome.converged):
        what = "solves did not converge" if np.ndim(outcome.converged) else "the solve did not converge"
        warnings.warn(f"{what}: {outcome.diagnosis}{more}", ConvergenceWarning, stacklevel=stacklevel)
