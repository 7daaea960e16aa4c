"""A problem: an architecture with data, and their action with everything that solvers need.

Inputs are checked here, once. `solve`, `predict` and other functions take a problem and do not check it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...checks import checked_instance, is_traced
from ...saddle.problem import AbstractSaddleProblem, Coordinates, Expansion, Point, Tangent
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import number
from ..data.canonical import Examples, canonical
from ..data.classes import warn_of_class_numbers
from ..data.data import Data, check_data, check_same_width, checked_features, data_line, data_rows
from ..features.implicit import Features
from ..order_parameters.coordinates import (
    factors_after,
    factors_at,
    from_order_parameters,
    moved,
    of_factors,
    to_order_parameters,
)
from ..order_parameters.metric import dimension, displaced, gradient_length, largest_width, metric
from ..order_parameters.order_parameters import HasOrderParameters, OrderParameters, checked_order_parameters
from ..specification.architecture import Architecture, ansatz_of
from ..specification.view import architecture_line, widths_in_words
from .energy import Energy, EnergyPoint
from .formulas import BoundAction, bind
from .majorisation import BoundedEnergy
from .rounding import MACHINE, MARGIN, entropy_rounding

# Form the curvature if it costs at most this many evaluations of the energy; otherwise sweeps are faster.
_CURVATURE_EVALUATIONS = 8
# Form the curvature if it takes at most this many bytes.
_CURVATURE_BYTES = 2**30
# Operations of the diagonalisation of the Hessian, relative to the third power of its size.
_DIAGONALISATION = 10.0
# Fraction of the misfit that the surrogate Hessian bounds. This value is the fastest for 64 and 256 paths.
_MODEL_SHARE = 0.3
# Continuation starts at the temperature at which the misfit of the labels alone is this many times the smallest width.
_HOT = 10.0
# Ratio of successive temperatures in continuation.
_COOLING = 10.0


class Evaluated(eqx.Module):
    """Details of a `Point`.

    - `factors`: [C_1, ..., C_{L+1}], with U_l = C_l C_l^T.
    - `entropy`, `energy`: the two parts of the action, undivided.
    """

    factors: list[Float[Array, "_ _"]]
    order_parameters: OrderParameters
    entropy: Float[Array, ""]
    energy: EnergyPoint


class Problem(DisplayMixin, AbstractSaddleProblem):
    """An architecture with data, the input of `solve`, `evaluate`, `predict` and other functions.

    The constructor takes an architecture and data. It checks the data once, brings the examples to a canonical form,
    and derives and compiles the action. A problem is a JAX pytree: the numbers of the architecture and the arrays of
    the data are leaves. To differentiate or vmap, make the problem inside the function.

    - `bound`: the compiled action with the numbers of the architecture. `bound.action` has the expressions.
    - `data`: the checked data.
    - `examples`: the training examples in canonical form; None without labels.
    - `ansatz`: the assumption beyond large widths, or the parameterisation with a richness, in words; else empty.
    - `forms_curvature`: whether solvers form the Hessian, because it costs little compared to an evaluation.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> data = bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        >>> problem = bpkr.Problem(bpkr.Architecture(layers=(2,), widths=10, temperature=0.1), data)
        >>> bool(bpkr.solve(problem).converged)
        True
    """

    bound: BoundAction
    data: Data | None
    examples: Examples | None
    ansatz: str = eqx.field(static=True)
    forms_curvature: bool = eqx.field(static=True)

    @usual_settings()
    def __init__(self, architecture: Architecture, data: Data):
        self.data = check_data(architecture, data)
        if data.classes is None and data.labels is not None:
            warn_of_class_numbers(self.data.labels, stacklevel=4)
        self.bound = bind(architecture.with_arrays())
        self.ansatz = ansatz_of(architecture, 0 if self.data.labels is None else self.data.labels.size)
        self.examples, self.forms_curvature = None, False
        if self.data.labels is not None:
            self.examples = canonical(architecture, self.data)
            evaluations, size = self.energy.curvature_cost()
            evaluations += _DIAGONALISATION * dimension(architecture) ** 3 / self.energy.operations()
            self.forms_curvature = bool(evaluations <= _CURVATURE_EVALUATIONS and size <= _CURVATURE_BYTES)

    def __reduce__(self):
        # Compiled functions cannot be pickled, so the other process compiles them again.
        return Problem, (self.architecture, self.data)

    @property
    def architecture(self) -> Architecture:
        """The architecture, with its numbers as arrays."""
        return self.bound.architecture

    @property
    def energy(self) -> Energy:
        """The energy of the training examples as a function of U_1."""
        return Energy(self.bound, self.examples)

    @property
    def canonical(self) -> Problem:
        """The problem without the given data, whose sizes many data sets share. Compiled functions take it."""
        return eqx.tree_at(lambda problem: problem.data, self, None)

    @property
    def rows(self) -> int:
        """Number of rows of the kernel that each evaluation factorises."""
        return len(self.examples.labels)

    @property
    def description(self) -> str:
        """Numbers of examples, layers, paths and outputs, and the temperature, in words."""
        return f"{data_line(self.data)}; {architecture_line(self.architecture)}"

    def _view(self) -> Iterator[Block]:
        architecture = self.architecture
        yield Text(f"**Problem**: {verbatim(self.description)}")
        heads = ", ".join(map(number, architecture.heads or (0,)))
        table = [("heads", heads), ("widths", ", ".join(widths_in_words(architecture)))]
        table += data_rows(self.data)
        if self.examples is not None:
            table.append(("energy", f"each evaluation factorises a matrix with {self.rows:,} rows"))
        yield Table(tuple(table))
        if self.ansatz:
            yield Text(self.ansatz)

    def require_labels(self) -> None:
        """Raise `ValueError` for data without labels."""
        if self.examples is None:
            raise ValueError("data has no labels, which all functions but bpkr.kernel need")

    def point(
        self, point: OrderParameters | HasOrderParameters, name: str = "order_parameters", *, singular: bool = False
    ) -> OrderParameters:
        """Return checked order parameters. Allow `singular` order parameters if only the kernel is needed."""
        return checked_order_parameters(self.architecture, point, name, singular=singular)

    def test_features(self, features: Any, name: str = "test_features") -> Features:
        """Return checked features of test examples, by default from the problem's data."""
        if features is None:
            if self.data.test_features is None:
                raise ValueError(f"{name} must be given, because data has no test features")
            return self.data.test_features
        checked = checked_features(self.architecture, features, name)
        check_same_width(self.data.features.shape[2], checked, name)
        return checked

    def finite(self, results: Any) -> Any:
        """Return computed values after checking that all are finite; the error names the likely cause."""
        traced, temperature, leaves = is_traced(results), "traced", jax.tree.leaves(results)
        if not traced:
            if all([np.all(np.isfinite(leaf)) for leaf in leaves]):
                return results
            temperature = self.architecture.temperature
        message = (
            "the kernel K(U) + T I is not positive definite to double precision. Likely causes: a temperature that is "
            "zero or tiny compared to the kernel, with repeated or linearly dependent examples "
            f"(temperature={temperature}); or features or order parameters of extreme magnitude"
        )
        if not traced:
            raise ValueError(message)
        finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
        return jax.tree.map(lambda leaf: eqx.error_if(leaf, ~finite, message), results)

    # The protocol of solvers.

    @property
    def scale(self):
        return largest_width(self.architecture)

    @property
    def has_sweeps(self):
        return bool(self.bound.compiled.minima)

    def order_parameters(self, coordinates: Coordinates) -> OrderParameters:
        """Return the order parameters at `coordinates`."""
        return to_order_parameters(self.architecture, coordinates)

    def coordinates(self, order_parameters: OrderParameters) -> Coordinates:
        """Return the coordinates of order parameters."""
        return from_order_parameters(self.architecture, order_parameters)

    def moved(self, coordinates, step):
        return moved(self.architecture, coordinates, step)

    def parts(self, coordinates: Coordinates) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return entropy and energy, undivided."""
        order_parameters = self.order_parameters(coordinates)
        return self.bound.entropy(order_parameters), self.energy.value(order_parameters.first)

    def action(self, coordinates):
        return sum(self.parts(coordinates))

    def at(self, coordinates):
        factors = factors_at(self.architecture, coordinates)
        order_parameters = of_factors(factors)
        energy = self.energy.at(order_parameters.first)
        entropy, slopes = jax.value_and_grad(self.bound.entropy)(order_parameters)
        norm = gradient_length(self.architecture, factors, _add_to_u1(slopes, energy.slope)) / self.scale
        details = Evaluated(factors, order_parameters, entropy, energy)
        return Point(coordinates, entropy + energy.value, jnp.abs(energy.value), norm, details)

    def expansion(self, point):
        energy, factors = point.details.energy, point.details.factors
        no_step = jnp.zeros(len(point.coordinates))
        slope = jax.lax.stop_gradient(energy.slope)

        def after(step: Coordinates) -> tuple[OrderParameters, list[Float[Array, "_ _"]]]:
            there = factors_after(self.architecture, point.coordinates, step)
            return of_factors(there), there

        def gradient(step: Coordinates) -> tuple[Coordinates, list[Float[Array, "_ _"]]]:
            order_parameters, pull_back, there = jax.vjp(after, step, has_aux=True)
            (of_action,) = pull_back(_add_to_u1(jax.grad(self.bound.entropy)(order_parameters), slope))
            return of_action, there

        (of_action, _), push = jax.linearize(gradient, no_step)
        bend, changes = jax.vmap(push)(jnp.eye(len(no_step)))
        rows, columns = np.triu_indices(len(energy.u1))
        half = changes[0] @ factors[0].T
        entries = (half + half.swapaxes(1, 2))[:, rows, columns]
        hessian = bend + entries @ self.energy.curvature(energy) @ entries.T
        return Expansion(of_action, hessian, metric(self.architecture, factors, changes))

    def majorise(self, point, share):
        swept = _bounded_energy(point, share).minimise(self.bound, point.details.order_parameters)
        return self.coordinates(swept)

    def action_on_tangent(self, point) -> tuple[Callable[[Tangent], Float[Array, ""]], int]:
        here = point.details.order_parameters

        def action(tangent: Tangent) -> Float[Array, ""]:
            there = displaced(self.architecture, here, tangent)
            return self.bound.entropy(there) + self.energy.value(there.first)

        return action, dimension(self.architecture)

    def model_on_tangent(self, point) -> Callable[[Tangent], Float[Array, ""]]:
        here, bounded = point.details.order_parameters, _bounded_energy(point, _MODEL_SHARE)

        def majorised(tangent: Tangent) -> Float[Array, ""]:
            there = displaced(self.architecture, here, tangent)
            return self.bound.entropy(there) + bounded.value(self.bound, there.first)

        return majorised

    def rounding(self, point: Point) -> Mapping[str, Float[Array, ""]]:
        details = point.details
        parts = {
            "order_parameters": entropy_rounding(self.architecture, details.factors),
            **self.energy.rounding(details.energy),
        }
        return {name: MARGIN * MACHINE * part for name, part in parts.items()}

    def strategies(self, end_of, start):
        # If the temperature is tiny compared to the labels, the minimum lies in a narrow curved valley, where steps are
        # short. Follow the minimum from a high temperature, without such a valley.
        at = start
        for temperature in self.temperatures():
            warmer = eqx.tree_at(lambda problem: problem.architecture.temperature, self, np.asarray(temperature))
            at = end_of(warmer, at)
        yield at

    def temperatures(self) -> list[float]:
        """Return decreasing temperatures above that of the problem, from a misfit comparable to the entropy."""
        architecture = self.architecture
        coldest = float(architecture.temperature)
        square = float(np.sum(np.square(architecture.root_power * self.examples.labels)))
        hottest = square / (_HOT * min(map(float, architecture.relative_widths)))
        if not 0 < coldest < hottest:
            return []
        return np.geomspace(hottest, coldest, 1 + math.ceil(math.log(hottest / coldest, _COOLING)))[:-1].tolist()


def _bounded_energy(point: Point, share: Array | float) -> BoundedEnergy:
    energy = point.details.energy
    return BoundedEnergy.at(energy.u1, energy.logdet_gradient, energy.minus_misfit_gradient, share)


def _add_to_u1(slopes: OrderParameters, slope: Float[Array, "paths paths"]) -> OrderParameters:
    """Add a gradient with respect to U_1 to gradients with respect to all order parameters."""
    if not slopes.matrices:
        return OrderParameters((), slopes.readout + slope.reshape(slopes.readout.shape))
    u1, *others = slopes.matrices
    return OrderParameters((u1 + slope, *others), slopes.readout)


def as_problem(problem: Problem | Architecture, data: Data | None = None) -> Problem:
    """Return a given problem, or make one from an architecture and data."""
    if isinstance(problem, Problem):
        if data is not None:
            raise TypeError("data can only be given with an architecture, because a Problem contains its data")
        return problem
    return Problem(*architecture_and_data(problem, data))


def architecture_and_data(problem: Problem | Architecture, data: Data | None) -> tuple[Architecture, Data]:
    """Return architecture and data, for functions that use other widths and temperatures."""
    if isinstance(problem, Problem):
        problem = as_problem(problem, data)
        return problem.architecture, problem.data
    checked_instance("problem", problem, (Problem, Architecture), "such as bpkr.Problem(architecture, data)")
    if data is None:
        raise TypeError("problem is an Architecture, so data must be given too, such as bpkr.Data(features, labels)")
    return problem, checked_instance("data", data, Data, "such as bpkr.Data(features, labels)")
