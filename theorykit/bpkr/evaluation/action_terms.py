"""The compiled action at given order parameters.

What may be asked of stage 3 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`.
"""

import equinox as eqx
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr

from ...compilation import jit
from ..data.checks import checked_data, checked_positive_definite, checked_results
from ..features.implicit import ImplicitFeatures, PathFeatures
from ..order_parameters.order_parameters import (
    HasOrderParameters,
    OrderParameters,
    checked_order_parameters,
    from_overlaps,
    gp_limit,
)
from ..specification.architecture import Architecture, checked_architecture
from .bound_action import BoundAction, bind
from .energies import energy_of


class ActionTerms(eqx.Module):
    """The value of the action, undivided, and of its parts; the posterior goes as exp(-total/2).

    `layer_entropies` is (S_1, ..., S_L), `readout_entropy` S_a, `entropy` their sum.
    """

    layer_entropies: tuple[Float[Array, ""], ...]
    readout_entropy: Float[Array, ""]
    energy: Float[Array, ""]
    total: Float[Array, ""]

    @property
    def entropy(self) -> Float[Array, ""]:
        """The sum of all entropies, those of the layers and of the readout."""
        return self.readout_entropy + sum(self.layer_entropies)


def evaluate(
    architecture: Architecture,
    order_parameters: OrderParameters | HasOrderParameters,
    features: ArrayLike | ImplicitFeatures,
    labels: ArrayLike,
) -> ActionTerms:
    """Entropy, energy and total of the action (Eq. 32) at `order_parameters`.

    `features` (examples, paths, features) as `path_features` returns them, `labels` (examples,). Raises `ValueError`
    for data or order parameters that do not fit, and where the kernel is singular.
    """
    features, labels = checked_data(architecture, features, labels)
    order_parameters = checked_order_parameters(architecture, order_parameters)
    return checked_results(action_terms(bind(architecture), order_parameters, features, labels), architecture)


def parameter_values(
    architecture: Architecture, features: ArrayLike | ImplicitFeatures, labels: ArrayLike
) -> dict[Expr, Float[Array, "..."] | int]:
    """The value of every parameter of `derive(architecture).of_free_order_parameters`, by symbol.

    With them `theorykit.saddle` minimises the action of the theory, or one that a term of your own is added to.
    """
    features, labels = checked_data(architecture, features, labels)
    bound = bind(architecture)
    if isinstance(features, ImplicitFeatures):
        raise ValueError("features are known by their kernels, and are no parameters of the action: use bpkr.solve")
    values = bound.numbers() | bound.data(features, labels)
    return {symbol: values[symbol] for symbol in bound.action.of_free_order_parameters.parameters}


@jit
def action_terms(
    bound: BoundAction,
    order_parameters: OrderParameters,
    features: PathFeatures,
    labels: Float[Array, "examples *outputs"],
) -> ActionTerms:
    """`evaluate` without its checks: pure, traceable, NaN where the kernel has no Cholesky factor."""
    given = bound.numbers() | bound.point(order_parameters)
    if isinstance(features, ImplicitFeatures):
        values = dict(bound.compiled.entropies.call_from(given))
        values["energy"] = energy_of(bound, features, labels).value(order_parameters.first)
        values["total"] = values["entropy"] + values["energy"]
    else:
        values = bound.compiled.terms.call_from(given | bound.data(features, labels))
    return ActionTerms(
        layer_entropies=tuple(values[f"entropy_{layer}"] for layer in range(1, bound.architecture.depth + 1)),
        readout_entropy=values["entropy_a"],
        energy=values["energy"],
        total=values["total"],
    )


def first_order(
    architecture: Architecture, features: ArrayLike | ImplicitFeatures, labels: ArrayLike
) -> OrderParameters:
    """The saddle point to first order in one over the widths, about the Gaussian-process limit, in closed form.

    `features` (examples, paths, features) as `path_features` returns them, `labels` (examples,), or (examples, outputs)
    where there are several. Good where the widths are large beside the number of examples; where they are not, the
    matrices need not even be positive definite.
    """
    features, labels = checked_data(architecture, features, labels)
    return checked_results(_first_order(bind(architecture), features, labels), architecture)


@jit
def _first_order(bound: BoundAction, features, labels):
    compiled, numbers, limit = bound.compiled, bound.numbers(), bound.point(gp_limit(bound.architecture))
    if isinstance(features, ImplicitFeatures):
        force = energy_of(bound, features, labels).at(gp_limit(bound.architecture).first).slope
    else:
        force = compiled.force.call_from(numbers | limit | bound.data(features, labels))["force"]
    return from_overlaps(compiled.first_order.call_from(numbers | {bound.action.expansion.force: force}).values())


def optimal_readout(architecture: Architecture, last: ArrayLike) -> Float[Array, "*outputs"]:
    """The readout order parameter eliminated: its saddle-point value given the last layer's U_L (n_L x n_L).

    A number for one output, a matrix (outputs, outputs) for several. Raises `ValueError` where a skip connection in the
    last layer makes it a block of U_L.
    """
    bound = bind(checked_architecture(architecture))
    if architecture.depth == 0:
        raise ValueError("there is no U_L without layers: u is the only order parameter, and bpkr.solve finds it")
    matrix = checked_positive_definite(f"last: U_{architecture.depth}", last, architecture.order_parameter_sizes[-1])
    return bound.compiled.readout.call_from(bound.numbers() | {bound.symbols.matrices[-1]: matrix})["u"]
