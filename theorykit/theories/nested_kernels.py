"""Dense nonlinear layers with the order parameters inside the kernels, the nested form.

    S = sum_l N_l (Q_l - log Q_l) + logdet(K_L + T) + y^T (K_L + T)^{-1} y,   K_l = sigma_l^2 Q_l kappa_l(K_{l-1}),

where K_0 is the covariance of the embedding's hidden units. `bpkr.derive` uses the other
published form, with the kernels of infinite width. Both agree for homogeneous functions,
and are an ansatz for numbers of examples proportional to the widths. Source: Pacelli et
al., Nature Machine Intelligence (2023), arXiv:2209.04882.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sympy import Add, Expr, MatrixSymbol, Symbol, log

from .. import bpkr, saddle
from ..bpkr.evaluation.problem import as_problem
from ..bpkr.evaluation.values import prediction_from_kernels
from ..bpkr.features.implicit import ImplicitFeatures, token_kernel, token_units
from ..bpkr.specification.activations import Activation, kernel_of_covariance
from ..bpkr.specification.layers import activation_of
from ..saddle.domains import Positive


def action(architecture: bpkr.Architecture) -> saddle.Action:
    """Return the action, with the order parameters Q_1, ..., Q_{L+1}.

    Args:
        architecture: dense layers whose functions have kernels in closed form, with one
            output and one token to read.

    Raises:
        ValueError: the architecture has other layers, outputs or tokens.
    """
    are_dense = all(type(layer) is bpkr.Dense for layer in architecture.layers)
    if not are_dense or architecture.overlap_sizes[-1] > 1:
        raise ValueError(
            "the nested form needs dense layers, one output and one token to read, got "
            f"layers={architecture.layers}, outputs={architecture.outputs} and "
            f"read_tokens={architecture.read_tokens}"
        )
    activations = _activations(architecture)
    for each in activations:
        if each.kernel_of_correlation is None:
            raise ValueError(f"the kernel of the function {each.name} has no closed form")
    return _derive(bpkr.derive(architecture), activations)


def _activations(architecture: bpkr.Architecture) -> tuple[Activation, ...]:
    return (architecture.embedding, *map(activation_of, architecture.layers))


@lru_cache
def _derive(base: bpkr.Action, activations: tuple[Activation, ...]) -> saddle.Action:
    symbols, inputs = base.symbols, _inputs(base)
    kernel, order_parameters = inputs.T * inputs, []
    for layer, (activation, variance) in enumerate(zip(activations, symbols.variances, strict=True), 1):
        order_parameters.append(Symbol(f"Q_{layer}", positive=True))
        kernel = variance * order_parameters[-1] * kernel_of_covariance(activation, kernel)
    pairs = zip(symbols.widths, order_parameters, strict=True)
    entropies = (width * (number - log(number)) for width, number in pairs)
    numbers = *dict.fromkeys(symbols.widths), *symbols.variances, symbols.temperature
    parameters = *numbers, inputs, symbols.labels
    expression = Add(*entropies, base.energy.xreplace({base.kernel: kernel}))
    return saddle.Action(expression, dict.fromkeys(order_parameters, Positive()), parameters, symbols.widths[-1])


def _inputs(base: bpkr.Action) -> MatrixSymbol:
    """Return the tokens that are read, as columns whose inner products are covariances."""
    return MatrixSymbol("X", base.symbols.input_features, base.symbols.examples)


def values(problem: bpkr.Problem) -> dict[Expr, Any]:
    """Return the value of every parameter of `action`, by symbol."""
    bound = as_problem(problem).bound
    inputs, labels = _tokens(problem.data.features).T, problem.data.labels.reshape(-1, 1)
    found = bound.numbers() | {_inputs(bound.action): inputs, bound.symbols.labels: labels}
    return {symbol: found[symbol] for symbol in action(problem.architecture).parameters}


def solve(problem: bpkr.Problem, **options: Any) -> saddle.Solution:
    """Return the minimum, found with `options` of `saddle.minimise`, by default from Q_l = 1."""
    of_problem = action(problem.architecture)
    options.setdefault("initial", dict.fromkeys(of_problem.order_parameters, 1.0))
    return saddle.minimise(of_problem, values(problem), **options)


def predict(
    problem: bpkr.Problem,
    point: saddle.Solution | Mapping[Expr, Array],
    test_features: ImplicitFeatures | None = None,
) -> bpkr.Prediction:
    """Return the mean and variance of outputs on test examples.

    Args:
        problem: the architecture with its training data.
        point: a solution, or the order parameters by symbol.
        test_features: path features, by default of the problem's test examples.
    """
    numbers, activations = problem.bound.numbers(), _activations(problem.architecture)
    numbered = zip(action(problem.architecture).order_parameters, problem.bound.symbols.variances, strict=True)
    scales = jnp.stack([jnp.asarray(point[q] * numbers[variance]) for q, variance in numbered])
    rules = (None,) * len(activations)

    def units(features: ImplicitFeatures):
        tokens = _tokens(features)
        return tokens, token_units(activations, rules, scales[:-1], tokens)

    train, test = units(problem.data.features), units(problem.test_features(test_features))
    kernel, between = (
        jnp.prod(scales) * token_kernel(activations, rules, scales[:-1], each, train) for each in (train, test)
    )
    of_each = (scales[-1] * test[1][-1].mean_square)[:, None, None]
    labels = problem.data.labels.reshape(-1, 1)
    found = problem.finite(prediction_from_kernels(problem.bound, kernel, between, of_each, labels))
    return replace(found, ansatz=problem.ansatz)


def _tokens(features: ImplicitFeatures) -> Float[Array, "examples features"]:
    """Return the token that the readout takes from each example."""
    reading = np.asarray(features.readings[:, :, 0])
    if not np.all(np.isin(reading, (0.0, 1.0))) or not np.all(np.sum(reading, axis=1) == 1):
        raise ValueError('the nested form reads one token: readout="first", "last" or positions')
    return features.tokens[np.arange(len(features)), np.argmax(reading, axis=1)]
