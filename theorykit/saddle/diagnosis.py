"""Outcome of a solve, or of a batch of solves, in words."""

import abc
import warnings
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Int

from ..checks import is_traced, on_host, refuse_traced

# Number of failures of a batch that are described.
_TOLD = 3


class ConvergenceWarning(UserWarning):
    """A solve did not converge, or a derivative does not exist. The message has the reason."""


class AbstractOutcome(eqx.Module):
    """Outcome of a solve, with its `result`. Under `vmap` every leaf has the batch's axes."""

    result: eqx.AbstractVar[optx.RESULTS]

    @abc.abstractmethod
    def describe(self) -> str:
        """Describe the outcome of one solve in words, with advice if it did not converge."""

    @property
    def converged(self) -> bool | Bool[Array, "..."]:
        """Whether `result` is a success. This is an array for a batch, or for traced values."""
        # Compare on the host. JAX would compile the comparison.
        successful = jax.tree.map(on_host, self.result) == optx.RESULTS.successful
        return successful if is_traced(successful) or np.ndim(successful) else bool(successful)

    @property
    def failures(self) -> int | Int[Array, ""]:
        """Number of solves that did not converge."""
        failed = jnp.sum(~jnp.asarray(self.converged))
        return failed if is_traced(failed) else int(failed)

    @property
    def diagnosis(self) -> str:
        """Outcome in words, of the first failures in a batch."""
        refuse_traced("diagnosis", self.result, reason="describes values", anywhere=False)
        converged = np.asarray(self.converged)
        if converged.ndim == 0:
            return self.describe()
        if np.all(converged):
            return f"all {converged.size} solves converged"
        failed, told = np.argwhere(~converged).tolist(), []
        for index in map(tuple, failed[:_TOLD]):
            # Fields without batch axes are unchanged.
            one = jax.tree.map(lambda leaf, at=index: leaf[at] if jnp.ndim(leaf) >= len(at) else leaf, self)
            told.append(f"{list(index)}: {one.describe()}")
        told += [f"and {len(failed) - _TOLD} more"] if len(failed) > _TOLD else []
        return f"{len(failed)} of {converged.size} solves did not converge; {'; '.join(told)}"


Outcome = TypeVar("Outcome", bound=AbstractOutcome)


def report(outcome: Outcome, throw: bool, stacklevel: int, more: str = "", cause: str = "") -> Outcome:
    """Return `outcome`. If a solve failed, warn, or raise an error if `throw`.

    The message is the diagnosis with `more` at its end, or a known `cause` in its place.
    """
    if is_traced(outcome):
        failed = outcome.result != optx.RESULTS.successful
        return outcome.result.error_if(outcome, failed) if throw else outcome
    if not np.all(outcome.converged):
        reason = cause or outcome.diagnosis + more
        if throw:
            raise RuntimeError(reason)
        what = "solves did not converge" if np.ndim(outcome.converged) else "the solve did not converge"
        warnings.warn(f"{what}: {reason}", ConvergenceWarning, stacklevel=stacklevel + 1)
    return outcome
