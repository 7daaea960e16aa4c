"""Problem for a solver: an action over unconstrained coordinates, and its curvature."""

import abc
from collections.abc import Callable, Iterator, Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

Coordinates = Float[Array, " coordinates"]
# Components of a change of the order parameters along directions of unit length.
Tangent = Float[Array, " tangents"]


def reach_of(coordinates: Coordinates) -> Array:
    """Return the largest absolute coordinate, or one if that is larger, as the scale for small lengths."""
    return jnp.maximum(jnp.max(jnp.abs(coordinates)), 1.0)


class Point(eqx.Module):
    """Result of one evaluation of the action.

    - `coordinates` (coordinates,): where the action was evaluated.
    - `action`: S.
    - `magnitude`: sum of the absolute values of the terms of S, which sets the rounding error of S.
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
        """Whether action and gradient are finite."""
        return jnp.isfinite(self.action) & jnp.isfinite(self.gradient_norm)


class Expansion(eqx.Module):
    """Action to second order in steps from a point (see `AbstractSaddleProblem.moved`).

    - `gradient` (coordinates,), `hessian` (coordinates, coordinates): derivatives of S in steps.
    - `metric` (coordinates, coordinates): the metric at the point.
    - `magnitude` (coordinates,): sum of the absolute values of the terms in each entry of the gradient, if known.
    """

    gradient: Coordinates
    hessian: Float[Array, "coordinates coordinates"]
    metric: Float[Array, "coordinates coordinates"]
    magnitude: Coordinates | None = None


class AbstractSaddleProblem(eqx.Module):
    """Action S as a function of unconstrained coordinates. Every real vector represents a set of order parameters.

    `moved` takes steps from a point, so coordinates need not be additive. Lengths are in the affine-invariant metric of
    the order parameters.
    """

    @property
    @abc.abstractmethod
    def scale(self) -> Float[Array, ""]:
        """Large number that S is proportional to. Gradient norms and Hessian eigenvalues are divided by it."""

    @abc.abstractmethod
    def action(self, coordinates: Coordinates) -> Float[Array, ""]:
        """Return S, not divided by the scale. It is differentiable in the coordinates and in the problem's arrays."""

    @abc.abstractmethod
    def at(self, coordinates: Coordinates) -> Point:
        """Evaluate the action and its gradient."""

    @abc.abstractmethod
    def expansion(self, point: Point) -> Expansion:
        """Expand the action to second order about a point."""

    @abc.abstractmethod
    def moved(self, coordinates: Coordinates, step: Coordinates) -> Coordinates:
        """Return the coordinates after a step from `coordinates`. A step of zero leaves them unchanged."""

    def rounding(self, point: Point) -> Mapping[str, Float[Array, ""]]:
        """Return an estimate of the rounding error of S from each of its sources, by name. The error is the sum."""
        raise NotImplementedError

    def strategies(
        self, end_of: Callable[["AbstractSaddleProblem", Coordinates], Coordinates], start: Coordinates
    ) -> Iterator[Coordinates]:
        """Yield other starting points for a solve that failed from `start`.

        `end_of(problem, start)` solves another problem roughly, for example one with a higher temperature.
        """
        return iter(())

    def has_left(self, coordinates: Coordinates) -> Array | bool:
        """Return whether the coordinates are so close to an edge of the domain that the solve should stop."""
        return False
