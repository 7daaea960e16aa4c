"""Transitions and phase diagrams: two stationary points have equal action, merge, or bifurcate.

Every kind of boundary is a system of equations for stationary points and parameters. With F the gradient of S in
coordinates and H its Jacobian, the systems are

    spinodal       F(x) = 0, g(x) = 0                        a fold: a minimum merges with a saddle
    continuous     F(x) + e w = 0, g(x) = 0, w F_d = 0       a pitchfork or another crossing of branches, if e = 0
    coexistence    F(x) = 0, F(y) = 0, S(x) = S(y)           a first-order transition

The scalar g vanishes if and only if H is singular. It is the last entry of the solution of the bordered system
[[H, w], [v^T, 0]] (z, g) = (0, 1), with w and v close to the null vectors of H (Govaerts, Numerical Methods for
Bifurcations of Dynamical Equilibria, 2000). F_d is the derivative of F along a direction in the parameters. With two
free parameters, solutions form a curve. These systems stay regular at a cusp, at which two spinodals end in a critical
point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jit import jit
from ..curve import System
from .action import Action
from .bound_action import BEYOND, BoundAction, Values, bind, place_of
from .branch import held_slope
from .problem import Coordinates

SPINODAL, CONTINUOUS, COEXISTENCE = "spinodal", "continuous transition", "coexistence"
CRITICAL, TRICRITICAL = "critical point", "tricritical point"
# Names of the tests that end a line.
MERGED, _UNSTABLE, _OUTSIDE, _APART = "merged", "unstable", "outside", "apart"
# Slacks below this count as zero.
_SLACK = 1e-8
# Coordinates next to an edge of a domain, 1e-14 from it, are fixed: the order parameter has no digits left.
_EDGE = 32.0
# Branches cross without a mirror symmetry if the second derivative of F exceeds this fraction of the third.
_ASYMMETRIC = 1e-6


class Boundary(System):
    """Equations of a kind of boundary. Unknowns: coordinates of one or two points, slack, and two parameters.

    - `free` (points, coordinates): zero for coordinates on an edge of a domain, which are fixed.
    - `lengths` (unknowns,): units. Those of parameters are half their ranges.
    - `middle`: centres of both ranges.
    - `left`, `right`, `normal`: null vectors of H, and the direction in the parameters in which its curvature changes.
    - `side`: difference of two solutions, or change of F with the parameters along `left`. It is reversed where the
      line passes a point at which its solutions merge.
    - `parameters`: names of the parameters. If there is one, the last unknown has no effect.
    """

    can_stand: ClassVar[bool] = True
    singular: ClassVar[tuple[str, ...]] = (MERGED,)
    axes: ClassVar = {"action": ("solution",), "negative": ("of_point",), "normal_form": ("order",)}
    bound: BoundAction
    free: Float[Array, "points coordinates"]
    lengths: Float[Array, " unknowns"]
    middle: Float[Array, " parameters"]
    left: Coordinates
    right: Coordinates
    normal: Array
    side: Array
    kind: str = eqx.field(static=True)
    parameters: tuple[str, ...] = eqx.field(static=True)

    @property
    def names(self):
        owners = self.bound.owners * len(self.free) + ("slack",) * (self.kind == CONTINUOUS)
        return (*owners, *self.parameters, "none")[: len(owners) + 2]

    @property
    def of_numbers(self):
        return self.bound.of.is_of_numbers

    def points(self, u: Array) -> Float[Array, "points coordinates"]:
        return u[: self.free.size].reshape(self.free.shape)

    def at(self, values: Array) -> BoundAction:
        given = dict(zip(self.parameters, values, strict=False))
        return replace(self.bound, parameters={**self.bound.parameters, **given})

    def slope(self, at: Coordinates, values: Array, which: int = 0) -> Coordinates:
        return held_slope(replace(self.at(values), free=self.free[which]), at)

    def hessian(self, at: Coordinates, values: Array, which: int = 0) -> Array:
        return jax.jacfwd(lambda x: self.slope(x, values, which))(at)

    def bordered(self, at: Coordinates, values: Array) -> Array:
        hessian = self.hessian(at, values)
        return jnp.block([[hessian, self.left[:, None]], [self.right[None], jnp.zeros((1, 1))]])

    def residual(self, u):
        points, values = self.points(u), u[-2:]
        slopes = [self.slope(x, values, i) for i, x in enumerate(points)]
        if self.kind == COEXISTENCE:
            first, second = (self.at(values).action(x) for x in points)
            return jnp.hstack([*slopes, first - second])
        matrix = self.bordered(points[0], values)
        last = jnp.zeros(len(matrix)).at[-1].set(1.0)
        singular = jnp.linalg.solve(matrix, last)[-1]
        if self.kind == SPINODAL:
            return jnp.hstack([slopes[0], singular])
        change = jax.jvp(lambda p: self.slope(points[0], p), (values,), (self.normal,))[1]
        left = jnp.linalg.solve(matrix.T, last)[:-1]
        return jnp.hstack([slopes[0] + u[-3] * self.left, singular, left @ change])

    def reduced(self, at: Coordinates, values: Array) -> tuple[Array, Array]:
        """Return the second and the third derivative of F along the null vector.

        The other coordinates are eliminated (Lyapunov-Schmidt). The third one is positive if S is lowest there.
        """
        slope = lambda x: self.slope(x, values)  # noqa: E731
        along = lambda f: lambda x: jax.jvp(f, (x,), (self.right,))[1]  # noqa: E731
        second = along(along(slope))
        sides = jnp.append(second(at), 0.0)
        follows = jnp.linalg.solve(self.bordered(at, values), sides)[:-1]
        mixed = jax.jvp(along(slope), (at,), (follows,))[1]
        cubic = self.left @ (along(second)(at) - 3 * mixed)
        return self.left @ second(at), cubic * (self.left @ self.right)

    def curvatures(self, u: Array) -> Float[Array, "points curvatures"]:
        """Return the curvatures of each point in order, without the one that vanishes all along a line."""
        hessians = jnp.stack([self.hessian(x, u[-2:], i) for i, x in enumerate(self.points(u))])
        curvatures = jnp.linalg.eigvalsh((hessians + hessians.mT) / 2)
        if self.kind == COEXISTENCE:
            return curvatures
        smallest = jnp.argmin(jnp.abs(curvatures))
        return jnp.delete(curvatures, smallest, axis=1, assume_unique_indices=True)

    def sides(self, u: Array) -> Array:
        points = self.points(u)
        if self.kind == COEXISTENCE:
            return points[0] - points[1]
        return jax.jacfwd(lambda p: self.left @ self.slope(points[0], p))(u[-2:]) * self.lengths[-2:]

    def normal_form(self, u: Array) -> Float[Array, " orders"]:
        """Return the second and the third derivative of F along the null vector, as in `reduced`.

        The second one vanishes at a critical point, and the third one at a tricritical point. On a continuous
        transition, the third one counts as positive if branches cross that exchange their stability.
        """
        if self.kind == COEXISTENCE:
            return jnp.zeros(2)
        second, cubic = self.reduced(self.points(u)[0], u[-2:])
        exchange = jnp.abs(second) > _ASYMMETRIC * (jnp.abs(cubic) + 1)
        cubic = jnp.where(exchange & (self.kind == CONTINUOUS), 1.0, cubic)
        return jnp.stack([second, cubic])

    def reframed(self, u: Array) -> Boundary:
        """Return the equations with the null vectors at `u`, with the signs of those before."""
        if self.kind == COEXISTENCE:
            return self
        at, values = self.points(u)[0], u[-2:]
        left, _, right = jnp.linalg.svd(self.hessian(at, values))
        pairs = (left[:, -1], self.left), (right[-1], self.right)
        left, right = (x * jnp.where(x @ old < 0, -1.0, 1.0) for x, old in pairs)
        curvature = jax.jacfwd(lambda p: left @ self.hessian(at, p) @ right)(values)
        return replace(self, left=left, right=right, normal=curvature * self.lengths[-2:] ** 2)

    def tests(self, u, tangent):
        here = self.reframed(u)
        off = jnp.abs(u[-2] - self.middle[0]) / self.lengths[-2]
        tests = {_OUTSIDE: 1 - off, _UNSTABLE: self.curvatures(u).ravel()}
        if self.kind != CONTINUOUS:
            tests[MERGED] = jnp.sum(self.side * here.sides(u)) / jnp.sum(self.side**2)
        if self.kind == SPINODAL:
            tests[CRITICAL] = here.normal_form(u)[0]
        if self.kind == CONTINUOUS:
            tests |= {TRICRITICAL: here.normal_form(u)[1], _APART: 1 - jnp.abs(u[-3]) / _SLACK}
        return tests

    def seen(self, u):
        points, values = self.points(u), u[-2:]
        # An order parameter that starts on an edge stays at the coordinate BEYOND, up to rounding.
        off_edge = jnp.where(jnp.abs(points) < 0.99 * BEYOND, 1.0, 0.0)
        here = [replace(self.at(values), free=free) for free in off_edge]
        both = [each.values_on_edges(x) for each, x in zip(here, points, strict=True)]
        return {
            **dict(zip(self.parameters, values, strict=False)),
            **{name: jnp.stack([both[0][name], both[-1][name]]) for name in both[0]},
            "action": jnp.stack([self.at(values).action(points[i]) for i in (0, -1)]),
            "error": self.reframed(u).error(u),
            "normal_form": self.reframed(u).normal_form(u),
            "negative": jnp.sum(self.curvatures(u) < 0, axis=1),
        }

    def error(self, u: Array) -> Array:
        """Bound the shift of a point by rounding and quadrature, in units of half a range."""
        points, values = self.points(u), u[-2:]
        slope = jax.jacfwd(self.residual)(u) * self.lengths
        matrix = jnp.concatenate([slope, jnp.linalg.svd(slope)[2][-1:]])
        sizes = [self.at(values).slopes(x, jnp.zeros_like(x))[1] * self.free[i] for i, x in enumerate(points)]
        if self.kind == COEXISTENCE:
            sizes.append(sum(jnp.sum(jnp.abs(self.at(values).terms(x))) for x in points))
        else:
            hessian = self.hessian(points[0], values)
            change = jax.jacfwd(lambda p: self.slope(points[0], p))(values) @ self.normal
            sizes.append(jnp.sum(jnp.abs(hessian)))
            sizes += [jnp.sum(jnp.abs(change))] * (self.kind == CONTINUOUS)
        eps = jnp.finfo(u.dtype).eps
        residual = self.residual(u)
        rounding = jnp.append(4 * eps * jnp.hstack(sizes) + jnp.abs(residual), 0.0)
        off = jnp.abs(jnp.linalg.inv(matrix)) @ rounding
        if self.bound.of.fixed_averages:
            finer = replace(self, bound=replace(self.bound, of=self.bound.of.checking))
            off += 2 * jnp.abs(jnp.linalg.solve(matrix, jnp.append(finer.residual(u) - residual, 0.0)))
        count = len(self.parameters)
        off = off[len(off) - 2 : len(off) - 2 + count]
        known = jnp.abs(values / self.lengths[-2:])[:count]
        return jnp.max(off + eps * jnp.maximum(1.0, known))

    def units(self, u):
        return self.lengths

    def framed(self, u):
        return _framed(self, u)

    def ends(self, kind, u):
        where = ", ".join(f"{name} = {value:.4g}" for name, value in zip(self.parameters, u[-2:], strict=False))
        reasons = {
            _OUTSIDE: f"the edge of the ranges at {where}",
            MERGED: f"the solutions merge next to {where}",
            _APART: f"the branches no longer cross beyond {where}",
            _UNSTABLE: f"the solution becomes unstable in another direction at {where}",
        }
        if self.kind == COEXISTENCE:
            reasons[_UNSTABLE] = f"the spinodal of one of the solutions at {where}"
        return reasons.get(kind, "")


@partial(jit, of_numbers=lambda system, *others: system.of_numbers)
def _framed(system: Boundary, u: Array) -> Boundary:
    """Return the system with null vectors at `u`, with the signs of those before."""
    # Fix order parameters that have reached an edge of their domain, and solve for the others.
    at_edge = jnp.stack([system.bound.edges(x, _EDGE) for x in system.points(u)])
    system = replace(system, free=jnp.where(at_edge, 0.0, system.free)).reframed(u)
    return replace(system, side=system.sides(u))


def boundary_at(
    action: Action,
    values: Values,
    kind: str,
    points: Sequence[Mapping[str, Any]],
    ranges: Mapping[str, tuple[float, float]],
    sizes: Sequence[Mapping[str, Any]] = (),
) -> tuple[Boundary, Array]:
    """Return the equations of a kind, and the unknowns at `points`, order parameters by name, and at `values`.

    The units of numbers without a domain are their largest values at `points` and `sizes`.
    """
    bound = bind(action, values, points[0])
    bound = replace(bound, units=jnp.asarray(np.ones(len(bound.units))))
    coordinates = np.stack([np.asarray(place_of(bound, each)[0]) for each in (*points, *sizes)])
    largest = np.max(np.abs(coordinates), axis=0)
    units = np.where(bound.is_real & (largest > 0), largest, 1.0)
    at = coordinates[: len(points)]
    free = np.where(np.isfinite(at), 1.0, 0.0)
    at = np.where(free > 0, at, BEYOND * np.sign(at))
    low, high = np.array([*ranges.values(), *[(0.0, 1.0)] * (2 - len(ranges))]).T
    start = [*(float(bound.parameters[name]) for name in ranges), 0.0][:2]
    slack = [0.0] * (kind == CONTINUOUS)
    unknowns = np.concatenate([at.ravel(), slack, start])
    lengths = np.concatenate([*[units] * len(points), np.ones(len(slack)), (high - low) / 2])
    none = np.zeros(len(units))
    side = np.zeros(len(units) if kind == COEXISTENCE else 2)
    arrays = (free, lengths, (low + high) / 2, none, none, np.zeros(2), side)
    system = Boundary(bound, *map(jnp.asarray, arrays), kind, tuple(ranges))
    return _framed(system, unknowns), unknowns
