"""Dense nonlinear layers with the order parameters inside the kernels: the nested form of several hidden layers.

    S = sum_l N_l (Q_l - log Q_l) + logdet(K_L + T) + y^T (K_L + T)^{-1} y,   K_l = sigma_l^2 Q_l kappa_l(K_{l-1}),

where K_0 is the covariance of the embedding's hidden units. `bpkr.derive` uses the other published form, with the
kernels of infinite width. Both forms agree for homogeneous functions. Source: Pacelli et al., Nature Machine
Intelligence (2023), arXiv 2209.04882.
"""

import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sympy import Add, Expr, MatrixSymbol, Symbol, log
from sympy.matrices.expressions.matexpr import MatrixExpr

from ... import saddle
from ...checks import is_traced
from ...codegen import CompiledFunction, compile_expressions
from ...saddle.domains import Positive
from ...settings import usual_settings
from ..action.action import Action
from ..action.derivation import derive
from ..evaluation.problem import Problem, as_problem
from ..features.implicit import ImplicitFeatures
from ..features.kernel_rules import WARNED
from ..features.token_kernels import KernelWarning, rules_for, token_kernel, token_units
from ..specification.activations import Activation, kernel_of_covariance
from ..specification.architecture import Architecture, activation_of, checked_architecture
from ..specification.layers import Dense
from .theory import AbstractNonlinearProblem, NonlinearAction, order_parameters_of

_ASSUMPTION = "the order parameter of each layer multiplies the covariance of the hidden units in the next layer"


def derive_nested(architecture: Architecture) -> NonlinearAction:
    """Derive the action of dense layers with the order parameters Q_1, ..., Q_{L+1} inside the kernels.

    Raises:
        ValueError: a layer is not dense, or the network has several outputs or reads several tokens.
    """
    checked_architecture(architecture)
    others = [type(layer).__name__ for layer in architecture.layers if type(layer) is not Dense]
    if others or architecture.overlap_sizes[-1] > 1:
        raise ValueError(
            f"architecture has {', '.join(others) or 'dense layers'}, outputs={architecture.outputs} and read_tokens="
            f"{architecture.read_tokens}, but the nested form needs dense layers, one output and one token to read"
        )
    return _derive(derive(architecture), _activations(architecture))


def _activations(architecture: Architecture) -> tuple[Activation, ...]:
    return (architecture.embedding, *map(activation_of, architecture.layers))


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
    action = saddle.Action(
        Add(*entropies, base.energy.xreplace({base.kernel: kernel})), domains, parameters, symbols.widths[-1]
    )
    return NonlinearAction(action, kernel, base, (*base.ansatz, _ASSUMPTION))


def _inputs(base: Action) -> MatrixSymbol:
    """Return the tokens that are read, as columns, scaled such that their inner products are covariances."""
    return MatrixSymbol("X", base.symbols.input_features, base.symbols.examples)


class NestedProblem(AbstractNonlinearProblem):
    """The problem of `derive_nested` for an architecture with its data.

    Args:
        problem: the architecture with its data: features from `bpkr.path_features`, and labels (examples,).

    Raises:
        ValueError: a layer is not dense, or the network has several outputs or reads several tokens.
    """

    @usual_settings()
    def __init__(self, problem: Problem):
        problem = as_problem(problem)
        self.problem, self.theory = problem, derive_nested(problem.architecture)
        problem.require_labels()
        self._inputs, self._tokens = _inputs(self.theory.base), _tokens(problem.data.features)
        labels = {problem.bound.symbols.labels: problem.data.labels.reshape(-1, 1)}
        values = problem.bound.numbers() | {self._inputs: self._tokens.T} | labels
        self.values = {symbol: values[symbol] for symbol in self.theory.action.parameters}

    def solve(self, **options: Any) -> saddle.Solution:
        """Find the minimum with `saddle.minimise`, to which `options` are passed. By default it starts at Q_l = 1."""
        options.setdefault("initial", dict.fromkeys(self.theory.action.order_parameters, 1.0))
        found = saddle.minimise(self.theory.action, self.values, **options)
        activations, point = _activations(self.problem.architecture), order_parameters_of(self.theory, found)
        has_closed_forms = all(activation.kernel_of_correlation is not None for activation in activations)
        if has_closed_forms or is_traced(found, self.problem.data.features):
            return found
        if not all(bool(jnp.isfinite(value)) for value in point.values()):
            return found
        # Compare the kernel with one of full precision.
        numbers, variances = self.problem.bound.numbers(), self.theory.base.symbols.variances
        scales = [float(numbers[s]) * float(q) for s, q in zip(variances, point.values(), strict=True)]
        between = jnp.asarray(scales[:-1], dtype=jnp.float64)
        rules = rules_for(activations, between, self._tokens[:, None])
        units = self._tokens, token_units(activations, rules, between, self._tokens)
        exact = np.asarray(token_kernel(activations, rules, between, units, units)) * np.prod(scales)
        off = np.max(np.abs(np.asarray(self._kernel(point, self._tokens)) - exact)) / np.max(np.abs(exact))
        if not off <= WARNED:
            warnings.warn(
                f"the averages in the action of {', '.join(each.name for each in activations)} cause a relative error "
                f"of {off:.2g} of the kernel at the solution; use bpkr.solve, which has full precision",
                KernelWarning,
                stacklevel=2,
            )
        return found

    def _kernels(self, point, test_features):
        count = len(self._tokens)
        kernel = self._kernel(point, jnp.concatenate([self._tokens, _tokens(test_features)]))
        return kernel[:count, :count], kernel[count:, :count], jnp.diagonal(kernel)[count:]

    def _kernel(self, point: Mapping[Expr, Array], tokens: Float[Array, "examples features"]) -> Float[Array, "e e"]:
        """Compute the kernel of the action at its order parameters, among the examples of `tokens`."""
        compiled = _compiled(self.theory.kernel, self.theory.base, tuple(self.theory.action.order_parameters))
        return compiled.call_from(self.problem.bound.numbers() | dict(point) | {self._inputs: tokens.T})["kernel"]


def _tokens(features: ImplicitFeatures) -> Float[Array, "examples features"]:
    """Return the token that the readout takes from each example."""
    reading = np.asarray(features.readings[:, :, 0])
    if not np.all(np.isin(reading, (0.0, 1.0))) or not np.all(np.sum(reading, axis=1) == 1):
        raise ValueError('the nested form reads one token; make features with readout="first", "last" or positions')
    return features.tokens[np.arange(len(features)), np.argmax(reading, axis=1)]


@lru_cache
def _compiled(kernel: MatrixExpr, base: Action, order_parameters: tuple[Symbol, ...]) -> CompiledFunction:
    arguments = (*order_parameters, *base.symbols.variances, _inputs(base))
    return compile_expressions("nested_kernel", {"kernel": kernel}, arguments)
