"""Bind an action to the numbers of its parameters, as the problem for a solver."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from sympy import Expr, MatrixSymbol

from .._compat import require_float64
from .._jit import jit
from ..checks import (
    Requirement,
    array_module,
    check_is_number,
    checked_whole_number,
    guard,
    is_traced,
    numeric_array,
    refuse_known,
    require,
    shown,
)
from .action import Action, indefinite, named, shapes_of
from .domains import AbstractDomain, Real, Symmetric, as_declared
from .problem import AbstractSaddleProblem, Coordinates, Expansion, Point

Values = Mapping[Expr | str, Any]
"""Numbers and arrays, by symbol or by the symbol's name."""

# A solve stops at this coordinate, where the order parameter is exp(-45) = 3e-20 from an edge of its domain.
EDGE = 45.0
# This coordinate represents the edge itself. The order parameter is then exp(-80) = 2e-35 from the edge.
BEYOND = 80.0
# The fixed-point map has settled if the relative change of every order parameter is below this.
_SETTLED = 1e-7
# Added to the denominators of relative changes, to avoid division by zero.
_SMALL = 1e-300
# Maximum number of fixed-point iterations before the first Newton step on the misfit.
_ITERATIONS = 200
# Maximum number of fixed-point iterations after each Newton step.
_ITERATIONS_AFTER = 10
# Maximum number of Newton steps on the misfit.
_NEWTON_STEPS = 100
# Largest change of a coordinate in one Newton step on the misfit.
_LONGEST = 3.0
# Distance over which the noise of S is measured, in units of the rounding errors of the coordinates.
_ULPS = 8.0


class BoundAction(AbstractSaddleProblem):
    """Action as a function of coordinates, with arrays as parameters. It is differentiable in the parameters too.

    Steps are orthonormal in the metric of the domains, so the metric of an expansion is the identity.

    - `of`: the action.
    - `shapes`: shapes of the order parameters, in order. Their `coordinates` are concatenated in the same order.
    - `units` (coordinates,): a coordinate times its unit is a coordinate of the domain. Numbers with a small start have
      small units.
    - `parameters`: values of the parameters, by name.
    - `sizes`: values of the parameters that are sizes of matrices, with their names.
    - `free` (coordinates,): zero if the coordinate is fixed because its order parameter is on an edge of its domain,
      and otherwise one.
    """

    of: Action = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    units: Float[Array, " coordinates"]
    parameters: dict[str, Float[Array, "..."]]
    sizes: tuple[tuple[str, int], ...] = eqx.field(static=True)
    free: Float[Array, " coordinates"]

    @property
    def domains(self) -> dict[str, AbstractDomain]:
        """Domain of each order parameter, by name."""
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
    def is_real(self) -> np.ndarray:
        """For each coordinate, whether it is an unconstrained number or matrix entry."""
        return np.repeat([isinstance(domain, (Real, Symmetric)) for domain in self.domains.values()], self.lengths)

    def _parts(self, *vectors: Coordinates) -> Iterator[tuple]:
        """Yield name, domain and shape of each order parameter, with its part of each of `vectors`."""
        starts = np.cumsum(self.lengths)[:-1].tolist()
        return zip(
            self.domains, self.domains.values(), self.shapes, *(jnp.split(v, starts) for v in vectors), strict=True
        )

    def values(self, coordinates: Coordinates) -> dict[str, Float[Array, "..."]]:
        """Return every order parameter by name."""
        parts = self._parts(coordinates * self.units)
        return {name: domain.value(part, shape) for name, domain, shape, part in parts}

    def values_on_edges(self, coordinates: Coordinates) -> dict[str, Float[Array, "..."]]:
        """Return `values`, with order parameters that are held on an edge of their domain exactly on it."""
        values = self.values(coordinates)
        for name, domain, _, part, free in self._parts(coordinates, self.free):
            if domain.has_edges:
                values[name] = jnp.where(free[0] > 0, values[name], domain.edge(part[0]))
        return values

    def coordinates(self, values: Mapping[str, Float[Array, "..."]]) -> Coordinates:
        """Return the coordinates of order parameters given by name."""
        return jnp.concatenate([domain.coordinates(values[name]) for name, domain in self.domains.items()]) / self.units

    def edges(self, coordinates: Coordinates, beyond: float, *, finite: bool = False) -> Bool[Array, " coordinates"]:
        """Mask coordinates so far out that their order parameter is next to an edge. `finite`: skip infinite edges."""

        def near(domain: AbstractDomain, part: Array) -> Array:
            if not domain.has_edges:
                return part > jnp.inf
            return (jnp.abs(part) > beyond) & (jnp.isfinite(domain.edge(part)) | (not finite))

        return jnp.concatenate([near(domain, part) for _, domain, _, part in self._parts(coordinates)])

    def moved(self, coordinates, step):
        parts = self._parts(coordinates, step * self.free)
        return jnp.concatenate([domain.moved(part, by, shape) for _, domain, shape, part, by in parts])

    def has_left(self, coordinates):
        return jnp.any(self.edges(coordinates, EDGE) & (self.free > 0))

    def over(self, function: Callable[[Array], Any]) -> Callable[[Float[Array, "points coordinates"]], Any]:
        """Map `function` over points: as one batch if S is a function of numbers, whose operations are small."""
        # XLA's batched factorisations may deadlock on two cores.
        return jax.vmap(function) if self.of.is_of_numbers else partial(jax.lax.map, function)

    @property
    def values_of_parameters(self) -> dict[str, Any]:
        """Return parameters and sizes by name."""
        return {**self.parameters, **dict(self.sizes)}

    def _given(self, order_parameters: Mapping[str, Array]) -> dict[str, Any]:
        return {**order_parameters, **self.values_of_parameters}

    @property
    def scale(self):
        # The scale depends on parameters and sizes only, so any order parameters will do.
        return jnp.abs(jnp.asarray(self.of.compiled_scale(**self._given(self.values(self.free)))["scale"]))

    def rounding(self, coordinates: Coordinates) -> tuple[Float[Array, ""], Coordinates]:
        """Return the effect of relative rounding errors of one in the sums within terms on S and on its gradient.

        Effects that are not known or infinite are zero.
        """
        values, pull = jax.vjp(lambda step: self.values(self.moved(coordinates, step)), jnp.zeros_like(coordinates))
        effects = jnp.abs(self.of.rounding_effects(**self._given(values)))
        on_action, *on_slopes = jnp.sum(jnp.where(jnp.isfinite(effects), effects, 0.0), axis=1)
        on_slopes = on_slopes or [jnp.zeros(())] * len(values)
        sizes = {
            name: jnp.full_like(value, size) for (name, value), size in zip(values.items(), on_slopes, strict=True)
        }
        return on_action, jnp.abs(pull(sizes)[0])

    @eqx.filter_jit
    def terms(self, coordinates: Coordinates) -> Float[Array, " terms"]:
        """Return the terms of the sum S."""
        return _terms_of(self.of.compiled(**self._given(self.values(coordinates))))

    def action(self, coordinates):
        return jnp.sum(self.terms(coordinates))

    @eqx.filter_jit
    def slopes(self, coordinates: Coordinates, step: Coordinates | None = None) -> tuple[Any, Any]:
        """Return the gradient of S, and for each entry the sum of the absolute values of its terms.

        The gradient is taken in steps, after one `step`. Without a `step`, the gradient is taken in the order
        parameters themselves, and both results are by name. The equations in standard form are evaluated if all order
        parameters are numbers. Otherwise S is differentiated.
        """
        if step is None:
            values = self.values(coordinates)
        else:
            values, pull = jax.vjp(lambda step: self.values(self.moved(coordinates, step)), step)
        if self.of.standard_equations is None:

            def action(values):
                terms = _terms_of(self.of.compiled(**self._given(values)))
                return jnp.sum(terms), jnp.sum(jnp.abs(terms))

            found, magnitude = jax.grad(action, has_aux=True)(values)
            sizes = {name: jnp.full_like(slope, magnitude) for name, slope in found.items()}
        else:
            terms = self.of.compiled_slopes(**self._given(values))
            found, sizes = {}, {}
            for i, name in enumerate(self.domains):
                own = f"slope_{i}_"
                of_name = [jnp.asarray(term, dtype=float) for key, term in terms.items() if key.startswith(own)]
                found[name], sizes[name] = sum(of_name), sum(map(jnp.abs, of_name))
        return (found, sizes) if step is None else (pull(found)[0], jnp.abs(pull(sizes)[0]))

    @eqx.filter_jit
    def at(self, coordinates):
        terms, (slope, _) = self.terms(coordinates), self.slopes(coordinates, jnp.zeros_like(coordinates))
        action, eps = jnp.sum(terms), jnp.finfo(terms.dtype).eps
        # Intermediate results may exceed the terms. The noise of S between neighbouring numbers reveals this.
        step = _ULPS * eps * jnp.maximum(jnp.abs(coordinates), 1.0)
        beside = self.over(lambda by: jnp.sum(self.terms(self.moved(coordinates, by))) - slope @ by)(
            jnp.stack([step, -step])
        )
        magnitude = jnp.maximum(jnp.sum(jnp.abs(terms)), jnp.max(jnp.abs(beside - action)) / eps)
        return Point(coordinates, action, magnitude, jnp.linalg.norm(slope) / self.scale, slope)

    @eqx.filter_jit
    def expansion(self, point):
        """Expand the action to second order about a point, which may be given by its coordinates alone."""
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

        Damped iterations run first, until they settle or stall. Newton's method then reduces the misfit, which is the
        step that the map would take. A few iterations after each Newton step restore the relations between order
        parameters, and steps are shortened until the misfit falls. Both are needed: close to a critical point,
        iterations alone stall along one direction, and Newton steps alone diverge in the other directions.
        """
        settled = self.iterated(coordinates, _ITERATIONS)

        def step(state):
            at, off, share, count = state
            newton = jnp.linalg.solve(jax.jacfwd(self._misfit)(at), -off)
            newton = newton * share / jnp.maximum(1.0, jnp.max(jnp.abs(newton)) / _LONGEST)
            # If a perturbation grows before it decays, iterations raise the misfit after a good step.
            candidates = jnp.stack([self.iterated(at + newton, _ITERATIONS_AFTER), at + newton])
            misfits = jax.lax.map(self._misfit, candidates)
            falls = jnp.linalg.norm(misfits, axis=1) < jnp.linalg.norm(off)
            first, better = jnp.argmax(falls), jnp.any(falls)
            ahead, there = candidates[first], misfits[first]
            share = jnp.where(better, jnp.minimum(2 * share, 1.0), share / 4)
            return jnp.where(better, ahead, at), jnp.where(better, there, off), share, count + 1

        def unsettled(state):
            _, off, share, count = state
            return (jnp.linalg.norm(off) > _SETTLED) & (share > _SETTLED) & (count < _NEWTON_STEPS)

        start = (settled, self._misfit(settled), jnp.array(1.0), jnp.array(0))
        return jax.lax.while_loop(unsettled, step, start)[0]

    def _map(self, here: Mapping[str, Array]) -> dict[str, Array]:
        found = self.of.compiled_fixed_point(**self._given(here))
        return {name: jnp.asarray(found[name], dtype=float) for name in here}

    def _misfit(self, coordinates: Coordinates) -> Coordinates:
        here = self.values(coordinates)
        ahead = self._map(here)
        return jnp.stack([domain.misfit(here[name], ahead[name]) for name, domain in self.domains.items()])

    def iterated(self, coordinates: Coordinates, most: int = _ITERATIONS) -> Coordinates:
        """Apply the fixed-point map, damped by half, up to `most` times. Return the last finite point."""

        def iterate(state):
            here, _, count = state
            ahead = self._map(here)
            moved = {name: domain.towards(here[name], ahead[name]) for name, domain in self.domains.items()}
            changes = jnp.stack([jnp.abs(moved[name] - here[name]) / (jnp.abs(here[name]) + _SMALL) for name in here])
            finite = jnp.all(jnp.isfinite(jnp.stack(list(moved.values()))))
            kept = {name: jnp.where(finite, moved[name], here[name]) for name in here}
            return kept, jnp.where(finite, jnp.max(changes), 0.0), count + 1

        state = (self.values(coordinates), jnp.array(jnp.inf), jnp.array(0))
        found, *_ = jax.lax.while_loop(lambda s: (s[1] > _SETTLED) & (s[2] < most), iterate, state)
        ahead = self.coordinates(found)
        # Rounding may put an order parameter on the edge itself.
        ahead = jnp.where(self.edges(ahead, BEYOND), BEYOND * jnp.sign(ahead), ahead)
        return jnp.where(jnp.isfinite(ahead), ahead, coordinates)


def _terms_of(results: Mapping[str, Any]) -> Float[Array, " terms"]:
    return jnp.stack([jnp.asarray(value, dtype=float) for value in results.values()])


def bind(action: Action, values: Values, initial: Values | None = None) -> BoundAction:
    """Bind an action to values of its parameters. The values, or `initial`, determine the shapes of order parameters.

    Raises:
        ValueError: If a value is missing or not finite, violates its symbol's assumptions, or has the wrong shape.
    """
    require_float64()
    given = named("values", values, action.parameters)
    if missing := sorted({symbol.name for symbol in action.parameters} - set(given)):
        raise ValueError(f"values needs a value for {', '.join(missing)}, on which the action depends")
    sizes = {s.name: checked_whole_number(f"values[{s.name}]", given[s.name], least=1) for s in action.sizes}
    numbers, arrays = [symbol for symbol in action.parameters if symbol not in action.sizes], {}
    for symbol in numbers:
        name, is_matrix = f"values[{symbol.name}]", isinstance(symbol, MatrixSymbol)
        if not is_matrix:
            check_is_number(name, given[symbol.name])
        arrays[symbol.name] = numeric_array(name, given[symbol.name], "rows columns" if is_matrix else None)
    conditions = (as_declared(f"values[{symbol.name}]", symbol, arrays[symbol.name]) for symbol in numbers)
    parameters = {name: jnp.array(value) for name, value in arrays.items()}
    parameters = require(parameters, itertools.chain.from_iterable(conditions))
    guesses = {} if initial is None else named("initial", initial, action.order_parameters)
    shapes = shapes_of(action, parameters | sizes, guesses)
    for name, value in parameters.items():
        if value.shape != shapes[name]:
            raise ValueError(
                f"values[{name}] must have shape {shapes[name]} to fit the other values, got {value.shape}"
            )
    units = []
    for symbol, domain in action.order_parameters.items():
        unit = np.ones(domain.size(shapes[symbol.name]))
        if symbol.name in guesses and isinstance(domain, Real):
            # The start sets the unit, so an overlap of 1e-7 is as well resolved as an overlap of order one.
            guess = guesses[symbol.name]
            guess = jax.lax.stop_gradient(jnp.asarray(guess, dtype=float)) if is_traced(guess) else np.asarray(guess)
            # With JAX, each of these operations would be compiled.
            module = array_module(guess)
            size = module.linalg.norm(guess.reshape(-1))
            unit = module.where((size > 0) & (size < 1), size, 1.0) * unit
        units.append(unit)
    of_order_parameters = tuple(shapes[symbol.name] for symbol in action.order_parameters)
    units = jnp.array(array_module(*units).concatenate(units))
    free = jnp.array(np.ones(len(units)))
    return BoundAction(action, of_order_parameters, units, parameters, tuple(sizes.items()), free)


def initial_coordinates(bound: BoundAction, initial: Values) -> Coordinates:
    """Return the coordinates of the point `initial`.

    Raises:
        ValueError: If a value is missing or invalid, or if the action is not finite at the point.
    """
    given = named("initial", initial, bound.of.order_parameters)
    if missing := [name for name in bound.domains if name not in given]:
        raise ValueError(f"initial has no start for {', '.join(missing)}")
    values = {name: numeric_array(f"initial[{name}]", given[name]) for name in bound.domains}
    pairs = zip(bound.domains.items(), bound.shapes, strict=True)
    conditions = (domain.all_requirements(f"initial[{name}]", values[name], shape) for (name, domain), shape in pairs)
    traced = refuse_known(itertools.chain.from_iterable(conditions))
    coordinates, terms = place_of(bound, values)
    advice = "Start where it is defined, or give an order parameter the domain on which the term is defined"
    if not is_traced(terms):
        terms = np.asarray(terms)
        known = {**values, **bound.values_of_parameters}
        if not np.all(np.isfinite(terms)) and (reason := indefinite(bound.of, known)):
            advice = f"{reason[0].upper()}{reason[1:]}. {advice}"
    conditions = []
    for term, value in zip(bound.of.terms, terms, strict=True):
        message = f"the term {shown(term)} of the action is not finite at initial"
        text = partial("{}: it is {}. {}".format, message, value, advice)
        conditions.append(Requirement(f"{message}. {advice}", array_module(value).isfinite(value), text))
    return guard(coordinates, traced + refuse_known(conditions))


@partial(jit, of_numbers=lambda bound, values: bound.of.is_of_numbers)
def place_of(bound: BoundAction, values: Mapping[str, Array]) -> tuple[Coordinates, Float[Array, " terms"]]:
    """Return the coordinates of order parameters, and the terms of S there."""
    coordinates = bound.coordinates({name: jnp.asarray(value) for name, value in values.items()})
    return coordinates, bound.terms(coordinates)
