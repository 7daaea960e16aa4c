"""The energy of given data as the solvers take it: value, both parts of its gradient, and its curvature in U_1.

Part of stage 3 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. One class a
way to store the data; all run the derived expressions, but for what `contractions` has.
"""

import abc
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..data.data import Data
from ..data.principal_axes import RotatedExamples
from ..data.statistics import FeatureStatistics, summed
from ..features.implicit import ImplicitFeatures, PathFeatures
from ..specification.architecture import Architecture
from .bound_action import BoundAction
from .contractions import (
    blocks_cost,
    blocks_of_features,
    blocks_of_moments,
    combine,
    curvature_of_blocks,
    pairs,
    read_paths,
)
from .rounding import dual_rounding, kernel_rounding

# largest array of path kernels, in bytes, that is worth its memory traffic: about what caches hold
_PATH_KERNEL_BYTES = 2**25


class EnergyPoint(eqx.Module):
    """The energy at U_1 = `u1`, undivided, and its gradient there, `logdet_gradient - minus_misfit_gradient`.

    `logdet_gradient` is the gradient of the log-determinant, `minus_misfit_gradient` minus that of the misfit; both are
    positive semidefinite (n_1 x n_1). `magnitude` is that of the terms whose sum `value` is, and sets its rounding.
    `solved` is what the evaluation solved for that `curvature` takes up again, by name.
    """

    u1: Float[Array, "paths paths"]
    value: Float[Array, ""]
    magnitude: Float[Array, ""]
    logdet_gradient: Float[Array, "paths paths"]
    minus_misfit_gradient: Float[Array, "paths paths"]
    solved: Mapping[str, Array]

    @property
    def slope(self) -> Float[Array, "paths paths"]:
        """The gradient of the energy in U_1."""
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
    def value(self, u1: Float[Array, "paths paths"]) -> Float[Array, ""]:
        """E at U_1; differentiable in U_1, the data and the numbers of the architecture."""

    @abc.abstractmethod
    def at(self, u1: Float[Array, "paths paths"]) -> EnergyPoint:
        """E and its gradient: one evaluation. NaN where the kernel has no Cholesky factor."""

    def value_and_slope(self, u1: Float[Array, "paths paths"]) -> tuple[Float[Array, ""], Float[Array, "paths paths"]]:
        """E and its gradient, the gradient's two parts not apart."""
        point = self.at(u1)
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
    def kernel(self, u1: Float[Array, "paths paths"]) -> Float[Array, "rows rows"]:
        """K at U_1, Eq. (10)."""

    @abc.abstractmethod
    def slopes(
        self, u1: Float[Array, "paths paths"], solved: Mapping[str, Array]
    ) -> tuple[Float[Array, "paths paths"], Float[Array, "paths paths"]]:
        """`logdet_gradient` and `minus_misfit_gradient` at U_1, given resolvent and representer there."""

    def value(self, u1):
        return self.of_kernel(self.kernel(u1))["energy"]

    def at(self, u1):
        found = self.of_kernel(self.kernel(u1))
        slopes = self.slopes(u1, found)
        solved = {name: found[name] for name in ("resolvent", "representer")}
        return EnergyPoint(u1, found["energy"], jnp.abs(found["energy"]), *slopes, solved)

    @abc.abstractmethod
    def squares(self) -> Float[Array, "paths rows"]:
        """phi^pi . phi^pi of every path, row by row."""

    def rounding(self, point):
        resolvent, representer = point.solved["resolvent"], point.solved["representer"][:, 0]
        data = self.squares(), self.labels[:, 0], self.architecture.temperature, self.features_error
        return kernel_rounding(point.u1, point.value, resolvent, representer, *data)

    def of_kernel(self, kernel: Float[Array, "rows rows"]) -> dict[str, Array]:
        """Energy, resolvent, representer and minus the misfit's slope, see `KernelEnergy`, by one factorisation."""
        given = {self.bound.action.kernel_energy.kernel: kernel, self.bound.symbols.labels: self.labels}
        values = dict(self.bound.compiled.kernel_energy.call_from(self.bound.numbers() | given))
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

    def kernel(self, u1):
        given = {self.bound.symbols.first: u1, self.bound.symbols.features: self.features}
        return self.bound.compiled.training_kernel.call_from(self.bound.numbers() | given)["kernel"]

    def squares(self):
        return jnp.sum(self._by_path**2, axis=2).T

    def slopes(self, u1, found):
        form, symbols = self.bound.action.kernel_energy, self.bound.symbols
        given = {form.resolvent_symbol: found["resolvent"], form.representer_symbol: found["representer"]}
        given |= {symbols.first: u1, symbols.features: self.features}
        slopes = self.bound.compiled.kernel_slopes.call_from(self.bound.numbers() | given)
        return slopes["logdet_gradient"], slopes["minus_misfit_gradient"]

    def curvature(self, point):
        blocks = blocks_of_features(self._by_path, point.solved["resolvent"])
        return curvature_of_blocks(blocks, read_paths(self._by_path, point.solved["representer"]))

    @property
    def _by_path(self) -> Float[Array, "rows paths features"]:
        return self.features.reshape(len(self.features), self.architecture.overlap_sizes[0], -1)

    def curvature_cost(self):
        rows, columns = self.features.shape
        paths = self.architecture.overlap_sizes[0]
        return blocks_cost(paths, columns // paths, rows * columns**2, 4 * rows**2 * columns)


class PathKernelEnergy(AbstractKernelEnergy):
    """By the P x P kernel, a sum over pairs of paths of kernels computed once: for few paths and examples.

    `path_kernels` (pairs, rows, rows): the change of K with each entry of U_1 on or above the diagonal.
    """

    bound: BoundAction
    path_kernels: Float[Array, "pairs rows rows"]
    labels: Float[Array, "rows one"]
    omitted: Float[Array, ""] | float = 0.0
    features_error: Float[Array, ""] | float = 0.0

    def kernel(self, u1):
        return combine(u1, self.path_kernels)

    def squares(self):
        rows, columns = pairs(self.architecture.overlap_sizes[0])
        return jnp.diagonal(self.path_kernels[rows == columns], axis1=1, axis2=2)

    def slopes(self, u1, found):
        # one product each: side by side, the two columns would have to be interleaved
        return self._gradient(u1, found["resolvent"]), self._gradient(u1, found["minus_misfit_slope"])

    def value_and_slope(self, u1):
        found = self.of_kernel(self.kernel(u1))
        # the gradient is linear in what it is a product with: one pass over the path kernels, not two
        return found["energy"], self._gradient(u1, found["resolvent"] - found["minus_misfit_slope"])

    def _gradient(self, u1: Float[Array, "paths paths"], in_kernel: Float[Array, "rows rows"]):
        """The gradient in U_1, a symmetric matrix, given that in K."""
        _, pull_back = jax.vjp(self.kernel, u1)
        (gradient,) = pull_back(in_kernel)
        return (gradient + gradient.T) / 2

    def curvature(self, point):
        form, compiled, numbers = self.bound.action.kernel_energy, self.bound.compiled, self.bound.numbers()
        given = {form.resolvent_symbol: point.solved["resolvent"], form.representer_symbol: point.solved["representer"]}

        def moves(change):
            return list(compiled.kernel_moves.call_from(numbers | given | {form.curvature.change: change}).values())

        def along(one, other):
            pair = zip((*form.curvature.moves, *form.curvature.others), (*one, *other), strict=True)
            return compiled.kernel_curvature.call_from(numbers | dict(pair))["curvature"]

        moved = jax.vmap(moves)(self.path_kernels)
        return jax.vmap(jax.vmap(along, (None, 0)), (0, None))(moved, moved)

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

    def value(self, u1):
        return self.bound.compiled.dual_energy.call_from(self._values(u1))["energy"]

    def at(self, u1):
        values = self.bound.compiled.dual_slopes.call_from(self._values(u1))
        # the misfit is what is left of y^T y / T
        square = self.statistics.label_square / self.architecture.temperature
        magnitude = jnp.abs(values["log_determinants"]) + square
        return EnergyPoint(
            u1, values["energy"], magnitude, values["logdet_gradient"], values["minus_misfit_gradient"], {}
        )

    def rounding(self, point):
        square = self.statistics.label_square / self.architecture.temperature
        return dual_rounding(point.u1, point.magnitude, square, *self._moments(), self.architecture.temperature)

    def curvature(self, point):
        return curvature_of_blocks(*blocks_of_moments(point.u1, *self._moments(), self.architecture.temperature))

    def curvature_cost(self):
        columns = len(self.statistics.gram) * self.statistics.outputs
        paths = self.architecture.overlap_sizes[0]
        return blocks_cost(paths, columns // paths, 4 * columns**3, 2 * columns**3)

    def _values(self, u1):
        return self.bound.numbers() | self.bound.moments(self.statistics) | {self.bound.symbols.first: u1}

    def _moments(self) -> tuple[Float[Array, "columns columns"], Float[Array, "columns one"]]:
        """M and b."""
        form, moments = self.bound.action.dual, self.bound.moments(self.statistics)
        return moments[form.gram], moments[form.projection]


def has_dual_form(features: PathFeatures) -> bool:
    """Whether the energy is taken in feature space: for more examples than features of all paths."""
    examples, paths, width = features.shape
    return not isinstance(features, ImplicitFeatures) and examples > paths * width


def energy_of(bound: BoundAction, data: Data | RotatedExamples, *, by_kernel: bool = False) -> AbstractEnergy:
    """The energy of checked data, in the form that costs least.

    With `by_kernel` it is computed by the kernel of the examples, which exists where U_1 is singular, too.
    """
    is_rotated = isinstance(data, RotatedExamples)
    if not is_rotated and data.moments is not None:
        return DualEnergy(bound, data.moments)
    features, labels, rounding = data.features, data.labels.reshape(-1, 1), {}
    if isinstance(features, ImplicitFeatures):
        return PathKernelEnergy(bound, features.pair_kernels(bound.architecture.outputs), labels)
    if has_dual_form(features) and not by_kernel and not is_rotated:
        return DualEnergy(bound, summed(features, data.labels))
    if is_rotated:
        rounding = {"omitted": data.omitted, "features_error": data.error}
    flat, paths = bound.flat(features), bound.architecture.overlap_sizes[0]
    if not tabulates_path_kernels(bound.architecture, len(features)):
        return FeatureEnergy(bound, flat, labels, **rounding)
    # K is linear in U_1 (Eq. 10): its derivative in every entry on or above the diagonal, U_1 being symmetric
    by_path, (rows, columns) = flat.reshape(len(flat), paths, -1), pairs(paths)
    upper = jax.vmap(bound.path_kernel, (1, 1))(by_path[:, rows], by_path[:, columns])
    kernels = upper + jnp.where((rows != columns)[:, None, None], upper.transpose(0, 2, 1), 0.0)
    return PathKernelEnergy(bound, kernels, labels, **rounding)


def tabulates_path_kernels(architecture: Architecture, examples: int) -> bool:
    """Whether kernels of pairs of paths are computed once, and the features are not needed again."""
    count, rows = len(pairs(architecture.overlap_sizes[0])[0]), examples * architecture.outputs
    return 8 * count * rows**2 <= _PATH_KERNEL_BYTES
