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
from .certificate import DEGENERATE, NEAR, NOT_FINITE, OTHER_INDEX, SLOPING, UNRESOLVED
from .diagnosis import AbstractOutcome
from .problem import reach_of

# Coordinates beyond this distance are far from random starts.
_FAR = 1e2
# Coordinates beyond this distance are within 1e-13 of an edge.
_NEXT_TO_EDGE = 30.0
# Largest slope of S per scale at an edge that counts as zero.
_NO_SLOPE = 1e-6
_ELSEWHERE = "Start from elsewhere (initial=...)"


def _in_words(value: Any, digits: int = 9) -> str:
    """Write a number, or the shape and range of an array."""
    if np.ndim(value) == 0:
        return f"{float(value):.{digits}g}"
    low, high = float(np.min(value)), float(np.max(value))
    return f"{' x '.join(map(str, np.shape(value)))}, from {low:.4g} to {high:.4g}"


class Solution(DisplayMixin, AbstractOutcome):
    """Outcome of `minimise` or `stationary`, differentiable in the values of the parameters.

    Lengths and gradients are in the metric of the domains (`theorykit.saddle.domains`).
    Under `vmap`, every leaf has the axes of the batch.

    - `order_parameters`: values by name. `solution[symbol]` returns one of them.
    - `action`, `action_error`: S, and its error by rounding and by quadrature.
    - `error`: bound on the distance to the stationary point.
    - `gradient_norm`: norm of the gradient of S per scale.
    - `hessian_eigenvalues` (coordinates,): increasing, per scale. An order parameter on
      an edge of its domain contributes the one-sided second derivative of S.
    - `quadrature_error`: the part of `error` that is due to Gaussian averages.
    - `result`: `optimistix.RESULTS.successful` if and only if the point is certified: the
      gradient vanishes to the tolerance, Newton's method contracts around the point, and
      the index is the requested one.
    - `terms` (terms,): value of every term of the action, `of.terms`.
    - `stats`: numbers of `evaluations` and `hessians`; `tolerance` and `asked`, the
      requested index; `coordinates`, `gradient`, and length of the `remaining` Newton
      step; directions of the `softest` and the `lowest` curvature; mask `at_edge` of the
      coordinates on an edge; and, from `search`, how many starts `reached` the point.
    - `of`: the action. `owners`: name of the order parameter of each coordinate.
      `parameters`: values by name, empty if they were traced.
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
    parameters: Mapping[str, Any] = eqx.field(default_factory=dict)

    def __getitem__(self, symbol: Expr | str) -> Float[Array, "..."]:
        """Return the order parameter, by symbol or by name."""
        name = getattr(symbol, "name", symbol)
        if name not in self.order_parameters:
            raise KeyError(f"{shown(symbol)} is not one of the order parameters {', '.join(self.order_parameters)}")
        return self.order_parameters[name]

    @property
    def index(self) -> Int[Array, ""] | int:
        """Number of negative eigenvalues of the Hessian: zero at a minimum."""
        negative = (self.hessian_eigenvalues < 0).sum(axis=-1)
        return negative if is_traced(negative) or negative.ndim else int(negative)

    @property
    def edges(self) -> tuple[str, ...]:
        """Order parameters on an edge of their domain, as equations such as `m = 0`."""
        refuse_traced("edges", self.stats["at_edge"], reason="shows values", anywhere=False)
        names = [name for name, at in zip(self.owners, self.stats["at_edge"], strict=True) if at]
        return tuple(f"{name} = {float(self.order_parameters[name]):g}" for name in names)

    @property
    def place(self) -> str:
        """Order parameters on one line."""
        refuse_traced("place", self.order_parameters, reason="shows values", anywhere=False)
        return ", ".join(f"{name} = {_in_words(value, 4)}" for name, value in self.order_parameters.items())

    def _view(self) -> Iterator[Block]:
        named = {**self.order_parameters, **self.parameters}
        rows = [(verbatim(name), _in_words(value)) for name, value in named.items()]
        fields = {"S": self.action, "gradient norm": self.gradient_norm, "error": self.error}
        fields["smallest curvature"] = np.min(self.hessian_eigenvalues, axis=-1)
        kind = f"{np.size(self.action)} solves" if np.ndim(self.action) else self._kind
        yield Heading(kind[0].upper() + kind[1:])
        yield Table((*rows, *((name, _in_words(value)) for name, value in fields.items())))
        yield Text(verbatim(self.diagnosis))

    @property
    def _kind(self) -> str:
        asked = int(np.max(self.stats["asked"]))
        return f"stationary point of index {asked}" if asked else "minimum"

    def describe(self) -> str:
        """Describe the outcome in words, with advice if the solve did not converge."""
        verdict, softest, lowest = int(self.stats["verdict"]), self._owner("softest"), self._owner("lowest")
        kind, curvatures = self._kind, np.asarray(self.hessian_eigenvalues)
        after = f"after {int(self.stats['evaluations'])} evaluations"
        norm = f"gradient norm {float(self.gradient_norm):.3g} per scale"
        if self.converged:
            on = f" on the edge of the domain, {', '.join(self.edges)}" if self.edges else ""
            return f"converged to a {kind}{on}: {norm}, {after}"
        if verdict == NOT_FINITE:
            return f"{self._not_finite()}. {_ELSEWHERE}, or change its domain"
        if verdict == SLOPING:
            is_far = np.max(np.abs(self.stats["coordinates"])) > _FAR
            falls = kind == "minimum" and (is_far or curvatures[0] < 0)
            what = "the action falls without bound" if falls else "no stationary point was reached"
            return (
                f"{what}: {after} the {norm} exceeds the tolerance {float(self.stats['tolerance']):.3g}, at "
                f"{self.place}, where S is {float(self.action):.3g} and the smallest curvature "
                f"{curvatures[0]:.3g}, mostly along {lowest}. {_ELSEWHERE}, raise max_steps, or use "
                "stationary(..., index=number of directions of a maximum)"
            )
        if slopes := self._slopes_at_edges():
            return (
                "no stationary point was reached: the solve ended on the edge of a domain, "
                f"{' and '.join(slopes)}, where S {' and '.join(slopes.values())}. {_ELSEWHERE}"
            )
        reason = f"on the edge of a domain, {', '.join(self.edges)}, where the slope of the action is not zero"
        if verdict == DEGENERATE:
            reason = (
                f"degenerate: the curvature is {np.min(np.abs(curvatures)):.3g} mostly along {softest}, and a Newton "
                f"step would move the point by {float(self.stats['remaining']):.3g}: a continuous symmetry, a fold or "
                "a branch point, or S levels off"
            )
        if verdict == OTHER_INDEX:
            reason = (
                f"not a {kind}: {self.index} eigenvalues of the Hessian are negative, the smallest "
                f"{curvatures[0]:.3g} mostly along {lowest}. {_ELSEWHERE}, or use stationary(..., index={self.index})"
            )
            if self.index == int(self.stats["asked"]):
                reason = f"not a {kind}: the slopes on both sides show it, mostly along {softest}"
        if verdict == UNRESOLVED:
            reason = "the action has a kink or a jump there (Abs, Max, sign)"
            if float(self.error) > NEAR * float(reach_of(self.stats["coordinates"])):
                reason = f"rounding or quadrature may move the point by {float(self.error):.3g}"
        return f"stationary at {self.place} ({norm}), but {reason}"

    def _owner(self, direction: str) -> str:
        return self.owners[int(np.argmax(np.abs(self.stats[direction])))]

    def _not_finite(self) -> str:
        is_finite, known = np.isfinite(self.terms), {**self.order_parameters, **self.parameters}
        what = f"the term {shown(self.of.terms[int(np.argmin(is_finite))])} of the action is"
        what = "a derivative of the action is" if np.all(is_finite) else what
        is_known = all(symbol.name in known for symbol in self.of.symbols)
        reason = indefinite(self.of, known) if is_known else ""
        return f"{what} not finite at {self.place}{reason and f': {reason}'}"

    def _slopes_at_edges(self) -> dict[str, str]:
        """Describe the slope of S at each edge, by equations such as `m = 0`, unless it is zero."""
        found, domains = {}, {symbol.name: domain for symbol, domain in self.of.order_parameters.items()}
        for name, at, change in zip(self.owners, self.stats["coordinates"], self.stats["gradient"], strict=True):
            domain = domains[name]
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
        yield Heading(f"{len(self)} stationary points of index {int(self[0].stats['asked'])}")
        rows = ((_in_words(each.action), verbatim(each.place), str(each.stats["reached"])) for each in self)
        yield Table(tuple(rows), ("S", "at", "starts that reached it"))
