"""The energy as a function of U_1: value, gradient, curvature, rounding errors, and a bound for cheap minimisation.

Energy, resolvent and representer are the derived expressions. The kernel is linear in U_1, see `features.kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from ..action.action import Action
from ..data.canonical import Examples
from ..features.kernels import PathMatrix
from ..order_parameters.order_parameters import OrderParameters, from_overlaps
from ..specification.architecture import Architecture
from .formulas import BoundAction, compiled

Number = Float[Array, ""]

# Rounding errors are estimated with random signs. This factor covers nearly all of them.
MARGIN = 4.0
EPS = float(np.finfo(np.float64).eps)
# Stop sweeps when the relative change in a pass falls below this fraction of the first, or after so many passes.
_SETTLED, _PASSES = 0.03, 30


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

    def bounded(self, share: Array | float = 1.0) -> BoundedEnergy:
        """Bound a `share` of the misfit from above, and linearise the rest of the energy."""
        linear = self.logdet_gradient - (1 - share) * self.minus_misfit_gradient
        return BoundedEnergy(linear, share * self.u1 @ self.minus_misfit_gradient @ self.u1)


class Energy(eqx.Module):
    """The energy of fixed examples as a function of U_1."""

    bound: BoundAction
    examples: Examples

    @property
    def has_log_determinant(self) -> bool:
        """Whether S is not per N_1, at infinite width, where no log-determinant is left."""
        return not self.bound.architecture.is_infinite

    @property
    def label_constant(self) -> Number:
        """The terms of the labels' log density that S drops; none at infinite width."""
        if not self.has_log_determinant:
            return jnp.asarray(0.0)
        count = len(self.examples.labels) + self.examples.omitted
        return count * jnp.log(self.bound.architecture.root_power**2 / (2 * jnp.pi)) / 2

    def value(self, u1: PathMatrix) -> Number:
        """Compute E at U_1; differentiable in U_1, the data and the numbers of the architecture."""
        return self._solved(u1)["energy"]

    def at(self, u1: PathMatrix) -> EnergyPoint:
        """Compute E and its gradient in one evaluation; NaN if the kernel has no Cholesky factor."""
        found, gradient = self._solved(u1), self.examples.kernel.gradient
        # Two columns side by side in one product would have to be interleaved.
        logdet = gradient(u1, found["resolvent"]) if self.has_log_determinant else jnp.zeros_like(u1)
        misfit = gradient(u1, found["minus_misfit_slope"])
        return EnergyPoint(u1, found["energy"], logdet, misfit, found["resolvent"], found["representer"])

    def value_and_slope(self, u1: PathMatrix) -> tuple[Number, PathMatrix]:
        """Compute E and its whole gradient, with one pass over the kernel."""
        found = self._solved(u1)
        of_kernel = found["resolvent"] if self.has_log_determinant else 0.0
        return found["energy"], self.examples.kernel.gradient(u1, of_kernel - found["minus_misfit_slope"])

    def _solved(self, u1: PathMatrix) -> dict[str, Array]:
        form, omitted = self.bound.action.kernel_energy, self.examples.omitted
        names = "energy", "resolvent", "representer", "minus_misfit_slope"
        given = {form.kernel: self.examples.kernel.matrix(u1), self.bound.symbols.labels: self.examples.labels}
        found = self.bound(given, **{name: getattr(form, name) for name in names})
        if self.has_log_determinant:
            # At T = 0 no rows are omitted or added.
            of_omitted = jnp.where(omitted == 0, 0.0, omitted * jnp.log(self.bound.architecture.temperature))
            found["energy"] += of_omitted
        return found

    def curvature(self, point: EnergyPoint) -> Float[Array, "pairs pairs"]:
        """Compute the second derivative of E with respect to the entries of U_1 on and above the diagonal."""
        return self.examples.kernel.curvature(point.resolvent, point.representer, self.has_log_determinant)

    def rounding(self, point: EnergyPoint) -> Mapping[str, Number]:
        """Estimate the rounding errors of E per machine epsilon that the "kernel" and the "labels" cause.

        A Cholesky factorisation gives entry (i, j) of a matrix A a rounding error of about eps sqrt(A_ii A_jj) (Higham,
        Accuracy and Stability of Numerical Algorithms, chapter 10). For independent errors of random sign, the error of
        log det A is about eps |D A^-1 D|, with D = diag(A)^(1/2), and that of b^T A^-1 b is about
        eps sum_i (A^-1 b)_i^2 A_ii. Neither depends on the scales of rows and columns.
        """
        resolvent, representer, u1 = point.resolvent, point.representer[:, 0], point.u1
        labels = self.bound.architecture.root_power * self.examples.labels[:, 0]
        temperature, squares = self.bound.architecture.temperature, self.examples.kernel.squares
        norms = jnp.kron(jnp.sqrt(squares), jnp.eye(len(labels) // squares.shape[1]))
        # The size of the terms that are added up in the diagonal of the kernel.
        scale = jnp.einsum("ap,ab,bp->p", norms, jnp.abs(u1), norms) + temperature
        square, misfit = representer @ representer, representer @ labels
        # The norms |W^(1/2) Phi^T R| and |W^(1/2) Phi^T v|, with K = Phi W Phi^T.
        of_resolvent = _root(jnp.trace(resolvent) - temperature * jnp.sum(resolvent**2))
        of_representer = _root(misfit - temperature * square)
        misplaced = 2 * _root(len(u1) * jnp.max(jnp.abs(u1))) * self.examples.error / EPS
        # The sum of log-determinant and misfit is rounded too.
        of_kernel = _log_det_error(resolvent, scale) + misplaced * of_resolvent + jnp.abs(point.value - misfit)
        of_labels = jnp.sum(representer**2 * scale) + misplaced * jnp.sqrt(square) * of_representer + jnp.abs(misfit)
        return {"kernel": of_kernel if self.has_log_determinant else jnp.zeros(()), "labels": of_labels}


class BoundedEnergy(eqx.Module):
    """The bound tr(G_+ U_1) + tr(W U_1^{-1}) of the energy up to a constant, with W = U_0 G_- U_0; see `Majoriser`.

    - `logdet_gradient`: G_+ (n_1 x n_1).
    - `weight`: W (n_1 x n_1).
    """

    logdet_gradient: PathMatrix
    weight: PathMatrix

    def value(self, bound: BoundAction, u1: PathMatrix) -> Number:
        """Compute the bound at U_1 = `u1`, up to a constant."""
        return bound({**self._values(bound), bound.symbols.first: u1}, bound=bound.action.majoriser.bound)["bound"]

    def minimise(self, bound: BoundAction, start: OrderParameters, most: int = _PASSES) -> OrderParameters:
        """Minimise entropy plus bound in each order parameter in turn, until the changes are small."""
        symbols, minima = bound.symbols, bound.action.majoriser.minima

        def goes_on(state):
            passes, first, change, _ = state
            return (passes < most) & ((passes < 2) | (change > _SETTLED * first))

        def once_more(state):
            passes, first, _, here = state
            values = {**self._values(bound), **bound.point(here)}
            # From the readout to U_1.
            for symbol in reversed(minima):
                value = bound(values, value=minima[symbol])["value"]
                values[symbol] = (value + value.T) / 2
            there = from_overlaps([jnp.atleast_2d(values[symbol]) for symbol in symbols.order_parameters])
            changes = jax.tree.map(lambda new, old: jnp.max(jnp.abs(new - old)) / jnp.max(jnp.abs(old)), there, here)
            largest = jnp.max(jnp.stack(jax.tree.leaves(changes)))
            return passes + 1, jnp.where(passes == 0, largest, first), largest, there

        *_, swept = jax.lax.while_loop(goes_on, once_more, (jnp.array(0), jnp.array(0.0), jnp.array(0.0), start))
        return swept

    def _values(self, bound: BoundAction) -> dict:
        majoriser = bound.action.majoriser
        return {majoriser.logdet_gradient: self.logdet_gradient, majoriser.weight: self.weight}


@lru_cache
def has_sweeps(action: Action) -> bool:
    """Return whether the minima of entropy plus bound have closed forms in terms of matrices known to be definite."""
    try:
        return bool([compiled(action, value=minimum) for minimum in action.majoriser.minima.values()])
    except NotImplementedError:
        return False


def entropy_rounding(architecture: Architecture, factors: Sequence[Float[Array, "_ _"]]) -> Number:
    """Estimate the rounding error of the entropy per eps from all C_l. Each U_l = C_l C_l^T enters two layers."""
    widths, total = architecture.relative_widths, jnp.zeros(())
    below = [0.0, *(width * count for width, count in zip(widths, architecture.branches, strict=False))]
    for factor, width, inner in zip(factors, widths, below, strict=True):
        diagonal = jnp.sum(factor**2, axis=1)
        error = _log_det_error(cho_solve((factor, True), jnp.eye(len(factor))), diagonal)
        total += (width + inner) * (error + jnp.sum(jnp.abs(jnp.log(diagonal))))
    return total


def _log_det_error(inverse: Float[Array, "n n"], diagonal: Float[Array, " n"]) -> Number:
    """Return |D A^-1 D| with D = diag(A)^(1/2), given A^-1 and the diagonal of A."""
    root = jnp.sqrt(diagonal)
    return jnp.sqrt(jnp.sum((root[:, None] * inverse * root) ** 2))


def _root(square: Number) -> Number:
    """Return the root of a number that rounding can make negative."""
    return jnp.sqrt(jnp.maximum(square, 0.0))
