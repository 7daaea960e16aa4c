"""An action bound to the numbers of its parameters: the problem that a solver takes."""

import itertools
from collections.abc import Iterator, Mapping
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
from .problem import AbstractSaddleProblem, Coordinates, Expansion, Point

Values = Mapping[Expr | str, Any]
"""Numbers and arrays, by symbol or by the symbol's name."""

# coordinates of order parameters close to an edge of their domain: at EDGE a solve stops; BEYOND stands for the edge
# itself, 1e-35 of the unit away from zero
EDGE, BEYOND = 45.0, 80.0
# relative change of order parameters at which the fixed-point map has settled; a floor against division by zero
_SETTLED, _SMALL = 1e-7, 1e-300
# iterations of the map at first, and after each Newton step on its misfit; how many such steps there are, and the
# largest change of a coordinate in one
_ITERATIONS, _ITERATIONS_AFTER, _NEWTON_STEPS, _LONGEST = 200, 10, 100, 3.0
# rounding errors of the coordinates over which the noise of S is measured
_ULPS = 8.0


class Layout(eqx.Module):
    """The place of each order parameter in the vector of all coordinates: name, domain and shape, in order.

    A coordinate times its unit is a coordinate of the domain; units differ from one for numbers that start small.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    domains: tuple[AbstractDomain, ...] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    units: Float[Array, " coordinates"]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of coordinates of each order parameter."""
        return tuple(domain.size(shape) for domain, shape in zip(self.domains, self.shapes, strict=True))

    @property
    def owners(self) -> tuple[str, ...]:
        """For each coordinate, the name of its order parameter."""
        return tuple(name for name, size in zip(self.names, self.sizes, strict=True) for _ in range(size))

    @property
    def is_real(self) -> np.ndarray:
        """For each coordinate, whether it is a number or an entry of any sign and size."""
        return np.repeat([isinstance(domain, (Real, Symmetric)) for domain in self.domains], self.sizes)

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
        """`values`, with order parameters that are held on an edge of their domain exactly there."""
        starts = np.cumsum([0, *self.sizes])
        return {
            name: jnp.where(free[at] > 0, values[name], domain.edge(coordinates[at]))
            if domain.has_edges
            else values[name]
            for name, domain, at in zip(self.names, self.domains, starts, strict=False)
        }

    def edges(self, coordinates: Coordinates, beyond: float, *, finite: bool = False) -> Bool[Array, " coordinates"]:
        """Which coordinates are so far out that their order parameter is next to an edge, or to a `finite` one."""
        pairs = list(zip(self.domains, self._parts(coordinates), strict=True))
        near = jnp.concatenate([domain.has_edges & (jnp.abs(part) > beyond) for domain, part in pairs])
        if not finite:
            return near
        return near & jnp.concatenate(
            [jnp.isfinite(domain.edge(part)) if domain.has_edges else part > jnp.inf for domain, part in pairs]
        )

    def moved(self, coordinates: Coordinates, step: Coordinates) -> Coordinates:
        """The coordinates after a step, whose length is measured in the domains' metrics."""
        parts = zip(self.domains, self.shapes, self._parts(coordinates), self._parts(step), strict=True)
        return jnp.concatenate([domain.moved(part, by, shape) for domain, shape, part, by in parts])


class BoundAction(AbstractSaddleProblem):
    """The action as a function of coordinates, its parameters arrays: differentiable in these too.

    Steps are orthonormal in the metric of the domains, so the metric of an expansion is the identity. A coordinate
    with a zero in `free` is held: its order parameter is on an edge of its domain.
    """

    of: Action = eqx.field(static=True)
    layout: Layout
    parameters: dict[str, Float[Array, "..."]]
    sizes: tuple[tuple[str, int], ...] = eqx.field(static=True)
    free: Float[Array, " coordinates"]

    def with_action(self, action: Action) -> "BoundAction":
        """Another action of the same order parameters and parameters."""
        return BoundAction(action, self.layout, self.parameters, self.sizes, self.free)

    def with_stated_errors(self, side: Array | float) -> "BoundAction":
        """The action with `side` stated errors added to each Gaussian average."""
        parameters = {**self.parameters, SIDE.name: jnp.asarray(side, dtype=float)}
        return BoundAction(self.of.bounds, self.layout, parameters, self.sizes, self.free)

    def _given(self, order_parameters: Mapping[str, Array]) -> dict[str, Any]:
        return {**order_parameters, **self.parameters, **dict(self.sizes)}

    @property
    def scale(self):
        # a function of parameters and sizes alone: any order parameters will do
        return jnp.abs(jnp.asarray(self.of.compiled(**self._given(self.layout.values(self.free)))[SCALE]))

    def terms(self, coordinates: Coordinates) -> Float[Array, " terms"]:
        """The terms of the sum S."""
        return _terms_of(self.of.compiled(**self._given(self.layout.values(coordinates))))

    def action(self, coordinates):
        return jnp.sum(self.terms(coordinates))

    def moved(self, coordinates, step):
        return self.layout.moved(coordinates, step * self.free)

    def has_left(self, coordinates):
        return jnp.any(self.layout.edges(coordinates, EDGE) & (self.free > 0))

    def slopes(self, coordinates: Coordinates, step: Coordinates | None = None) -> tuple[Any, Any]:
        """The gradient of S in steps, after one `step`, and the sum of the sizes of the terms in each entry.

        Without a step: both in the order parameters themselves, by name. The equations in standard form are evaluated
        if all order parameters are numbers; otherwise S is differentiated.
        """
        if step is None:
            values = self.layout.values(coordinates)
        else:
            values, pull = jax.vjp(lambda step: self.layout.values(self.moved(coordinates, step)), step)
        if self.of.standard_equations is None:

            def action(values):
                terms = _terms_of(self.of.compiled(**self._given(values)))
                return jnp.sum(terms), jnp.sum(jnp.abs(terms))

            found, magnitude = jax.grad(action, has_aux=True)(values)
            sizes = {name: jnp.full_like(slope, magnitude) for name, slope in found.items()}
        else:
            terms = self.of.compiled_slopes(**self._given(values))
            found, sizes = {}, {}
            for i, name in enumerate(self.layout.names):
                own = f"slope_{i}_"
                of_name = [jnp.asarray(term, dtype=float) for key, term in terms.items() if key.startswith(own)]
                found[name], sizes[name] = sum(of_name), sum(map(jnp.abs, of_name))
        return (found, sizes) if step is None else (pull(found)[0], jnp.abs(pull(sizes)[0]))

    def slope_after(self, coordinates: Coordinates, step: Coordinates) -> Coordinates:
        """The gradient of S in steps from `coordinates`, after one of them."""
        return self.slopes(coordinates, step)[0]

    def at(self, coordinates):
        terms, (slope, _) = self.terms(coordinates), self.slopes(coordinates, jnp.zeros_like(coordinates))
        action, eps = jnp.sum(terms), jnp.finfo(terms.dtype).eps
        # intermediate results may be larger than the terms: the noise of S between neighbouring numbers shows it
        step = _ULPS * eps * jnp.maximum(jnp.abs(coordinates), 1.0)
        beside = jax.lax.map(
            lambda by: jnp.sum(self.terms(self.moved(coordinates, by))) - slope @ by, jnp.stack([step, -step])
        )
        magnitude = jnp.maximum(jnp.sum(jnp.abs(terms)), jnp.max(jnp.abs(beside - action)) / eps)
        return Point(coordinates, action, magnitude, jnp.linalg.norm(slope) / self.scale, slope)

    def expansion(self, point):
        """The action to second order about a point, which may be given by its coordinates alone."""
        coordinates = point.coordinates if isinstance(point, Point) else point

        def slope(step):
            found, magnitude = self.slopes(coordinates, step)
            return found, (found, magnitude)

        hessian, (found, magnitude) = jax.jacfwd(slope, has_aux=True)(jnp.zeros_like(coordinates))
        # a coordinate that is held counts as a stiff minimum
        hessian = (hessian + hessian.T) / 2 + jnp.diag((1 - self.free) * self.scale)
        return Expansion(found, hessian, jnp.eye(len(found)), magnitude)

    def fixed_point(self, coordinates: Coordinates) -> Coordinates:
        """The end of the fixed-point map of the saddle-point equations.

        First damped iterations, until they settle or creep. Then Newton's method on the misfit, the step that the map
        would take. A few iterations after each step bring order parameters that depend on others back into line, and
        steps are cut until the misfit falls. Close to a critical point iterations alone creep along one direction, and
        Newton steps alone go astray in the others.
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
        found = self.of.compiled_fixed_point(**self._given(here))
        return {name: jnp.asarray(found[name], dtype=float) for name in self.layout.names}

    def _misfit(self, coordinates: Coordinates) -> Coordinates:
        here = self.layout.values(coordinates)
        pairs, ahead = zip(self.layout.names, self.layout.domains, strict=True), self._map(here)
        return jnp.stack([domain.misfit(here[name], ahead[name]) for name, domain in pairs])

    def iterated(self, coordinates: Coordinates, most: int = _ITERATIONS) -> Coordinates:
        """The fixed-point map, damped by half, until it settles or `most` times; the last finite point."""
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


def _terms_of(results: Mapping[str, Any]) -> Float[Array, " terms"]:
    return jnp.stack([jnp.asarray(value, dtype=float) for name, value in results.items() if name != SCALE])


def bind(action: Action, values: Values, initial: Values | None = None) -> BoundAction:
    """The action with numbers for its parameters; shapes of order parameters come from those, or from `initial`.

    Raises:
        ValueError: a value is missing, is not finite, is not what its symbol is declared to be, or has a shape that
            does not fit.
    """
    require_float64()
    given = named(action, "values", values, action.parameters)
    if missing := sorted({symbol.name for symbol in action.parameters} - set(given)):
        raise ValueError(f"values has none for {', '.join(missing)}, on which the action depends")
    sizes = {s.name: checked_whole_number(f"values[{s.name}]", given[s.name], least=1) for s in action.sizes}
    numbers, arrays = [symbol for symbol in action.parameters if symbol not in action.sizes], {}
    for symbol in numbers:
        name, is_matrix = f"values[{symbol.name}]", isinstance(symbol, MatrixSymbol)
        if not is_matrix:
            check_is_number(name, given[symbol.name])
        arrays[symbol.name] = numeric_array(name, given[symbol.name], "rows columns" if is_matrix else None)
    conditions = (as_declared(f"values[{symbol.name}]", symbol, arrays[symbol.name]) for symbol in numbers)
    parameters = {name: jnp.asarray(value) for name, value in arrays.items()}
    parameters = require(parameters, itertools.chain.from_iterable(conditions))
    guesses = {} if initial is None else named(action, "initial", initial, action.order_parameters)
    shapes = _shapes(action, parameters | sizes, guesses)
    for name, value in parameters.items():
        if value.shape != shapes[name]:
            raise ValueError(
                f"values[{name}] must have shape {shapes[name]} beside the other values, got {value.shape}"
            )
    names = tuple(symbol.name for symbol in action.order_parameters)
    domains, of_names = tuple(action.order_parameters.values()), tuple(shapes[name] for name in names)
    units = []
    for name, domain, shape in zip(names, domains, of_names, strict=True):
        unit = jnp.array(1.0)
        if name in guesses and isinstance(domain, Real):
            # measured by the size of its start, an overlap of 1e-7 is not smaller than others
            size = jnp.linalg.norm(jax.lax.stop_gradient(jnp.ravel(jnp.asarray(guesses[name], dtype=float))))
            unit = jnp.where((size > 0) & (size < 1), size, 1.0)
        units.append(unit * jnp.ones(domain.size(shape)))
    layout = Layout(names, domains, of_names, jnp.concatenate(units))
    return BoundAction(action, layout, parameters, tuple(sizes.items()), jnp.ones(len(layout.owners)))


def initial_coordinates(action: Action, bound: BoundAction, initial: Values) -> Coordinates:
    """The coordinates of a point; `ValueError` if one is missing, out of its domain, or the action not finite."""
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
    """`values` by name, refused if one belongs to none of the symbols `admitted`."""
    given = by_name(what, values)
    names = [symbol.name for symbol in admitted]
    if unknown := [key for key in given if key not in names]:
        raise ValueError(f"{what} names {shown(unknown[0])}, which is none of {', '.join(names) or 'none'}")
    return given


def _shapes(action: Action, given: Mapping[str, Any], guesses: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every symbol of the action; () for numbers. Raises `ValueError` for one that is not determined."""
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
