"""The kernel K(U_1) among examples, Eq. (10): one oracle for every form of the path features.

All outputs share the features. With C outputs, U_1 and K consist of C x C matrices, and features have one row per
example:

    K_{(mu c)(nu d)} = sum_{pi pi'} U_1^{(pi c)(pi' d)} phi^pi_mu . phi^pi'_nu.

A change dU_1 is given by its entries on and above the diagonal, row by row, as `numpy.triu_indices` orders them.
"""

from __future__ import annotations

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...compilation import jit
from .implicit import Features, ImplicitFeatures, PathFeatures

PathMatrix = Float[Array, "paths paths"]
"""A matrix between paths, such as U_1."""
PairKernels = Float[Array, "pairs examples examples"]
"""Kernels of the pairs of paths on and above the diagonal, halved on the diagonal."""

# Tabulate the kernels of pairs up to this number of bytes, about the size of a cache; larger tables cost more traffic.
_TABLE_BYTES = 2**25
# An operation on a table waits for memory and takes this many times as long as one in a product of matrices.
_TRAFFIC = 4.0


class AbstractKernel(eqx.Module):
    """K among examples as a linear function of U_1, with one row per (example, output).

    - `features`: the path features of the examples.
    - `outputs`: number of outputs.
    """

    features: PathFeatures
    outputs: int = eqx.field(static=True)

    @abc.abstractmethod
    def matrix(self, u1: PathMatrix) -> Float[Array, "rows rows"]:
        """Compute K, Eq. (10)."""

    @abc.abstractmethod
    def curvature(
        self,
        resolvent: Float[Array, "rows rows"],
        representer: Float[Array, "rows one"],
        has_log_determinant: bool = True,
    ) -> Float[Array, "entries entries"]:
        """Compute the second derivative of E in U_1: -tr(A R B R) + 2 v^T A R B v for changes A, B of K.

        The trace is the part of the log-determinant. R is (K + T I)^-1, and v is (K + T I)^-1 y.
        """

    @property
    @abc.abstractmethod
    def squares(self) -> Float[Array, "paths examples"]:
        """The squared norm of the features of every path and example."""

    @abc.abstractmethod
    def operations(self) -> float:
        """Count the operations of K and its gradient, in units of those in products of matrices."""

    @abc.abstractmethod
    def curvature_cost(self) -> tuple[float, float]:
        """Count the operations of `curvature`, and its memory in bytes."""

    @property
    def rows(self) -> int:
        """Number of rows of K."""
        return len(self.features) * self.outputs

    def gradient(self, u1: PathMatrix, in_kernel: Float[Array, "rows rows"]) -> PathMatrix:
        """Return the symmetric gradient with respect to U_1, given the gradient with respect to K."""
        _, pull_back = jax.vjp(self.matrix, u1)
        (found,) = pull_back(in_kernel)
        return (found + found.T) / 2

    def between(self, u1: PathMatrix, others: Features) -> Float[Array, "otherrows rows"]:
        """Compute K between other examples and these."""
        return kernel_between(u1, others, self.features)


class ExplicitKernel(AbstractKernel):
    """The kernel of an array of path features."""

    def matrix(self, u1):
        return kernel_between(u1, self.features, self.features)

    def curvature(self, resolvent, representer, has_log_determinant=True):
        # With X = Phi^T R Phi and z = Phi^T v per (path, output): -tr(X dW X dW') + 2 z^T dW X dW' z, dW = dU_1 (x) I.
        (examples, paths, size), outputs = self.features.shape, self.outputs
        flat, count = self.features.reshape(examples, -1), paths * outputs
        z = jnp.einsum("pai,pc->aci", self.features, representer.reshape(examples, outputs)).reshape(count, size)
        half = flat.T @ resolvent.reshape(examples, -1)
        half = half.reshape(-1, outputs, examples, outputs).swapaxes(2, 3).reshape(-1, examples)
        x = (half @ flat).reshape(paths, size, outputs, outputs, paths, size).transpose(0, 2, 1, 4, 3, 5)
        x = x.reshape(count, size, count, size)
        # For dU = E_ab and dU' = E_cd, which are not symmetric: -tr(X_da X_bc) + 2 z_a^T X_bc z_d.
        curvature = 2 * jnp.einsum("ai,bicj,dj->abcd", z, x, z)
        rows, columns = np.triu_indices(count)
        if has_log_determinant:
            curvature = curvature - _traces_of_products(x, rows, columns).transpose(1, 3, 2, 0)
        # Sum over both orders of each pair. Diagonal pairs have only one order, so `weight` halves them.
        curvature = (curvature + curvature.swapaxes(0, 1))[rows, columns]
        curvature = (curvature + curvature.swapaxes(1, 2))[:, rows, columns]
        weight = np.where(rows == columns, 0.5, 1.0)
        return weight[:, None] * curvature * weight

    @property
    def squares(self):
        return jnp.sum(self.features**2, axis=2).T

    def operations(self):
        _, paths, size = self.features.shape
        return 3.0 * self.rows**2 * paths * size

    def curvature_cost(self):
        examples, paths, size = self.features.shape
        count = paths * self.outputs
        assembly = (paths * size + examples) * paths * size * self.rows * self.outputs
        pairs = count * (count + 1) // 2
        return assembly + float(pairs**2 * size**2), 8.0 * (2 * pairs + count**2) * size**2


def _traces_of_products(x: Float[Array, "n size n size"], rows, columns) -> Float[Array, "n n n n"]:
    """Return tr(X_da X_bc) with the indices [d, a, c, b], in a quarter of the operations.

    A block below the diagonal is the transpose of one above, and symmetric and antisymmetric matrices are orthogonal.
    """
    count, size = x.shape[:2]
    upper, lower = x[rows, :, columns], x[columns, :, rows]
    first, second = np.triu_indices(size)
    # With these weights the sum over entries on and above the diagonal is the sum over all entries.
    weight = np.where(first == second, 0.5, 0.5**0.5)
    even, odd = (((upper + sign * lower)[:, first, second] * weight) for sign in (1, -1))
    position = np.zeros((count, count), dtype=int)
    position[rows, columns] = position[columns, rows] = np.arange(len(rows))
    sign, order = np.where(np.tri(count, k=-1), -1.0, 1.0).ravel(), position.ravel()
    # Gather rows and then columns, because their combinations would be a large array of indices in the program.
    found = (even @ even.T)[order][:, order] + sign[:, None] * (odd @ odd.T)[order][:, order] * sign
    return found.reshape((count,) * 4)


class TabulatedKernel(AbstractKernel):
    """The kernels of all pairs of paths, computed once: for few paths and examples, and for kernels of tokens.

    - `pairs`: the kernel of each pair of paths on and above the diagonal, and half of it on the diagonal.
    """

    pairs: PairKernels

    def matrix(self, u1):
        # The pairs below the diagonal give the transpose of those above.
        count, paths = len(self.pairs), self.features.shape[1]
        rows, columns = np.triu_indices(paths)
        weights = _by_output(u1, paths)[rows, :, columns].reshape(count, -1)
        half = (weights.T @ self.pairs.reshape(count, -1)).reshape(self.outputs, self.outputs, *self.pairs.shape[1:])
        half = half.transpose(2, 0, 3, 1).reshape(self.rows, self.rows)
        return half + half.T

    def curvature(self, resolvent, representer, has_log_determinant=True):
        if (cheaper := self._cheaper) is not None:
            return cheaper.curvature(resolvent, representer, has_log_determinant)
        size = self.features.shape[1] * self.outputs
        entries = jnp.asarray(np.stack(np.triu_indices(size), axis=1))

        def change(entry):
            """Return the derivative of K in this entry of U_1 and in its transpose."""
            unit = jnp.zeros((size, size)).at[entry[0], entry[1]].set(1.0).at[entry[1], entry[0]].set(1.0)
            return self.matrix(unit)

        changes = jax.vmap(change)(entries)
        readings = changes @ representer[:, 0]
        curvature = 2 * readings @ resolvent @ readings.T
        if has_log_determinant:
            right = changes @ resolvent
            curvature = curvature - right.reshape(len(right), -1) @ right.swapaxes(1, 2).reshape(len(right), -1).T
        return curvature

    @property
    def squares(self):
        return 2 * jnp.diagonal(self.pairs[np.equal(*np.triu_indices(self.features.shape[1]))], axis1=1, axis2=2)

    def operations(self):
        return _TRAFFIC * 4 * self.pairs.size * self.outputs**2

    def _cost(self) -> float:
        count = math.comb(self.features.shape[1] * self.outputs + 1, 2)
        return 2.0 * count * (self.rows**3 + count * self.rows**2)

    @property
    def _cheaper(self) -> ExplicitKernel | None:
        """The kernel of the array of features, if its curvature costs less."""
        if isinstance(self.features, ImplicitFeatures):
            return None
        explicit = ExplicitKernel(self.features, self.outputs)
        return explicit if explicit.curvature_cost()[0] < self._cost() else None

    def curvature_cost(self):
        if (cheaper := self._cheaper) is not None:
            return cheaper.curvature_cost()
        return self._cost(), 24.0 * math.comb(self.features.shape[1] * self.outputs + 1, 2) * self.rows**2


def kernel_of(features: PathFeatures, outputs: int = 1) -> AbstractKernel:
    """Return the kernel of path features in its cheapest form."""
    if isinstance(features, ImplicitFeatures):
        return TabulatedKernel(features, outputs, _pairs_of_tokens(features))
    if is_tabulated(features.shape[1], len(features)):
        return TabulatedKernel(jnp.asarray(features), outputs, jnp.asarray(_pairs_of_features(features)))
    return ExplicitKernel(jnp.asarray(features), outputs)


_pairs_of_tokens = jit(ImplicitFeatures.pair_kernels)


def is_tabulated(paths: int, examples: int) -> bool:
    """Return whether the kernels of all pairs of paths are computed once and kept."""
    return 8 * math.comb(paths + 1, 2) * examples**2 <= _TABLE_BYTES


def _pairs_of_features(features: Float[Array | np.ndarray, "examples paths features"]) -> PairKernels:
    # On the host, arrays of a new size need no compilation.
    rows, columns = np.triu_indices(features.shape[1])
    weight = np.where(rows == columns, 0.5, 1.0)[:, None, None]
    by_path = features.swapaxes(0, 1)
    return (weight * by_path[rows]) @ by_path[columns].swapaxes(1, 2)


def _by_output(u1: PathMatrix, paths: int) -> Float[Array, "n outputs n outputs"]:
    return u1.reshape(paths, len(u1) // paths, paths, -1)


def kernel_between(u1: PathMatrix, one: Features, other: Features) -> Float[Array, "rows columns"]:
    """Compute K between two sets of examples, Eq. (10). The output varies fastest in rows and columns."""
    if isinstance(one, ImplicitFeatures):
        return one.kernel(u1, other)
    paths = one.shape[1]
    outputs = len(u1) // paths
    half = jnp.einsum("pai,acbd->cdpbi", one, _by_output(u1, paths))
    found = jnp.einsum("cdpbi,qbi->cdpq", half, other)
    return found.transpose(2, 0, 3, 1).reshape(len(one) * outputs, len(other) * outputs)


def kernel_diagonal(u1: PathMatrix, features: Features) -> Float[Array, " rows"]:
    """Compute the diagonal of K for some examples."""
    if isinstance(features, ImplicitFeatures):
        return features.kernel_diagonal(u1)
    by_output = jnp.einsum("acbc->abc", _by_output(u1, features.shape[1]))
    return jnp.einsum("pai,abc,pbi->pc", features, by_output, features).ravel()
