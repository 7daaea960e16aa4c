"""The compiled action at given order parameters.

Stage 3 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function -> solve -> predict`: binds the
numbers of an architecture and of the data to the symbols of its action.
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .architecture import Architecture
from .checks import checked_data, checked_positive_definite, checked_results
from .derive import derive
from .order_parameters import HasOrderParameters, OrderParameters, checked_order_parameters, gp_limit


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
        return self.readout_entropy + sum(self.layer_entropies)


def evaluate(
    architecture: Architecture,
    order_parameters: OrderParameters | HasOrderParameters,
    features: ArrayLike,
    labels: ArrayLike,
) -> ActionTerms:
    """Entropy, energy and total of the action (Eq. 32) at `order_parameters`.

    `features` (examples, paths, features) as `path_features` returns them, `labels` (examples,). Raises `ValueError`
    for data or order parameters that do not fit, and where the kernel is singular.
    """
    features, labels = checked_data(architecture, features, labels)
    order_parameters = checked_order_parameters(architecture, order_parameters)
    return checked_results(action_terms(architecture, order_parameters, features, labels), architecture)


@jax.jit
def action_terms(
    architecture: Architecture,
    order_parameters: OrderParameters,
    features: Float[Array, "examples paths features"],
    labels: Float[Array, "examples *outputs"],
) -> ActionTerms:
    """`evaluate` without its checks: pure, traceable, NaN where the kernel has no Cholesky factor."""
    action = derive(architecture)
    values = action.compiled(**action_arguments(architecture, order_parameters, features, labels))
    return ActionTerms(
        layer_entropies=tuple(values[f"entropy_{layer}"] for layer in range(1, architecture.depth + 1)),
        readout_entropy=values["entropy_a"],
        energy=values["energy"],
        total=values["total"],
    )


def first_order(architecture: Architecture, features: ArrayLike, labels: ArrayLike) -> OrderParameters:
    """The saddle point to first order in one over the widths, about the Gaussian-process limit, in closed form.

    `features` (examples, paths, features) as `path_features` returns them, `labels` (examples,), or (examples, outputs)
    where there are several. Good where the widths are large beside the number of examples; where they are not, the
    matrices need not even be positive definite.
    """
    features, labels = checked_data(architecture, features, labels)
    return checked_results(_first_order(architecture, features, labels), architecture)


@jax.jit
def _first_order(architecture, features, labels):
    action = derive(architecture)
    force = action.compiled_force(**action_arguments(architecture, gp_limit(architecture), features, labels))["force"]
    arguments = {**architecture_arguments(architecture), action.expansion.force.name: force}
    *matrices, readout = action.compiled_expansion.of(arguments).values()
    return OrderParameters(tuple(matrices), readout[0, 0] if architecture.outputs == 1 else readout)


def action_arguments(
    architecture: Architecture,
    order_parameters: OrderParameters,
    features: Float[Array, "examples paths features"],
    labels: Float[Array, "examples *outputs"],
) -> Mapping[str, Array]:
    """The value of every symbol of the action, by name, as the generated function takes them."""
    symbols = derive(architecture).symbols
    values = {
        **point_arguments(architecture, order_parameters),
        symbols.features.name: flat_features(architecture, features),
        symbols.labels.name: labels.reshape(-1, 1),
    }
    return {argument.name: values[argument.name] for argument in symbols.arguments}


def point_arguments(architecture: Architecture, order_parameters: OrderParameters) -> Mapping[str, Array]:
    """The value of every symbol but those of the data, by name: order parameters, and those of the architecture."""
    symbols = derive(architecture).symbols.order_parameters
    values = (*order_parameters.matrices, order_parameters.readout)
    named = {symbol.name: value for symbol, value in zip(symbols, values, strict=True)}
    return {**named, **architecture_arguments(architecture)}


def architecture_arguments(architecture: Architecture) -> Mapping[str, Array]:
    """The value of every symbol of the architecture, by name, sizes included; s_0^2 is in the features."""
    symbols = derive(architecture).symbols
    numbers = {
        **architecture.layer_numbers(),
        symbols.variances[-1].name: architecture.prior_variances[-1],
        symbols.temperature.name: architecture.temperature,
    }
    arrays = {name: jnp.asarray(number, dtype=jnp.float64) for name, number in numbers.items()}
    return {**arrays, **architecture.head_counts(), "C": architecture.outputs}


def flat_features(
    architecture: Architecture, features: Float[Array, "examples paths features"]
) -> Float[Array, "rows columns"]:
    """The features as the matrix Phi of the symbolic action, one row an (example, output) pair.

    Its columns are (path, output, feature), the last fastest: Phi_{(mu c)(pi c' i)} = phi^pi_{mu i} delta_{cc'}. For
    one output this is `features` itself, flattened.
    """
    outputs = jnp.eye(architecture.outputs)
    design = jnp.einsum("pki,cd->pckdi", features, outputs)
    return design.reshape(len(features) * architecture.outputs, -1)


def optimal_readout(architecture: Architecture, last: ArrayLike) -> Float[Array, "*outputs"]:
    """The readout order parameter eliminated: its saddle-point value given the last layer's U_L (n_L x n_L).

    A number for one output, a matrix (outputs, outputs) for several. Raises `ValueError` where a straight branch in the
    last layer makes it a block of U_L.
    """
    action = derive(architecture)
    matrix = checked_positive_definite(f"last: U_{architecture.depth}", last, architecture.order_parameter_sizes[-1])
    arguments = {**architecture_arguments(architecture), action.symbols.matrices[-1].name: matrix}
    return action.compiled_readout.of(arguments)["u"]
