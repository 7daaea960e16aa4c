"""A stationary point of an action, what certifies it, and the likely cause if it is none."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float, Int
from sympy import Expr

from ..checks import is_traced, shown
from .action import Action
from .certificate import AT_EDGE, FAR, FLAT, INFLECTED, KINKED, NOT_FINITE, ROUNDED, SLOPING, UNKNOWN_AVERAGE
from .diagnosis import AbstractOutcome

# a distance in coordinates, far from random starts
_FAR = 1e2


class Solution(AbstractOutcome):
    """The outcome of `minimise` or `stationary`; differentiable in the values of the parameters.

    - `order_parameters`: by name; `solution[symbol]` is one of them.
    - `action`: S there. `action_error`: rounding error of the sum of its terms.
    - `error`: by how much rounding, the Newton step that is left and quadrature may have moved the point, in the metric
      of the domains.
    - `gradient_norm`: norm of the gradient of S per scale, in the metric of the domains (`theorykit.saddle.domains`).
    - `hessian_eigenvalues`: of S per scale, in that metric, in increasing order. `index`: how many are negative. For an
      order parameter on an edge of its domain it is the one-sided second derivative of S.
    - `result`: `optimistix.RESULTS.successful` if and only if the point is shown to be what was asked for: a stationary
      point to the tolerance and to rounding, of the index that was asked for, where the action is smooth. Curvatures
      that are zero to their error are decided by the gradient on both sides. `diagnosis` says what is missing.
    - `quadrature_error`: by how much, to first order, the order parameters would move with finer quadrature of the
      Gaussian averages, in the metric of the domains; zero without averages.
    - `terms`: the value of every term of `of.terms`, the action that was solved.
    - `stats`: `evaluations` and `hessians` spent, the `tolerance`, the index `asked` for, the `coordinates` of the
      point and the distance `travelled` from the start; the length of the `remaining` Newton step; `softest` and
      `lowest`, the directions of the smallest and of the lowest curvature, whose entries belong to `owners`; which
      coordinates are `at_edge`. From `search`: the number of starts that `reached` it.

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

    def describe(self) -> str:
        """The outcome in words, and what to do about it if it did not converge."""
        norm, asked, verdict = float(self.gradient_norm), int(self.stats["asked"]), int(self.stats["verdict"])
        if self.converged:
            kind = "minimum" if asked == 0 else f"stationary point of index {asked}"
            on = f" on the edge of the domain, {', '.join(edges)}" if (edges := self.edges) else ""
            spent = int(self.stats["evaluations"])
            return f"converged to a {kind}{on}: gradient norm {norm:.3g} per scale, after {spent} evaluations"
        if verdict == SLOPING:
            return self._no_stationary_point()
        if verdict == NOT_FINITE:
            return self._not_finite()
        if verdict == FAR or (verdict in (FLAT, INFLECTED) and float(self.stats["travelled"]) > _FAR):
            return (
                f"the gradient is small at {self.place} ({norm:.3g} per scale), but so is the curvature, "
                f"{float(np.min(np.abs(self.hessian_eigenvalues))):.3g}, so that the point is not known: a Newton step "
                f"would still move it by {float(self.stats['remaining']):.3g} in the metric of the domains. The action "
                "may have no stationary point this way, and level off towards infinity or the edge of a domain"
            )
        tolerance = float(self.stats["tolerance"])
        there = f"stationary at {self.place} (gradient norm {norm:.3g}, tolerance {tolerance:.3g})"
        return f"{there}, but {self._why_none(verdict)}"

    def _no_stationary_point(self) -> str:
        norm, spent = float(self.gradient_norm), int(self.stats["evaluations"])
        lowest = float(self.hessian_eigenvalues[0])
        if int(self.stats["asked"]) == 0 and (lowest < 0 or float(self.stats["travelled"]) > _FAR):
            return (
                f"the action falls without bound: it is {float(self.action):.3g} at {self.place} after {spent} "
                f"evaluations, its gradient norm {norm:.3g}, and the Hessian's smallest eigenvalue {lowest:.3g}, "
                f"mostly along {self._owner('lowest')}. There is no minimum this way: if the point that is wanted is a "
                "maximum along some directions, ask for stationary(..., index=their number)"
            )
        return (
            f"no stationary point was reached: after {spent} evaluations the gradient norm {norm:.3g} per scale "
            f"exceeds the tolerance {float(self.stats['tolerance']):.3g}, at {self.place}, where {self._negative()}. "
            "There may be none at these parameters; else start from elsewhere (initial=...), or raise max_steps"
        )

    def _not_finite(self) -> str:
        if np.all(np.isfinite(self.terms)):
            return (
                f"a derivative of the action is not finite at {self.place}, although its terms are. Start from "
                "elsewhere (initial=...), or write the action so that it is differentiable there"
            )
        term = self.of.terms[int(np.argmin(np.isfinite(self.terms)))]
        return (
            f"the term {shown(term)} of the action is not finite at {self.place}: a domain is left. Start from "
            "elsewhere (initial=...), or give an order parameter the domain on which the term is defined"
        )

    def _why_none(self, verdict: int) -> str:
        """Why a point at which the gradient vanishes is not what was asked for."""
        if verdict == ROUNDED:
            return (
                f"rounding may move the point by {float(self.error):.3g} in the metric of the domains: terms that are "
                f"large cancel in the gradient (the action is known to {float(self.action_error):.3g}). Write the "
                "action so that they cancel by symbols, or choose units in which they are smaller"
            )
        if verdict == KINKED:
            return (
                "the action has a kink or a jump there (Abs, Max, Min, sign, a step): the gradient differs on the two "
                "sides, and no curvature certifies the point. Smooth the function, or solve on either side of it"
            )
        if verdict == FLAT:
            return (
                f"degenerate: the action does not change along a direction, mostly {self._owner('softest')}. It may "
                "have a continuous symmetry; remove it, by a constraint or by fewer order parameters"
            )
        if verdict == INFLECTED:
            return (
                f"neither a minimum nor a maximum along a direction of vanishing curvature, mostly "
                f"{self._owner('softest')}: the gradient has the same sign on both sides, or several curvatures vanish "
                "together. The point is at a fold or a branch point; change a parameter, and follow the branch "
                "through it"
            )
        if verdict == AT_EDGE:
            return (
                f"on the edge of the domain, {', '.join(self.edges)}, where the action has a slope: it is least there, "
                "or it falls into the domain. There is no stationary point this way; start from elsewhere (initial=...)"
            )
        if verdict == UNKNOWN_AVERAGE:
            return (
                f"the quadrature of a Gaussian average may be off by as much as moves the point by "
                f"{float(self.quadrature_error):.3g}: the average is infinite there, or too hard"
            )
        asked = int(self.stats["asked"])
        wanted = "a minimum" if asked == 0 else f"of index {asked}"
        if self.index == asked:
            return (
                f"not {wanted}: along a direction of vanishing curvature, mostly {self._owner('softest')}, the "
                "gradient on both sides says that it is another. Start from elsewhere (initial=...)"
            )
        return (
            f"not {wanted}: {self._negative()}, the smallest {float(self.hessian_eigenvalues[0]):.3g} mostly along "
            f"{self._owner('lowest')}. Start from elsewhere (initial=...), or ask for stationary(..., "
            f"index={self.index})"
        )

    def _negative(self) -> str:
        is_finite = np.all(np.isfinite(self.hessian_eigenvalues))
        return f"{self.index} eigenvalues of the Hessian are negative" if is_finite else "the Hessian is not finite"

    def _owner(self, direction: str) -> str:
        """The order parameter that a direction is mostly along."""
        return self.owners[int(np.argmax(np.abs(self.stats[direction])))]
