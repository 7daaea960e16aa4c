"""Events as solutions of regular equations, so that they are accurate and differentiable."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from ..compilation import jit
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
    start = jnp.append(jnp.asarray(start), 0.0)
    unknowns = len(start) - 1
    arrays, others = eqx.partition(system, eqx.is_array)
    fixed = eqx.combine(jax.lax.stop_gradient(arrays), others)
    slope = jax.jacfwd(fixed.residual)(start[:-1])
    part = slice(unknowns - 1 if kind == FOLD else unknowns)
    left, _, right = jnp.linalg.svd(slope[:, part])
    left, right = left[:, -1], right[-1 if kind == FOLD else -2 :]
    along = jnp.linalg.svd(slope)[2][-1]

    def values_of_test(system, u):
        tangent = tangent_of(jax.jacfwd(system.residual)(u), along)
        return jnp.ravel(system.tests(u, tangent)[kind])

    if kind not in (FOLD, BRANCH_POINT):
        entry = jnp.argmin(jnp.abs(values_of_test(fixed, start[:-1])))

    def equations(system, at):
        u, slack = at[:-1], at[-1]
        if kind not in (FOLD, BRANCH_POINT):
            conditions = jnp.array([values_of_test(system, u)[entry], slack])
        else:
            matrix = jax.jacfwd(system.residual)(u)[:, part]
            border = jnp.zeros((len(right), 1))
            matrix = jnp.block([[matrix, left[:, None]], [right, border]])
            sides = jnp.eye(len(matrix))[:, -len(right) :]
            conditions = jnp.linalg.solve(matrix, sides)[-1]
            conditions = jnp.append(conditions, slack)[:2]
        return jnp.concatenate([system.residual(u) + slack * left, conditions])

    def step(system, at):
        return at - jnp.linalg.solve(jax.jacfwd(partial(equations, system))(at), equations(system, at))

    def iterate(state):
        at, _, count = state
        ahead = step(fixed, at)
        length = jnp.max(jnp.abs(ahead - at) / (1 + jnp.abs(at)))
        return ahead, length, count + 1

    def goes_on(state):
        return (state[1] > 1e-13) & (state[2] < _STEPS)

    at, last, _ = jax.lax.while_loop(goes_on, iterate, (start, jnp.array(1.0), jnp.array(0)))
    # Two steps with derivatives give the first and the second derivative of the root.
    at = step(system, step(system, jax.lax.stop_gradient(at)))
    # Branches that nearly meet have a slack.
    found = (last <= _NEAR) & (jnp.abs(at[-1]) <= _NEAR * jnp.linalg.norm(slope))
    return at[:-1] * jnp.where(found, 1.0, jnp.nan)
