"""Values at given order parameters: the action, predictions, kernels and head scores."""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr

from ... import checks
from ..._compat import MANY_ROWS
from ..._jit import jit_and_keep, usual_settings
from ...symbolic.documents import DisplayMixin, Table, brief
from ..data.canonical import shared_size
from ..data.classes import Classes
from ..features.implicit import Features, ImplicitFeatures
from ..features.kernels import kernel_between, kernel_of_each
from ..order_parameters import OrderParameters, PointLike, checked_order_parameters, gp_limit, of_kernel
from ..specification.architecture import Architecture
from .formulas import BoundAction, Number, entropies_by_name
from .problem import Problem, as_problem


class ActionTerms(NamedTuple):
    """The parts of the action; see `evaluate`."""

    entropies: tuple[Number, ...]
    energy: Number

    @property
    def entropy(self) -> Number:
        return sum(self.entropies)

    @property
    def total(self) -> Number:
        return self.entropy + self.energy  # Eq. (32)


@usual_settings()
def evaluate(problem: Problem, order_parameters: PointLike) -> ActionTerms:
    """Evaluate the action and its parts at given order parameters, Eq. (32).

    Args:
        problem: the architecture with its training data.
        order_parameters: the order parameters, or a `Saddle`.

    Returns:
        `entropies` (S_1, ..., S_L, S_a), their sum `entropy`, `energy`, and the `total`
        S. The posterior is proportional to exp(-S/2). At infinite width with a richness,
        all are divided by N_1.
    """
    problem = as_problem(problem)
    return problem.finite(_evaluated(problem.canonical, problem.point(order_parameters)))


@jit_and_keep
def _evaluated(problem: Problem, order_parameters: OrderParameters) -> ActionTerms:
    bound = problem.bound
    energy = problem.energy.value(of_kernel(problem.architecture, order_parameters))
    entropies = bound(bound.point(order_parameters), **entropies_by_name(bound.action))
    return ActionTerms(tuple(entropies.values()), energy)


def evaluate_infinite_width(problem: Problem) -> tuple[float, float]:
    architecture = problem.architecture
    energy = float(evaluate(problem, gp_limit(architecture)).energy)
    return energy, -(energy + problem.data.labels.size * np.log(2 * np.pi)) / 2


def parameter_values(problem: Problem) -> dict[Expr, Float[Array, "..."] | int]:
    """Return parameters of `derive(architecture).of_free_order_parameters`, by symbol.

    Use them with the functions of `theorykit.saddle`.
    """
    bound = as_problem(problem).bound
    data = problem.data
    if isinstance(data.features, ImplicitFeatures):
        raise ValueError("problem must have an array of features, which nonlinear units do not have")
    values = bound.numbers() | bound.data(data.features, data.labels)
    return {symbol: values[symbol] for symbol in bound.action.of_free_order_parameters.parameters}


class Prediction(DisplayMixin, eqx.Module):
    """Posterior mean and covariance of outputs on test examples, without the noise T.

    - `mean`: (examples,), or (examples, outputs) for several outputs.
    - `covariance`: between outputs, (examples, outputs, outputs); of one output (examples,).
    - `variance`: of each output, in the shape of `mean`.
    - `ansatz`, `classes`: as in `Problem` and `Data`.
    """

    mean: Float[Array, "examples *outputs"]
    covariance: Float[Array, "examples *pairs"]
    ansatz: str = eqx.field(static=True, default="")
    classes: Classes | None = eqx.field(static=True, default=None)

    @property
    def variance(self) -> Float[Array, "examples *outputs"]:
        found = checks.on_host(self.with_noise(0.0))
        return jnp.asarray(found if self.mean.ndim == 1 else found.diagonal(axis1=1, axis2=2))

    def with_noise(self, variance: ArrayLike) -> Float[Array | np.ndarray, "examples *pairs"]:
        """Return the covariance with independent noise in each output."""
        unit = np.eye(self.mean.shape[1]) if self.mean.ndim > 1 else 1.0
        # On the host, arrays of a new size need no compilation.
        module = checks.array_module(self.covariance, variance)
        found = module.asarray(self.covariance)
        # Rounding can make a variance negative if the output is certain.
        return jnp.asarray(module.where(unit, module.maximum(found, 0.0), found) + variance * unit)

    def _view(self):
        rows = ("mean", self.mean), ("standard deviation", np.sqrt(self.variance))
        yield Table(tuple((name, brief(values)) for name, values in rows))


@usual_settings()
def predict(problem: Problem, order_parameters: PointLike, test_features: Features | None = None) -> Prediction:
    """Predict the output on test examples: mean (Eqs. 9, 29) and covariance (Eq. 30).

    Args:
        problem, order_parameters: as in `evaluate`.
        test_features: (examples, paths, features), by default those of the problem.
    """
    problem = as_problem(problem)
    features = problem.test_features(test_features)
    point = problem.point(order_parameters, singular=True)
    examples = len(features)
    pads = examples <= MANY_ROWS and not isinstance(features, ImplicitFeatures)
    pads = pads and not checks.is_traced(point, features)
    if pads:
        # Similar numbers of examples share a compiled function.
        rows = shared_size(examples) - examples
        features = jnp.asarray(np.pad(features, ((0, rows), (0, 0), (0, 0))))
    found = prediction_at(problem.canonical, point, features)
    if pads:
        # On the host, a slice needs no compilation.
        found = jax.tree.map(lambda each: jnp.asarray(np.asarray(each)[:examples]), found)
    return replace(problem.finite(found), ansatz=problem.ansatz, classes=problem.data.classes)


@jit_and_keep
def prediction_at(problem: Problem, point: OrderParameters, test_features: Features) -> Prediction:
    """Predict without checks. Order parameters may be singular."""
    u1 = of_kernel(problem.architecture, point)
    examples = problem.examples
    between = kernel_between(u1, examples.tested(test_features), examples.kernel.features)
    kernels = examples.kernel.matrix(u1), between, kernel_of_each(u1, test_features)
    return prediction_from_kernels(problem.bound, *kernels, examples.labels)


def prediction_from_kernels(
    bound: BoundAction, kernel: Array, between: Array, test: Array, labels: Array
) -> Prediction:
    """Evaluate Eqs. (9), (29), (30), with K of every test example among outputs as `test`."""
    form = bound.action.of_kernels
    richness = bound.architecture.richness
    given = {form.kernel: kernel, bound.symbols.labels: labels}
    if richness is not None:
        # At zero richness the Gaussian process has the standard variance.
        given[bound.symbols.richness] = jnp.where(richness == 0, 1.0, richness)

    def of_example(between, test):
        found = bound({**given, form.between: between, form.test: test}, mean=form.mean, covariance=form.covariance)
        return found["mean"][:, 0], found["covariance"]

    mean, covariance = jax.vmap(of_example)(between.reshape(*test.shape[:2], len(kernel)), test)
    return Prediction(mean, covariance) if mean.shape[1] > 1 else Prediction(mean[:, 0], covariance[:, 0, 0])


@usual_settings()
def kernel(problem: Problem, order_parameters: PointLike, other: Features | None = None) -> Array:
    """Return the kernel K (Eq. 10) between training examples and other examples.

    Args:
        problem, order_parameters: as in `evaluate`; labels are not needed.
        other: (examples, paths, features), by default the training features.

    Returns:
        One row per training example and output, one column per other example and output.
        The output varies fastest; in `Phi` of generated source, the example does.
    """
    problem = as_problem(problem, needs_labels=False)
    features = problem.data.features
    other = features if other is None else problem.test_features(other, "other features")
    point = problem.point(order_parameters, singular=True)
    return _kernel(of_kernel(problem.architecture, point), features, other)


_kernel = jit_and_keep(kernel_between)


class KernelTaskAlignment(NamedTuple):
    eigenvalues: Float[Array, " examples"]
    cosines: Float[Array, " examples"]


def kernel_task_alignment(kernel: ArrayLike, labels: ArrayLike) -> KernelTaskAlignment:
    """Measure how well principal components of a kernel align with labels.

    Args:
        kernel: (examples, examples), positive semidefinite.
        labels: one number per example (examples,), not all zero.

    Returns:
        `eigenvalues`, the largest first, and the absolute `cosines` of components with
        the labels. Their squares sum to one.
    """
    labels = checks.finite_array("labels", labels, "examples")
    kernel = checks.checked_positive_definite("kernel", kernel, len(labels), singular=True)
    is_valid = checks.Requirement("labels are all zero", (checks.on_host(labels) != 0).any())
    labels = checks.require(labels, [is_valid])
    eigenvalues, components = jnp.linalg.eigh(kernel)
    cosines = jnp.abs(components.T @ labels) / jnp.linalg.norm(labels)
    return KernelTaskAlignment(eigenvalues[::-1], cosines[::-1])


@usual_settings()
def head_scores(architecture: Architecture, order_parameters: PointLike) -> tuple[Array, ...]:
    """Score the importance of every head. The most important head of all layers scores 1.

    The score is the sum of |U_1^{pi pi'}| over outputs and over pairs of paths with at
    least one path through the head. It ignores the size of the features.

    Args:
        order_parameters: the order parameters, or a `Saddle`.

    Returns:
        One array (H_l,) per layer, empty for a layer without heads.
    """
    point = checked_order_parameters(architecture, order_parameters, singular=True)
    first = checks.on_host(point.first)
    paths = architecture.paths
    module = checks.array_module(first)
    branches = np.array(architecture.path_branches()) - 1
    magnitudes = abs(first).reshape((paths, len(first) // paths) * 2).sum(axis=(1, 3))
    sums = []
    for layer in range(architecture.depth):
        misses = ~architecture.branch_heads(layer + 1)[branches[:, layer]]
        without = module.einsum("ah,ab,bh->h", misses, magnitudes, misses)
        sums.append(magnitudes.sum() - without)
    largest = module.max(module.concatenate([np.zeros(1), *sums]))
    return tuple(jnp.asarray(layer_sums / largest) for layer_sums in sums)
