"""Stationary point of an action, its certificate, and the likely cause of a failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import equinox as eqx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float, Int
from sympy import Expr

from ..checks import by_name, is_traced, refuse_traced, shown
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Heading, Table, Text, verbatim
from .action import Action, indefinite
from .certificate import (
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
from .diagnosis import AbstractOutcome

# Coordinates beyond this distance are far from random starts.
_FAR = 1e2
# Coordinates beyond this distance are next to an edge: within 1e-13 of a number that is positive or in an interval.
_NEXT_TO_EDGE = 30.0
# Largest slope of S per scale at an edge that counts as zero.
_NO_SLOPE = 1e-6
_ELSEWHERE = "Start from elsewhere (initial=...)"


def place_in_words(values: Mapping[str, Any]) -> str:
    """Write values on one line, by name. Matrices are represented by their first entry."""

    def text(value):
        return f"{float(value):.4g}" if np.ndim(value) == 0 else f"[{float(np.ravel(value)[0]):.4g}, ...]"

    return ", ".join(f"{name} = {text(value)}" for name, value in values.items())


def in_words(value: Any) -> str:
    """Write a number, or the shape and range of an array."""
    if np.ndim(value) == 0:
        return f"{float(value):.9g}"
    low, high = float(np.min(value)), float(np.max(value))
    return f"{' x '.join(map(str, np.shape(value)))}, from {low:.4g} to {high:.4g}"


class Solution(DisplayMixin, AbstractOutcome):
    """Outcome of `minimise` or `stationary`, differentiable in the values of the parameters.

    - `order_parameters`: values of the order parameters, by name. `solution[symbol]` returns one of them.
    - `action`: value of S.
    - `action_error`: error of S by rounding and by the quadrature of averages.
    - `error`: bound on the shift of the point by rounding, by the remaining Newton step and by quadrature, in the
      metric of the domains (`theorykit.saddle.domains`).
    - `gradient_norm`: norm of the gradient of S per scale, in the metric of the domains.
    - `hessian_eigenvalues` (kept,): eigenvalues of the Hessian of S per scale, in the metric of the domains and in
      increasing order. If there are more than 48, only the lowest, the highest and those nearest to zero are stored. An
      order parameter on an edge of its domain contributes the one-sided second derivative of S.
    - `index`: number of negative eigenvalues, including those that are not stored.
    - `quadrature_error`: first-order shift of the order parameters under finer quadrature of the Gaussian averages, in
      the metric of the domains. It is zero without averages.
    - `result`: `optimistix.RESULTS.successful` if and only if the point is certified: it is stationary to the tolerance
      and to rounding, has the requested index, and the action is smooth there. If a curvature is zero within its error,
      the gradient on both sides decides. `diagnosis` explains a failure.
    - `stats`: details of the solve, by name:

      - `evaluations`, `hessians`: numbers of evaluations of the action and of Hessians.
      - `tolerance`, `asked`: the requested tolerance and index.
      - `coordinates`, `gradient`, `travelled`: coordinates of the point, gradient of S per scale in steps of the
        metric, and distance from the start.
      - `remaining`: length of the remaining Newton step.
      - `negative`: number of negative eigenvalues.
      - `softest`, `lowest`: directions of the curvature with the smallest absolute value, and of the lowest curvature.
      - `at_edge`: mask of coordinates on an edge of their domain.
      - `reached` (from `search` only): number of starts that led to this point.

    - `terms` (terms,): value of every term of the action, `of.terms`.
    - `of`: the action that was solved.
    - `owners`: name of the order parameter of each coordinate.
    - `parameters`: values of the parameters, by name. Empty if they were traced.

    Under `vmap`, every leaf has the axes of the batch.
    """

    order_parameters: Mapping[str, Float[Array, "..."]]
    action: Float[Array, ""]
    action_error: Float[Array, ""]
    error: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    hessian_eigenvalues: Float[Array, " kept"]
    quadrature_error: Float[Array, ""]
    result: optx.RESULTS
    stats: Mapping[str, Any]
    terms: Float[Array, " terms"]
    of: Action = eqx.field(static=True)
    owners: tuple[str, ...] = eqx.field(static=True)
    parameters: Mapping[str, Any] = eqx.field(default_factory=dict)

    def __getitem__(self, symbol: Expr | str) -> Float[Array, "..."]:
        """Return the order parameter, by symbol or by name."""
        name = getattr(symbol, "name", symbol)
        if not isinstance(name, str) or name not in self.order_parameters:
            raise KeyError(f"{shown(symbol)} is not one of the order parameters {', '.join(self.order_parameters)}")
        return self.order_parameters[name]

    @property
    def index(self) -> Int[Array, ""] | int:
        """Number of negative eigenvalues of the Hessian: zero at a minimum."""
        negative = self.stats["negative"]
        return negative if is_traced(negative) or negative.ndim else int(negative)

    @property
    def edges(self) -> tuple[str, ...]:
        """Order parameters on an edge of their domain, as equations such as `m = 0`."""
        refuse_traced("edges", self.stats["at_edge"], reason="shows values", anywhere=False)
        names = [name for name, at in zip(self.owners, self.stats["at_edge"], strict=True) if at]
        return tuple(f"{name} = {float(self.order_parameters[name]):g}" for name in names)

    @property
    def place(self) -> str:
        """Order parameters on one line. Matrices are represented by their first entry."""
        refuse_traced("place", self.order_parameters, reason="shows values", anywhere=False)
        return place_in_words(self.order_parameters)

    def plot_landscape(self, values: Mapping[Expr | str, Any], axes: Any = None) -> Any:
        """Draw S against one or two order parameters as in `Action.plot_landscape`. All others stay at the solution."""
        return self.of.plot_landscape({**self.parameters, **self.order_parameters, **by_name("values", values)}, axes)

    def _view(self) -> Iterator[Block]:
        rows = [(verbatim(name), in_words(value)) for name, value in self.order_parameters.items()]
        if np.ndim(self.action):
            yield Heading(f"{np.size(self.action)} solves")
            rows = [("converged", str(int(np.sum(self.converged)))), *rows, ("S", in_words(self.action))]
        else:
            asked = int(self.stats["asked"])
            kind = "Stationary point of index " + str(asked) if asked else "Minimum"
            yield Heading(kind if self.converged else f"{kind}: not found")
            rows.append(("S", f"{float(self.action):.9g}"))
            if self.parameters:
                rows.append(("at", verbatim(place_in_words(self.parameters))))
            rows.append(("gradient norm", f"{float(self.gradient_norm):.2g} per scale"))
            rows.append(("smallest curvature", f"{float(np.min(self.hessian_eigenvalues)):.4g} per scale"))
            rows.append(("error", f"{float(self.error):.1g} in the metric of the domains"))
        yield Table(tuple(rows))
        yield Text(verbatim(self.diagnosis))

    def describe(self) -> str:
        """Describe the outcome in words, with advice if the solve did not converge."""
        asked, verdict = int(self.stats["asked"]), int(self.stats["verdict"])
        eigenvalues, spent = np.asarray(self.hessian_eigenvalues), int(self.stats["evaluations"])
        is_far, edges = float(self.stats["travelled"]) > _FAR, ", ".join(self.edges)
        norm = f"gradient norm {float(self.gradient_norm):.3g}"
        kind = "minimum" if asked == 0 else f"stationary point of index {asked}"
        if self.converged:
            on = f" on the edge of the domain, {edges}" if edges else ""
            return f"converged to a {kind}{on}: {norm} per scale, after {spent} evaluations"
        softest, lowest = (
            self.owners[int(np.argmax(np.abs(self.stats[direction])))] for direction in ("softest", "lowest")
        )
        is_finite = np.isfinite(self.terms)
        if verdict == NOT_FINITE:
            what = f"the term {shown(self.of.terms[int(np.argmin(is_finite))])} of the action is"
            what = "a derivative of the action is" if np.all(is_finite) else what
            advice = "give an order parameter the domain on which it is defined"
            known = {**self.order_parameters, **self.parameters}
            if all(symbol.name in known for symbol in self.of.symbols) and (reason := indefinite(self.of, known)):
                advice = f"{advice}: {reason}"
            return f"{what} not finite at {self.place}. {_ELSEWHERE}, or {advice}"
        if verdict == SLOPING and asked == 0 and (eigenvalues[0] < 0 or is_far):
            return (
                f"the action falls without bound: it is {float(self.action):.3g} at {self.place} after {spent} "
                f"evaluations, its {norm}, and the Hessian's smallest eigenvalue {eigenvalues[0]:.3g}, mostly along "
                f"{lowest}. For a maximum along some directions, use stationary(..., index=number of these directions)"
            )
        tolerance = f"tolerance {float(self.stats['tolerance']):.3g}"
        if verdict == SLOPING:
            return (
                f"no stationary point was reached: after {spent} evaluations the {norm} per scale exceeds the "
                f"{tolerance}, at {self.place}. There may be none; otherwise {_ELSEWHERE.lower()}, or raise max_steps"
            )
        if slopes := self._slopes_at_edges():
            edges = " and ".join(slopes)
            return (
                f"no stationary point was reached: the solve ended on the edge of a domain, {edges}, where S "
                f"{' and '.join(slopes.values())}. {_ELSEWHERE}. If S is meant to be lowest or highest on the edge, "
                f"insert {edges} into the expression"
            )
        if verdict == FAR or (verdict in (FLAT, INFLECTED) and is_far):
            return (
                f"the gradient is small at {self.place} ({norm} per scale), but so is the curvature, "
                f"{float(np.min(np.abs(eigenvalues))):.3g}: a Newton step would still move the point by "
                f"{float(self.stats['remaining']):.3g}. S may level off towards infinity or the edge of a domain"
            )
        other = f"not a {kind}: {self.index} eigenvalues of the Hessian are negative, the smallest "
        other += f"{eigenvalues[0]:.3g} mostly along {lowest}. {_ELSEWHERE}, or use stationary(..., index={self.index})"
        if self.index == asked:
            other = f"not a {kind}: the curvature along {softest} vanishes, and the gradient on both sides shows this"
        reasons = {
            ROUNDED: (
                f"rounding may move the point by {float(self.error):.3g}: large terms cancel in the gradient (the "
                f"action is known to {float(self.action_error):.3g}). Simplify the expression so that they cancel "
                "symbolically, or change units"
            ),
            KINKED: (
                "the action has a kink or a jump there (Abs, Max, sign), so the point is not certified. Use a smooth "
                "function instead"
            ),
            FLAT: (
                f"degenerate: the action does not change along a direction, mostly {softest}. If it has a continuous "
                "symmetry, remove the symmetry by a constraint or by fewer order parameters"
            ),
            INFLECTED: (
                f"neither a minimum nor a maximum along a direction of vanishing curvature, mostly {softest}. It is a "
                "fold or a branch point: change a parameter, and follow the branch through the point"
            ),
            AT_EDGE: f"on the edge of a domain, {edges}, where the slope of the action is not zero. {_ELSEWHERE}",
            UNKNOWN_AVERAGE: (
                "the quadrature error of a Gaussian average may move the point by "
                f"{float(self.quadrature_error):.3g}: the average is infinite there, or too hard to integrate"
            ),
            OTHER_INDEX: other,
        }
        return f"stationary at {self.place} ({norm}, {tolerance}), but {reasons[verdict]}"

    def _slopes_at_edges(self) -> dict[str, str]:
        """Describe the slope of S at each edge, by equations such as `m = 0`, unless it is zero."""
        found = {}
        for name, at, change in zip(self.owners, self.stats["coordinates"], self.stats["gradient"], strict=True):
            domain = next(domain for symbol, domain in self.of.order_parameters.items() if symbol.name == name)
            edge = domain.edge(at) if domain.has_edges and abs(at) > _NEXT_TO_EDGE else np.inf
            if not np.isfinite(edge):
                continue
            # The coordinate changes by one if the distance to the edge changes by a factor of e.
            slope = float(change / np.exp(-abs(at))) / (domain.high - domain.low if np.isfinite(domain.high) else 1)
            if abs(slope) > _NO_SLOPE:
                found[f"{name} = {edge:g}"] = f"has the slope {slope:.3g} per scale"
            elif change == 0:
                # The distance to the edge is below rounding, as at 1 but not at 0.
                found[f"{name} = {edge:g}"] = "may have a slope"
        return found


class Solutions(DisplayMixin, tuple):
    """Stationary points that `search` found, in order of increasing action. `reason` explains an empty result."""

    def __new__(cls, solutions: Iterable[Solution] = (), reason: str = ""):
        found = super().__new__(cls, solutions)
        found.reason = reason
        return found

    def _view(self) -> Iterator[Block]:
        if not self:
            yield Text(f"No stationary point was found. {verbatim(self.reason)}")
            return
        names = [name for name, value in self[0].order_parameters.items() if np.ndim(value) == 0]
        rows = [
            (
                f"{float(each.action):.9g}",
                *(f"{float(each[name]):.6g}" for name in names),
                f"{float(np.min(each.hessian_eigenvalues)):.4g}",
                str(each.stats["reached"]),
            )
            for each in self
        ]
        points = "stationary point" if len(self) == 1 else "stationary points"
        yield Heading(f"{len(self)} {points} of index {int(self[0].stats['asked'])}")
        yield Table(tuple(rows), ("S", *map(verbatim, names), "smallest curvature", "starts that reached it"))
