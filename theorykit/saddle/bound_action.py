"""An action bound to the numbers of its parameters: what a solver takes, and where refusals name what is wrong."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sympy import Expr, MatrixSymbol

from ..arguments import (
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
from ..codegen import bound_sizes, compile_expressions
from ..precision import require_float64
from .action import SCALE, Action
from .domains import AbstractDomain, as_declared
from .problem import AbstractSaddleProblem, Coordinates, Expansion, Point, Tangent

Values = Mapping[Expr | str, Any]
"""Numbers and arrays, by symbol or by the symbol's name."""


class Layout(eqx.Module):
    """Where each order parameter is in the vector of all coordinates: its name, domain and shape, in order."""

    names: tuple[str, ...] = eqx.field(static=True)
    domains: tuple[AbstractDomain, ...] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

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
        parts = zip(self.names, self.domains, self.shapes, self._parts(coordinates), strict=True)
        return {name: domain.value(part, shape) for name, domain, shape, part in parts}

    def coordinates(self, values: Mapping[str, Float[Array, "..."]]) -> Coordinates:
        """The coordinates of order parameters given by name."""
        pairs = zip(self.names, self.domains, strict=True)
        return jnp.concatenate([domain.coordinates(values[name]) for name, domain in pairs])

    def moved(self, coordinates: Coordinates, step: Coordinates) -> Coordinates:
        """The coordinates after a step, whose length is that of the domains' metrics."""
        parts = zip(self.domains, self.shapes, self._parts(coordinates), self._parts(step), strict=True)
        return jnp.concatenate([domain.moved(part, by, shape) for domain, shape, part, by in parts])


class BoundAction(AbstractSaddleProblem):
    """The action as a function of coordinates, its parameters arrays: differentiable in these too.

    Steps are orthonormal in the metric of the domains, so that the metric of an expansion is the identity.
    """

    of: Action = eqx.field(static=True)
    layout: Layout
    parameters: dict[str, Float[Array, "..."]]
    sizes: tuple[tuple[str, int], ...] = eqx.field(static=True)

    @property
    def scale(self):
        # at no order parameter: it is a function of parameters and sizes alone
        return jnp.abs(jnp.asarray(self._results(self.layout.values(jnp.zeros(sum(self.layout.sizes))))[SCALE]))

    @property
    def has_sweeps(self):
        return False

    def _results(self, order_parameters: Mapping[str, Array]) -> Mapping[str, Array]:
        return self.of.compiled(**order_parameters, **self.parameters, **dict(self.sizes))

    def terms(self, coordinates: Coordinates) -> Float[Array, " terms"]:
        """The terms that S is the sum of."""
        results = self._results(self.layout.values(coordinates))
        return jnp.stack([jnp.asarray(value, dtype=float) for name, value in results.items() if name != SCALE])

    def action(self, coordinates):
        return jnp.sum(self.terms(coordinates))

    def moved(self, coordinates, step):
        return self.layout.moved(coordinates, step)

    def slope_after(self, coordinates: Coordinates, step: Coordinates) -> Coordinates:
        """The gradient of S in steps from `coordinates`, after one of them."""
        return jax.grad(lambda step: self.action(self.moved(coordinates, step)))(step)

    def at(self, coordinates):
        def action(step: Coordinates) -> tuple[Array, Array]:
            terms = self.terms(self.moved(coordinates, step))
            return jnp.sum(terms), jnp.sum(jnp.abs(terms))

        (value, magnitude), slope = jax.value_and_grad(action, has_aux=True)(jnp.zeros_like(coordinates))
        return Point(coordinates, value, magnitude, jnp.linalg.norm(slope) / self.scale, slope)

    def expansion(self, point):
        no_step = jnp.zeros_like(point.coordinates)
        hessian = jax.jacfwd(lambda step: self.slope_after(point.coordinates, step))(no_step)
        return Expansion(point.details, (hessian + hessian.T) / 2, jnp.eye(len(no_step)))

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
    layout = Layout(names, tuple(action.order_parameters.values()), tuple(shapes[name] for name in names))
    return BoundAction(action, layout, parameters, tuple(sizes.items()))


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
    traced += refuse_known(_finite_terms(action, bound.terms(coordinates)))
    return guard(coordinates, traced)


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
