"""The energy of given data as the solvers take it: value, both parts of its gradient, and its curvature in U_1.

Part of stage 3 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. One class a
way to store the data; values and gradients run the derived expressions, curvatures exploit their structure.
"""

import abc
from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ..data.principal_axes import RotatedExamples
from ..data.statistics import FeatureStatistics, summed
from ..specification.architecture import Architecture
from .bound_action import BoundAction
from .energy_hessian import blocks_cost, curvature_of_blocks, pairs
from .rounding import MACHINE, inverse_of, log_det_sensitivity, quadratic_sensitivity

# largest array of path kernels, in bytes, that is worth its memory traffic: about what caches hold
_PATH_KERNEL_BYTES = 2**25


class EnergyPoint(eqx.Module):
    """The energy at U_1 = `first`, undivided, and its gradient there, `logdet_gradient - minus_misfit_gradient`.

    `logdet_gradient` is the gradient of the log-determinant, `minus_misfit_gradient` minus that of the misfit; both are
    positive semidefinite (n_1 x n_1). `magnitude` is that of the terms whose sum `value` is, and sets its rounding.
    `solved` is what the evaluation solved for that `curvature` takes up again, by name.
    """

    first: Float[Array, "paths paths"]
    value: Float[Array, ""]
    magnitude: Float[Array, ""]
    logdet_gradient: Float[Array, "paths paths"]
    minus_misfit_gradient: Float[Array, "paths paths"]
    solved: Mapping[str, Array]

    @property
    def slope(self) -> Float[Array, "paths paths"]:
        return self.logdet_gradient - self.minus_misfit_gradient


class AbstractEnergy(eqx.Module):
    """The energy of fixed data as a function of U_1."""

    bound: eqx.AbstractVar[BoundAction]

    @property
    def architecture(self) -> Architecture:
        """The architecture whose numbers the action is bound to."""
        return self.bound.architecture

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

    def value_and_slope(
        self, first: Float[Array, "paths paths"]
    ) -> tuple[Float[Array, ""], Float[Array, "paths paths"]]:
        """E and its gradient, the gradient's two parts not apart."""
        point = self.at(first)
        return point.value, point.slope

    @abc.abstractmethod
    def rounding(self, point: EnergyPoint) -> Mapping[str, Float[Array, ""]]:
        """What rounding makes of E where `at` has been, per machine epsilon, of its "kernel" and of its "labels"."""

    @abc.abstractmethod
    def curvature(self, point: EnergyPoint) -> Float[Array, "pairs pairs"]:
        """The second derivative of E in the entries of U_1 on and above the diagonal, where `at` has been."""

    @abc.abstractmethod
    def curvature_cost(self) -> tuple[float, float]:
        """How many evaluations' work `curvature` is beyond `at`, and how many bytes it takes."""


class AbstractKernelEnergy(AbstractEnergy):
    """By the kernel of all examples, one row a label.

    `omitted` more rows have neither features nor labels, and `features_error` is how far a feature may be off; both are
    zero but for `RotatedExamples`.
    """

    labels: eqx.AbstractVar[Float[Array, "rows one"]]
    omitted: eqx.AbstractVar[Float[Array, ""] | float]
    features_error: eqx.AbstractVar[Float[Array, ""] | float]

    @property
    def label_count(self):
        return len(self.labels) + self.omitted

    @abc.abstractmethod
    def kernel(self, first: Float[Array, "paths paths"]) -> Float[Array, "rows rows"]:
        """K at U_1, Eq. (10)."""

    @abc.abstractmethod
    def slopes(
        self, first: Float[Array, "paths paths"], solved: Mapping[str, Array]
    ) -> tuple[Float[Array, "paths paths"], Float[Array, "paths paths"]]:
        """`logdet_gradient` and `minus_misfit_gradient` at U_1, given resolvent and representer there."""

    def value(self, first):
        return self.of_kernel(first)["energy"]

    def at(self, first):
        of_kernel = dict(self.of_kernel(first))
        value = of_kernel.pop("energy")
        return EnergyPoint(first, value, jnp.abs(value), *self.slopes(first, of_kernel), of_kernel)

    @abc.abstractmethod
    def squares(self) -> Float[Array, "paths rows"]:
        """phi^pi . phi^pi of every path, row by row."""

    def rounding(self, point):
        norms = jnp.sqrt(self.squares())
        # as large as the terms that the diagonal of the kernel is summed from
        scale = jnp.einsum("ap,ab,bp->p", norms, jnp.abs(point.first), norms) + self.architecture.temperature
        resolvent, representer = point.solved["resolvent"], point.solved["representer"][:, 0]
        temperature, square = self.architecture.temperature, representer @ representer
        misfit = representer @ self.labels[:, 0]
        # |W^(1/2) Phi^T R| and |W^(1/2) Phi^T v|, K being Phi W Phi^T
        of_resolvent = _root(jnp.trace(resolvent) - temperature * jnp.sum(resolvent**2))
        of_representer = _root(misfit - temperature * square)
        misplaced = 2 * _root(len(point.first) * jnp.max(jnp.abs(point.first))) * self.features_error / MACHINE
        of_kernel = log_det_sensitivity(resolvent, scale) + misplaced * of_resolvent
        of_labels = quadratic_sensitivity(representer, scale) + misplaced * jnp.sqrt(square) * of_representer
        # and that of the sum of log-determinant and misfit
        return {"kernel": of_kernel + jnp.abs(point.value - misfit), "labels": of_labels + jnp.abs(misfit)}

    def of_kernel(self, first: Float[Array, "paths paths"]) -> Mapping[str, Array]:
        """Energy, resolvent (K + T I)^-1 and representer (K + T I)^-1 y at U_1, by one factorisation."""
        arguments = {
            self.bound.action.kernel_energy.kernel: self.kernel(first),
            self.bound.symbols.labels: self.labels,
        }
        values = dict(self.bound.call(self.bound.compiled.kernel_energy, arguments))
        if not isinstance(self.omitted, float):
            # without a temperature nothing may be omitted
            of_omitted = self.omitted * jnp.log(self.architecture.temperature)
            values["energy"] += jnp.where(self.omitted > 0, of_omitted, 0.0)
        return values


class FeatureEnergy(AbstractKernelEnergy):
    """By the P x P kernel, assembled from path features (rows x columns, as `flat_features` has them)."""

    bound: BoundAction
    features: Float[Array, "rows columns"]
    labels: Float[Array, "rows one"]
    omitted: Float[Array, ""] | float = 0.0
    features_error: Float[Array, ""] | float = 0.0

    def kernel(self, first):
        return self.bound.call(self.bound.compiled.training_kernel, self._arguments(first))["kernel"]

    def squares(self):
        return jnp.sum(
            self.features.reshape(len(self.features), self.architecture.order_parameter_sizes[0], -1) ** 2, 2
        ).T

    def slopes(self, first, solved):
        form = self.bound.action.kernel_energy
        given = {form.resolvent_symbol: solved["resolvent"], form.representer_symbol: solved["representer"]}
        slopes = self.bound.call(self.bound.compiled.kernel_slopes, self._arguments(first), given)
        return slopes["logdet_gradient"], slopes["minus_misfit_gradient"]

    def curvature(self, point):
        paths = len(point.first)
        weighted = (point.solved["resolvent"] @ self.features).reshape(len(self.features), paths, -1)
        features = self.features.reshape(weighted.shape)
        blocks = {a: jnp.einsum("pi,pbj->bij", features[:, a], weighted[:, a:]) for a in range(paths)}
        readings = jnp.einsum("pai,p->ai", features, point.solved["representer"][:, 0])
        return curvature_of_blocks(jnp.concatenate(list(blocks.values())), readings)

    def curvature_cost(self):
        rows, columns = self.features.shape
        paths = self.architecture.order_parameter_sizes[0]
        return blocks_cost(paths, columns // paths, rows * columns**2, 4 * rows**2 * columns)

    def _arguments(self, first):
        symbols = self.bound.symbols
        return {symbols.matrices[0]: first, symbols.features: self.features}


class PathKernelEnergy(AbstractKernelEnergy):
    """By the P x P kernel, a sum over pairs of paths of kernels computed once: for few paths and examples.

    `path_kernels` (pairs, rows, rows): the change of K with each entry of U_1 on or above the diagonal.
    """

    bound: BoundAction
    path_kernels: Float[Array, "pairs rows rows"]
    labels: Float[Array, "rows one"]
    omitted: Float[Array, ""] | float = 0.0
    features_error: Float[Array, ""] | float = 0.0

    def kernel(self, first):
        return jnp.einsum("k,kpq->pq", first[pairs(len(first))], self.path_kernels)

    def squares(self):
        rows, columns = pairs(self.architecture.order_parameter_sizes[0])
        return jnp.diagonal(self.path_kernels[rows == columns], axis1=1, axis2=2)

    def slopes(self, first, solved):
        representer = solved["representer"]
        # one product each: side by side, the two columns would have to be interleaved
        return self._gradient(first, solved["resolvent"]), self._gradient(first, representer * representer.T)

    def value_and_slope(self, first):
        solved = self.of_kernel(first)
        representer = solved["representer"]
        # the gradient is linear in what it is a product with: one pass over the path kernels, not two
        return solved["energy"], self._gradient(first, solved["resolvent"] - representer * representer.T)

    def _gradient(self, first: Float[Array, "paths paths"], in_kernel: Float[Array, "rows rows"]):
        """The gradient in U_1, given that in K."""
        return _as_gradient(self.path_kernels.reshape(len(self.path_kernels), -1) @ in_kernel.ravel(), len(first))

    def curvature(self, point):
        resolvent, representer = point.solved["resolvent"], point.solved["representer"]
        count, rows = self.path_kernels.shape[:2]
        side = self.path_kernels.reshape(-1, rows)
        through = (side @ resolvent).reshape(count, rows, rows)
        transposed = through.transpose(0, 2, 1).reshape(count, -1)
        moved = (side @ representer).reshape(count, rows)
        return 2 * moved @ resolvent @ moved.T - through.reshape(count, -1) @ transposed.T

    def curvature_cost(self):
        count, rows = self.path_kernels.shape[:2]
        return (2 * count * rows**3) / (4 * count * rows**2 + rows**3), 16.0 * count * rows**2


class DualEnergy(AbstractEnergy):
    """By the second moments of the data, in feature space: for more examples than features."""

    bound: BoundAction
    statistics: FeatureStatistics

    @property
    def label_count(self):
        return self.statistics.examples * self.statistics.outputs

    def value(self, first):
        return self.bound.call(self.bound.compiled.dual_energy, self._arguments(first))["energy"]

    def at(self, first):
        values = self.bound.call(self.bound.compiled.dual_slopes, self._arguments(first))
        # the misfit is what is left of y^T y / T
        square = self.statistics.label_square / self.architecture.temperature
        magnitude = jnp.abs(values["log_determinants"]) + square
        return EnergyPoint(
            first, values["energy"], magnitude, values["logdet_gradient"], values["minus_misfit_gradient"], {}
        )

    def rounding(self, point):
        first, size = point.first, len(self.statistics.gram) * self.statistics.outputs // len(point.first)
        gram, projection = self._moments()
        temperature, inverse = self.architecture.temperature, inverse_of(first)
        of_first = log_det_sensitivity(inverse, jnp.diagonal(first))
        prior = temperature * jnp.kron(inverse, jnp.eye(size))
        resolvent = inverse_of(prior + gram)
        # U_1^-1 carries the rounding of its own factorisation
        scale = of_first * jnp.diagonal(prior) + jnp.diagonal(gram)
        square = self.statistics.label_square / temperature
        return {
            "kernel": size * of_first + log_det_sensitivity(resolvent, scale) + point.magnitude - square,
            "labels": quadratic_sensitivity(resolvent @ projection[:, 0], scale) / temperature + square,
        }

    def curvature(self, point):
        first = point.first
        gram, projection = self._moments()
        paths, temperature = len(first), self.architecture.temperature
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
        paths = self.architecture.order_parameter_sizes[0]
        return blocks_cost(paths, columns // paths, 4 * columns**3, 2 * columns**3)

    def _arguments(self, first):
        return {**self.bound.moments(self.statistics), self.bound.symbols.matrices[0]: first}

    def _moments(self) -> tuple[Float[Array, "columns columns"], Float[Array, "columns one"]]:
        """M and b."""
        form, moments = self.bound.action.dual, self.bound.moments(self.statistics)
        return moments[form.gram], moments[form.projection]


def energy_of(
    bound: BoundAction, features: Float[Array, "examples paths features"], labels: Float[Array, "..."]
) -> AbstractEnergy:
    """The energy of a data set, in the form that costs least."""
    if features.shape[0] > features.shape[1] * features.shape[2]:
        return DualEnergy(bound, summed(features, labels))
    return energy_by_kernel(bound, features, labels)


def energy_by_kernel(
    bound: BoundAction,
    features: Float[Array, "examples paths features"],
    labels: Float[Array, "..."],
    omitted: Float[Array, ""] | float = 0.0,
    features_error: Float[Array, ""] | float = 0.0,
) -> AbstractKernelEnergy:
    """The energy of a data set by the kernel of its examples: it may be evaluated where U_1 is singular."""
    flat, column = bound.flat(features), labels.reshape(-1, 1)
    size = bound.architecture.order_parameter_sizes[0]
    if 8 * len(pairs(size)[0]) * len(flat) ** 2 <= _PATH_KERNEL_BYTES:
        return PathKernelEnergy(bound, _path_kernels(flat, size), column, omitted, features_error)
    return FeatureEnergy(bound, flat, column, omitted, features_error)


def energy_of_rotated(bound: BoundAction, examples: RotatedExamples) -> AbstractKernelEnergy:
    """The energy of a data set in its principal axes."""
    return energy_by_kernel(bound, examples.features, examples.labels, examples.omitted, examples.error)


def _root(square: Float[Array, ""]) -> Float[Array, ""]:
    """The root of a number that rounding may make negative."""
    return jnp.sqrt(jnp.maximum(square, 0.0))


def _path_kernels(flat: Float[Array, "rows columns"], paths: int) -> Float[Array, "pairs rows rows"]:
    """The kernel is linear in U_1 (Eq. 10): its derivative in every entry, U_1 being symmetric."""
    features = flat.reshape(len(flat), paths, -1)
    products = jnp.einsum("pai,qbi->abpq", features, features)  # Eq. (10)
    rows, columns = pairs(paths)
    upper = products[rows, columns]
    off_diagonal = (rows != columns)[:, None, None]
    return upper + jnp.where(off_diagonal, upper.transpose(0, 2, 1), 0.0)


def _as_gradient(slopes: Float[Array, " pairs"], paths: int) -> Float[Array, "paths paths"]:
    """Derivatives in the entries on and above the diagonal as the gradient, a symmetric matrix."""
    rows, columns = pairs(paths)
    upper = jnp.zeros((paths, paths)).at[rows, columns].set(slopes)
    return (upper + upper.T) / 2
