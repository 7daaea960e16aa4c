"""A posterior as samplers take it: a density over flat coordinates, where to start, and what to keep of a draw."""

import abc
from collections.abc import Mapping

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .. import OrderParameters


class AbstractPosterior(eqx.Module):
    """A probability density over as many coordinates as `dimension` says."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """How many coordinates there are."""

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray) -> Float[Array, " coordinates"]:
        """Coordinates to start a chain from, spread more widely than the posterior."""

    @abc.abstractmethod
    def log_density(self, coordinates: Float[Array, " coordinates"]) -> Float[Array, ""]:
        """The logarithm of the density, up to a constant."""

    def log_densities(self, points: Float[Array, "points coordinates"]) -> Float[Array, " points"]:
        """`log_density` at some points."""
        return jax.lax.map(self.log_density, points)

    @abc.abstractmethod
    def record(self, coordinates: Float[Array, " coordinates"]) -> Mapping[str, Array]:
        """What is kept of a draw, by name."""


def named(order_parameters: OrderParameters, first: int = 1) -> Mapping[str, Array]:
    """U_1, ..., U_L and u by the names that draws are kept under; the matrices are of layer `first` and above."""
    matrices = {f"U_{layer}": matrix for layer, matrix in enumerate(order_parameters.matrices, first)}
    return {**matrices, "u": order_parameters.readout}
