"""An action bound to the numbers of its parameters: what a solver takes, and where refusals name what is wrong."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from sympy import Expr, MatrixSymbol

from ..checks import (
    Requirement,
    array_module,
    by_name,
    check_is_number,
    checked_instance,
    checked_whole_number,
    guard,
    is_traced,
    numeric_array,
    refuse_known,
    require,
    shown,
)
from ..codegen import compile_expressions
from ..codegen.program import bound_sizes
from ..compilation import jit
from ..precision import require_float64
from .action import SCALE, SIDE, Action
from .domains import AbstractDomain, Real, Symmetric, as_declared
from .problem import AbstractSaddleProblem, Coordinates, Expansion, Point, Tangent

Values = Mapping[Expr | str, Any]
"""Numbers and arrays, by symbol or by the symbol's name."""


# coordinates of order parameters next to an edge of their domain: so far out that a solve is stopped there, and where
# the edge itself is represented, 1e-35 of the unit away from zero
EDGE, BEYOND = 45.0, 80.0
# relative change of order parameters from which on the fixed-point map has settled, and what is small beside them
_SETTLED, _SMALL = 1e-7, 1e-300
# iterations of the map at first, and after each step of Newton's method on its misfit; how many such steps there are,
# and the largest change of a coordinate in one
_ITERATIONS, _ITERATIONS_AFTER, _NEWTON_STEPS, _LONGEST = 200, 10, 100, 3.0
# rounding errors of the coordinates over which the noise of S is seen
_ULPS = 8.0


class Layout(eqx.Module):
    """Where each order parameter is in the vector of all coordinates: its name, domain and shape, in order.

    `units`: what a coordinate is multiplied by before it is one of the domain; not one for numbers that start small.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    domains: tuple[AbstractDomain, ...] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    units: Float[Array, " coordinates"]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many coordinates each order parameter has."""
        return tuple(domain.size(shape) for domain, shape in zip(self.domains, self.shapes, strict=True))

    @property
    def owners(self) -> tuple[str, ...]:
        """For each coordinate, the name of its order parameter."""
        return tuple(name for name, size in zip(self.names, self.sizes, strict=True) for _ in range(size))

    def _parts(self, coordinates: Coordinates) -> list[Float[Array, " _"]]:
        return jnp.split(coordinates, np.cumsum(self.sizes)[:-1].tolist())

    def values(self, coordinates: Coordinates) -> dict[str, Float[Array, "..."]]:
        """Every order parameter by name."""
        parts = zip(self.names, self.domains, self.shapes, self._parts(coordinates * self.units), strict=True)
        return {name: domain.value(part, shape) for name, domain, shape, part in parts}

    def coordinates(self, values: Mapping[str, Float[Array, "..."]]) -> Coordinates:
        """The coordinates of order parameters given by name."""
        pairs = zip(self.names, self.domains, strict=True)
        return jnp.concatenate([domain.coordinates(values[name]) for name, domain in pairs]) / self.units

    def at_edges(self, values: dict[str, Array], coordinates: Coordinates, free: Coordinates) -> dict[str, Array]:
        """`values` with order parameters that are held on an edge of their domain exactly there."""
        starts = np.cumsum([0, *self.sizes])
        return {
            name: jnp.where(free[at] > 0, values[name], domain.edge(coordinates[at]))
            if domain.has_edges
            else values[name]
            for name, domain, at in zip(self.names, self.domains, starts, strict=False)
        }

    def edges(self, coordinates: Coordinates, beyond: float) -> Bool[Array, " coordinates"]:
        """Which coordinates are so far out that their order parameter is next to an edge of its domain."""
        return self._by_coordinate(lambda domain: domain.has_edges) & (jnp.abs(coordinates) > beyond)

    def next_to_edge(self, coordinates: Coordinates, beyond: float) -> Bool[Array, " coordinates"]:
        """The same of edges that are not at infinity."""
        parts = zip(self.domains, self._parts(coordinates), strict=True)
        ends = [jnp.isfinite(each.edge(part)) if each.has_edges else jnp.zeros(len(part), bool) for each, part in parts]
        return self.edges(coordinates, beyond) & jnp.concatenate(ends)

    @property
    def is_real(self) -> np.ndarray:
        """Which coordinates are those of numbers or entries of any sign and size."""
        return self._by_coordinate(lambda domain: isinstance(domain, (Real, Symmetric)))

    def _by_coordinate(self, of_domain: Callable[[AbstractDomain], bool]) -> np.ndarray:
        flags = [of_domain(domain) for domain in self.domains]
        return np.repeat(np.array(flags, dtype=bool), self.sizes)

    def moved(self, coordinates: Coordinates, step: Coordinates) -> Coordinates:
        """The coordinates after a step, whose length is that of the domains' metrics."""
        parts = zip(self.domains, self.shapes, self._parts(coordinates), self._parts(step), strict=True)
        return jnp.concatenate([domain.moved(part, by, shape) for domain, shape, part, by in parts])


class BoundAction(AbstractSaddleProblem):
    """The action as a function of coordinates, its parameters arrays: differentiable in these too.

    Steps are orthonormal in the metric of the domains, so that the metric of an expansion is the identity. A coordinate
    whose entry of `free` is zero is held where it is: the order parameter is on an edge of its domain.
    """

    of: Action = eqx.field(static=True)
    layout: Layout
    parameters: dict[str, Float[Array, "..."]]
    sizes: tuple[tuple[str, int], ...] = eqx.field(static=True)
    free: Float[Array, " coordinates"]

    @property
    def scale(self):
        # at no order parameter: it is a function of parameters and sizes alone
        return jnp.abs(jnp.asarray(self._results(self.layout.values(jnp.zeros(len(self.free))))[SCALE]))

    @property
    def has_sweeps(self):
        return False

    def with_action(self, action: Action) -> "BoundAction":
        """Another action of the same order parameters and parameters."""
        return BoundAction(action, self.layout, self.parameters, self.sizes, self.free)

    def with_stated_errors(self, side: Array | float) -> "BoundAction":
        """The action with so many stated errors added to each of its Gaussian averages."""
        parameters = {**self.parameters, SIDE.name: jnp.asarray(side, dtype=float)}
        return BoundAction(self.of.bounds, self.layout, parameters, self.sizes, self.free)

    def _results(self, order_parameters: Mapping[str, Array]) -> Mapping[str, Array | float | int]:
        return self.of.compiled(**order_parameters, **self.parameters, **dict(self.sizes))

    def of_values(self, order_parameters: Mapping[str, Array]) -> Float[Array, " terms"]:
        """The terms that S is the sum of, at order parameters by name."""
        results = self._results(order_parameters)
        return jnp.stack([jnp.asarray(value, dtype=float) for name, value in results.items() if name != SCALE])

    def terms(self, coordinates: Coordinates) -> Float[Array, " terms"]:
        """The terms that S is the sum of."""
        return self.of_values(self.layout.values(coordinates))

    def action(self, coordinates):
        return jnp.sum(self.terms(coordinates))

    def moved(self, coordinates, step):
        return self.layout.moved(coordinates, step * self.free)

    def has_left(self, coordinates):
        return jnp.any(self.layout.edges(coordinates, EDGE) & (self.free > 0))

    def slopes(self, order_parameters: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """The derivative of S in every order parameter by name, and the sum of the sizes of what it is summed from.

        From the equations in standard form if all order parameters are numbers, otherwise by differentiation of S.
        """
        if self.of.standard_equations is None:
            found = jax.grad(lambda values: jnp.sum(self.of_values(values)))(dict(order_parameters))
            magnitude = jnp.sum(jnp.abs(self.of_values(order_parameters)))
            return found, {name: jnp.full_like(slope, magnitude) for name, slope in found.items()}
        terms = self.of.compiled_slopes(**order_parameters, **self.parameters, **dict(self.sizes))
        slopes, sizes = {}, {}
        for i, name in enumerate(self.layout.names):
            of_name = [jnp.asarray(term, dtype=float) for key, term in terms.items() if key.startswith(f"slope_{i}_")]
            slopes[name], sizes[name] = sum(of_name), sum(map(jnp.abs, of_name))
        return slopes, sizes

    def slope_after(self, coordinates: Coordinates, step: Coordinates) -> Coordinates:
        """The gradient of S in steps from `coordinates`, after one of them."""
        return self._slope_and_magnitude(coordinates, step)[0]

    def _slope_and_magnitude(self, coordinates: Coordinates, step: Coordinates) -> tuple[Coordinates, Coordinates]:
        values, by_steps = jax.vjp(lambda step: self.layout.values(self.moved(coordinates, step)), step)
        slopes, magnitudes = self.slopes(values)
        return by_steps(slopes)[0], jnp.abs(by_steps(magnitudes)[0])

    def second_order(self, coordinates: Coordinates) -> tuple[Coordinates, Coordinates, Float[Array, "n n"]]:
        """The gradient of S in steps, the sum of the sizes of what it is summed from, and the Hessian."""
        no_step = jnp.zeros_like(coordinates)

        def slope(step):
            found, magnitude = self._slope_and_magnitude(coordinates, step)
            return found, (found, magnitude)

        hessian, (found, magnitude) = jax.jacfwd(slope, has_aux=True)(no_step)
        # a coordinate that is held counts as a stiff minimum
        return found, magnitude, (hessian + hessian.T) / 2 + jnp.diag((1 - self.free) * self.scale)

    def at(self, coordinates):
        terms = self.terms(coordinates)
        slope = self.slope_after(coordinates, jnp.zeros_like(coordinates))
        action, summed = jnp.sum(terms), jnp.sum(jnp.abs(terms))
        # what terms are computed from may be larger than they are: noise of S between neighbouring numbers
        step = _ULPS * jnp.finfo(action.dtype).eps * jnp.maximum(jnp.abs(coordinates), 1.0)
        beside = jax.lax.map(lambda by: self.action(self.moved(coordinates, by)) - slope @ by, jnp.stack([step, -step]))
        magnitude = jnp.maximum(summed, jnp.max(jnp.abs(beside - action)) / jnp.finfo(action.dtype).eps)
        return Point(coordinates, action, magnitude, jnp.linalg.norm(slope) / self.scale, slope)

    def expansion(self, point):
        slope, _, hessian = self.second_order(point.coordinates)
        return Expansion(slope, hessian, jnp.eye(len(slope)))

    def fixed_point(self, coordinates: Coordinates) -> Coordinates:
        """Where the fixed-point map of the saddle-point equations leads.

        First damped iterations, until they settle or creep. Then Newton's method on the misfit, the step that the map
        would take: each step is followed by some iterations, which bring order parameters that depend on others back
        into line, and is cut back until the misfit falls. Near a critical point iterations alone creep along one
        direction, and Newton steps alone go astray in the others.
        """
        settled = self.iterated(coordinates, _ITERATIONS)

        def step(state):
            at, off, share, count = state
            newton = jnp.linalg.solve(jax.jacfwd(self._misfit)(at), -off)
            newton = newton * share / jnp.maximum(1.0, jnp.max(jnp.abs(newton)) / _LONGEST)
            ahead = self.iterated(at + newton, _ITERATIONS_AFTER)
            there = self._misfit(ahead)
            better = jnp.linalg.norm(there) < jnp.linalg.norm(off)
            share = jnp.where(better, jnp.minimum(2 * share, 1.0), share / 4)
            return jnp.where(better, ahead, at), jnp.where(better, there, off), share, count + 1

        def unsettled(state):
            _, off, share, count = state
            return (jnp.linalg.norm(off) > _SETTLED) & (share > _SETTLED) & (count < _NEWTON_STEPS)

        start = (settled, self._misfit(settled), jnp.array(1.0), jnp.array(0))
        return jax.lax.while_loop(unsettled, step, start)[0]

    def _map(self, here: Mapping[str, Array]) -> dict[str, Array]:
        found = self.of.compiled_fixed_point(**here, **self.parameters, **dict(self.sizes))
        return {name: jnp.asarray(found[name], dtype=float) for name in self.layout.names}

    def _misfit(self, coordinates: Coordinates) -> Coordinates:
        """How far the map leads, every order parameter measured by its own size."""
        here = self.layout.values(coordinates)
        pairs, ahead = zip(self.layout.names, self.layout.domains, strict=True), self._map(here)
        return jnp.stack([domain.misfit(here[name], ahead[name]) for name, domain in pairs])

    def iterated(self, coordinates: Coordinates, most: int = _ITERATIONS) -> Coordinates:
        """The fixed-point map, damped by half, until it settles or so many times; the last finite point."""
        domains = dict(zip(self.layout.names, self.layout.domains, strict=True))

        def iterate(state):
            here, _, count = state
            ahead = self._map(here)
            moved = {name: domain.towards(here[name], ahead[name]) for name, domain in domains.items()}
            changes = jnp.stack([jnp.abs(moved[name] - here[name]) / (jnp.abs(here[name]) + _SMALL) for name in here])
            finite = jnp.all(jnp.isfinite(jnp.stack(list(moved.values()))))
            kept = {name: jnp.where(finite, moved[name], here[name]) for name in here}
            return kept, jnp.where(finite, jnp.max(changes), 0.0), count + 1

        state = (self.layout.values(coordinates), jnp.array(jnp.inf), jnp.array(0))
        found, *_ = jax.lax.while_loop(lambda s: (s[1] > _SETTLED) & (s[2] < most), iterate, state)
        ahead = self.layout.coordinates(found)
        # rounding may put an order parameter on the edge itself
        ahead = jnp.where(self.layout.edges(ahead, BEYOND), BEYOND * jnp.sign(ahead), ahead)
        return jnp.where(jnp.isfinite(ahead), ahead, coordinates)

    def swept(self, point, share):
        return point.coordinates

    def along(self, point) -> tuple[Callable[[Tangent], Float[Array, ""]], int]:
        return lambda tangent: self.action(self.moved(point.coordinates, tangent)), len(point.coordinates)

    def modelled_along(self, point) -> Callable[[Tangent], Float[Array, ""]]:
        # nothing is known of it but its metric
        return lambda tangent: jnp.sum(tangent**2) / 2


def bind(action: Action, values: Values, initial: Values | None = None) -> BoundAction:
    """The action with numbers for its parameters; shapes of order parameters from those, or from `initial`.

    Raises `ValueError` where a value is missing, is not finite, or has a shape that does not fit.
    """
    require_float64()
    checked_instance("action", action, Action)
    given = named(action, "values", values, action.parameters)
    if missing := sorted({symbol.name for symbol in action.parameters} - set(given)):
        raise ValueError(f"values has none for {', '.join(missing)}, on which the action depends")
    sizes = {s.name: checked_whole_number(f"values[{s.name}]", given[s.name], least=1) for s in action.sizes}
    numbers = [symbol for symbol in action.parameters if symbol not in action.sizes]
    parameters = _parameters(numbers, given)
    guesses = {} if initial is None else named(action, "initial", initial, action.order_parameters)
    shapes = _shapes(action, parameters | sizes, guesses)
    for name, value in parameters.items():
        if value.shape != shapes[name]:
            raise ValueError(
                f"values[{name}] must have shape {shapes[name]} beside the other values, got {value.shape}"
            )
    names = tuple(symbol.name for symbol in action.order_parameters)
    domains, of_names = tuple(action.order_parameters.values()), tuple(shapes[name] for name in names)
    units = [_units(domain, shapes[name], guesses.get(name)) for name, domain in zip(names, domains, strict=True)]
    layout = Layout(names, domains, of_names, jnp.concatenate(units))
    return BoundAction(action, layout, parameters, tuple(sizes.items()), jnp.ones(sum(layout.sizes)))


def _units(domain: AbstractDomain, shape: tuple[int, ...], guess: Any) -> Float[Array, " coordinates"]:
    """The size of a start, of numbers of any sign: an overlap of 1e-7 is then no smaller than others."""
    ones = jnp.ones(domain.size(shape))
    if guess is None or not isinstance(domain, Real):
        return ones
    size = jnp.linalg.norm(jax.lax.stop_gradient(jnp.ravel(jnp.asarray(guess, dtype=float))))
    return ones * jnp.where((size > 0) & (size < 1), size, 1.0)


def initial_coordinates(action: Action, bound: BoundAction, initial: Values) -> Coordinates:
    """The coordinates of a point; `ValueError` where one is missing, out of its domain, or the action not finite."""
    given, layout = named(action, "initial", initial, action.order_parameters), bound.layout
    if missing := [name for name in layout.names if name not in given]:
        raise ValueError(f"initial has no start for {', '.join(missing)}")
    values = {name: numeric_array(f"initial[{name}]", given[name]) for name in layout.names}
    pairs = zip(layout.names, layout.domains, layout.shapes, strict=True)
    conditions = (domain.all_requirements(f"initial[{name}]", values[name], shape) for name, domain, shape in pairs)
    traced = refuse_known(itertools.chain.from_iterable(conditions))
    coordinates = layout.coordinates({name: jnp.asarray(value) for name, value in values.items()})
    traced += refuse_known(_finite_terms(action, _terms(bound, coordinates)))
    return guard(coordinates, traced)


@jit
def _terms(bound: BoundAction, coordinates: Coordinates) -> Float[Array, " terms"]:
    return bound.terms(coordinates)


def _finite_terms(action: Action, terms: Float[Array, " terms"]) -> Iterator[Requirement]:
    advice = "Start where it is defined, or give an order parameter the domain on which it is"
    terms = terms if is_traced(terms) else np.asarray(terms)
    for term, value in zip(action.terms, terms, strict=True):
        message = f"the term {shown(term)} of the action is not finite at initial"
        is_finite = array_module(value).isfinite(value)
        yield Requirement(f"{message}. {advice}", is_finite, partial("{}: it is {}. {}".format, message, value, advice))


def named(action: Action, what: str, values: Values, admitted: Any) -> dict[str, Any]:
    """`values` by name, refused if one is none of the symbols `admitted`."""
    given = by_name(what, values)
    names = [symbol.name for symbol in admitted]
    if unknown := [key for key in given if key not in names]:
        raise ValueError(f"{what} names {shown(unknown[0])}, which is none of {', '.join(names) or 'none'}")
    return given


def _parameters(symbols: Sequence[Expr], given: Mapping[str, Any]) -> dict[str, Array]:
    """The values of parameters that are no sizes, by name: finite, and what their symbols are declared to be."""
    values = {}
    for symbol in symbols:
        name, value = f"values[{symbol.name}]", given[symbol.name]
        if not isinstance(symbol, MatrixSymbol):
            check_is_number(name, value)
        values[symbol.name] = numeric_array(name, value, "rows columns" if isinstance(symbol, MatrixSymbol) else None)
    arrays = {name: jnp.asarray(value) for name, value in values.items()}
    conditions = (as_declared(f"values[{symbol.name}]", symbol, values[symbol.name]) for symbol in symbols)
    return require(arrays, itertools.chain.from_iterable(conditions))


def _shapes(action: Action, given: Mapping[str, Any], guesses: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every symbol of the action; a number has none. Raises `ValueError` for what is not determined."""
    given = {s.name: given[s.name] for s in action.parameters if isinstance(s, MatrixSymbol) or s in action.sizes}
    given |= {name: v if is_traced(v) else np.asarray(v) for name, v in guesses.items() if np.ndim(v) == 2}
    arrays = [symbol for symbol in action.symbols if symbol.name in given]
    matrices = [symbol for symbol in action.symbols if isinstance(symbol, MatrixSymbol)]
    known = bound_sizes(arrays)
    for symbol in matrices:
        if unknown := sorted(size.name for side in symbol.shape for size in side.free_symbols - known):
            raise ValueError(
                f"nothing among the values says what the size {unknown[0]} of {symbol} is; give initial={{...}} with a "
                f"start for {symbol}, or declare {unknown[0]} among the parameters"
            )
    sides = {f"{symbol.name}_{axis}": side for symbol in matrices for axis, side in enumerate(symbol.shape)}
    found = compile_expressions("shapes", sides, arrays)(**given) if sides else {}
    return {
        symbol.name: tuple(int(found[f"{symbol.name}_{axis}"]) for axis in (0, 1)) if symbol in matrices else ()
        for symbol in action.symbols
    }
