"""Events as solutions of regular equations, so that they are accurate and differentiable."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from .._jit import jit
from .system import System, Unknowns, tangent_of

FOLD, BRANCH_POINT = "fold", "branch point"

# Newton's method ends after this many steps. It has converged if the last one is relatively shorter than this.
_STEPS, _NEAR = 20, 1e-9


def refine(system: System, event: xr.Dataset) -> dict[str, Array]:
    """Find an event again in a system with other values, differentiable in all arrays of the system.

    This is JAX code without loops in Python: it works in `jax.jit`, `jax.grad` and `jax.vmap`, where `trace` does
    not. Newton's method starts at the event, so the values must be close to those of the trace.

    Args:
        system: The system of the trace, with the same structure.
        event: One event of a trace: a dataset without the axis `point`.

    Returns:
        What the system records at a point (`System.seen`), by name. NaN if no event is near.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import theorykit
        >>> from theorykit import curve
        >>> theorykit.enable_float64()
        >>> class Landau(curve.System):
        ...     a: jax.Array
        ...
        ...     def residual(self, u):
        ...         m, h = u
        ...         return jnp.array([m**3 - self.a * m - h])
        >>> line = curve.trace(Landau(jnp.array(1.0)), [1.2, 0.528], (-0.5, 0.6), direction=-1)
        >>> first = line.isel(point=line["event"] == "fold").isel(point=0)
        >>> fold = lambda a: curve.refine(Landau(a), first)["parameter"]  # -2 (a / 3)**1.5
        >>> print(fold(1.0).round(4), jax.grad(fold)(1.0).round(4))
        -0.3849 -0.5774
    """
    if event["event"].ndim or not event["event"].item():
        raise ValueError("event must be one event of a trace, such as trace.isel(point=trace['event'] != '')[...]")
    start = np.asarray(event["unknowns"])
    return dict(system.seen(refined(system, event["event"].item(), start)))


@partial(jit, of_numbers=lambda system, *others: system.of_numbers)
def refined(system: System, kind: str, start: Unknowns) -> Unknowns:
    """Solve the equations of an event of a kind by Newton's method.

    The equations have a slack e as another unknown, with G the residual, J its derivatives and w a vector:

        fold            G = 0, e = 0, J without the last column is singular
        branch point    G + e w = 0, the rank of J drops
        other kinds     G = 0, e = 0, a test function vanishes

    A matrix A is singular if and only if g = 0, the last row of the solution of [[A, w], [v, 0]] (z, g) = (0, 1),
    with w and v close to its null vectors (W. Govaerts, Numerical Methods for Bifurcations of Dynamical Equilibria,
    2000).
    """
    arrays, others = eqx.partition(system, eqx.is_array)
    fixed = eqx.combine(jax.lax.stop_gradient(arrays), others)
    equations = _Equations.at(fixed, kind, jnp.asarray(start))

    def iterate(state):
        at, _, count = state
        step = equations.step(fixed, at)
        length = jnp.max(jnp.abs(step) / (1 + jnp.abs(at)))
        return at + step, length, count + 1

    def goes_on(state):
        return (state[1] > 1e-14) & (state[2] < _STEPS)

    begin = jnp.append(start, 0.0), jnp.array(1.0), jnp.array(0)
    at, last, _ = jax.lax.while_loop(goes_on, iterate, begin)
    # Branches that nearly meet have a slack.
    found = (last <= _NEAR) & (jnp.abs(at[-1]) <= _NEAR * equations.size)
    return _root(system, equations, at)[:-1] * jnp.where(found, 1.0, jnp.nan)


class _Equations(eqx.Module):
    """Equations of an event in unknowns and slack, with fixed vectors and the number of the test that vanishes."""

    left: Array
    right: Array
    along: Unknowns
    entry: Array
    size: Array
    kind: str = eqx.field(static=True)

    @classmethod
    def at(cls, system: System, kind: str, u: Unknowns) -> "_Equations":
        slope = jax.jacfwd(system.residual)(u)
        left, _, right = jnp.linalg.svd(slope[:, :-1] if kind == FOLD else slope)
        along = jnp.linalg.svd(slope)[2][-1]
        right = right[-1:] if kind == FOLD else right[-2:]
        self = cls(left[:, -1], right, along, jnp.array(0), jnp.linalg.norm(slope), kind)
        if kind in (FOLD, BRANCH_POINT):
            return self
        return replace(self, entry=jnp.argmin(jnp.abs(self.tests(system, u))))

    def tests(self, system: System, u: Unknowns) -> Array:
        tangent = tangent_of(jax.jacfwd(system.residual)(u), self.along)
        return jnp.ravel(system.tests(u, tangent)[self.kind])

    def conditions(self, system: System, u: Unknowns) -> tuple[Array, Callable]:
        """Return the conditions, and a function of system and unknowns with the same derivatives."""
        if self.kind not in (FOLD, BRANCH_POINT):
            test = lambda system, u: self.tests(system, u)[self.entry][None]  # noqa: E731
            return test(system, u), test
        slope = jax.jacfwd(system.residual)(u)[:, : self.right.shape[1]]
        border = jnp.zeros((len(self.right), 1))
        matrix = jnp.block([[slope, self.left[:, None]], [self.right, border]])
        null = jnp.linalg.solve(matrix, jnp.eye(len(matrix))[:, -len(self.right) :])
        across = jnp.linalg.solve(matrix.T, jnp.eye(len(matrix))[:, -1])[: len(slope)]
        vectors = jnp.pad(null[:-1], ((0, len(u) - len(null) + 1), (0, 0)))

        def alike(system, u):
            along = lambda vector: jax.jvp(system.residual, (u,), (vector,))[1]  # noqa: E731
            return -jax.vmap(along, 1)(vectors) @ across

        return null[-1], alike

    def sides(self, system: System, at: Array, conditions: Array) -> Array:
        u, slack = at[:-1], at[-1]
        return jnp.concatenate([system.residual(u) + slack * self.left, jnp.append(conditions, slack)[:2]])

    def slope(self, system: System, at: Array, alike: Callable) -> Array:
        return jax.jacfwd(lambda at: self.sides(system, at, alike(system, at[:-1])))(at)

    def step(self, system: System, at: Array) -> Array:
        """Return a step of Newton's method."""
        conditions, alike = self.conditions(system, at[:-1])
        return -jnp.linalg.solve(self.slope(system, at, alike), self.sides(system, at, conditions))


@eqx.filter_custom_jvp
def _root(system: System, equations: _Equations, at: Array) -> Array:
    """Return the root `at` as a function of the system, by the implicit function theorem."""
    return at


@_root.def_jvp
def _root_jvp(primals, tangents):
    system, equations, at = primals
    at = _root(system, equations, at)
    _, alike = equations.conditions(system, at[:-1])
    sides = lambda system: equations.sides(system, at, alike(system, at[:-1]))  # noqa: E731
    _, change = eqx.filter_jvp(sides, (system,), (tangents[0],))
    return at, -jnp.linalg.solve(equations.slope(system, at, alike), change)
