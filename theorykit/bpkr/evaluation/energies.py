"""The energy of given data for the solvers: the value, both parts of the gradient, and the curvature in U_1.

There is one class per form of the data. All use the derived expressions, except for those in `contractions`.
"""

import abc
import math
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from sympy import Expr

from ..data.data import Data
from ..data.statistics import FeatureStatistics, summed
from ..data.transformations import TransformedExamples
from ..features.implicit import ImplicitFeatures, PathFeatures
from ..specification.architecture import Architecture
from .bound_action import BoundAction
from .contractions import (
    Number,
    PairKernels,
    PathMatrix,
    blocks_cost,
    blocks_of_features,
    blocks_of_moments,
    combine,
    curvature_of_blocks,
    curvature_of_kernels,
    kernel_of_features,
    pair_kernels,
    pairs,
)
from .rounding import dual_rounding, kernel_rounding

# Tabulate path kernels up to this number of bytes, about the size of a cache; larger tables cost too much traffic.
_PATH_KERNEL_BYTES = 2**25
# An operation on path kernels waits for memory and takes this many times as long as one in a product of matrices.
_TRAFFIC = 4.0
# Operations that take as long as an evaluation for few examples and paths.
_OVERHEAD = 1e7


class EnergyPoint(eqx.Module):
    """The energy at one U_1, undivided, and both parts of its gradient.

    - `magnitude`: the size of the terms in `value`, from which its rounding error is estimated.
    - `logdet_gradient`: gradient of the log-determinant, positive semidefinite (n_1 x n_1).
    - `minus_misfit_gradient`: minus the gradient of the misfit, positive semidefinite (n_1 x n_1).
    - `solved`: arrays by name that `curvature` needs.
    """

    u1: PathMatrix
    value: Number
    magnitude: Number
    logdet_gradient: PathMatrix
    minus_misfit_gradient: PathMatrix
    solved: Mapping[str, Array]

    @property
    def slope(self) -> PathMatrix:
        """The gradient of the energy with respect to U_1."""
        return self.logdet_gradient - self.minus_misfit_gradient


class AbstractEnergy(eqx.Module):
    """The energy of fixed data as a function of U_1."""

    bound: eqx.AbstractVar[BoundAction]

    @property
    def architecture(self) -> Architecture:
        """The architecture whose numbers the action has."""
        return self.bound.architecture

    @property
    def paths(self) -> int:
        """Number of rows of U_1."""
        return self.bound.architecture.overlap_sizes[0]

    @property
    @abc.abstractmethod
    def label_count(self) -> Number | int:
        """Number of labels of all examples and outputs."""

    @property
    def label_constant(self) -> Number:
        """The terms of the labels' log density that S drops; none at infinite width, where S is per N_1."""
        if not self.bound.has_log_determinant:
            return jnp.asarray(0.0)
        return self.label_count * jnp.log(self.architecture.root_power**2 / (2 * jnp.pi)) / 2

    @abc.abstractmethod
    def value(self, u1: PathMatrix) -> Number:
        """Compute E at U_1; differentiable in U_1, the data and the numbers of the architecture."""

    @abc.abstractmethod
    def at(self, u1: PathMatrix) -> EnergyPoint:
        """Compute E and its gradient in one evaluation; NaN if the kernel has no Cholesky factor."""

    def value_and_slope(self, u1: PathMatrix) -> tuple[Number, PathMatrix]:
        """Compute E and its whole gradient, without the separate parts."""
        point = self.at(u1)
        return point.value, point.slope

    @abc.abstractmethod
    def rounding(self, point: EnergyPoint) -> Mapping[str, Number]:
        """Estimate the rounding errors of E per machine epsilon that the "kernel" and the "labels" cause."""

    def _known(self, errors: Mapping[str, Number]) -> Mapping[str, Number]:
        """Drop the error of the log-determinant if the energy has none."""
        return errors if self.bound.has_log_determinant else {**errors, "kernel": jnp.zeros_like(errors["kernel"])}

    @abc.abstractmethod
    def curvature(self, point: EnergyPoint) -> Float[Array, "pairs pairs"]:
        """Compute the second derivative of E with respect to the entries of U_1 on and above the diagonal."""

    @abc.abstractmethod
    def operations(self) -> float:
        """Count the operations of `at`, in units of those in products of matrices."""

    @abc.abstractmethod
    def curvature_cost(self) -> tuple[float, float]:
        """Estimate the cost of `curvature` beyond `at`, in evaluations, and its memory in bytes."""


class KernelEnergy(AbstractEnergy):
    """The energy from the kernel K of all examples, with one row per label.

    - `labels`: y (rows x 1).
    - `features`: the path features, from which K is computed. All outputs share them.
    - `path_kernels`: the `pair_kernels` of the features. They are computed once, for few paths and examples, and K and
      its gradient no longer need `features`.
    - `omitted`: number of further rows of `TransformedExamples` without features or labels; negative if rows of zeros
      were added.
    - `features_error`: largest error of a feature of `TransformedExamples`.
    """

    bound: BoundAction
    labels: Float[Array, "rows one"]
    features: Float[Array, "examples paths features"] | None = None
    path_kernels: PairKernels | None = None
    omitted: Number | None = None
    features_error: Number | float = 0.0

    @property
    def label_count(self):
        return len(self.labels) + (0.0 if self.omitted is None else self.omitted)

    def kernel(self, u1: PathMatrix) -> Float[Array, "rows rows"]:
        """Compute K at U_1, Eq. (10)."""
        if self.path_kernels is not None:
            return combine(u1, self.path_kernels)
        if self.architecture.outputs > 1:
            return kernel_of_features(u1, self.features)
        return self.bound.compiled.training_kernel.call_from(self._of_features(u1))["kernel"]

    def _of_features(self, u1: PathMatrix) -> Mapping[Expr, Array | int]:
        symbols = self.bound.symbols
        return self.bound.numbers() | {symbols.first: u1, symbols.features: self.bound.flat(self.features)}

    def _given(self, kernel: Float[Array, "rows rows"]) -> Mapping[Expr, Array | int]:
        symbols = {self.bound.action.kernel_energy.kernel: kernel, self.bound.symbols.labels: self.labels}
        return self.bound.numbers() | symbols

    def _with_omitted(self, energy: Number) -> Number:
        if self.omitted is None or not self.bound.has_log_determinant:
            return energy
        # At T = 0 no rows are omitted or added.
        return energy + jnp.where(self.omitted == 0, 0.0, self.omitted * jnp.log(self.architecture.temperature))

    def value(self, u1):
        found = self.bound.compiled.kernel_energy.call_from(self._given(self.kernel(u1)))
        return self._with_omitted(found["energy"])

    def at(self, u1):
        compiled, form = self.bound.compiled, self.bound.action.kernel_energy
        if self.path_kernels is not None or self.architecture.outputs > 1:
            found = compiled.kernel_energy.call_from(self._given(self.kernel(u1)))
            # Make two separate products, because a product with both columns side by side has to interleave them.
            logdet = self._gradient(u1, found["resolvent"]) if self.bound.has_log_determinant else jnp.zeros_like(u1)
            slopes = [logdet, self._gradient(u1, found["minus_misfit_slope"])]
        else:
            given = self._of_features(u1)
            found = compiled.kernel_energy.call_from(self._given(compiled.training_kernel.call_from(given)["kernel"]))
            given |= {form.resolvent_symbol: found["resolvent"], form.representer_symbol: found["representer"]}
            parts = compiled.kernel_slopes.call_from(given)
            slopes = [parts[name] for name in ("logdet_gradient", "minus_misfit_gradient")]
        energy = self._with_omitted(found["energy"])
        solved = {name: found[name] for name in ("resolvent", "representer")}
        return EnergyPoint(u1, energy, jnp.abs(energy), *slopes, solved)

    def value_and_slope(self, u1):
        if self.path_kernels is None:
            return super().value_and_slope(u1)
        found = self.bound.compiled.kernel_energy.call_from(self._given(self.kernel(u1)))
        # The gradient is linear in this factor, so one pass over the path kernels is enough.
        of_kernel = found["resolvent"] if self.bound.has_log_determinant else 0.0
        slope = self._gradient(u1, of_kernel - found["minus_misfit_slope"])
        return self._with_omitted(found["energy"]), slope

    def _gradient(self, u1: PathMatrix, in_kernel: Float[Array, "rows rows"]):
        """Compute the symmetric gradient with respect to U_1 from the gradient with respect to K."""
        _, pull_back = jax.vjp(self.kernel, u1)
        (gradient,) = pull_back(in_kernel)
        return (gradient + gradient.T) / 2

    def rounding(self, point):
        if self.path_kernels is None:
            squares = jnp.sum(self.features**2, axis=2).T
        else:
            rows, columns = pairs(self.architecture.paths)
            squares = 2 * jnp.diagonal(self.path_kernels[rows == columns], axis1=1, axis2=2)
        labels = self.architecture.root_power * self.labels[:, 0]
        data = squares, labels, self.architecture.temperature, self.features_error
        return self._known(kernel_rounding(point.u1, point.value, point.solved, *data))

    def curvature(self, point):
        resolvent, representer = point.solved["resolvent"], point.solved["representer"]
        if self._cost_of_blocks() <= self._cost_of_kernels():
            blocks = blocks_of_features(self.features, resolvent, representer)
            return curvature_of_blocks(*blocks, self.bound.has_log_determinant)
        return curvature_of_kernels(self.path_kernels, resolvent, representer, self.bound.has_log_determinant)

    def curvature_cost(self):
        return min(self._cost_of_blocks(), self._cost_of_kernels())

    def _cost_of_blocks(self) -> tuple[float, float]:
        if self.features is None:
            return math.inf, math.inf
        examples, paths, size = self.features.shape
        assembly = (paths * size + examples) * paths * size * len(self.labels) * self.architecture.outputs
        return blocks_cost(self.paths, size, assembly, self.operations())

    def _cost_of_kernels(self) -> tuple[float, float]:
        if self.path_kernels is None:
            return math.inf, math.inf
        outputs, examples = self.architecture.outputs, self.path_kernels.shape[1]
        count = len(self.path_kernels) * outputs**2
        # The traces of pairs of kernels, and with several outputs also of a kernel and a transposed one.
        products = 2 * count * (examples**3 + count * examples**2) * (1 if outputs == 1 else 2)
        return products / self.operations(), 24.0 * count * examples**2

    def operations(self):
        rows = len(self.labels)
        if self.path_kernels is None:
            _, paths, size = self.features.shape
            return _OVERHEAD + 3 * rows**2 * paths * size + rows**3
        entries = self.path_kernels.size * self.architecture.outputs**2
        return _OVERHEAD + _TRAFFIC * 4 * entries + rows**3


class DualEnergy(AbstractEnergy):
    """The energy from second moments of the data, in feature space, for more examples than features."""

    bound: BoundAction
    statistics: FeatureStatistics

    @property
    def label_count(self):
        return self.statistics.examples * self.statistics.outputs

    def value(self, u1):
        return self.bound.compiled.dual_energy.call_from(self._given(u1))["energy"]

    def at(self, u1):
        found = self.bound.compiled.dual_slopes.call_from(self._given(u1))
        magnitude = jnp.abs(found["log_determinants"]) + self._square
        slopes = found["logdet_gradient"], found["minus_misfit_gradient"]
        return EnergyPoint(u1, found["energy"], magnitude, *slopes, {})

    def rounding(self, point):
        data = self._square, *self._moments, self.architecture.temperature
        return self._known(dual_rounding(point.u1, point.magnitude, *data))

    def curvature(self, point):
        blocks = blocks_of_moments(point.u1, *self._moments, self.architecture.temperature)
        return curvature_of_blocks(*blocks, self.bound.has_log_determinant)

    def curvature_cost(self):
        columns = len(self.statistics.gram) * self.statistics.outputs
        return blocks_cost(self.paths, columns // self.paths, 4 * columns**3, self.operations())

    def operations(self):
        return _OVERHEAD + 2 * (len(self.statistics.gram) * self.statistics.outputs) ** 3

    def _given(self, u1: PathMatrix) -> Mapping[Expr, Array | int]:
        return self.bound.numbers() | self.bound.moments(self.statistics) | {self.bound.symbols.first: u1}

    @property
    def _moments(self) -> tuple[Float[Array, "columns columns"], Float[Array, "columns one"]]:
        """M, and b times the root of the likelihood's power."""
        form, moments = self.bound.action.dual, self.bound.moments(self.statistics)
        return moments[form.gram], self.architecture.root_power * moments[form.projection]

    @property
    def _square(self) -> Number:
        """g y^T y / T. The misfit is this number minus the part that the features explain."""
        return self.architecture.root_power**2 * self.statistics.label_square / self.architecture.temperature


def has_dual_form(features: PathFeatures) -> bool:
    """Whether to use feature space, because there are more examples than features of all paths."""
    examples, paths, width = features.shape
    return not isinstance(features, ImplicitFeatures) and examples > paths * width


def energy_of(bound: BoundAction, data: Data | TransformedExamples, *, by_kernel: bool = False) -> AbstractEnergy:
    """Return the energy of checked data in its cheapest form. Use the kernel `by_kernel`, as a singular U_1 needs."""
    is_transformed = isinstance(data, TransformedExamples)
    if not is_transformed and data.moments is not None:
        return DualEnergy(bound, data.moments)
    features, labels = data.features, data.labels.reshape(-1, 1)
    if isinstance(features, ImplicitFeatures):
        return KernelEnergy(bound, labels, path_kernels=features.pair_kernels())
    if has_dual_form(features) and not by_kernel and not is_transformed:
        return DualEnergy(bound, summed(features, data.labels))
    rounding = {"omitted": data.omitted, "features_error": data.error} if is_transformed else {}
    if tabulates_path_kernels(features.shape[1], len(features)):
        return KernelEnergy(bound, labels, features=features, path_kernels=pair_kernels(features), **rounding)
    return KernelEnergy(bound, labels, features=features, **rounding)


def tabulates_path_kernels(paths: int, examples: int) -> bool:
    """Whether to compute the kernels of all pairs of paths once and keep them."""
    return 8 * len(pairs(paths)[0]) * examples**2 <= _PATH_KERNEL_BYTES
