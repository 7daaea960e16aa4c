"""The energy of given data for the solvers: the value, both parts of the gradient, and the curvature in U_1.

Energy, resolvent and representer are the derived expressions. The kernel is linear in U_1, see `features.kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from sympy import Expr

from ..data.canonical import Examples
from ..features.kernels import PathMatrix
from ..specification.architecture import Architecture
from .formulas import BoundAction
from .rounding import Number, kernel_rounding

# Operations that take as long as an evaluation for few examples and paths.
_OVERHEAD = 1e7


class EnergyPoint(eqx.Module):
    """The energy at one U_1, undivided, and both parts of its gradient.

    - `logdet_gradient`: gradient of the log-determinant, positive semidefinite (n_1 x n_1).
    - `minus_misfit_gradient`: minus the gradient of the misfit, positive semidefinite (n_1 x n_1).
    - `resolvent`, `representer`: (K + T I)^-1, and (K + T I)^-1 y times the root of the likelihood's power.
    """

    u1: PathMatrix
    value: Number
    logdet_gradient: PathMatrix
    minus_misfit_gradient: PathMatrix
    resolvent: Float[Array, "rows rows"]
    representer: Float[Array, "rows one"]

    @property
    def slope(self) -> PathMatrix:
        """The gradient of the energy with respect to U_1."""
        return self.logdet_gradient - self.minus_misfit_gradient


class Energy(eqx.Module):
    """The energy of fixed examples as a function of U_1."""

    bound: BoundAction
    examples: Examples

    @property
    def architecture(self) -> Architecture:
        """The architecture whose numbers the action has."""
        return self.bound.architecture

    @property
    def label_constant(self) -> Number:
        """The terms of the labels' log density that S drops; none at infinite width, where S is per N_1."""
        if not self.bound.has_log_determinant:
            return jnp.asarray(0.0)
        count = len(self.examples.labels) + self.examples.omitted
        return count * jnp.log(self.architecture.root_power**2 / (2 * jnp.pi)) / 2

    def value(self, u1: PathMatrix) -> Number:
        """Compute E at U_1; differentiable in U_1, the data and the numbers of the architecture."""
        return self._with_omitted(self._solved(u1)["energy"])

    def at(self, u1: PathMatrix) -> EnergyPoint:
        """Compute E and its gradient in one evaluation; NaN if the kernel has no Cholesky factor."""
        found = self._solved(u1)
        kernel, logdet = self.examples.kernel, jnp.zeros_like(u1)
        # Make two separate products, because a product with both columns side by side has to interleave them.
        if self.bound.has_log_determinant:
            logdet = kernel.gradient(u1, found["resolvent"])
        misfit = kernel.gradient(u1, found["minus_misfit_slope"])
        value = self._with_omitted(found["energy"])
        return EnergyPoint(u1, value, logdet, misfit, found["resolvent"], found["representer"])

    def value_and_slope(self, u1: PathMatrix) -> tuple[Number, PathMatrix]:
        """Compute E and its whole gradient, with one pass over the kernel."""
        found = self._solved(u1)
        of_kernel = found["resolvent"] if self.bound.has_log_determinant else 0.0
        slope = self.examples.kernel.gradient(u1, of_kernel - found["minus_misfit_slope"])
        return self._with_omitted(found["energy"]), slope

    def _solved(self, u1: PathMatrix) -> Mapping[str, Array]:
        given: Mapping[Expr, Array] = {
            self.bound.action.of_kernels.kernel: self.examples.kernel.matrix(u1),
            self.bound.symbols.labels: self.examples.labels,
        }
        return self.bound.compiled.kernel_energy.call_from(self.bound.numbers() | given)

    def _with_omitted(self, energy: Number) -> Number:
        if not self.bound.has_log_determinant:
            return energy
        # At T = 0 no rows are omitted or added.
        omitted = self.examples.omitted
        return energy + jnp.where(omitted == 0, 0.0, omitted * jnp.log(self.architecture.temperature))

    def rounding(self, point: EnergyPoint) -> Mapping[str, Number]:
        """Estimate the rounding errors of E per machine epsilon that the "kernel" and the "labels" cause."""
        labels = self.architecture.root_power * self.examples.labels[:, 0]
        squares, temperature = self.examples.kernel.squares, self.architecture.temperature
        solved = point.resolvent, point.representer[:, 0]
        errors = kernel_rounding(point.u1, point.value, *solved, squares, labels, temperature, self.examples.error)
        return errors if self.bound.has_log_determinant else {**errors, "kernel": jnp.zeros_like(errors["kernel"])}

    def curvature(self, point: EnergyPoint) -> Float[Array, "pairs pairs"]:
        """Compute the second derivative of E with respect to the entries of U_1 on and above the diagonal."""
        return self.examples.kernel.curvature(point.resolvent, point.representer, self.bound.has_log_determinant)

    def operations(self) -> float:
        """Count the operations of `at`, in units of those in products of matrices."""
        return _OVERHEAD + self.examples.kernel.operations() + float(len(self.examples.labels)) ** 3

    def curvature_cost(self) -> tuple[float, float]:
        """Estimate the cost of `curvature` beyond `at`, in evaluations, and its memory in bytes."""
        operations, size = self.examples.kernel.curvature_cost()
        return operations / self.operations(), size
