"""Systems of n equations in n + 1 unknowns, and Newton's method for them."""

import abc
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._jit import jit

Unknowns = Float[Array, " unknowns"]

# Corrections end when the last one is shorter than this, in units, or after this many.
_CONVERGED, _CORRECTIONS = 1e-11, 12


class System(eqx.Module):
    """n equations in n + 1 unknowns, the last of which is the parameter.

    A subclass states `residual`. It is a PyTree: keep arrays in its fields.
    """

    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names of the axes of arrays in `seen`."""
    singular: ClassVar[tuple[str, ...]] = ()
    """Names of tests that change their sign where the equations are singular, and where the curve ends."""
    can_stand: ClassVar[bool] = False
    """Whether the curve may go on while the parameter is constant. Otherwise, another unknown goes to infinity."""

    @abc.abstractmethod
    def residual(self, u: Unknowns) -> Float[Array, " equations"]:
        """Return the left sides of the equations, which are zero on the curve."""

    def tests(self, u: Unknowns, tangent: Unknowns) -> Mapping[str, Array]:
        """Return numbers or arrays by name. An event is a sign change of an entry.

        Entries of "singular" vanish if and only if the derivatives of the residual in all unknowns but the parameter
        are singular. Without them, folds and branch points are no events. Entries of one name are in a continuous
        order, such as sorted.
        """
        sign, size = jnp.linalg.slogdet(jax.jacfwd(self.residual)(u)[:, :-1])
        return {"singular": sign * jnp.exp(size / (len(u) - 1))}

    def seen(self, u: Unknowns) -> Mapping[str, Array]:
        """Return what is recorded at every point, by name."""
        return {"parameter": u[-1]}

    def units(self, u: Unknowns) -> Unknowns:
        """Return units of all unknowns near `u`, in which steps along the curve are measured."""
        return jnp.ones_like(u)

    def framed(self, u: Unknowns) -> "System":
        """Return the same equations with auxiliary vectors that suit the curve near `u`."""
        return self

    def ends(self, kind: str, u: Unknowns) -> str:
        """Return why the curve ends at an event, or nothing if it continues."""
        return ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all unknowns, for messages. The last one is used alone if no others are given."""
        return ("parameter",)

    @property
    def of_numbers(self) -> bool:
        """Whether the equations are few operations on numbers, which compile faster with few optimisations."""
        return False


class Place(NamedTuple):
    """Point of a curve.

    - `tangent`: direction of the curve, of length one in `units`.
    - `slope` (equations, unknowns): derivatives of the residual, in units.
    - `last`, `led`: lengths of the last and of all corrections, in units.
    - `tests`: values of the test functions by name, with the slope of the parameter as "fold".
    """

    u: Unknowns
    units: Unknowns
    tangent: Unknowns
    slope: Float[Array, "equations unknowns"]
    last: Float[Array, ""]
    led: Float[Array, ""]
    tests: Mapping[str, Array]

    def is_near(self, length: float) -> bool:
        """Return whether corrections converged, and stayed short compared to a step of this length."""
        return bool(self.last <= 1e-6 and self.led <= 0.3 * length)


@partial(jit, of_numbers=lambda system, *others: system.of_numbers)
def corrected(system: System, guess: Unknowns, across: Unknowns, units: Unknowns) -> Place:
    """Solve near `guess` by Newton's method, with corrections orthogonal to `across`, all in `units`."""

    def slope(u):
        return jax.jacfwd(system.residual)(u) * units

    def correct(state):
        u, _, led, count = state
        here = system.residual(u)
        matrix = jnp.concatenate([slope(u), across[None]])
        change = jnp.linalg.solve(matrix, jnp.append(-here, 0.0))
        # The matrix is singular where branches cross. A point that solves the equations is kept.
        change = jnp.where(_are_finite(change) & jnp.any(here != 0), change, 0.0)
        length = jnp.linalg.norm(change)
        return u + change * units, length, led + length, count + 1

    def goes_on(state):
        return (state[1] > _CONVERGED) & (state[3] < _CORRECTIONS)

    start = jnp.asarray(guess), jnp.array(1.0), jnp.array(0.0), jnp.array(0)
    u, last, led, _ = jax.lax.while_loop(goes_on, correct, start)
    last = jnp.where(_are_finite(system.residual(u)), last, jnp.inf)
    tangent = tangent_of(slope(u), across)
    tests = dict(system.tests(u, tangent * units))
    if "singular" in tests:
        tests["fold"] = tangent[-1]
    return Place(u, units, tangent, slope(u), last, led, tests)


@jit
def slope_at(system: System, u: Unknowns) -> Float[Array, "equations unknowns"]:
    """Return the derivatives of the residual."""
    return jax.jacfwd(system.residual)(u)


@jit
def seen_at(system: System, u: Unknowns) -> Mapping[str, Array]:
    """Return what the system records at a point."""
    return system.seen(u)


def tangent_of(slope: Float[Array, "equations unknowns"], across: Unknowns) -> Unknowns:
    """Return the null vector of `slope`, of length one and with a positive product with `across`."""
    matrix = jnp.concatenate([slope, across[None]])
    tangent = jnp.linalg.solve(matrix, jnp.zeros_like(across).at[-1].set(1.0))
    return jnp.where(_are_finite(tangent), tangent / jnp.linalg.norm(tangent), across)


def _are_finite(values: Array) -> Bool[Array, ""]:
    return jnp.all(jnp.isfinite(values))
