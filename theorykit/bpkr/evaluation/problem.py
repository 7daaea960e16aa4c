"""An architecture with data, which are checked here, once, and the action for solvers."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from ..._compat import threads_for
from ..._jit import usual_settings
from ...checks import Requirement, array_module, checked_instance, require
from ...saddle.problem import AbstractSaddleProblem, Coordinates, Expansion, Point
from ...symbolic.documents import DisplayMixin, Table, Text, verbatim
from .. import order_parameters as manifold
from ..data.canonical import Examples, canonical
from ..data.classes import warn_of_class_numbers
from ..data.data import Data, check_data, check_same_width, checked_features, data_line
from ..features.implicit import Features, PathFeatures
from ..features.kernels import kernel_of
from ..order_parameters import OrderParameters, PointLike, checked_order_parameters
from ..specification.architecture import Architecture, ansatz_of, architecture_line
from .formulas import EPS, MARGIN, BoundAction, Energy, EnergyPoint, bind, entropy_rounding, has_sweeps

# Form the curvature up to this cost in evaluations and bytes. Above, sweeps are faster.
_CURVATURE_EVALUATIONS = 8
_CURVATURE_BYTES = 2**30
# Operations of a small evaluation, and of a diagonalisation per size^3.
_OVERHEAD, _DIAGONALISATION = 1e7, 10.0
# Fraction of the misfit that the surrogate Hessian bounds: fastest for 64 and 256 paths.
_MODEL_SHARE = 0.3
# Misfit of the labels alone, per smallest width, where continuation starts.
_HOT = 10.0
# Ratio of successive temperatures in continuation.
_COOLING = 10.0


class Evaluated(eqx.Module):
    factors: list[Float[Array, "_ _"]]  # [C_1, ..., C_{L+1}] with U_l = C_l C_l^T
    order_parameters: OrderParameters
    entropy: Float[Array, ""]
    energy: EnergyPoint


class Problem(DisplayMixin, AbstractSaddleProblem):
    """An architecture with data, the input of `solve`, `evaluate`, `predict` and others.

    A JAX pytree of the numbers of the architecture and the arrays of the data. To
    differentiate or vmap, make the problem inside the function.

    - `bound`: the action, `bound.action`, with the numbers of the architecture.
    - `data`: the checked data.
    - `examples`: the training examples in canonical form; None without labels.
    - `ansatz`: the assumption beyond large widths, or the parameterisation; or empty.
    - `dimension`: number of coordinates of the order parameters.
    - `forms_curvature`: whether solvers form the Hessian.
    """

    bound: BoundAction
    data: Data | None
    examples: Examples | None
    ansatz: str = eqx.field(static=True)
    dimension: int = eqx.field(static=True)
    forms_curvature: bool = eqx.field(static=True)

    @usual_settings()
    def __init__(self, architecture: Architecture, data: Data):
        self.data = check_data(architecture, data)
        self.bound = bind(architecture.with_arrays())
        self.ansatz = ansatz_of(architecture)
        self.dimension = len(manifold.gp_coordinates(architecture))
        self.examples, self.forms_curvature = None, False
        if self.data.labels is None:
            return
        if data.classes is None:
            warn_of_class_numbers(self.data.labels)
        with threads_for(len(self.data.features)):
            self.examples = canonical(architecture, self.data)
        kernel = self.examples.kernel
        cost, memory = min(kernel.curvature_costs())
        cost += _DIAGONALISATION * self.dimension**3
        evaluation = _OVERHEAD + kernel.operations() + float(self.rows) ** 3
        # Without a Hessian and sweeps, solves end before their tolerance.
        is_cheap = cost <= _CURVATURE_EVALUATIONS * evaluation or not self.has_sweeps
        fits = is_cheap and memory <= _CURVATURE_BYTES
        # Solvers without a Hessian know the kernel as a function of U_1 alone.
        self.forms_curvature = bool(fits or architecture.between)

    def __reduce__(self):
        # Another process derives the action again: one object per structure.
        return Problem, (self.architecture, self.data)

    @property
    def architecture(self) -> Architecture:
        return self.bound.architecture

    @property
    def energy(self) -> Energy:
        return Energy(self.bound, self.examples)

    @property
    def canonical(self) -> "Problem":
        """The problem without `data`, for compiled functions, in shared sizes."""
        return self._with_examples(self.examples)

    def at_features(self, features: PathFeatures) -> "Problem":
        """Return the problem with other training features, for compiled functions."""
        kernel = kernel_of(features, self.architecture.outputs)
        labels = self.data.labels.reshape(-1, 1)
        return self._with_examples(Examples(kernel, labels, *jnp.zeros(3)))

    def _with_examples(self, examples: Examples) -> "Problem":
        # `eqx.tree_at` would take a tenth of a small solve.
        problem = object.__new__(Problem)
        vars(problem).update(vars(self), data=None, examples=examples)
        return problem

    @property
    def rows(self) -> int:
        return len(self.examples.labels)

    @property
    def description(self) -> str:
        return f"{data_line(self.data)}; {architecture_line(self.architecture)}"

    def _view(self):
        yield Text(f"**Problem**: {verbatim(self.description)}")
        yield Table((("ansatz", self.ansatz or "none"),))

    def point(self, point: PointLike, name: str = "order_parameters", *, singular: bool = False):
        return checked_order_parameters(self.architecture, point, name, singular=singular)

    def test_features(self, features: Any, name: str = "test_features") -> Features:
        """Return checked features of test examples, by default those of `data`."""
        if features is None and self.data.test_features is None:
            raise ValueError(f"{name} must be given, because data has no test features")
        if features is None:
            return self.data.test_features
        checked = checked_features(self.architecture, features, name)
        check_same_width(self.data.features.shape[2], checked, name)
        return checked

    def finite(self, results: Any) -> Any:
        module = array_module(results)
        finite = [module.all(module.isfinite(leaf)) for leaf in jax.tree.leaves(results)]
        message = "the kernel K(U) + T I is not positive definite to double precision"
        known = f"{message}, at temperature={self.architecture.temperature}"
        return require(results, [Requirement(message, module.array(finite), lambda: known)])

    @property
    def scale(self):
        return jnp.max(jnp.array(self.architecture.relative_widths, dtype=jnp.float64))

    @property
    def has_sweeps(self):
        return has_sweeps(self.bound.action)

    def order_parameters(self, coordinates: Coordinates) -> OrderParameters:
        return manifold.to_order_parameters(self.architecture, coordinates)

    def coordinates(self, order_parameters: OrderParameters) -> Coordinates:
        return manifold.from_order_parameters(self.architecture, order_parameters)

    def moved(self, coordinates, step):
        return manifold.moved(self.architecture, coordinates, step)

    def parts(self, coordinates: Coordinates) -> tuple[Array, Array]:
        order_parameters = self.order_parameters(coordinates)
        in_kernel = manifold.of_kernel(self.architecture, order_parameters)
        return self.bound.entropy(order_parameters), self.energy.value(in_kernel)

    def action(self, coordinates):
        return sum(self.parts(coordinates))

    def at(self, coordinates):
        factors = manifold.factors_at(self.architecture, coordinates)
        order_parameters = manifold.of_factors(factors)
        energy = self.energy.at(manifold.of_kernel(self.architecture, order_parameters))
        entropy, slopes = jax.value_and_grad(self.bound.entropy)(order_parameters)
        slopes = manifold.add_of_kernel(self.architecture, slopes, energy.slope)
        norm = manifold.gradient_length(self.architecture, factors, slopes) / self.scale
        details = Evaluated(factors, order_parameters, entropy, energy)
        return Point(coordinates, entropy + energy.value, jnp.abs(energy.value), norm, details)

    def expansion(self, point):
        energy = point.details.energy
        factors = point.details.factors
        no_step = jnp.zeros(len(point.coordinates))

        def after(step):
            there = manifold.factors_at(self.architecture, point.coordinates, step)
            return manifold.of_factors(there), there

        def gradient(step):
            order_parameters, pull_back, there = jax.vjp(after, step, has_aux=True)
            slopes = jax.grad(self.bound.entropy)(order_parameters)
            return *pull_back(manifold.add_of_kernel(self.architecture, slopes, energy.slope)), there

        (of_action, _), push = jax.linearize(gradient, no_step)
        bend, changes = jax.vmap(push)(jnp.eye(len(no_step)))
        halves = [changes[level] @ factors[level].T for level in self.architecture.kernel_levels]
        half = jax.vmap(block_diag)(*halves)
        entries = (half + half.swapaxes(1, 2))[:, *np.triu_indices(len(energy.u1))]
        hessian = bend + entries @ self.energy.curvature(energy) @ entries.T
        return Expansion(of_action, hessian, manifold.metric(self.architecture, factors, changes))

    def majorise(self, point, share):
        bounded = self.energy.bounded(point.details.energy, share)
        return self.coordinates(bounded.minimise(point.details.order_parameters))

    def action_on_tangent(self, point):
        return self._on_tangent(point, self.energy.value), self.dimension

    def model_on_tangent(self, point):
        bounded = self.energy.bounded(point.details.energy, _MODEL_SHARE)
        return self._on_tangent(point, bounded.value)

    def _on_tangent(self, point, energy):
        here = point.details.order_parameters

        def action(tangent):
            there = manifold.displaced(self.architecture, here, tangent)
            return self.bound.entropy(there) + energy(there.first)

        return action

    def rounding(self, point):
        of_entropy = entropy_rounding(self.architecture, point.details.factors)
        return MARGIN * EPS * (of_entropy + self.energy.rounding(point.details.energy))

    def temperatures(self) -> list[float]:
        """Return decreasing temperatures above that of the problem, for continuation."""
        architecture = self.architecture
        examples = self.examples
        coldest = float(architecture.temperature)
        narrowest = min(map(float, architecture.relative_widths))
        squares = np.sum(np.asarray(examples.labels) ** 2) + examples.unexplained
        hottest = float(architecture.root_power**2 * squares) / (_HOT * narrowest)
        if not 0 < coldest < hottest:
            return []
        steps = math.ceil(math.log(hottest / coldest, _COOLING))
        return np.geomspace(hottest, coldest, 1 + steps)[:-1].tolist()


def as_problem(problem: Any, data: Data | None = None, *, needs_labels: bool = True) -> Problem:
    if not isinstance(problem, Problem) or data is not None:
        problem = Problem(*architecture_and_data(problem, data))
    if needs_labels and problem.examples is None:
        raise ValueError("data has no labels, which all functions but bpkr.kernel need")
    return problem


def architecture_and_data(problem: Problem | Architecture, data: Data | None):
    if isinstance(problem, Problem):
        if data is not None:
            raise TypeError("data must be None with a Problem, which contains its data")
        return problem.architecture, problem.data
    checked_instance("problem", problem, (Problem, Architecture))
    return problem, checked_instance("data", data, Data, "as in bpkr.Problem(architecture, bpkr.Data(x, y))")
