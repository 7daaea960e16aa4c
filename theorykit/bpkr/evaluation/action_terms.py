"""Values of the compiled action at given order parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr

from ...checks import checked_positive_definite
from ...compilation import jit_and_keep
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text
from ...symbolic.documents.values import number
from ..features.implicit import ImplicitFeatures
from ..order_parameters.order_parameters import HasOrderParameters, OrderParameters, gp_limit
from ..specification.architecture import Architecture, checked_architecture
from .formulas import BoundAction, bind
from .problem import Problem, as_problem


class ActionTerms(DisplayMixin, eqx.Module):
    """The value of the action and of its parts; see `evaluate`.

    - `is_per_width`: whether all values are divided by N_1, at infinite width with a richness.
    """

    layer_entropies: tuple[Float[Array, ""], ...]
    readout_entropy: Float[Array, ""]
    energy: Float[Array, ""]
    total: Float[Array, ""]
    is_per_width: bool = eqx.field(static=True, default=False)

    def _view(self) -> Iterator[Block]:
        layers = [(f"entropy of layer {i}", number(each, 8)) for i, each in enumerate(self.layer_entropies, 1)]
        yield Text(f"**Action** {'per width $S / N_1$' if self.is_per_width else '$S$'} = {number(self.total, 8)}")
        yield Table((("energy", number(self.energy, 8)), *layers, ("entropy of u", number(self.readout_entropy, 8))))

    @property
    def entropy(self) -> Float[Array, ""]:
        """The sum of all entropies, of the layers and of the readout."""
        return self.readout_entropy + sum(self.layer_entropies)


@usual_settings()
def evaluate(problem: Problem, order_parameters: OrderParameters | HasOrderParameters) -> ActionTerms:
    """Evaluate the action and its parts at given order parameters, Eq. (32).

    Args:
        problem: the architecture with its training data.
        order_parameters: the order parameters, or a `Saddle`.

    Returns:
        An object with `total`, which is `energy` plus `entropy`. The posterior is proportional to exp(-total/2).
        `entropy` is the sum of `layer_entropies` (S_1, ..., S_L) and `readout_entropy` S_a. At infinite width with a
        richness, all of them are divided by the width N_1.
    """
    problem = as_problem(problem)
    problem.require_labels()
    return problem.finite(_evaluated(problem.canonical, problem.point(order_parameters)))


def evaluate_infinite_width(problem: Problem) -> tuple[float, float]:
    """Return the energy and the exact log evidence of the infinitely wide network, a Gaussian process."""
    energy = float(evaluate(problem, gp_limit(problem.architecture)).energy)
    return energy, -(energy + problem.data.label_count * np.log(2 * np.pi)) / 2


@jit_and_keep
def action_terms(
    bound: BoundAction,
    order_parameters: OrderParameters,
    features: Float[Array, "examples paths features"],
    labels: Float[Array, "examples *outputs"],
) -> ActionTerms:
    """Evaluate the generated function of arrays. Pure and traceable; NaN if the kernel has no Cholesky factor."""
    given = bound.numbers() | bound.point(order_parameters) | bound.data(features, labels)
    return _terms(bound, bound.compiled.terms.call_from(given))


@jit_and_keep
def _evaluated(problem: Problem, order_parameters: OrderParameters) -> ActionTerms:
    bound = problem.bound
    values = dict(bound.compiled.entropies.call_from(bound.numbers() | bound.point(order_parameters)))
    values["energy"] = problem.energy.value(order_parameters.first)
    return _terms(bound, values | {"total": values["entropy"] + values["energy"]})


def _terms(bound: BoundAction, values: Mapping[str, Array]) -> ActionTerms:
    layers = tuple(values[f"entropy_{layer}"] for layer in range(1, bound.architecture.depth + 1))
    totals = values["entropy_a"], values["energy"], values["total"]
    return ActionTerms(layers, *totals, is_per_width=bound.architecture.is_infinite)


def parameter_values(problem: Problem) -> dict[Expr, Float[Array, "..."] | int]:
    """Return the value of every parameter of `derive(architecture).of_free_order_parameters`, by symbol.

    Use them to minimise the action with `theorykit.saddle`, for example after adding a custom term.
    """
    problem = as_problem(problem)
    problem.require_labels()
    bound, data = problem.bound, problem.data
    if data.replaces:
        raise ValueError("data are from second moments, so they are not parameters of the action; use bpkr.solve")
    if isinstance(data.features, ImplicitFeatures):
        raise ValueError("features are given by kernels, so they are not parameters of the action; use bpkr.solve")
    values = bound.numbers() | bound.data(data.features, data.labels)
    return {symbol: values[symbol] for symbol in bound.action.of_free_order_parameters.parameters}


def optimal_readout(architecture: Architecture, last: ArrayLike) -> Float[Array, "*outputs"]:
    """Return the readout order parameter at which the action is stationary, given U_L of the last layer.

    Args:
        architecture: the architecture.
        last: U_L (n_L, n_L).

    Returns:
        A number for one output, or a matrix (outputs, outputs) for several outputs.

    Raises:
        ValueError: there are no layers, or a skip connection in the last layer makes the readout a block of U_L.
    """
    bound = bind(checked_architecture(architecture))
    if architecture.depth == 0:
        raise ValueError("the architecture has no layers and therefore no U_L; use bpkr.solve to find u")
    matrix = checked_positive_definite(f"last: U_{architecture.depth}", last, architecture.order_parameter_sizes[-1])
    return bound.compiled.readout.call_from(bound.numbers() | {bound.symbols.matrices[-1]: matrix})["u"]
