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
from .order_parameters import OrderParameters, checked_order_parameters


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
    architecture: Architecture, order_parameters: OrderParameters, features: ArrayLike, labels: ArrayLike
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
    labels: Float[Array, " examples"],
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


def action_arguments(
    architecture: Architecture,
    order_parameters: OrderParameters,
    features: Float[Array, "examples paths features"],
    labels: Float[Array, " examples"],
) -> Mapping[str, Array]:
    """The value of every symbol of the action, by name, as the generated function takes them."""
    symbols = derive(architecture).symbols
    return {
        **order_parameter_arguments(architecture, order_parameters),
        **architecture_arguments(architecture),
        symbols.features.name: flat_features(features),
        symbols.labels.name: labels[:, None],
    }


def order_parameter_arguments(architecture: Architecture, order_parameters: OrderParameters) -> Mapping[str, Array]:
    """The value of every order parameter symbol, by name."""
    symbols = derive(architecture).symbols.order_parameters
    values = (*order_parameters.matrices, order_parameters.readout)
    return {symbol.name: value for symbol, value in zip(symbols, values, strict=True)}


def architecture_arguments(architecture: Architecture) -> Mapping[str, Array]:
    """The value of every width, variance and temperature symbol, by name; s_0^2 is in the features."""
    symbols = derive(architecture).symbols
    names = (*symbols.widths, *symbols.variances, symbols.temperature)
    numbers = (*architecture.widths, *architecture.prior_variances[1:], architecture.temperature)
    return {name.name: jnp.asarray(number, dtype=jnp.float64) for name, number in zip(names, numbers, strict=True)}


def flat_features(features: Float[Array, "examples paths features"]) -> Float[Array, "examples pathfeatures"]:
    """The features as the matrix Phi of the symbolic action: one row an example, path index slow."""
    return features.reshape(len(features), -1)


def optimal_readout(architecture: Architecture, last: ArrayLike) -> Float[Array, ""]:
    """The readout order parameter u eliminated: its saddle-point value given the last layer's U_L (heads, heads)."""
    action = derive(architecture)
    matrix = checked_positive_definite(f"U_{architecture.depth}", last, architecture.heads[-1])
    arguments = {**architecture_arguments(architecture), action.symbols.matrices[-1].name: matrix}
    return action.compiled_readout(**arguments)["u"]
