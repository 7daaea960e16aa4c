"""Solvers for many paths: majorise-minimise sweeps, and a curvature without Hessian.

Sources: H. F. Walker, P. Ni, SIAM J. Numer. Anal. 49 (2011) 1715 (Anderson acceleration);
E. R. Davidson, J. Comput. Phys. 17 (1975) 87; R. B. Morgan, D. S. Scott, SIAM J. Sci.
Stat. Comput. 7 (1986) 817.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float, Int

from ...saddle import newton as minimisers
from ...saddle.newton import AbstractSaddleSolver, Progress
from ...saddle.problem import Coordinates, Point
from ..evaluation.problem import Problem

# Sweeps that are combined.
_MEMORY = 10
# Sweeps before the first Newton step, which are combined, and after a failed one.
_FIRST_SWEEPS, _SWEEPS = 4, 2
# Initial fraction of the convex part of the data term that sweeps bound, alone and
# before Newton's method.
_SHARE, _NEWTON_SHARE = 0.25, 0.8
# Newton's method is faster if a sweep changes all coordinates by less than this.
_NEAR = 0.04
# Most products with a Hessian, and relative error of its smallest eigenvalue.
_PRODUCTS, _TOLERANCE = 16, 0.1
# Tolerance and most steps of solves with the model, for rough directions.
_MODEL_TOLERANCE, _MODEL_STEPS = 0.01, 20
# Fewest products: the residual of a wrong eigenvalue may be small by chance.
_LEAST = 5

Vector = Float[Array, " size"]
Product = Callable[[Vector], Vector]


class _Sweeps(eqx.Module):
    """Majorise-minimise sweeps x -> g(x), combined by Anderson acceleration.

    If a combination raises the action, a plain sweep replaces it, the memory is
    cleared, and the share is doubled.

    - `steps`, `turns`: differences of points and of g(x) - x, newest first.
    - `plain`: whether the last sweep was plain, and can fail by rounding alone.
    """

    share: Float[Array, ""]
    steps: Float[Array, "memory coordinates"]
    turns: Float[Array, "memory coordinates"]
    point: Coordinates
    change: Coordinates
    has_last: Bool[Array, ""]
    plain: Bool[Array, ""]

    @classmethod
    def start(cls, share: float, memory: int, size: int) -> "_Sweeps":
        rows = jnp.zeros((memory, size))
        last = jnp.zeros(size)
        no = jnp.array(False)
        return cls(jnp.array(share), rows, rows, last, last, no, no)

    def ahead(self, problem: Problem, here: Point, accepted: Bool[Array, ""]):
        """Return the end of a sweep from `here`, the next point, and the sweeps.

        The next point minimises g(x) - x if g is linear along the steps.
        """
        share = jnp.where(accepted, self.share, jnp.minimum(2 * self.share, 1.0))
        end = problem.majorise(here, jnp.where(accepted, share, 1.0))
        # If the share is too small, the bound has no minimum: the end is not finite.
        combines = accepted & jnp.all(jnp.isfinite(end))
        point = here.coordinates
        change = jnp.where(combines, end - point, 0.0)

        def extended(rows, newest):
            return jnp.where(self.has_last, jnp.roll(rows, 1, axis=0).at[:1].set(newest), rows)

        steps = extended(self.steps, point - self.point)
        turns = extended(self.turns, change - self.change)
        weights, *_ = jnp.linalg.lstsq(turns.T, change, rcond=1e-10)
        ahead = jnp.where(combines, point + change - weights @ (steps + turns), end)
        after = _Sweeps(share, steps, turns, point, change, jnp.array(True), ~accepted)
        cleared = replace(jax.tree.map(jnp.zeros_like, after), share=share, plain=~accepted)
        return end, ahead, jax.tree.map(lambda a, b: jnp.where(combines, a, b), after, cleared)


class Newton(minimisers.Newton):
    """Newton's method in a trust region, with sweeps at the start and after failed steps.

    With a skip connection there are no sweeps: after a failed step, the region shrinks.

    - `atol`: tolerance on the `gradient_norm` of `Saddle`.
    """

    def start(self, problem, coordinates, progress):
        state = super().start(problem, coordinates, progress)
        if not problem.has_sweeps:
            return state
        sweeps = _Sweeps.start(_NEWTON_SHARE, _FIRST_SWEEPS, len(coordinates))
        return replace(state, sweeping=jnp.array(True), sweeps=(jnp.array(_FIRST_SWEEPS), sweeps))

    def sweep(self, problem, here, accepted, state):
        if not problem.has_sweeps:
            return super().sweep(problem, here, accepted, state)
        left, sweeps = state.sweeps
        failed = jnp.where(left > 0, jnp.where(sweeps.plain, 0, left), _SWEEPS)
        fewer = jnp.where(state.progress.evaluations > 0, jnp.maximum(left - 1, 0), left)
        left = jnp.where(accepted, fewer, failed)
        stays = here.coordinates, here.coordinates, sweeps
        end, ahead, sweeps = jax.lax.cond(left > 0, lambda: sweeps.ahead(problem, here, accepted), lambda: stays)
        near = accepted & (jnp.max(jnp.abs(end - here.coordinates)) < _NEAR)
        left = jnp.where(near, 0, left)
        return left > 0, ahead, (left, sweeps)


class _SweepState(eqx.Module):
    progress: Progress
    proposal: Coordinates
    sweeps: _Sweeps


class AcceleratedSweeps(AbstractSaddleSolver):
    """Majorise-minimise sweeps with Anderson acceleration, without a Hessian.

    - `atol`: tolerance on the `gradient_norm` of `Saddle`.
    """

    def start(self, problem, coordinates, progress):
        if not problem.has_sweeps:
            raise ValueError("sweeps have no closed form with a skip connection; use Newton")
        return _SweepState(progress, coordinates, _Sweeps.start(_SHARE, _MEMORY, len(coordinates)))

    def step(self, fn, y, args, options, state, tags):
        point = args.at(state.proposal)
        accepted = state.progress.accepts(point)
        progress = state.progress.moved(point, accepted)
        _, ahead, sweeps = state.sweeps.ahead(args, progress.point, accepted)
        return progress.point.coordinates, _SweepState(progress, ahead, sweeps), None


def least_curvature(problem: Problem, point: Point) -> Array:
    """Bound the smallest eigenvalue of the Hessian of S from above, per largest width."""
    action, size = problem.action_on_tangent(point)
    start = jax.random.normal(jax.random.key(0), (size,), dtype=jnp.float64)
    functions = action, problem.model_on_tangent(point)
    products = [jax.linearize(jax.grad(function), jnp.zeros(size))[1] for function in functions]
    found = smallest_eigenvalue(*products, start, products=_PRODUCTS, tolerance=_TOLERANCE)
    return found.value / problem.scale


class Eigenvalue(NamedTuple):
    """An upper bound on the smallest eigenvalue; some eigenvalue is within `residual`."""

    value: Float[Array, ""]
    residual: Float[Array, ""]
    products: Int[Array, ""]


def smallest_eigenvalue(
    product: Product, model: Product, start: Vector, *, products: int, tolerance: float
) -> Eigenvalue:
    """Find the smallest eigenvalue of a symmetric matrix by Davidson's method.

    The next search vector is M^{-1} r for the residual r and a model M of the matrix.
    Directions orthogonal to `start` are not found. It stops after so many `products`, or
    when the residual is below the `tolerance` times the value.
    """
    size, first = len(start), _unit(start)
    products = min(products, size)
    structure = jax.ShapeDtypeStruct((size,), start.dtype)
    operator = lx.FunctionLinearOperator(model, structure, lx.positive_semidefinite_tag)
    options = {"max_steps": _MODEL_STEPS, "norm": jnp.linalg.norm, "stabilise_every": None}
    solver = lx.CG(rtol=_MODEL_TOLERANCE, atol=0.0, **options)

    def solve(vector: Vector) -> Vector:
        """Approximate M^{-1} v up to its length, or return v if M is not positive."""
        found = lx.linear_solve(operator, _unit(vector), solver, throw=False).value
        return _unit(jnp.where(jnp.all(jnp.isfinite(found)), found, vector))

    def goes_on(state):
        _, _, ahead, found = state
        small = found.residual <= tolerance * jnp.abs(found.value)
        done = small & (found.products >= min(_LEAST, products))
        return (found.products < products) & ~done & jnp.any(ahead != 0)

    def step(state):
        basis, images, ahead, found = state
        taken = found.products
        basis = basis.at[taken].set(ahead)
        images = images.at[taken].set(product(ahead))
        projected = basis @ images.T
        # Unused rows are zero, and get an eigenvalue larger than all others.
        unused = jnp.diag(jnp.arange(products) > taken)
        beyond = 2 * jnp.sum(jnp.abs(projected)) + 1
        values, vectors = jnp.linalg.eigh((projected + projected.T) / 2 + beyond * unused)
        residual = vectors[:, 0] @ images - values[0] * (vectors[:, 0] @ basis)
        remaining = _beyond(basis, solve(residual))
        is_exhausted = jnp.linalg.norm(remaining) < jnp.sqrt(jnp.finfo(remaining.dtype).eps)
        ahead = jnp.where(is_exhausted, 0.0, _beyond(basis, _unit(remaining)))
        return basis, images, ahead, Eigenvalue(values[0], jnp.linalg.norm(residual), taken + 1)

    empty = jnp.zeros((products, size))
    nothing = Eigenvalue(jnp.array(jnp.inf), jnp.array(jnp.inf), jnp.array(0))
    *_, found = jax.lax.while_loop(goes_on, step, (empty, empty, first, nothing))
    return found


def _unit(vector: Vector) -> Vector:
    length = jnp.linalg.norm(vector)
    return vector / jnp.where(length > 0, length, 1.0)


def _beyond(basis: Float[Array, "k size"], vector: Vector) -> Vector:
    """Return the part orthogonal to rows, which are orthonormal or zero."""
    return vector - (basis @ vector) @ basis
