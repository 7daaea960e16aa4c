"""Dense nonlinear layers with the order parameters inside the kernels: the nested form of several hidden layers.

    S = sum_l N_l (Q_l - log Q_l) + logdet(K_L + T) + y^T (K_L + T)^{-1} y,   K_l = sigma_l^2 Q_l kappa_l(K_{l-1}),

K_0 the covariance of the embedding's hidden units. `bpkr.derive` has the other published form, in which the kernels
are those of infinite width; both are the same for homogeneous functions. Source: Pacelli et al., Nature Machine
Intelligence (2023), arXiv 2209.04882.
"""

import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Add, Expr, MatrixSymbol, Symbol, log
from sympy.matrices.expressions.matexpr import MatrixExpr

from ... import saddle
from ...checks import is_traced
from ...codegen import CompiledFunction, compile_expressions
from ...saddle.domains import Positive
from ..action.action import Action
from ..action.derivation import derive
from ..data.checks import checked_data, checked_training_and_test
from ..evaluation.bound_action import bind
from ..evaluation.prediction import Prediction, checked_prediction, prediction_from_kernels
from ..features.implicit import ImplicitFeatures
from ..features.kernel_errors import KernelWarning, rules_for
from ..features.kernel_rules import WARNED
from ..features.token_kernels import token_kernel, token_units
from ..specification.activations import Activation, kernel_of_covariance
from ..specification.architecture import Architecture, activation_of, checked_architecture
from ..specification.layers import Dense
from .theory import NonlinearAction, energy_at, order_parameters_of

_ASSUMPTION = "the order parameter of each layer multiplies the covariance that the next layer's function takes"


def derive_nested(architecture: Architecture) -> NonlinearAction:
    """The action of dense layers with the order parameters Q_1, ..., Q_{L+1} inside the kernels.

    Raises `ValueError` for other layers than dense ones, several outputs, and a readout of several tokens.
    """
    _check(architecture)
    return _derive(derive(architecture), _activations(architecture))


def _activations(architecture: Architecture) -> tuple[Activation, ...]:
    return (architecture.embedding, *map(activation_of, architecture.layers))


def _check(architecture: Architecture) -> None:
    checked_architecture(architecture)
    others = [type(layer).__name__ for layer in architecture.layers if type(layer) is not Dense]
    if others or architecture.overlap_sizes[-1] > 1:
        raise ValueError(
            f"architecture has {', '.join(others) or 'dense layers'}, outputs={architecture.outputs} and read_tokens="
            f"{architecture.read_tokens}, but the nested form is of dense layers, one output and one token that is read"
        )


@lru_cache
def _derive(base: Action, activations: tuple[Activation, ...]) -> NonlinearAction:
    symbols, inputs = base.symbols, _inputs(base)
    kernel, order_parameters = inputs.T * inputs, []
    for layer, (activation, variance) in enumerate(zip(activations, symbols.variances, strict=True), 1):
        order_parameters.append(Symbol(f"Q_{layer}", positive=True))
        kernel = variance * order_parameters[-1] * kernel_of_covariance(activation, kernel)
    pairs = zip(symbols.widths, order_parameters, strict=True)
    entropies = (width * (number - log(number)) for width, number in pairs)
    numbers = (*dict.fromkeys(symbols.widths), *symbols.variances, symbols.temperature)
    parameters = (*numbers, inputs, symbols.labels)
    domains = dict.fromkeys(order_parameters, Positive())
    action = saddle.Action(Add(*entropies, energy_at(base, kernel)), domains, parameters, symbols.widths[-1])
    return NonlinearAction(action, kernel, base, (*base.ansatz, _ASSUMPTION))


def _inputs(base: Action) -> MatrixSymbol:
    """The tokens that are read, as columns, in units in which their products are covariances."""
    return MatrixSymbol("X", base.symbols.input_features, base.symbols.examples)


def solve_nested(
    architecture: Architecture, features: ImplicitFeatures, labels: ArrayLike, **options: Any
) -> saddle.Solution:
    """The minimum of `derive_nested`, by `saddle.minimise`, which takes the `options`; from Q_l = 1 by default.

    `features` are those of `bpkr.path_features` for this architecture, `labels` (examples,).
    """
    _check(architecture)
    theory = derive_nested(architecture)
    if "initial" not in options:
        options = {"initial": dict.fromkeys(theory.action.order_parameters, 1.0), **options}
    found = saddle.minimise(theory.action, values_of(architecture, theory, features, labels), **options)
    _check_kernel(architecture, theory, found, features)
    return found


def _check_kernel(architecture: Architecture, theory: NonlinearAction, found: saddle.Solution, features: Any) -> None:
    """Warn where the averages in the action are not what its kernel is at the solution, by a rule of known error."""
    activations = _activations(architecture)
    point = order_parameters_of(theory, found)
    if is_traced(found, features) or not all(bool(jnp.isfinite(value)) for value in point.values()):
        return
    if all(activation.kernel_of_correlation is not None for activation in activations):
        return
    tokens, bound = _tokens(features), bind(architecture)
    numbers = bound.numbers()
    scales = [float(numbers[s]) * float(q) for s, q in zip(theory.base.symbols.variances, point.values(), strict=True)]
    between = jnp.asarray(scales[:-1], dtype=jnp.float64)
    rules = rules_for(activations, between, tokens[:, None])
    units = tokens, token_units(activations, rules, between, tokens)
    exact = np.asarray(token_kernel(activations, rules, between, units, units)) * np.prod(scales)
    compiled = _compiled(theory.kernel, theory.base, tuple(theory.action.order_parameters))
    kernel = np.asarray(compiled.call_from(numbers | dict(point) | {_inputs(theory.base): tokens.T})["kernel"])
    off = np.max(np.abs(kernel - exact)) / np.max(np.abs(exact))
    if not off <= WARNED:
        warnings.warn(
            f"the averages in the action of {', '.join(each.name for each in activations)} have a relative error of "
            f"{off:.2g} in the kernel at the solution; bpkr.solve computes kernels to full precision",
            KernelWarning,
            stacklevel=3,
        )


def values_of(
    architecture: Architecture, theory: NonlinearAction, features: ImplicitFeatures, labels: ArrayLike
) -> Mapping[Expr, Any]:
    """The value of every parameter of `theory.action`, by symbol."""
    features, labels = checked_data(architecture, features, labels)
    bound = bind(architecture)
    values = bound.numbers() | {_inputs(theory.base): _tokens(features).T, bound.symbols.labels: labels.reshape(-1, 1)}
    return {symbol: values[symbol] for symbol in theory.action.parameters}


def _tokens(features: ImplicitFeatures) -> Float[Array, "examples features"]:
    """The one token that is read of each example."""
    reading = np.asarray(features.readings[:, :, 0])
    if not np.all(np.isin(reading, (0.0, 1.0))) or not np.all(np.sum(reading, axis=1) == 1):
        raise ValueError('the nested form reads one token: make the features with readout="first", "last" or positions')
    return features.tokens[np.arange(len(features)), np.argmax(reading, axis=1)]


def predict_nested(
    architecture: Architecture,
    point: saddle.Solution | Mapping[Expr | str, ArrayLike],
    features: ImplicitFeatures,
    labels: ArrayLike,
    test_features: ImplicitFeatures,
) -> Prediction:
    """Mean and variance of the output on test examples at a `point`: what `solve_nested` found, or by name."""
    _check(architecture)
    features, labels, test_features = checked_training_and_test(architecture, features, labels, test_features)
    theory, bound, count = derive_nested(architecture), bind(architecture), len(features)
    tokens = jnp.concatenate([_tokens(features), _tokens(test_features)])
    compiled = _compiled(theory.kernel, theory.base, tuple(theory.action.order_parameters))
    values = bound.numbers() | dict(order_parameters_of(theory, point)) | {_inputs(theory.base): tokens.T}
    kernel = compiled.call_from(values)["kernel"]
    between, diagonal = kernel[count:, :count], jnp.diagonal(kernel)[count:]
    prediction = prediction_from_kernels(bound, kernel[:count, :count], between, diagonal, labels)
    return checked_prediction(prediction, architecture, labels)


@lru_cache
def _compiled(kernel: MatrixExpr, base: Action, order_parameters: tuple[Symbol, ...]) -> CompiledFunction:
    arguments = (*order_parameters, *base.symbols.variances, _inputs(base))
    return compile_expressions("nested_kernel", {"kernel": kernel}, arguments)
