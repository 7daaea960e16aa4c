"""The energy of given data as the solvers take it: value, both parts of its gradient, and its curvature in U_1.

Part of stage 3 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function -> solve -> predict`. One
class a way to store the data; values and gradients run the derived expressions, curvatures exploit their structure.
A change dU_1 is given by its entries on and above the diagonal, row by row: `pairs`.
"""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from .architecture import Architecture
from .derive import derive
from .evaluate import architecture_arguments, flat_features
from .statistics import FeatureStatistics, statistics_arguments

# largest array of path kernels, in bytes, that is worth its memory traffic: about what caches hold
_PATH_KERNEL_BYTES = 2**25


class EnergyPoint(eqx.Module):
    """The energy at some U_1, undivided, and its gradient there, `spread - pull`.

    `spread` is the gradient of the log-determinant, `pull` minus that of the misfit; both are positive semidefinite
    (n_1 x n_1). `magnitude` is that of the terms whose sum `value` is, and sets its rounding.
    """

    value: Float[Array, ""]
    magnitude: Float[Array, ""]
    spread: Float[Array, "paths paths"]
    pull: Float[Array, "paths paths"]

    @property
    def slope(self) -> Float[Array, "paths paths"]:
        return self.spread - self.pull


class AbstractEnergy(eqx.Module):
    """The energy of fixed data as a function of U_1."""

    architecture: eqx.AbstractVar[Architecture]

    @property
    @abc.abstractmethod
    def label_count(self) -> Float[Array, ""] | int:
        """How many labels the data have, over all examples and outputs."""

    @abc.abstractmethod
    def value(self, first: Float[Array, "paths paths"]) -> Float[Array, ""]:
        """E at U_1; differentiable in U_1, the data and the numbers of the architecture."""

    @abc.abstractmethod
    def at(self, first: Float[Array, "paths paths"]) -> EnergyPoint:
        """E and its gradient: one evaluation. NaN where the kernel has no Cholesky factor."""

    @abc.abstractmethod
    def curvature(self, first: Float[Array, "paths paths"]) -> Float[Array, "pairs pairs"]:
        """The second derivative of E in the entries of U_1 on and above the diagonal."""

    @abc.abstractmethod
    def curvature_cost(self) -> tuple[float, float]:
        """How many evaluations' work `curvature` is, and how many bytes it takes."""


def pairs(paths: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries on and above the diagonal."""
    return np.triu_indices(paths)


class FeatureEnergy(AbstractEnergy):
    """By the P x P kernel, assembled from path features (rows x columns, as `flat_features` has them)."""

    architecture: Architecture
    features: Float[Array, "rows columns"]
    labels: Float[Array, "rows one"]

    @property
    def label_count(self):
        return len(self.labels)

    def value(self, first):
        return self._of_kernel(first)["energy"]

    def at(self, first):
        of_kernel = self._of_kernel(first)
        arguments = {"R": of_kernel["resolvent"], "v": of_kernel["representer"], **self._arguments(first)}
        slopes = derive(self.architecture).compiled_slopes.of(arguments)
        value = of_kernel["energy"]
        return EnergyPoint(value, jnp.abs(value), slopes["spread"], slopes["pull"])

    def curvature(self, first):
        of_kernel = self._of_kernel(first)
        paths = len(first)
        weighted = (of_kernel["resolvent"] @ self.features).reshape(len(self.features), paths, -1)
        features = self.features.reshape(weighted.shape)
        blocks = {a: jnp.einsum("pi,pbj->bij", features[:, a], weighted[:, a:]) for a in range(paths)}
        readings = jnp.einsum("pai,p->ai", features, of_kernel["representer"][:, 0])
        return curvature_of_blocks(jnp.concatenate(list(blocks.values())), readings)

    def curvature_cost(self):
        rows, columns = self.features.shape
        return _blocks_cost(len(self._pairs()[0]), rows * columns * columns, columns, 4 * rows**2 * columns)

    def _pairs(self):
        return pairs(self.architecture.order_parameter_sizes[0])

    def _arguments(self, first):
        symbols = derive(self.architecture).symbols
        return {
            **architecture_arguments(self.architecture),
            symbols.matrices[0].name: first,
            symbols.features.name: self.features,
            symbols.test_features.name: self.features,
        }

    def _of_kernel(self, first):
        kernel = derive(self.architecture).compiled_training_kernel.of(self._arguments(first))["kernel"]
        return _of_kernel(self.architecture, kernel, self.labels)


class PathKernelEnergy(AbstractEnergy):
    """By the P x P kernel, a sum over pairs of paths of kernels computed once: for few paths and examples.

    `path_kernels` (pairs, rows, rows): the change of K with each entry of U_1 on or above the diagonal.
    """

    architecture: Architecture
    path_kernels: Float[Array, "pairs rows rows"]
    labels: Float[Array, "rows one"]

    @property
    def label_count(self):
        return len(self.labels)

    def value(self, first):
        return self._of_kernel(first)["energy"]

    def at(self, first):
        of_kernel = self._of_kernel(first)
        resolvent, representer = of_kernel["resolvent"], of_kernel["representer"]
        flat = self.path_kernels.reshape(len(self.path_kernels), -1)
        outer = representer * representer.T
        spread, pull = (flat @ jnp.stack([resolvent.ravel(), outer.ravel()], axis=1)).T
        value, paths = of_kernel["energy"], len(first)
        return EnergyPoint(value, jnp.abs(value), _as_gradient(spread, paths), _as_gradient(pull, paths))

    def curvature(self, first):
        of_kernel = self._of_kernel(first)
        resolvent, representer = of_kernel["resolvent"], of_kernel["representer"]
        count, rows = self.path_kernels.shape[:2]
        side = self.path_kernels.reshape(-1, rows)
        through = (side @ resolvent).reshape(count, rows, rows)
        transposed = through.transpose(0, 2, 1).reshape(count, -1)
        moved = (side @ representer).reshape(count, rows)
        return 2 * moved @ resolvent @ moved.T - through.reshape(count, -1) @ transposed.T

    def curvature_cost(self):
        count, rows = self.path_kernels.shape[:2]
        return (2 * count * rows**3) / (4 * count * rows**2 + rows**3), 16.0 * count * rows**2

    def _of_kernel(self, first):
        entries = first[pairs(len(first))]
        kernel = jnp.einsum("k,kpq->pq", entries, self.path_kernels)
        return _of_kernel(self.architecture, kernel, self.labels)


class DualEnergy(AbstractEnergy):
    """By the second moments of the data, in feature space: for more examples than features."""

    architecture: Architecture
    statistics: FeatureStatistics

    @property
    def label_count(self):
        return self.statistics.examples * self.statistics.outputs

    def value(self, first):
        return derive(self.architecture).compiled_dual.of(self._arguments(first))["energy"]

    def at(self, first):
        values = derive(self.architecture).compiled_dual_slopes.of(self._arguments(first))
        # the misfit is what is left of y^T y / T
        square = self.statistics.label_square / self.architecture.temperature
        magnitude = jnp.abs(values["log_determinants"]) + square
        return EnergyPoint(values["energy"], magnitude, values["spread"], values["pull"])

    def curvature(self, first):
        arguments = self._arguments(first)
        symbols = derive(self.architecture).dual
        gram, projection = arguments[symbols.gram.name], arguments[symbols.projection.name]
        paths, temperature = len(first), arguments["T"]
        size = len(gram) // paths
        factor = jnp.linalg.cholesky(first)
        # whitened by U_1 = C C^T, so that nothing is large: T I + (C^T (x) I) M (C (x) I)
        blocks = gram.reshape(paths, size, paths, size)
        white = jnp.einsum("aibj,ac,bd->cidj", blocks, factor, factor).reshape(gram.shape)
        root = jnp.linalg.cholesky(white + temperature * jnp.eye(len(gram)))
        inverse_factor = solve_triangular(factor, jnp.eye(paths), lower=True)
        small = cho_solve((root, True), white).reshape(blocks.shape)
        whole = jnp.einsum("cidj,ca,db->abij", small, inverse_factor, inverse_factor)
        right = jnp.einsum("ai,ac->ci", projection.reshape(paths, size), factor)
        readings = cho_solve((root, True), right.ravel()).reshape(paths, size)
        rows, columns = pairs(paths)
        return curvature_of_blocks(whole[rows, columns], inverse_factor.T @ readings)

    def curvature_cost(self):
        columns = len(self.statistics.gram) * self.statistics.outputs
        count = len(pairs(self.architecture.order_parameter_sizes[0])[0])
        return _blocks_cost(count, 4 * columns**3, columns, 2 * columns**3)

    def _arguments(self, first):
        name = derive(self.architecture).symbols.matrices[0].name
        numbers = architecture_arguments(self.architecture)
        return {**numbers, **statistics_arguments(self.architecture, self.statistics), name: first}


def energy_of(
    architecture: Architecture, features: Float[Array, "examples paths features"], labels: Float[Array, "..."]
) -> AbstractEnergy:
    """The energy of a data set, in the form that costs least."""
    flat, column = flat_features(architecture, features), labels.reshape(-1, 1)
    size = architecture.order_parameter_sizes[0]
    if flat.shape[0] > flat.shape[1]:
        return DualEnergy(architecture, _statistics(architecture, features, labels))
    if 8 * len(pairs(size)[0]) * len(flat) ** 2 <= _PATH_KERNEL_BYTES:
        return PathKernelEnergy(architecture, _path_kernels(flat, size), column)
    return FeatureEnergy(architecture, flat, column)


def _statistics(architecture, features, labels) -> FeatureStatistics:
    flat, columns = features.reshape(len(features), -1), labels.reshape(len(labels), -1)
    square, paths = jnp.sum(labels**2), architecture.paths
    return FeatureStatistics(flat.T @ flat, flat.T @ columns, square, len(labels), paths)


def _path_kernels(flat: Float[Array, "rows columns"], paths: int) -> Float[Array, "pairs rows rows"]:
    """The kernel is linear in U_1 (Eq. 10): its derivative in every entry, U_1 being symmetric."""
    features = flat.reshape(len(flat), paths, -1)
    products = jnp.einsum("pai,qbi->abpq", features, features)  # Eq. (10)
    rows, columns = pairs(paths)
    upper = products[rows, columns]
    off_diagonal = (rows != columns)[:, None, None]
    return upper + jnp.where(off_diagonal, upper.transpose(0, 2, 1), 0.0)


def _of_kernel(architecture, kernel, labels):
    symbols = derive(architecture).symbols
    arguments = {**architecture_arguments(architecture), "K": kernel, symbols.labels.name: labels}
    return derive(architecture).compiled_kernel_energy.of(arguments)


def _as_gradient(slopes: Float[Array, " pairs"], paths: int) -> Float[Array, "paths paths"]:
    """Derivatives in the entries on and above the diagonal as the gradient, a symmetric matrix."""
    rows, columns = pairs(paths)
    upper = jnp.zeros((paths, paths)).at[rows, columns].set(slopes)
    return (upper + upper.T) / 2


def curvature_of_blocks(
    blocks: Float[Array, "pairs features features"], readings: Float[Array, "paths features"]
) -> Float[Array, "pairs pairs"]:
    """The second derivative of E from X = Phi^T (K + T I)^-1 Phi and z = Phi^T (K + T I)^-1 y.

    -tr(X dW X dW') + 2 z^T dW X dW' z with dW = dU (x) I. `blocks` are the blocks X_ab of the pairs a <= b.
    """
    paths, count = len(readings), len(blocks)
    rows, columns = pairs(paths)
    index = np.zeros((paths, paths), dtype=int)
    index[rows, columns] = index[columns, rows] = np.arange(count)
    flat, flipped = blocks.reshape(count, -1), blocks.transpose(0, 2, 1).reshape(count, -1)
    same, crossed = flat @ flat.T, flat @ flipped.T
    # tr(X_da X_bc) = <X_ad, X_bc>: blocks below the diagonal are transposes of those above
    first, second = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
    a, b, c, d = rows[first], columns[first], rows[second], columns[second]

    def trace(p, q, r, s):
        """tr(X_pq X_rs)."""
        alike = (p <= q) == (r <= s)
        return jnp.where(alike, crossed[index[p, q], index[r, s]], same[index[p, q], index[r, s]])

    # over both orders of each pair: V = E_ab + E_ba, V' = E_cd + E_dc; tr(X V X V')
    spread = 2 * (trace(d, a, b, c) + trace(c, a, b, d))
    weight = np.where(rows == columns, 0.5, 1.0)
    spread = weight[:, None] * spread * weight
    return _misfit_curvature(blocks, readings, weight) - spread


def _misfit_curvature(blocks, readings, weight):
    paths = len(readings)
    rows, columns = pairs(paths)
    # full X, row block by row block; 2 z^T V X V' z
    size = blocks.shape[1]
    whole = jnp.zeros((paths, paths, size, size)).at[rows, columns].set(blocks)
    whole = whole.at[columns, rows].set(blocks.transpose(0, 2, 1))
    right = jnp.einsum("bcij,dj->bcdi", whole, readings)
    quartic = jnp.einsum("ai,bcdi->abcd", readings, right)
    both = quartic + quartic.transpose(1, 0, 2, 3)
    both = both + both.transpose(0, 1, 3, 2)
    return 2 * weight[:, None] * both[rows, columns][:, rows, columns] * weight


def _blocks_cost(count, assembly, columns, evaluation):
    paths = (math.sqrt(8 * count + 1) - 1) / 2
    size = columns / paths
    flops = assembly + 4 * count**2 * size**2
    return flops / evaluation, 8.0 * (2 * count + paths**2) * size**2
