"""An action with the numbers of its parameters, as the problem for a solver."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from sympy import Expr

from .._compat import require_float64
from .._jit import jit
from ..checks import array_module, is_traced, shown
from .action import Action, check_shapes, checked_values, indefinite, named, shapes_of
from .domains import AbstractDomain, PositiveDefinite, Real
from .problem import AbstractSaddleProblem, Coordinates, Expansion, Point

Values = Mapping[Expr | str, Any]
"""Numbers and arrays, by symbol or by the symbol's name."""

# A solve stops at this coordinate, exp(-45) = 3e-20 from an edge of a domain.
EDGE = 45.0
# This coordinate represents the edge itself, exp(-80) = 2e-35 away.
BEYOND = 80.0
# The fixed-point map has settled if no order parameter changes by more than this fraction.
_SETTLED = 1e-7
# Added to the denominators of relative changes, to avoid division by zero.
_SMALL = 1e-300
# Most fixed-point iterations before the first Newton step on the misfit, and after each.
_ITERATIONS, _ITERATIONS_AFTER = 200, 10
# Most Newton steps on the misfit, and the largest change of a coordinate in a step.
_NEWTON_STEPS, _LONGEST = 100, 3.0
# Distance over which the noise of S is measured, in rounding errors of the coordinates.
_ULPS = 8.0


class BoundAction(AbstractSaddleProblem):
    """Action as a function of coordinates, differentiable in its parameters too.

    - `of`: the action.
    - `shapes`: shapes of the order parameters, whose coordinates are concatenated.
    - `units` (coordinates,): a coordinate times its unit is a coordinate of the domain.
    - `parameters`, `sizes`: values of the parameters, and of those that are sizes.
    - `free` (coordinates,): zero for the coordinate of an order parameter that is fixed
      on an edge of its domain, and otherwise one.
    """

    of: Action = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    units: Float[Array, " coordinates"]
    parameters: dict[str, Float[Array, "..."]]
    sizes: tuple[tuple[str, int], ...] = eqx.field(static=True)
    free: Float[Array, " coordinates"]

    @property
    def domains(self) -> dict[str, AbstractDomain]:
        return {symbol.name: domain for symbol, domain in self.of.order_parameters.items()}

    @property
    def lengths(self) -> list[int]:
        """Number of coordinates of each order parameter."""
        return [domain.size(shape) for domain, shape in zip(self.domains.values(), self.shapes, strict=True)]

    @property
    def owners(self) -> tuple[str, ...]:
        """Name of the order parameter of each coordinate."""
        return tuple(np.repeat(list(self.domains), self.lengths).tolist())

    @property
    def has_edges(self) -> np.ndarray:
        """For each coordinate, whether its domain has edges."""
        return np.array([self.domains[name].has_edges for name in self.owners])

    @property
    def is_real(self) -> np.ndarray:
        """For each coordinate, whether it is an unconstrained number or matrix entry."""
        return ~self.has_edges & [not isinstance(self.domains[name], PositiveDefinite) for name in self.owners]

    @property
    def values_of_parameters(self) -> dict[str, Any]:
        return {**self.parameters, **dict(self.sizes)}

    @property
    def scale(self):
        # The scale depends on parameters and sizes only, so any order parameters will do.
        return jnp.abs(jnp.asarray(self._called(self.of.compiled_scale, self.values(self.free))["scale"]))

    def _parts(self, *vectors: Coordinates) -> Iterator[tuple]:
        """Yield name, domain and shape of each order parameter, with its part of each vector."""
        starts = np.cumsum(self.lengths)[:-1].tolist()
        parts = [jnp.split(vector, starts) for vector in vectors]
        return zip(self.domains, self.domains.values(), self.shapes, *parts, strict=True)

    def _called(self, function: Callable[..., Any], order_parameters: Mapping[str, Array]) -> Any:
        return function(**order_parameters, **self.values_of_parameters)

    def values(self, coordinates: Coordinates) -> dict[str, Float[Array, "..."]]:
        parts = self._parts(coordinates * self.units)
        return {name: domain.value(part, shape) for name, domain, shape, part in parts}

    def values_on_edges(self, coordinates: Coordinates) -> dict[str, Float[Array, "..."]]:
        """Return `values`, with order parameters that are fixed on an edge exactly on it."""
        values = self.values(coordinates)
        for name, domain, _, part, free in self._parts(coordinates, self.free):
            if domain.has_edges:
                values[name] = jnp.where(free[0] > 0, values[name], domain.edge(part[0]))
        return values

    def coordinates(self, values: Mapping[str, Float[Array, "..."]]) -> Coordinates:
        return jnp.concatenate([domain.coordinates(values[name]) for name, domain in self.domains.items()]) / self.units

    def edges(self, coordinates: Coordinates, beyond: float, *, finite: bool = False) -> Bool[Array, " coordinates"]:
        """Mask coordinates farther out than `beyond`, next to an edge. `finite`: skip infinite edges."""
        skipped = finite & np.array([self.domains[name].high == np.inf for name in self.owners])
        return self.has_edges & (jnp.abs(coordinates) > beyond) & ~(skipped & (coordinates > 0))

    def moved(self, coordinates, step):
        parts = self._parts(coordinates, step * self.free)
        return jnp.concatenate([domain.moved(part, by, shape) for _, domain, shape, part, by in parts])

    def has_left(self, coordinates):
        return jnp.any(self.edges(coordinates, EDGE) & (self.free > 0))

    def over(self, function: Callable[[Array], Any]) -> Callable[[Float[Array, "points coordinates"]], Any]:
        """Map `function` over points, as one batch if S is a function of numbers."""
        # XLA's batched factorisations may deadlock on two cores.
        return jax.vmap(function) if self.of.is_of_numbers else partial(jax.lax.map, function)

    def rounding(self, coordinates: Coordinates) -> tuple[Float[Array, ""], Coordinates]:
        """Return the effect of rounding in the sums within terms on S and on its gradient.

        Relative errors are one. Effects that are not finite are zero.
        """
        values, pull = jax.vjp(lambda step: self.values(self.moved(coordinates, step)), jnp.zeros_like(coordinates))
        effects = jnp.abs(self._called(self.of.rounding_effects, values))
        on_action, *on_slopes = jnp.sum(jnp.where(jnp.isfinite(effects), effects, 0.0), axis=1)
        on_slopes = dict(zip(values, on_slopes or [0.0] * len(values), strict=True))
        sizes = {name: jnp.full_like(value, on_slopes[name]) for name, value in values.items()}
        return on_action, jnp.abs(pull(sizes)[0])

    @eqx.filter_jit
    def terms(self, coordinates: Coordinates) -> Float[Array, " terms"]:
        return self._terms(self.values(coordinates))

    def _terms(self, values: Mapping[str, Array]) -> Float[Array, " terms"]:
        return jnp.stack([jnp.asarray(term, dtype=float) for term in self._called(self.of.compiled, values).values()])

    def action(self, coordinates):
        return jnp.sum(self.terms(coordinates))

    @eqx.filter_jit
    def slopes(self, coordinates: Coordinates, step: Coordinates | None = None) -> tuple[Any, Any]:
        """Return the gradient of S in a `step`, and the sum of its terms' absolute values.

        Without a `step`, both are derivatives by order parameter.
        """
        if step is None:
            return self._slopes(self.values(coordinates))
        values, pull = jax.vjp(lambda step: self.values(self.moved(coordinates, step)), step)
        found, sizes = self._slopes(values)
        return pull(found)[0], jnp.abs(pull(sizes)[0])

    def _slopes(self, values: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        if self.of.standard_equations is None:

            def action(values):
                terms = self._terms(values)
                return jnp.sum(terms), jnp.sum(jnp.abs(terms))

            found, magnitude = jax.grad(action, has_aux=True)(values)
            return found, {name: jnp.full_like(slope, magnitude) for name, slope in found.items()}
        found, sizes, terms = {}, {}, self._called(self.of.compiled_slopes, values)
        for i, name in enumerate(self.domains):
            own = [jnp.asarray(term, dtype=float) for key, term in terms.items() if key.startswith(f"slope_{i}_")]
            found[name], sizes[name] = sum(own), sum(map(jnp.abs, own))
        return found, sizes

    @eqx.filter_jit
    def at(self, coordinates):
        terms, (slope, _) = self.terms(coordinates), self.slopes(coordinates, jnp.zeros_like(coordinates))
        action, eps = jnp.sum(terms), jnp.finfo(terms.dtype).eps
        # Intermediate results may exceed the terms. The noise of S between neighbouring
        # numbers reveals this.
        step = _ULPS * eps * jnp.maximum(jnp.abs(coordinates), 1.0)
        beside = self.over(lambda by: self.action(self.moved(coordinates, by)) - slope @ by)(jnp.stack([step, -step]))
        magnitude = jnp.maximum(jnp.sum(jnp.abs(terms)), jnp.max(jnp.abs(beside - action)) / eps)
        return Point(coordinates, action, magnitude, jnp.linalg.norm(slope) / self.scale, slope)

    @eqx.filter_jit
    def expansion(self, point):
        """Expand the action to second order about a point, or about its coordinates."""
        coordinates = point.coordinates if isinstance(point, Point) else point

        def slope(step):
            found, magnitude = self.slopes(coordinates, step)
            return found, (found, magnitude)

        hessian, (found, magnitude) = jax.jacfwd(slope, has_aux=True)(jnp.zeros_like(coordinates))
        # A fixed coordinate counts as a stiff minimum.
        hessian = (hessian + hessian.T) / 2 + jnp.diag((1 - self.free) * self.scale)
        return Expansion(found, hessian, jnp.eye(len(found)), magnitude)

    def fixed_point(self, coordinates: Coordinates) -> Coordinates:
        """Find the end of the fixed-point map of the saddle-point equations.

        Damped iterations run first. Newton's method then reduces the misfit, the step
        that the map would take, with a few iterations after each step. Close to a critical
        point, iterations alone stall along one direction, and Newton steps alone diverge
        in the others.
        """
        settled = self.iterated(coordinates)

        def step(state):
            at, off, share, count = state
            newton = jnp.linalg.solve(jax.jacfwd(self._misfit)(at), -off)
            newton = newton * share / jnp.maximum(1.0, jnp.max(jnp.abs(newton)) / _LONGEST)
            # Iterations may raise the misfit after a good step.
            candidates = jnp.stack([self.iterated(at + newton, _ITERATIONS_AFTER), at + newton])
            misfits = jax.lax.map(self._misfit, candidates)
            falls = jnp.linalg.norm(misfits, axis=1) < jnp.linalg.norm(off)
            first, better = jnp.argmax(falls), jnp.any(falls)
            share = jnp.where(better, jnp.minimum(2 * share, 1.0), share / 4)
            at, off = jnp.where(better, candidates[first], at), jnp.where(better, misfits[first], off)
            return at, off, share, count + 1

        def unsettled(state):
            _, off, share, count = state
            return (jnp.linalg.norm(off) > _SETTLED) & (share > _SETTLED) & (count < _NEWTON_STEPS)

        start = (settled, self._misfit(settled), jnp.array(1.0), jnp.array(0))
        return jax.lax.while_loop(unsettled, step, start)[0]

    def _map(self, here: Float[Array, " numbers"]) -> Float[Array, " numbers"]:
        found = self._called(self.of.compiled_fixed_point, dict(zip(self.domains, here, strict=True)))
        return jnp.stack([jnp.asarray(found[name], dtype=float) for name in self.domains])

    def _misfit(self, coordinates: Coordinates) -> Coordinates:
        here = jnp.stack(list(self.values(coordinates).values()))
        each = zip(self.domains.values(), here, self._map(here), strict=True)
        return jnp.stack([domain.misfit(value, ahead) for domain, value, ahead in each])

    def iterated(self, coordinates: Coordinates, most: int = _ITERATIONS) -> Coordinates:
        """Apply the fixed-point map, damped by half, up to `most` times. Return the last finite point."""
        low, high = np.array([(domain.low, domain.high) for domain in self.domains.values()]).T

        def iterate(state):
            here, _, count = state
            moved = (here + jnp.clip(self._map(here), low, high)) / 2
            finite, changes = jnp.all(jnp.isfinite(moved)), jnp.abs(moved - here) / (jnp.abs(here) + _SMALL)
            return jnp.where(finite, moved, here), jnp.where(finite, jnp.max(changes), 0.0), count + 1

        state = (jnp.stack(list(self.values(coordinates).values())), jnp.array(jnp.inf), jnp.array(0))
        found, *_ = jax.lax.while_loop(lambda s: (s[1] > _SETTLED) & (s[2] < most), iterate, state)
        ahead = self.coordinates(dict(zip(self.domains, found, strict=True)))
        # Rounding may put an order parameter on the edge itself.
        ahead = jnp.where(self.edges(ahead, BEYOND), BEYOND * jnp.sign(ahead), ahead)
        return jnp.where(jnp.isfinite(ahead), ahead, coordinates)


def bind(action: Action, values: Values, initial: Values | None = None) -> BoundAction:
    """Bind an action to values of its parameters, which determine shapes with `initial`."""
    require_float64()
    parameters, sizes = checked_values(action, action.parameters, "values", values, "values[{}]")
    guesses = {} if initial is None else named("initial", initial, action.order_parameters)
    shapes = shapes_of(action, parameters | sizes, guesses)
    check_shapes(parameters, shapes, "values[{}]")
    units = []
    for symbol, domain in action.order_parameters.items():
        unit = np.ones(domain.size(shapes[symbol.name]))
        if symbol.name in guesses and isinstance(domain, Real):
            # A small start sets the unit, so that an overlap of 1e-7 is as well resolved
            # as one of order one.
            guess, xp = guesses[symbol.name], array_module(guesses[symbol.name])
            guess = jax.lax.stop_gradient(guess) if is_traced(guess) else guess
            size = xp.linalg.norm(xp.asarray(guess, dtype=float).reshape(-1))
            unit = xp.where((size > 0) & (size < 1), size, 1.0) * unit
        units.append(unit)
    units = jnp.array(array_module(*units).concatenate(units))
    own, free = tuple(shapes[symbol.name] for symbol in action.order_parameters), jnp.array(np.ones(len(units)))
    return BoundAction(action, own, units, parameters, tuple(sizes.items()), free)


def initial_coordinates(bound: BoundAction, initial: Values) -> Coordinates:
    """Return the coordinates of the point `initial`, at which the action must be finite."""
    values, _ = checked_values(bound.of, tuple(bound.of.order_parameters), "initial", initial, "initial[{}]")
    check_shapes(values, dict(zip(bound.domains, bound.shapes, strict=True)), "initial[{}]")
    coordinates, terms = place_of(bound, values)
    if not is_traced(terms) and not np.all(finite := np.isfinite(terms)):
        term = bound.of.terms[int(np.argmin(finite))]
        reason = indefinite(bound.of, {**values, **bound.values_of_parameters})
        raise ValueError(f"the term {shown(term)} of the action is not finite at initial{reason and f': {reason}'}")
    return coordinates


@partial(jit, of_numbers=lambda bound, values: bound.of.is_of_numbers)
def place_of(bound: BoundAction, values: Mapping[str, Array]) -> tuple[Coordinates, Float[Array, " terms"]]:
    coordinates = bound.coordinates({name: jnp.asarray(value) for name, value in values.items()})
    return coordinates, bound.terms(coordinates)
