"""Solution of a stationary-point problem: its numbers, its certificate, and the outcome in words."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import equinox as eqx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float, Int
from sympy import Expr

from ..checks import is_traced, refuse_traced, shown
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Heading, Table, Text, verbatim
from .action import Action, indefinite
from .certificate import AT_EDGE, DEGENERATE, NEAR, NOT_FINITE, OTHER_INDEX, SLOPING, UNRESOLVED
from .diagnosis import AbstractOutcome
from .problem import reach_of

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

    Lengths and gradients are in the metric of the domains (`theorykit.saddle.domains`). Under `vmap`, every leaf has
    the axes of the batch.

    - `order_parameters`: values of the order parameters, by name. `solution[symbol]` returns one of them.
    - `action`, `action_error`: S, and its error by rounding and by the quadrature of averages.
    - `error`: bound on the distance to the stationary point: rounding, remaining Newton step and quadrature.
    - `gradient_norm`: norm of the gradient of S per scale.
    - `hessian_eigenvalues` (kept,): eigenvalues of the Hessian of S per scale, in increasing order. Of more than 48,
      only the lowest, the highest and those nearest to zero are stored. An order parameter on an edge of its domain
      contributes the one-sided second derivative of S.
    - `quadrature_error`: shift of the order parameters under finer quadrature of the Gaussian averages.
    - `result`: `optimistix.RESULTS.successful` if and only if the point is certified: the gradient vanishes to the
      tolerance, Newton's method contracts around the point, and the index is the requested one.
    - `terms` (terms,): value of every term of the action, `of.terms`.
    - `stats`: details, by name: numbers of `evaluations` and `hessians`; `tolerance` and `asked`, the requested index;
      `coordinates`, `gradient`, distance `travelled` from the start, and length of the `remaining` Newton step; number
      of `negative` eigenvalues; the directions of the `softest` and the `lowest` curvature; mask `at_edge` of the
      coordinates on an edge; and, from `search`, the number of starts that `reached` the point.
    - `of`: the action. `owners`: name of the order parameter of each coordinate. `parameters`: values by name, empty if
      they were traced.
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
        """Number of negative eigenvalues of the Hessian, including those that are not stored: zero at a minimum."""
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

    def _view(self) -> Iterator[Block]:
        rows = [(verbatim(name), in_words(value)) for name, value in self.order_parameters.items()]
        if np.ndim(self.action):
            yield Heading(f"{np.size(self.action)} solves")
            rows = [("converged", str(int(np.sum(self.converged)))), *rows, ("S", in_words(self.action))]
        else:
            kind = self._kind
            yield Heading(f"{kind[0].upper()}{kind[1:]}{'' if self.converged else ': not found'}")
            rows.append(("S", f"{float(self.action):.9g}"))
            if self.parameters:
                rows.append(("at", verbatim(place_in_words(self.parameters))))
            rows.append(("gradient norm", f"{float(self.gradient_norm):.2g} per scale"))
            rows.append(("smallest curvature", f"{float(np.min(self.hessian_eigenvalues)):.4g} per scale"))
            rows.append(("error", f"{float(self.error):.1g} in the metric of the domains"))
        yield Table(tuple(rows))
        yield Text(verbatim(self.diagnosis))

    @property
    def _kind(self) -> str:
        asked = int(self.stats["asked"])
        return f"stationary point of index {asked}" if asked else "minimum"

    def describe(self) -> str:
        """Describe the outcome in words, with advice if the solve did not converge."""
        verdict, eigenvalues = int(self.stats["verdict"]), np.asarray(self.hessian_eigenvalues)
        kind, after = self._kind, f"after {int(self.stats['evaluations'])} evaluations"
        norm = f"gradient norm {float(self.gradient_norm):.3g} per scale"
        if self.converged:
            on = f" on the edge of the domain, {', '.join(self.edges)}" if self.edges else ""
            return f"converged to a {kind}{on}: {norm}, {after}"
        softest, lowest = (self.owners[int(np.argmax(np.abs(self.stats[name])))] for name in ("softest", "lowest"))
        slopes = self._slopes_at_edges()
        if verdict == NOT_FINITE:
            is_finite = np.isfinite(self.terms)
            what = f"the term {shown(self.of.terms[int(np.argmin(is_finite))])} of the action is"
            what = "a derivative of the action is" if np.all(is_finite) else what
            known = {**self.order_parameters, **self.parameters}
            is_known = all(symbol.name in known for symbol in self.of.symbols)
            reason = indefinite(self.of, known) if is_known else ""
            return f"{what} not finite at {self.place}{reason and f': {reason}'}. {_ELSEWHERE}, or change its domain"
        is_falling = eigenvalues[0] < 0 or float(self.stats["travelled"]) > _FAR
        if verdict == SLOPING and kind == "minimum" and is_falling:
            return (
                f"the action falls without bound: it is {float(self.action):.3g} at {self.place} {after}, the "
                f"smallest eigenvalue of its Hessian {eigenvalues[0]:.3g}, mostly along {lowest}. For a maximum along "
                "some directions, use stationary(..., index=number of these directions)"
            )
        if verdict == SLOPING:
            return (
                f"no stationary point was reached: {after} the {norm} exceeds the tolerance "
                f"{float(self.stats['tolerance']):.3g}, at {self.place}. {_ELSEWHERE}, or raise max_steps"
            )
        if slopes:
            return (
                "no stationary point was reached: the solve ended on the edge of a domain, "
                f"{' and '.join(slopes)}, where S {' and '.join(slopes.values())}. {_ELSEWHERE}, or insert the edge "
                "into the expression"
            )
        reasons = {
            DEGENERATE: (
                f"degenerate: the curvature is {float(np.min(np.abs(eigenvalues))):.3g} mostly along {softest}, and a "
                f"Newton step would move the point by {float(self.stats['remaining']):.3g}. S may have a continuous "
                "symmetry, a fold or a branch point there, or level off towards infinity or an edge"
            ),
            AT_EDGE: f"on the edge of a domain, {', '.join(self.edges)}, where the slope of the action is not zero",
            OTHER_INDEX: (
                f"not a {kind}: {self.index} eigenvalues of the Hessian are negative, the smallest "
                f"{eigenvalues[0]:.3g} mostly along {lowest}. {_ELSEWHERE}, or use stationary(..., index={self.index})"
            ),
            UNRESOLVED: "the action has a kink or a jump there (Abs, Max, sign). Use a smooth function instead",
        }
        if self.index == int(self.stats["asked"]):
            reasons[OTHER_INDEX] = f"not a {kind}: the slopes on both sides show it, mostly along {softest}"
        known_to = NEAR * float(reach_of(self.stats["coordinates"]))
        if float(self.error) > known_to:
            reasons[UNRESOLVED] = (
                f"rounding or quadrature may move the point by {float(self.error):.3g} (the action is known to "
                f"{float(self.action_error):.3g}). Simplify terms that cancel, change units, or use more nodes"
            )
        return f"stationary at {self.place} ({norm}), but {reasons[verdict]}"

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
