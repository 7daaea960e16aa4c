"""A stationary point of an action, what certifies it, and what its failure most likely means."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float, Int
from sympy import Expr

from ..checks import is_traced, shown
from .action import Action
from .verdict import (
    AT_EDGE,
    FAR,
    FLAT,
    INFLECTED,
    KINKED,
    NOT_FINITE,
    OTHER_INDEX,
    ROUNDED,
    SLOPING,
    UNKNOWN_AVERAGE,
)

# a distance in coordinates, far from where random starts are
_FAR = 1e2


class Solution(eqx.Module):
    """The outcome of `minimise` or `stationary`; differentiable in the values of the parameters.

    - `order_parameters`: by name; `solution[symbol]` is one of them.
    - `action`: S there. `action_error`: rounding error of the sum of its terms.
    - `error`: by how much rounding, the Newton step that is left and quadrature may have moved the point, in the metric
      of the domains.
    - `gradient_norm`: norm of the gradient of S per scale, in the metric of the domains (`theorykit.saddle.domains`).
    - `hessian_eigenvalues`: of S per scale, in that metric, in increasing order. `index`: how many are negative. Of an
      order parameter on an edge of its domain it is the one-sided second derivative of S.
    - `result`: `optimistix.RESULTS.successful` if and only if the point is shown to be what was asked for: a stationary
      point to the tolerance and to rounding, of the index that was asked for, where the action is smooth. Curvatures
      that are zero to their error are decided by the gradient on both sides. `diagnosis` says what is missing.
    - `quadrature_error`: by how much, to first order, the order parameters would move with finer quadrature of the
      Gaussian averages, in the metric of the domains; zero where the action has none.
    - `terms`: the value of every term of `of.terms`, the action that was solved.
    - `stats`: `evaluations` and `hessians` spent, the `tolerance`, the index `asked` for, the `coordinates` of the
      point and how far it is from where the solve started, `travelled`; the length of the Newton step that is
      `remaining`; `softest`, the direction of the smallest curvature, and `lowest`, that of the lowest one, whose
      entries belong to `owners`; which coordinates are `at_edge`. Of what `search` returns, how many starts `reached`
      it.

    Under `vmap` every leaf has the batch's axes.
    """

    order_parameters: Mapping[str, Float[Array, "..."]]
    action: Float[Array, ""]
    action_error: Float[Array, ""]
    error: Float[Array, ""]
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
    def edges(self) -> tuple[str, ...]:
        """The order parameters that are on an edge of their domain, as equations."""
        names = [name for name, at in zip(self.owners, self.stats["at_edge"], strict=True) if at]
        return tuple(f"{name} = {float(self.order_parameters[name]):g}" for name in names)

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
        on = f" on the edge of the domain, {', '.join(edges)}" if (edges := solution.edges) else ""
        return f"converged to a {kind}{on}: gradient norm {norm:.3g} per scale, after {steps} evaluations"
    verdict = int(solution.stats["verdict"])
    if verdict == SLOPING:
        return _no_stationary_point(solution, asked)
    if verdict in (FLAT, INFLECTED) and float(solution.stats["travelled"]) > _FAR:
        verdict = FAR
    if verdict == FAR:
        return f"the gradient is small at {solution.place} ({norm:.3g} per scale), but {_far(solution)}"
    there = f"stationary at {solution.place} (gradient norm {norm:.3g}, tolerance {tolerance:.3g})"
    return f"{there}, but {_REASONS[verdict](solution)}" if verdict != NOT_FINITE else _not_finite(solution)


def _not_finite(solution: Solution) -> str:
    terms = np.asarray(solution.terms)
    if np.all(np.isfinite(terms)):
        return (
            f"a derivative of the action is not finite at {solution.place}, although its terms are. Start from "
            "elsewhere (initial=...), or write the action so that it is differentiable there"
        )
    term = solution.of.terms[int(np.argmin(np.isfinite(terms)))]
    return (
        f"the term {shown(term)} of the action is not finite at {solution.place}: a domain is left. Start from "
        "elsewhere (initial=...), or give an order parameter the domain on which the term is defined"
    )


def _no_stationary_point(solution: Solution, asked: int) -> str:
    norm, steps = float(solution.gradient_norm), int(solution.stats["evaluations"])
    if asked == 0 and _falls(solution):
        return (
            f"the action falls without bound: it is {float(solution.action):.3g} at {solution.place} after {steps} "
            f"evaluations, its gradient norm {norm:.3g}, and the Hessian's smallest eigenvalue "
            f"{float(solution.hessian_eigenvalues[0]):.3g}, mostly along {_owner(solution, 'lowest')}. There is no "
            "minimum this way: if the point that is wanted is a maximum along some directions, ask for "
            "stationary(..., index=their number)"
        )
    return (
        f"no stationary point was reached: after {steps} evaluations the gradient norm {norm:.3g} per scale exceeds "
        f"the tolerance {float(solution.stats['tolerance']):.3g}, at {solution.place}, where "
        f"{_negative(solution)}. There may be none at these parameters; else start from elsewhere (initial=...), or "
        "raise max_steps"
    )


def _negative(solution: Solution) -> str:
    eigenvalues = np.asarray(solution.hessian_eigenvalues)
    if not np.all(np.isfinite(eigenvalues)):
        return "the Hessian is not finite"
    return f"{solution.index} eigenvalues of the Hessian are negative"


def _far(solution: Solution) -> str:
    return (
        f"so is the curvature, {float(np.min(np.abs(solution.hessian_eigenvalues))):.3g}, so that the point is not "
        f"known: a Newton step would still move it by {float(solution.stats['remaining']):.3g} in the metric of the "
        "domains. The action may have no stationary point this way, and level off towards infinity or the edge of a "
        "domain"
    )


def _flat(solution: Solution) -> str:
    return (
        f"degenerate: the action does not change along a direction, mostly {_owner(solution, 'softest')}. It may have "
        "a continuous symmetry; remove it, by a constraint or by fewer order parameters"
    )


def _inflected(solution: Solution) -> str:
    return (
        f"neither a minimum nor a maximum along a direction of vanishing curvature, mostly "
        f"{_owner(solution, 'softest')}: the gradient has the same sign on both sides, or several curvatures vanish "
        "together. The point is at a fold or a branch point; change a parameter, and follow the branch through it"
    )


def _other_index(solution: Solution) -> str:
    asked, lowest = int(solution.stats["asked"]), float(solution.hessian_eigenvalues[0])
    wanted = "a minimum" if asked == 0 else f"of index {asked}"
    if solution.index == asked:
        return (
            f"not {wanted}: along a direction of vanishing curvature, mostly {_owner(solution, 'softest')}, the "
            "gradient on both sides says that it is another. Start from elsewhere (initial=...)"
        )
    return (
        f"not {wanted}: {_negative(solution)}, the smallest {lowest:.3g} mostly along {_owner(solution, 'lowest')}. "
        f"Start from elsewhere (initial=...), or ask for stationary(..., index={solution.index})"
    )


_REASONS: Mapping[int, Callable[[Solution], str]] = {
    FLAT: _flat,
    INFLECTED: _inflected,
    OTHER_INDEX: _other_index,
    ROUNDED: lambda solution: (
        f"rounding may move the point by {float(solution.error):.3g} in the metric of the domains: terms that are "
        f"large cancel in the gradient (the action is known to {float(solution.action_error):.3g}). Write the action "
        "so that they cancel by symbols, or choose units in which they are smaller"
    ),
    KINKED: lambda solution: (
        "the action has a kink or a jump there (Abs, Max, Min, sign, a step): the gradient differs on the two sides, "
        "and no curvature certifies the point. Smooth the function, or solve on either side of it"
    ),
    AT_EDGE: lambda solution: (
        f"on the edge of the domain, {', '.join(solution.edges)}, where the action has a slope: it is least there, or "
        "it falls into the domain. There is no stationary point this way; start from elsewhere (initial=...)"
    ),
    UNKNOWN_AVERAGE: lambda solution: (
        f"the quadrature of a Gaussian average may be off by as much as moves the point by "
        f"{float(solution.quadrature_error):.3g}: the average is infinite there, or too hard"
    ),
}


def _falls(solution: Solution) -> bool:
    return bool(solution.hessian_eigenvalues[0] < 0) or float(solution.stats["travelled"]) > _FAR


def _owner(solution: Solution, direction: str) -> str:
    """The order parameter that a direction is mostly along."""
    return solution.owners[int(np.argmax(np.abs(solution.stats[direction])))]
