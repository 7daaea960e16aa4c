"""A stationary point of an action, what certifies it, and what its failure most likely means."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float, Int
from sympy import Expr

from ..arguments import is_traced, shown
from .action import Action

# eigenvalues of the Hessian below this, of the largest, are rounding: the point is degenerate
FLAT = 1e-11
# a Newton step longer than this, in the metric of the domains: the point is not known, for want of curvature
NEAR = 1e-6
# a distance in coordinates, far from where random starts are
_FAR = 1e2


class Solution(eqx.Module):
    """The outcome of `minimise` or `stationary`; differentiable in the values of the parameters.

    - `order_parameters`: by name; `solution[symbol]` is one of them.
    - `action`: S there.
    - `gradient_norm`: norm of the gradient of S per scale, in the metric of the domains (`theorykit.saddle.domains`).
    - `hessian_eigenvalues`: of S per scale, in that metric, in increasing order. `index`: how many are negative.
    - `result`: `optimistix.RESULTS.successful` if and only if `gradient_norm` is within the tolerance, the index is the
      one asked for, no eigenvalue is zero but for rounding, and a Newton step would not lead elsewhere.
    - `quadrature_error`: by how much, to first order, the order parameters would move with twice the nodes of every
      Gaussian average, in the metric of the domains; zero where the action has none.
    - `terms`: the value of every term of `of.terms`, the action that was solved.
    - `stats`: `evaluations` and `hessians` spent, the `tolerance`, the index `asked` for, the `coordinates` of the
      point and how far it is from where the solve started, `travelled`; the length of the Newton step that is
      `remaining`, and `softest`, the direction of the smallest eigenvalue, whose entries belong to `owners`. Of what
      `search` returns, how many starts `reached` it.

    Under `vmap` every leaf has the batch's axes.
    """

    order_parameters: Mapping[str, Float[Array, "..."]]
    action: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    hessian_eigenvalues: Float[Array, " coordinates"]
    quadrature_error: Float[Array, ""]
    result: optx.RESULTS
    stats: Mapping[str, Any]
    terms: Float[Array, " terms"]
    of: Action = eqx.field(static=True)
    owners: tuple[str, ...] = eqx.field(static=True)

    def __getitem__(self, symbol: Expr | str) -> Float[Array, "..."]:
        """The order parameter, by symbol or by name."""
        name = getattr(symbol, "name", symbol)
        if not isinstance(name, str) or name not in self.order_parameters:
            raise KeyError(f"{shown(symbol)} is none of the order parameters {', '.join(self.order_parameters)}")
        return self.order_parameters[name]

    @property
    def index(self) -> Int[Array, ""] | int:
        """How many eigenvalues of the Hessian are negative: zero at a minimum."""
        negative = (self.hessian_eigenvalues < 0).sum(axis=-1)
        return negative if is_traced(negative) or negative.ndim else int(negative)

    @property
    def converged(self) -> Any:
        """Whether `result` is success; of a batch, or of traced values, an array."""
        successful = self.result == optx.RESULTS.successful
        return successful if is_traced(successful) or np.ndim(successful) else bool(successful)

    @property
    def diagnosis(self) -> str:
        """What came of the solve, and what to do about it if it did not converge."""
        if np.ndim(self.converged):
            return f"{int(np.sum(self.converged))} of {self.converged.size} solves converged"
        return _diagnosis(self)

    @property
    def place(self) -> str:
        """The order parameters in a line, matrices by their first entry."""

        def text(value):
            return f"{float(value):.4g}" if np.ndim(value) == 0 else f"[{float(np.ravel(value)[0]):.4g}, ...]"

        return ", ".join(f"{name} = {text(value)}" for name, value in self.order_parameters.items())


def _diagnosis(solution: Solution) -> str:
    norm, tolerance = float(solution.gradient_norm), float(solution.stats["tolerance"])
    steps, asked = int(solution.stats["evaluations"]), int(solution.stats["asked"])
    if solution.converged:
        kind = "minimum" if asked == 0 else f"stationary point of index {asked}"
        return f"converged to a {kind}: gradient norm {norm:.3g} per scale, after {steps} evaluations"
    terms = np.asarray(solution.terms)
    if not np.all(np.isfinite(terms)):
        term = solution.of.terms[int(np.argmin(np.isfinite(terms)))]
        return (
            f"the term {shown(term)} of the action is not finite at {solution.place}: a domain is left. Start from "
            "elsewhere (initial=...), or give an order parameter the domain on which the term is defined"
        )
    if norm <= tolerance:
        return _wrong_kind(solution, asked)
    if asked == 0 and _falls(solution):
        return (
            f"the action falls without bound: it is {float(solution.action):.3g} at {solution.place} after {steps} "
            f"evaluations, its gradient norm {norm:.3g}, and the Hessian's smallest eigenvalue "
            f"{float(solution.hessian_eigenvalues[0]):.3g}, mostly along {_softest(solution)}. There is no minimum "
            "this way: if the point that is wanted is a maximum along some directions, ask for "
            "stationary(..., index=their number)"
        )
    return (
        f"no stationary point was reached: after {steps} evaluations the gradient norm {norm:.3g} per scale exceeds "
        f"the tolerance {tolerance:.3g}, at {solution.place}, where {solution.index} eigenvalues of the Hessian are "
        "negative. There may be none at these parameters; else start from elsewhere (initial=...), or raise max_steps"
    )


def _wrong_kind(solution: Solution, asked: int) -> str:
    eigenvalues = np.asarray(solution.hessian_eigenvalues)
    where = f"stationary at {solution.place} (gradient norm {float(solution.gradient_norm):.3g})"
    remaining = float(solution.stats["remaining"])
    if not remaining <= NEAR and np.all(eigenvalues != 0):
        return (
            f"the gradient is small at {solution.place} ({float(solution.gradient_norm):.3g} per scale), but so is the "
            f"curvature: a Newton step would still move the point by {remaining:.3g} in the metric of the domains. The "
            "action may have no stationary point this way, and level off towards infinity or the edge of a domain"
        )
    if np.min(np.abs(eigenvalues)) <= FLAT * np.max(np.abs(eigenvalues)):
        return (
            f"{where}, but degenerate: the Hessian has an eigenvalue {eigenvalues[np.argmin(np.abs(eigenvalues))]:.3g} "
            "beside others of "
            f"up to {np.max(np.abs(eigenvalues)):.3g}. The point is at a fold or a branch point, or the action has a "
            "continuous symmetry"
        )
    wanted = "a minimum" if asked == 0 else f"of index {asked}"
    return (
        f"{where}, but not {wanted}: {solution.index} eigenvalues of the Hessian are negative, the smallest "
        f"{eigenvalues[0]:.3g} mostly along {_softest(solution)}. Start from elsewhere (initial=...), or ask for "
        f"stationary(..., index={solution.index})"
    )


def _falls(solution: Solution) -> bool:
    return bool(solution.hessian_eigenvalues[0] < 0) or float(solution.stats["travelled"]) > _FAR


def _softest(solution: Solution) -> str:
    return solution.owners[int(np.argmax(np.abs(solution.stats["softest"])))]
