"""The kernel K(U_1) among examples, Eq. (10). All outputs share the features:

    K_{(mu c)(nu d)} = sum_{pi pi'} U_1^{(pi c)(pi' d)} phi^pi_mu . phi^pi'_nu.

Entries of U_1 on and above the diagonal are in the order of `numpy.triu_indices`.
"""

import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._jit import jit
from .implicit import Features, ImplicitFeatures, PathFeatures

PathMatrix = Float[Array, "paths paths"]
# Largest table in bytes, the size of a cache.
_TABLE_BYTES = 2**25
# Time of an operation on a table, relative to products of matrices.
_TRAFFIC = 4.0


class Kernel(eqx.Module):
    """K among examples as a linear function of U_1, with one row per (example, output).

    The table `pairs` has the kernels of pairs of paths above the diagonal, and half of
    those on it. It is None for many paths or examples.
    """

    features: PathFeatures
    pairs: Float[Array, "pairs examples examples"] | None
    outputs: int = eqx.field(static=True)

    @property
    def rows(self) -> int:
        return len(self.features) * self.outputs

    @property
    def squares(self) -> Float[Array, "paths examples"]:
        if not isinstance(self.features, ImplicitFeatures):
            return jnp.sum(self.features**2, axis=2).T
        own = np.equal(*np.triu_indices(self.features.shape[1]))
        return 2 * jnp.diagonal(self.pairs[own], axis1=1, axis2=2)

    def matrix(self, u1: PathMatrix) -> Float[Array, "rows rows"]:
        """Compute K, Eq. (10)."""
        if self.pairs is None:
            return kernel_between(u1, self.features, self.features)
        # The pairs below the diagonal give the transpose of those above. XLA is slow
        # at products of arrays with more than two axes.
        count, outputs, paths = len(self.pairs), self.outputs, self.features.shape[1]
        rows, columns = np.triu_indices(paths)
        weights = _by_output(u1, paths)[rows, :, columns].reshape(count, -1)
        half = weights.T @ self.pairs.reshape(count, -1)
        half = half.reshape(outputs, outputs, *self.pairs.shape[1:])
        half = half.transpose(2, 0, 3, 1).reshape(self.rows, self.rows)
        return half + half.T

    def gradient(self, u1: PathMatrix, in_kernel: Float[Array, "rows rows"]) -> PathMatrix:
        """Return the symmetric gradient in U_1, given the gradient in K."""
        (found,) = jax.vjp(self.matrix, u1)[1](in_kernel)
        return (found + found.T) / 2

    def gradient_of_square(self, u1: PathMatrix, vector: Float[Array, "rows one"]) -> PathMatrix:
        """Return the gradient of v^T K v in U_1."""
        if isinstance(self.features, ImplicitFeatures):
            return self.gradient(u1, vector @ vector.T)
        by_example = vector.reshape(-1, self.outputs)
        readings = jnp.einsum("pai,pc->aci", self.features, by_example).reshape(len(u1), -1)
        return readings @ readings.T

    def curvature(self, resolvent, representer, has_log_determinant=True) -> Float[Array, "n n"]:
        """Compute the second derivative of E in the entries of U_1.

        It is -tr(A R B R) + 2 v^T A R B v for changes A and B of K, with R = (K + T I)^-1
        and v = R y. The log-determinant gives the trace.
        """
        by_table, by_features = self.curvature_costs()
        if by_features < by_table:
            return self._by_features(resolvent, representer, has_log_determinant)
        size = self.features.shape[1] * self.outputs

        def change(row, column):
            unit = jnp.zeros((size, size)).at[row, column].set(1.0).at[column, row].set(1.0)
            return self.matrix(unit)

        changes = jax.vmap(change)(*np.triu_indices(size))
        readings = changes @ representer[:, 0]
        curvature = 2 * readings @ resolvent @ readings.T
        if has_log_determinant:
            right = changes @ resolvent
            transposed = right.swapaxes(1, 2).reshape(len(right), -1)
            curvature -= right.reshape(len(right), -1) @ transposed.T
        return curvature

    def _by_features(self, resolvent, representer, has_log_determinant):
        # X = Phi^T R Phi and z = Phi^T v by (path, output).
        (examples, paths, size), outputs = self.features.shape, self.outputs
        flat, count = self.features.reshape(examples, -1), paths * outputs
        z = jnp.einsum("pai,pc->aci", self.features, representer.reshape(-1, outputs))
        z = z.reshape(count, size)
        half = (flat.T @ resolvent.reshape(examples, -1)).reshape(-1, outputs, examples, outputs)
        half = half.swapaxes(2, 3).reshape(-1, examples)
        x = (half @ flat).reshape(paths, size, outputs, outputs, paths, size)
        x = x.transpose(0, 2, 4, 3, 1, 5).reshape(count, count, size, size)
        # For dU = E_ab and dU' = E_cd: -tr(X_da X_bc) + 2 z_a^T X_bc z_d.
        curvature = 2 * jnp.einsum("ai,bcij,dj->abcd", z, x, z)
        rows, columns = np.triu_indices(count)
        if has_log_determinant:
            # tr(X_da X_bc) = X_da . X_cb. Blocks below the diagonal are transposes.
            above = x[rows, columns].reshape(len(rows), -1) @ x.reshape(count**2, -1).T
            above = above.reshape(-1, count, count)
            products = jnp.zeros((count,) * 4).at[rows, columns].set(above)
            products = products.at[columns, rows].set(above.swapaxes(1, 2))
            curvature = curvature - products.transpose(1, 3, 2, 0)
        # Sum over both orders of each pair.
        curvature = (curvature + curvature.swapaxes(0, 1))[rows, columns]
        curvature = (curvature + curvature.swapaxes(1, 2))[:, rows, columns]
        weight = np.where(rows == columns, 0.5, 1.0)
        return weight[:, None] * curvature * weight

    def operations(self) -> float:
        if self.pairs is not None:
            return _TRAFFIC * 4 * self.pairs.size * self.outputs**2
        return 3.0 * self.rows**2 * math.prod(self.features.shape[1:])

    def curvature_costs(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Count operations and bytes of `curvature`: with the table, and with features."""
        (examples, paths, size), rows = self.features.shape, self.rows
        count = paths * self.outputs
        entries = math.comb(count + 1, 2)
        by_table = by_features = math.inf, math.inf
        if self.pairs is not None:
            table = entries * rows**2
            by_table = 2.0 * table * (rows + entries), 24.0 * table
        if not isinstance(self.features, ImplicitFeatures):
            assembly = (paths * size + examples) * paths * size * rows * self.outputs
            memory = 8.0 * (entries + count**2) * size**2
            by_features = float(assembly + entries * (count * size) ** 2), memory
        return by_table, by_features


def kernel_of(features: PathFeatures, outputs: int = 1) -> Kernel:
    if isinstance(features, ImplicitFeatures):
        return Kernel(features, _pairs_of_tokens(features), outputs)
    pairs = None
    if is_tabulated(features.shape[1], len(features)):
        # On the host, arrays of a new size need no compilation.
        rows, columns = np.triu_indices(features.shape[1])
        weight = np.where(rows == columns, 0.5, 1.0)[:, None, None]
        by_path = features.swapaxes(0, 1)
        pairs = jnp.asarray((weight * by_path[rows]) @ by_path[columns].swapaxes(1, 2))
    return Kernel(jnp.asarray(features), pairs, outputs)


_pairs_of_tokens = jit(ImplicitFeatures.pair_kernels)


def is_tabulated(paths: int, examples: int) -> bool:
    return 8 * math.comb(paths + 1, 2) * examples**2 <= _TABLE_BYTES


def _by_output(u1: PathMatrix, paths: int) -> Float[Array, "n outputs n outputs"]:
    return u1.reshape(paths, len(u1) // paths, paths, -1)


def kernel_between(u1: PathMatrix, one: Features, other: Features) -> Array:
    """Compute K between two sets of examples. The output varies fastest."""
    by_output = _by_output(u1, one.shape[1])
    if isinstance(one, ImplicitFeatures):
        weighted = partial(jnp.einsum, "acbd,abv->cvd", by_output)
        found = one.by_example(other, weighted)
    else:
        half = jnp.einsum("pai,acbd->cdpbi", one, by_output)
        found = jnp.einsum("cdpbi,qbi->cdpq", half, other).transpose(2, 0, 3, 1)  # Eq. (10)
    return found.reshape(len(one) * by_output.shape[1], -1)


def kernel_of_each(u1: PathMatrix, features: Features) -> Float[Array, "examples outputs outputs"]:
    by_output = _by_output(u1, features.shape[1])
    if isinstance(features, ImplicitFeatures):
        return jnp.einsum("eab,acbd->ecd", features.own_kernels(), by_output)
    return jnp.einsum("pai,acbd,pbi->pcd", features, by_output, features)
