"""Problem for a solver: an action over unconstrained coordinates, its curvature, and derivatives of its solutions."""

import abc
from collections.abc import Callable
from typing import no_type_check

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, PyTree

from ..curve.system import or_nan

Coordinates = Float[Array | np.ndarray, " coordinates"]
# Components of a change of the order parameters along directions of unit length.
Tangent = Float[Array, " tangents"]

# Curvatures below this fraction of the largest are rounding.
_FLAT = 1e-15
# Number of bisections of the logarithm of a shift.
_BISECTIONS = 16


def reach_of(coordinates: Coordinates) -> Array:
    return jnp.maximum(jnp.max(jnp.abs(coordinates)), 1.0)


class Point(eqx.Module):
    """Result of one evaluation of the action.

    - `coordinates` (coordinates,): where the action was evaluated.
    - `action`: S.
    - `magnitude`: sum of the absolute values of the terms of S.
    - `gradient_norm`: norm of the gradient per scale, in the affine-invariant metric.
    - `details`: intermediate results for `expansion`.
    """

    coordinates: Coordinates
    action: Float[Array, ""]
    magnitude: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    details: PyTree

    @property
    def is_finite(self) -> Array:
        return jnp.isfinite(self.action) & jnp.isfinite(self.gradient_norm)


class Expansion(eqx.Module):
    """Action to second order in steps from a point (see `AbstractSaddleProblem.moved`).

    - `gradient` (coordinates,), `hessian` (coordinates, coordinates): derivatives of S.
    - `metric` (coordinates, coordinates): the metric at the point.
    - `magnitude` (coordinates,): sum of the absolute values of the terms in each entry
      of the gradient, if known.
    """

    gradient: Coordinates
    hessian: Float[Array, "coordinates coordinates"]
    metric: Float[Array, "coordinates coordinates"]
    magnitude: Coordinates | None = None


class AbstractSaddleProblem(eqx.Module):
    """Action S as a function of unconstrained coordinates.

    `moved` takes steps from a point, so coordinates need not be additive. Lengths are in
    the affine-invariant metric of the order parameters.
    """

    @property
    @abc.abstractmethod
    def scale(self) -> Float[Array, ""]:
        """The large number that S is proportional to."""

    @abc.abstractmethod
    def action(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return S, not divided by the scale, differentiable also in the problem's arrays."""

    @abc.abstractmethod
    def at(self, coordinates: Coordinates) -> Point:
        """Evaluate the action and its gradient."""

    @abc.abstractmethod
    def expansion(self, point: Point) -> Expansion:
        """Expand the action to second order about a point."""

    @abc.abstractmethod
    def moved(self, coordinates: Coordinates, step: Coordinates) -> Coordinates:
        """Return the coordinates after a step. A step of zero leaves them unchanged."""

    def has_left(self, coordinates: Coordinates) -> Array | bool:
        """Return whether the coordinates are so close to an edge that the solve should stop."""
        return False


class QuadraticModel(eqx.Module):
    """Action to second order about a point, in directions that diagonalise its Hessian.

    - `slopes`, `curvatures` (directions,): first and second derivative of S along each
      direction, which has unit length in the metric at the point.
    - `directions` (coordinates, directions): steps for `AbstractSaddleProblem.moved`.
    """

    slopes: Float[Array, " directions"]
    curvatures: Float[Array, " directions"]
    directions: Float[Array, "coordinates directions"]

    @classmethod
    def of(cls, expansion: Expansion) -> "QuadraticModel":
        """Diagonalise the Hessian of an expansion in its metric."""
        factor = jnp.linalg.cholesky(expansion.metric)
        half = solve_triangular(factor, expansion.hessian, lower=True)
        curvatures, vectors = jnp.linalg.eigh(solve_triangular(factor, half.T, lower=True))
        directions = solve_triangular(factor, vectors, lower=True, trans=1)
        return cls(directions.T @ expansion.gradient, curvatures, directions)

    def towards(self, index: int, radius: Float[Array, ""]) -> Coordinates:
        """Return a step no longer than `radius`, as components along the directions.

        Index 0: the step that lowers the model most. Otherwise the step goes up along
        the `index` lowest curvatures and down along all others.
        """
        curvatures = jnp.abs(self.curvatures) if index else self.curvatures
        slopes = jnp.where(jnp.arange(len(curvatures)) < index, -self.slopes, self.slopes)
        lowest, flat = jnp.min(curvatures), _FLAT * jnp.max(jnp.abs(curvatures))

        # Shift all curvatures so that the step has length `radius`.
        def step(shift):
            return -slopes / (curvatures + shift)

        def halved(_, bounds):
            low, high = bounds
            middle = jnp.sqrt(low * high)
            too_long = jnp.linalg.norm(step(middle)) > radius
            return jnp.where(too_long, middle, low), jnp.where(too_long, high, middle)

        low = jnp.maximum(-lowest, 0.0) + flat
        bounds = low, low + jnp.linalg.norm(slopes) / radius
        # At a minimum of zero curvature, such as that of m^4, steps are long for ever smaller
        # curvatures.
        regular = lowest > (flat if index else 0.0)
        inside = regular & (jnp.linalg.norm(step(0.0)) <= radius)
        shift = jax.lax.cond(inside, lambda: 0.0, lambda: jax.lax.fori_loop(0, _BISECTIONS, halved, bounds)[1])
        return step(shift)

    def decrease(self, along: Coordinates) -> Float[Array, ""]:
        """Return by how much a step in these components lowers the model."""
        return -(self.slopes @ along + along @ (self.curvatures * along) / 2)

    def along_newton(self) -> Coordinates:
        """Return the Newton step in components along the directions, zero where the slope is zero."""
        flat = self.slopes == 0
        return jnp.where(flat, 0.0, -self.slopes / jnp.where(flat, 1.0, self.curvatures))

    def newton_length(self) -> Float[Array, ""]:
        return jnp.linalg.norm(self.along_newton())


# ---- derivatives by the implicit function theorem: the gradient stays zero

_LINEAR_SOLVERS = {
    "preconditioned": lx.GMRES(rtol=1e-11, atol=1e-13, restart=4),
    "minimum": lx.CG(rtol=1e-11, atol=1e-13),
    "any": lx.LU(),
}


def implicit_point(
    problem: AbstractSaddleProblem, coordinates: Coordinates, form_hessian: bool, exists: Bool[Array, ""] | None
) -> Coordinates:
    """Return the stationary point at `coordinates`, as a differentiable function of `problem`.

    With `form_hessian`, the Hessian at a minimum is a preconditioner, so that one or two
    products suffice. `exists` is None for a minimum. For other points, it is whether the
    derivative exists. If not, it is NaN.
    """
    at = jax.lax.stop_gradient(coordinates)
    which = "any" if exists is not None else "preconditioned" if form_hessian else "minimum"
    symmetric = frozenset({lx.positive_semidefinite_tag} if which == "minimum" else ())
    inputs = problem, at, which, exists
    step, _ = optx.ImplicitAdjoint(_LINEAR_SOLVERS[which]).apply(_no_step, _slope, inputs, symmetric)
    if exists is not None:
        step = with_derivative_of(step, or_nan, (step, exists, problem))
    return problem.moved(at, step)


# A type checker would wrap these two functions, and Optimistix refuses wrapped ones.
@no_type_check
def _no_step(inputs):
    return jnp.zeros_like(inputs[1]), None


@no_type_check
def _slope(step, _, inputs):
    """Return the gradient of S after a step, which is zero at a step of zero."""
    # Optimistix appends other inputs.
    problem, at, which, exists, *_ = inputs
    slope = jax.grad(lambda step: problem.action(problem.moved(at, step)))(step)
    if which == "preconditioned":
        fixed = jax.lax.stop_gradient(problem)
        return cho_solve(cho_factor(fixed.expansion(fixed.at(at)).hessian), slope)
    return slope if exists is None else jnp.where(exists, slope, step)


@eqx.filter_custom_jvp
def with_derivative_of(
    value: PyTree[Float[Array, "..."]], function: Callable, arguments: PyTree
) -> PyTree[Float[Array, "..."]]:
    """Return `value`, already computed as `function(*arguments)`, with the derivative of that function."""
    return value


@with_derivative_of.def_jvp
def _with_derivative_of_jvp(primals, tangents):
    value, function, arguments = primals
    _, change = eqx.filter_jvp(lambda *given: function(*given), arguments, tangents[2])
    return with_derivative_of(value, function, arguments), change


def stationary_value(
    value: Float[Array, ""], function: Callable, problem: AbstractSaddleProblem, coordinates: Coordinates
) -> Float[Array, ""]:
    """Return `value`, already computed as `function(problem, coordinates)` and stationary in the coordinates.

    Its first derivative is taken at fixed coordinates, without solving a linear system.
    Second derivatives include the change of the coordinates.
    """
    at_coordinates = Partial(lambda at, problem: function(problem, at), coordinates)
    return with_derivative_of(value, at_coordinates, (problem,))
