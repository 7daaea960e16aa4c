"""Systems of n equations in n + 1 unknowns. Newton's method for points and for events."""

import abc
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
import xarray as xr
from jaxtyping import Array, Float, PyTree

from .._jit import jit
from ..checks import checked_instance, is_traced

Unknowns = Float[Array | np.ndarray, " unknowns"]
FOLD, BRANCH_POINT, SINGULAR = "fold", "branch point", "singular"

# Corrections end when the last one is shorter than this, in units, or after this many.
_CONVERGED, _CORRECTIONS = 1e-11, 12
# Largest relative length of a further step at an event.
_NEAR = 1e-9
# Newton steps at branch points are of least norm: where several curvatures vanish, w is not
# unique. Smaller singular values, relative to the largest, are rounding.
_LEAST_NORM = lx.SVD(rcond=1e-12)
# Compile equations of numbers with few optimisations.
compiled = partial(jit, of_numbers=lambda system, *_: system.of_numbers)


class System(eqx.Module):
    """n equations in n + 1 unknowns, the last of which is the parameter.

    A subclass states `residual`. It is a PyTree: keep arrays in its fields.
    """

    # Names of the first axes of arrays in `seen`.
    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Name of the parameter.
    parameter: ClassVar[str] = "parameter"
    # Equations of few operations on numbers compile faster with few optimisations.
    of_numbers: ClassVar[bool] = False

    @abc.abstractmethod
    def residual(self, u: Unknowns) -> Float[Array, " equations"]:
        """Return numbers that are zero on the curve."""

    def tests(self, u: Unknowns, tangent: Unknowns) -> Mapping[str, Array]:
        """Return test functions by name: numbers or sorted arrays, whose zeros are events.

        Without "singular", no folds and branch points are found.
        """
        slope = jax.jacfwd(self.residual)(u)[:, :-1]
        # With many unknowns, the determinant is too flat near its roots, and a root of it too steep.
        return {SINGULAR: jnp.linalg.slogdet(slope)[0] * jnp.linalg.svd(slope, compute_uv=False)[-1]}

    def seen(self, u: Unknowns) -> Mapping[str, Array]:
        """Return the arrays to record at a point, by name."""
        return {"parameter": u[-1]}

    def units(self, u: Unknowns) -> Unknowns:
        """Return constant units of the unknowns, in which steps are measured."""
        return jnp.ones_like(u)

    def framed(self, u: Unknowns) -> "System":
        """Return the same equations with units and vectors that suit the curve near `u`."""
        return self

    def ends(self, kind: str, u: Unknowns) -> str:
        """Return why the curve ends at an event, or at a point without one (""), or nothing if it continues."""
        return ""


class Place(NamedTuple):
    """Point of a curve, with the lengths of the last and of all corrections to it."""

    u: Unknowns
    units: Unknowns
    tangent: Unknowns
    last: Float[Array, ""]
    led: Float[Array, ""]
    tests: Mapping[str, Array]

    def is_near(self, length: float = np.inf) -> bool:
        """Return whether corrections converged, and stayed short compared to a step."""
        return bool(self.last <= 1e-6 and self.led <= 0.3 * length)

    @property
    def kinds(self) -> list[str]:
        """Name of the test of each entry of `values`."""
        return [name for name, test in self.tests.items() for _ in range(np.size(test))]

    @property
    def values(self) -> np.ndarray:
        return np.concatenate([np.ravel(np.nan_to_num(test)) for test in self.tests.values()] or [[]])


@compiled
def corrected(system: System, guess: Unknowns, across: Unknowns) -> Place:
    """Solve by Newton's method, with corrections orthogonal to `across`."""
    units = system.units(guess)

    def slope(u):
        return jax.jacfwd(system.residual)(u) * units

    def correct(state):
        u, _, led, count = state
        here = system.residual(u)
        matrix = jnp.concatenate([slope(u), across[None]])
        change = jnp.linalg.solve(matrix, jnp.append(-here, 0.0))
        # The matrix is singular where branches cross. A solution, whose residual is small, is kept.
        is_regular, least = jnp.isfinite(change).all(), jnp.linalg.norm(here) / jnp.linalg.norm(matrix)
        change = jnp.where(is_regular, change, 0.0)
        length = jnp.where(is_regular, jnp.linalg.norm(change), least)
        return u + change * units, length, led + length, count + 1

    def goes_on(state):
        return (state[1] > _CONVERGED) & (state[3] < _CORRECTIONS)

    start = jnp.asarray(guess), jnp.array(1.0), jnp.array(0.0), jnp.array(0)
    u, last, led, _ = jax.lax.while_loop(goes_on, correct, start)
    last = jnp.where(jnp.isfinite(system.residual(u)).all(), last, jnp.inf)
    tangent = _tangent_of(slope(u), across)
    tests = dict(system.tests(u, tangent * units))
    if SINGULAR in tests:
        tests[FOLD] = tangent[-1]
    return Place(u, units, tangent, last, led, tests)


def _tangent_of(slope: Float[Array, "equations unknowns"], across: Unknowns) -> Unknowns:
    """Return the null vector of `slope` that points along `across`, of length one."""
    matrix = jnp.concatenate([slope, across[None]])
    tangent = jnp.linalg.solve(matrix, jnp.zeros_like(across).at[-1].set(1.0))
    return jnp.where(jnp.isfinite(tangent).all(), tangent / jnp.linalg.norm(tangent), across)


@compiled
def slope_at(system: System, u: Unknowns) -> Float[Array, "equations unknowns"]:
    return jax.jacfwd(system.residual)(u)


@compiled
def seen_at(system: System, u: Unknowns) -> Mapping[str, Array]:
    return system.seen(u)


def refine(system: System, event: xr.Dataset) -> dict[str, Array]:
    """Find an event of a trace again after arrays have changed.

    Works in `jax.jit`, `jax.vmap` and, if the event persists, `jax.grad`.

    Args:
        system: The system of the trace, with other arrays.
        event: One event of a trace, near which Newton's method starts.

    Returns:
        What the system records there (`System.seen`), by name. NaN if no event is near.

    Raises:
        ValueError: If `event` is not one event.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from theorykit import curve, enable_float64
        >>> enable_float64()
        >>> class Landau(curve.System):
        ...     a: jax.Array
        ...     def residual(self, u):  # of m and h
        ...         return u[:1] ** 3 - self.a * u[:1] - u[1:]
        >>> line = curve.trace(Landau(jnp.array(1.0)), [1.2, 0.528], (-0.5, 0.6), direction=-1)
        >>> first = line.isel(point=line["event"] == "fold").isel(point=0)
        >>> fold = lambda a: curve.refine(Landau(a), first)["parameter"]  # -2 (a / 3)**1.5
        >>> print(fold(1.0).round(4), jax.grad(fold)(1.0).round(4))
        -0.3849 -0.5774
    """
    if checked_instance("event", event, xr.Dataset)["event"].ndim or not event["event"].item():
        raise ValueError("event must be one event of a trace, such as trace.isel(point=trace['event'] != '')[...]")
    if (traced := event.attrs.get("parameter", system.parameter)) != system.parameter:
        raise ValueError(f"event is of a trace in {traced}, but the system has the parameter {system.parameter}")
    kind, start = event["event"].item(), np.asarray(event["unknowns"])
    # A residual may close over traced numbers, of which a compiled function knows nothing.
    arrays, others = eqx.partition(system, eqx.is_array)
    closed = jax.make_jaxpr(lambda arrays, u: eqx.combine(arrays, others).residual(u))(arrays, start).consts
    return (_seen_at_event.__wrapped__ if is_traced(closed) else _seen_at_event)(system, kind, start)


@compiled
def _seen_at_event(system: System, kind: str, start: Unknowns) -> dict[str, Array]:
    return dict(system.seen(refined.__wrapped__(system, kind, start)))


@compiled
def refined(system: System, kind: str, start: Unknowns) -> Unknowns:
    """Solve the equations of an event of a kind by Newton's method.

    With G the residual, J its derivatives and e a slack, they are

        branch point    G + e w = 0, w J = 0, |w| = 1
        other kinds     G = 0, a test function vanishes

    (W. Govaerts, Numerical Methods for Bifurcations of Dynamical Equilibria, 2000).
    """
    start, count = jnp.asarray(start), len(start)
    arrays, others = eqx.partition(system, eqx.is_array)
    fixed = eqx.combine(jax.lax.stop_gradient(arrays), others)
    left, _, right = jnp.linalg.svd(jax.lax.stop_gradient(jax.jacfwd(fixed.residual)(start)))

    def tests(system, u):
        tangent = _tangent_of(jax.jacfwd(system.residual)(u), right[-1])
        return tangent[-1:] if kind == FOLD else jnp.ravel(system.tests(u, tangent)[kind])

    def at_test(u, system):
        return jnp.append(system.residual(u), tests(system, u)[entry])

    def at_branch_point(at, system):
        u, left, slack = at[:count], at[count:-1], at[-1]
        change = jax.jacfwd(system.residual)(u)
        return jnp.hstack([system.residual(u) + slack * left, left @ change, left @ left - 1])

    if kind == BRANCH_POINT:
        equations, linear, start = at_branch_point, _LEAST_NORM, jnp.hstack([start, left[:, -1], 0.0])
    else:
        equations, linear, entry = at_test, lx.LU(), jnp.argmin(jnp.abs(tests(fixed, start)))
    solver, options = optx.Newton(1e-14, 1e-14, linear_solver=linear), {"max_steps": 20, "throw": False}
    at = jax.lax.stop_gradient(optx.root_find(equations, solver, start, fixed, **options).value)
    off, slopes = equations(at, fixed), jax.jacfwd(equations)(at, fixed)
    step = jnp.linalg.pinv(slopes, rtol=1e-12)[:count] @ off
    is_solved = jnp.all(jnp.abs(step) <= _NEAR * (1 + jnp.abs(at[:count])))
    # Branches that nearly meet have a slack. All slopes of G may vanish, but not those of w J.
    off = jnp.append(off, at[-1]) if kind == BRANCH_POINT else off
    largest = _NEAR * jnp.linalg.norm(slopes[:, :count])
    is_solved &= jnp.all(jnp.abs(off) <= largest)

    def kept(u, system):
        # Slopes may be singular where there is no solution, which would raise an error.
        return jnp.where(is_solved, equations(u, system), u - at)

    u = optx.root_find(kept, solver, at, system, adjoint=optx.ImplicitAdjoint(linear), **options).value[:count]
    return or_nan(u, is_solved, system)


def or_nan(value: Array, exists: Array, inputs: PyTree) -> Array:
    """Return `value` if it exists, else NaN from `inputs`: in reverse mode, a linear solver refuses NaN of values."""
    leaves = jax.tree.leaves(eqx.filter(inputs, eqx.is_inexact_array))
    return jnp.where(exists, value, 0.0) + sum(map(jnp.sum, leaves)) * jnp.where(exists, 0.0, jnp.nan)
