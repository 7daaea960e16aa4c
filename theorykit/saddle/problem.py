"""The problem that a solver minimises: an action over unconstrained coordinates, its curvature, and sweeps."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

Coordinates = Float[Array, " coordinates"]
# components of a change of the order parameters along directions of unit length
Tangent = Float[Array, " tangents"]


class Point(eqx.Module):
    """The action at some coordinates: one evaluation.

    `magnitude` is that of the terms that the action is summed from, and sets its rounding. `gradient_norm` is measured
    in the affine-invariant metric, per `AbstractSaddleProblem.scale`. `details` are intermediate results that
    `expansion` and `swept` use.
    """

    coordinates: Coordinates
    action: Float[Array, ""]
    magnitude: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    details: PyTree

    @property
    def is_finite(self) -> Array:
        """Whether action and gradient are finite, a boolean array."""
        return jnp.isfinite(self.action) & jnp.isfinite(self.gradient_norm)

    @property
    def reach(self) -> Array:
        """The largest coordinate, or one: what lengths that count as small are measured by."""
        return self.reach_of(self.coordinates)

    @staticmethod
    def reach_of(coordinates: Coordinates) -> Array:
        """The same of any coordinates."""
        return jnp.maximum(jnp.max(jnp.abs(coordinates)), 1.0)


class Expansion(eqx.Module):
    """The action to second order in steps from a point (see `AbstractSaddleProblem.moved`), and the metric there."""

    gradient: Coordinates
    hessian: Float[Array, "coordinates coordinates"]
    metric: Float[Array, "coordinates coordinates"]


class AbstractSaddleProblem(eqx.Module):
    """An action S over unconstrained coordinates; every real vector is a set of order parameters.

    Steps are taken by `moved` from the point where they start: coordinates need not be added. Lengths are those of the
    affine-invariant metric of the order parameters.
    """

    @property
    @abc.abstractmethod
    def scale(self) -> Float[Array, ""]:
        """The large number that S is proportional to, which gradient norms and Hessian eigenvalues are divided by."""

    @property
    @abc.abstractmethod
    def has_sweeps(self) -> bool:
        """Whether the problem has majorise-minimise sweeps, `swept`."""

    @abc.abstractmethod
    def action(self, coordinates: Coordinates) -> Float[Array, ""]:
        """S, undivided; differentiable in everything."""

    @abc.abstractmethod
    def at(self, coordinates: Coordinates) -> Point:
        """Evaluate the action and its gradient."""

    @abc.abstractmethod
    def expansion(self, point: Point) -> Expansion:
        """The action to second order about a point."""

    @abc.abstractmethod
    def swept(self, point: Point, share: Array | float) -> Coordinates:
        """The coordinates after majorise-minimise sweeps, without evaluating S there.

        `share` in (0, 1]: of the convex part of the data's term, how much is bounded; the rest is taken as linear. S is
        no higher there if all of it is bounded; with less of it sweeps lead farther, mostly nearer to the minimum.
        """

    def has_left(self, coordinates: Coordinates) -> Array | bool:
        """Whether the coordinates are so near an edge of the domain that a solve is of no use any more."""
        return False

    @abc.abstractmethod
    def moved(self, coordinates: Coordinates, step: Coordinates) -> Coordinates:
        """The coordinates after a step from `coordinates`; a step of zero leaves them unchanged."""

    @abc.abstractmethod
    def along(self, point: Point) -> tuple[Callable[[Tangent], Float[Array, ""]], int]:
        """S as a function of a tangent at `point` in directions of unit length, and how many of these there are.

        For where the Hessian is too large to form.
        """

    @abc.abstractmethod
    def modelled_along(self, point: Point) -> Callable[[Tangent], Float[Array, ""]]:
        """A cheap function of a tangent at `point`, whose Hessian is like that of S and softest where that is."""
