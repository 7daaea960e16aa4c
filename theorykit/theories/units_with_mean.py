"""Embedding functions with a mean: a second matrix of order parameters.

Given the weights w above a unit, the readings of hidden units phi(h) are Gaussian with
mean m and covariance kappa - m m^T. Integrating out w, with prior covariance C, gives

    logdet(I + C B) + b^T (C^{-1} + B)^{-1} b / N_1

for readings of covariance B and mean b. With U conjugate to B and V = (C^{-1} + B)^{-1} this becomes

    S_1 = N_1 (tr(C^{-1} U) - tr(U V^{-1}) - logdet V + logdet C),
    K = U on kappa - m m^T, V on m m^T.

Without a mean V = U is stationary, and S_1 is the entropy of `bpkr.derive`. The theory is
an ansatz for numbers of examples proportional to the widths. Source, for one hidden layer
and one path, with V = 1/(lambda_1 (1 + Qbar)): Pacelli et al., Nature Machine
Intelligence (2023), arXiv:2209.04882.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float
from sympy import Add, Expr, Inverse, MatrixSymbol, S, Trace, expand

from .. import bpkr, saddle
from .._jit import jit
from ..bpkr.evaluation.formulas import flat_features
from ..bpkr.evaluation.problem import as_problem
from ..bpkr.evaluation.values import prediction_from_kernels
from ..bpkr.features.implicit import ImplicitFeatures, token_means
from ..bpkr.features.kernels import kernel_between, kernel_of_each
from ..derivation import Derivation, Step
from ..derivation.claims import Average
from ..saddle.domains import Positive, PositiveDefinite
from ..symbolic import inverse, log_det, normal, positive_definite, sum_of
from ..symbolic.atoms import LogDet

_ASSUMPTION = "readings are Gaussian with the mean of the hidden units, given the weights above"


def action(architecture: bpkr.Architecture) -> saddle.Action:
    """Return the action in V_1 and the order parameters of `bpkr.derive`.

    A solution is a maximum in as many directions as V_1 has independent entries.

    Args:
        architecture: linear layers above an embedding with a mean.

    Raises:
        ValueError: the embedding has no mean, a layer above it is nonlinear, or the
            first layer has a skip connection.
    """
    if len(architecture.activations) > 1 or architecture.embedding.mean == 0:
        raise ValueError(
            "architecture must have an embedding with a mean and linear layers above it, got "
            f"{architecture.embedding.name} and {architecture.layers}"
        )
    if architecture.forms and architecture.forms[0].has_skip:
        raise ValueError("architecture must have no skip connection in its first layer")
    return _derive(bpkr.derive(architecture))


@lru_cache
def _derive(base: bpkr.Action) -> saddle.Action:
    symbols, first = base.symbols, base.symbols.first
    (other, means), width, size = _symbols(base), symbols.widths[0], first.shape[0]
    entropy = expand(base.entropies[0])
    # The log-determinant of U_1, which the entropy multiplies by -N_1.
    (volume,) = (node for node in entropy.atoms(LogDet) if node.matrix == first)
    in_v1 = Trace(first * Inverse(other)) + volume.xreplace({first: other})
    replaced = entropy + width * volume - width * in_v1
    entropies = [base.substitute_nested(each) for each in (replaced, *base.entropies[1:])]
    energy = base.energy.xreplace({base.kernel: base.kernel + means * other * means.T})
    free = (first, other, *(symbol for symbol in symbols.free if symbol != first))
    domains = {symbol: PositiveDefinite() if symbol.is_Matrix else Positive() for symbol in free}
    parameters = symbols.completed((*symbols.numbers, symbols.features, means, symbols.labels))
    weights, mean = MatrixSymbol("w", size, 1), MatrixSymbol("b", size, 1)
    covariance, prior = positive_definite("B", size), positive_definite("C", size)
    precision = sum_of([inverse(prior), covariance])
    before = normal(Trace(weights.T * covariance * weights) + 2 * S.ImaginaryUnit * Trace(mean.T * weights))
    after = normal(log_det(prior) + log_det(precision) + Trace(mean.T * inverse(precision) * mean))
    claim = Average(weights, prior)
    step = Step("Gaussian integral", before, after, claim, assumptions=(_ASSUMPTION,), section="Mean")
    derivation = Derivation((step,), base.derivation.sizes)
    return saddle.Action(Add(*entropies, energy), domains, parameters, symbols.widths[-1], derivation)


def _symbols(base: bpkr.Action) -> tuple[MatrixSymbol, MatrixSymbol]:
    """Return V_1, and the mean readings of the training examples (labels x n_1)."""
    size = base.symbols.first.shape[0]
    return positive_definite("V_1", size), MatrixSymbol("m", base.symbols.features.shape[0], size)


def values(problem: bpkr.Problem) -> dict[Expr, Any]:
    """Return the value of every parameter of `action`, by symbol."""
    bound, features = as_problem(problem).bound, problem.data.features
    means = _means_of_paths(problem.architecture, features)
    kernels = features.by_example(features, lambda kernels: kernels.swapaxes(1, 2))
    kernels = kernels.reshape(means.size, -1)
    # Feature vectors for the centred kernels.
    squares, vectors = jnp.linalg.eigh(kernels - jnp.outer(means, means))
    vectors = vectors * jnp.sqrt(jnp.maximum(squares, 0.0))
    vectors = vectors.reshape(*means.shape, -1)
    found = bound.numbers() | bound.data(vectors, problem.data.labels)
    found[_symbols(bound.action)[1]] = _mean_readings(problem.architecture, features)
    return {symbol: found[symbol] for symbol in action(problem.architecture).parameters}


def solve(problem: bpkr.Problem, **options: Any) -> saddle.Solution:
    """Return the min-max point, found with `options` of `saddle.stationary`.

    The search starts at infinite width, or at `initial`.
    """
    of_problem = action(problem.architecture)
    if "initial" not in options:
        point = problem.bound.point(bpkr.gp_limit(problem.architecture))
        point[_symbols(problem.bound.action)[0]] = point[problem.bound.symbols.first]
        options["initial"] = {symbol: point[symbol] for symbol in of_problem.order_parameters}
    size = problem.architecture.overlap_sizes[0]
    return saddle.stationary(of_problem, values(problem), index=size * (size + 1) // 2, **options)


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
    features, test_features = problem.data.features, problem.test_features(test_features)
    here, there = (_mean_readings(problem.architecture, each) for each in (features, test_features))
    u1, v1 = (jnp.asarray(point[each]) for each in (problem.bound.symbols.first, _symbols(problem.bound.action)[0]))
    kernels = _kernels(u1, v1, features, here, test_features, there)
    labels = problem.data.labels.reshape(-1, 1)
    return replace(problem.finite(prediction_from_kernels(problem.bound, *kernels, labels)), ansatz=problem.ansatz)


def _means_of_paths(
    architecture: bpkr.Architecture,
    features: ImplicitFeatures,
) -> Float[Array, "examples paths"]:
    """Return the mean that each path reads from each example."""
    examples, tokens, width = features.tokens.shape
    flat = features.tokens.reshape(-1, width)
    means = token_means(architecture.embedding, features.rules[0], flat)
    return jnp.einsum("es,esp->ep", means.reshape(examples, tokens), features.readings)


def _mean_readings(
    architecture: bpkr.Architecture,
    features: ImplicitFeatures,
) -> Float[Array, "rows n"]:
    """Return means with one row per label and one column per (path, output)."""
    return flat_features(architecture, _means_of_paths(architecture, features)[:, :, None])


@jit
def _kernels(u1, v1, features, here, test_features, there):
    kernel = kernel_between(u1, features, features) + here @ (v1 - u1) @ here.T
    between = kernel_between(u1, test_features, features) + there @ (v1 - u1) @ here.T
    of_each = kernel_of_each(u1, test_features)
    there = there.reshape(*of_each.shape[:2], -1)
    return kernel, between, of_each + there @ (v1 - u1) @ there.swapaxes(1, 2)
