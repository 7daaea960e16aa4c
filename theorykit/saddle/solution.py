"""Solution of a stationary-point problem: its numbers, its certificate, and the outcome in words."""

from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float, Int
from sympy import Expr

from ..checks import is_traced, refuse_traced, shown
from ..symbolic.documents import Block, DisplayMixin, Heading, Table, Text, verbatim
from .action import Action, indefinite
from .certificate import DEGENERATE, MEANINGS, NOT_FINITE, SLOPING, UNRESOLVED
from .diagnosis import AbstractOutcome

# Coordinates beyond this distance are within 1e-13 of an edge.
_NEXT_TO_EDGE = 30.0


def _in_words(value: Any, digits: int = 9) -> str:
    """Write a number, or the shape and range of an array."""
    if np.ndim(value) == 0:
        return f"{float(value):.{digits}g}"
    low, high = float(np.min(value)), float(np.max(value))
    return f"{' x '.join(map(str, np.shape(value)))}, from {low:.4g} to {high:.4g}"


class Solution(DisplayMixin, AbstractOutcome):
    """Outcome of `minimise` or `stationary`, differentiable in the values of the parameters.

    Lengths and gradients are in the metric of `saddle.domains`. Under `vmap`, every leaf has
    the axes of the batch. To `jax.grad`, all but order parameters and `action` is constant.

    - `order_parameters`: values by name. `solution[symbol]` returns one of them.
    - `action`, `action_error`: S, and its error by rounding and by quadrature.
    - `error`: bound on the distance to the stationary point if certified, else an estimate.
    - `gradient_norm`: norm of the gradient of S per scale.
    - `hessian_eigenvalues` (coordinates,): increasing, per scale. An order parameter on
      an edge of its domain contributes the one-sided second derivative of S.
    - `quadrature_error`: the part of `error` that is due to Gaussian averages.
    - `result`: `optimistix.RESULTS.successful` if and only if the point is certified: the
      gradient vanishes to the tolerance, Newton's method contracts around the point, and
      the index is the requested one.
    - `stats`: `evaluations` of the last attempt; `tolerance` and `asked`, the requested index;
      `verdict`; `coordinates`; directions of the `softest` and the `lowest` curvature;
      mask `at_edge` of the coordinates on an edge; and, from `search`, how many starts
      `reached` the point.
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
        names = np.asarray(self.owners)[np.asarray(self.stats["at_edge"])]
        return tuple(f"{name} = {float(self.order_parameters[name]):g}" for name in names)

    @property
    def place(self) -> str:
        """Order parameters and values as text."""
        refuse_traced("place", self.order_parameters, reason="shows values", anywhere=False)
        return ", ".join(f"{name} = {_in_words(value, 4)}" for name, value in self.order_parameters.items())

    def _view(self) -> Iterator[Block]:
        named = {verbatim(name): value for name, value in {**self.order_parameters, **self.parameters}.items()}
        rows = {**named, "S": self.action, "gradient norm": self.gradient_norm, "error": self.error}
        rows["smallest curvature"] = np.min(self.hessian_eigenvalues, axis=-1)
        kind = self._kind if self.converged is True else f"no certified {self._kind}"
        yield Heading(f"{np.size(self.action)} solves" if np.ndim(self.action) else kind[0].upper() + kind[1:])
        yield Table(tuple((name, _in_words(value)) for name, value in rows.items()))
        yield Text(verbatim(self.diagnosis))

    @property
    def _kind(self) -> str:
        asked = int(np.max(self.stats["asked"]))
        return f"stationary point of index {asked}" if asked else "minimum"

    def describe(self) -> str:
        stats, curvatures = self.stats, np.asarray(self.hessian_eigenvalues)
        slope, count = float(self.gradient_norm), int(stats["evaluations"])
        numbers = f"gradient norm {slope:.3g} per scale, after {count} evaluations"
        if self.converged:
            on = f" on the edge of the domain, {', '.join(self.edges)}" if self.edges else ""
            return f"converged to a {self._kind}{on}: {numbers}"
        meaning, verdict = MEANINGS[int(stats["verdict"])].format(kind=self._kind), int(stats["verdict"])
        if verdict == SLOPING and stats["asked"]:
            meaning = f"no {self._kind} is near: the solve stopped"
        if verdict == NOT_FINITE and (reason := indefinite(self.of, {**self.order_parameters, **self.parameters})):
            meaning = f"{reason}: {meaning}"
        domains = {symbol.name: domain for symbol, domain in self.of.order_parameters.items()}
        owned = zip(self.owners, np.asarray(stats["coordinates"]), strict=True)
        near = [(n, domains[n].edge(x)) for n, x in owned if domains[n].has_edges and abs(x) > _NEXT_TO_EDGE]
        edges = ", ".join(f"{name} = {float(edge):g}" for name, edge in near if np.isfinite(edge))
        ended = f" (ended on the edge of a domain, {edges})" if edges else ""
        softest, lowest = (self.owners[int(np.argmax(np.abs(stats[name])))] for name in ("softest", "lowest"))
        if verdict == DEGENERATE and softest in dict(near):
            meaning = f"no stationary point on the way to {softest} = {float(dict(near)[softest]):g}: the solve stopped"
        advice = "Start from elsewhere (initial=...), or use stationary(..., index=...)"
        if verdict == UNRESOLVED and self.quadrature_error > self.error / 2:
            meaning = "errors of quadrature may move the point,"
            fixed = f"Averages have a fixed number of nodes, here {self.of.finest.nodes}"
            advice = f'{fixed}: raise it by with_nodes(...), or use nodes="adaptive"'
        return (
            f"{meaning} at {self.place}{ended}: {numbers}, error {float(self.error):.3g}. {self.index} of "
            f"{len(curvatures)} eigenvalues of the Hessian are negative, the smallest {curvatures[0]:.3g} mostly along "
            f"{lowest}, the softest {np.min(np.abs(curvatures)):.3g} mostly along {softest}. {advice}"
        )
