"""Embedding functions with a mean: a second matrix of order parameters, and a min-max point.

Given the weights w above a unit, the readings of hidden units phi(h) are Gaussian with mean m and centred covariance
kappa - m m^T. Integrating out the weights w of one unit, with prior covariance C, gives

    logdet(I + C B) + b^T (C^{-1} + B)^{-1} b / N_1,   where B and b are covariance and mean of the readings.

With U conjugate to B and V = (C^{-1} + B)^{-1} this becomes

    S_1 = N_1 (tr(C^{-1} U) - tr(U V^{-1}) - logdet V + logdet C),   K = U on kappa - m m^T, V on m m^T.

Without a mean V = U is stationary, and S_1 is the entropy of `bpkr.derive`. Source: Pacelli et al., Nature Machine
Intelligence (2023), arXiv 2209.04882, for one hidden layer and one path, with V = 1/(lambda_1 (1 + Qbar)).
"""

from functools import lru_cache
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float
from sympy import Add, Inverse, MatrixSymbol, S, Trace, expand

from ... import saddle
from ...compilation import jit
from ...derivation import Derivation, Step
from ...derivation.claims import Average
from ...saddle.domains import Positive, PositiveDefinite
from ...settings import usual_settings
from ...symbolic import inverse, log_det, normal, positive_definite, sum_of
from ...symbolic.atoms import LogDet
from ..action.action import Action
from ..action.derivation import derive
from ..evaluation.formulas import flat_features
from ..evaluation.problem import Problem, as_problem
from ..features.from_kernels import square_root
from ..features.implicit import ImplicitFeatures
from ..features.token_kernels import token_means
from ..order_parameters.order_parameters import gp_limit
from ..specification.architecture import Architecture, checked_architecture
from .theory import AbstractNonlinearProblem, NonlinearAction

_ASSUMPTION = "the mean of the hidden units is separate: readings are Gaussian with this mean given the weights above"


def derive_with_mean(architecture: Architecture) -> NonlinearAction:
    """Derive the action for an embedding with a mean, in U_1, V_1, and the order parameters of `bpkr.derive`.

    A stationary point is a maximum in as many directions as V_1 has independent entries.

    Raises:
        ValueError: the embedding has no mean, a layer above it is nonlinear, or the first layer has a skip connection.
    """
    checked_architecture(architecture)
    if len(architecture.activations) > 1:
        raise ValueError(
            "architecture has a nonlinear dense layer, but this theory covers only the mean of the embedding: all "
            "layers must be linear"
        )
    if architecture.embedding.mean == 0:
        raise ValueError(
            f"architecture has the embedding {architecture.embedding.name}, which has no mean; use bpkr.solve, which "
            "is the same theory"
        )
    if architecture.forms and architecture.forms[0].has_skip:
        raise ValueError("architecture has a skip connection in the first layer, which this theory does not cover")
    return _derive(derive(architecture))


@lru_cache
def _derive(base: Action) -> NonlinearAction:
    symbols, first = base.symbols, base.symbols.first
    other, means = mean_symbols(base)
    width = symbols.widths[0]
    entropy = expand(base.entropies[0])
    # The log-determinant of U_1, which the entropy multiplies by -N_1.
    (volume,) = (node for node in entropy.atoms(LogDet) if node.matrix == first)
    in_v1 = Trace(first * Inverse(other)) + volume.xreplace({first: other})
    replaced = entropy + width * volume - width * in_v1
    kernel = base.kernel + means * other * means.T
    entropies = [base.substitute_nested(each) for each in (replaced, *base.entropies[1:])]
    free = (first, other, *(symbol for symbol in symbols.free if symbol != first))
    domains = {symbol: PositiveDefinite() if symbol.is_Matrix else Positive() for symbol in free}
    parameters = symbols.completed((*symbols.numbers, symbols.features, means, symbols.labels))
    expression = Add(*entropies, base.energy.xreplace({base.kernel: kernel}))
    size = first.shape[0]
    weights, mean = MatrixSymbol("w", size, 1), MatrixSymbol("b", size, 1)
    covariance, prior = positive_definite("B", size), positive_definite("C", size)
    precision = sum_of([inverse(prior), covariance])
    before = normal(Trace(weights.T * covariance * weights) + 2 * S.ImaginaryUnit * Trace(mean.T * weights))
    after = normal(log_det(prior) + log_det(precision) + Trace(mean.T * inverse(precision) * mean))
    claim = Average(weights, prior)
    step = Step("Gaussian integral", before, after, claim, assumptions=(_ASSUMPTION,), section="Mean")
    derivation = Derivation((step,), base.derivation.sizes)
    action = saddle.Action(expression, domains, parameters, symbols.widths[-1], derivation)
    return NonlinearAction(action, kernel, base, (*base.ansatz, _ASSUMPTION))


def mean_symbols(base: Action) -> tuple[MatrixSymbol, MatrixSymbol]:
    """Return V_1, and the mean readings of the training examples along every path (labels x n_1)."""
    size = base.symbols.first.shape[0]
    return positive_definite("V_1", size), MatrixSymbol("m", base.symbols.features.shape[0], size)


class MeanProblem(AbstractNonlinearProblem):
    """The problem of `derive_with_mean` for an architecture with its data.

    Args:
        problem: the architecture with its data, whose features are from `bpkr.path_features`.

    Raises:
        ValueError: the embedding has no mean, a layer above it is nonlinear, or the first layer has a skip connection.
    """

    @usual_settings()
    def __init__(self, problem: Problem):
        problem = as_problem(problem)
        self.problem, self.theory = problem, derive_with_mean(problem.architecture)
        problem.require_labels()
        bound, data, architecture = problem.bound, problem.data, problem.architecture
        _, means = mean_symbols(self.theory.base)
        # Feature vectors for the centred kernels, with one column per path and example.
        centred = square_root(_centred_kernels(data.features, mean_by_path(architecture, data.features)))
        values = bound.numbers() | bound.data(centred, data.labels)
        values[means] = _mean_readings(architecture, data.features)
        self.values = {symbol: values[symbol] for symbol in self.theory.action.parameters}

    def solve(self, **options: Any) -> saddle.Solution:
        """Find the min-max point with `saddle.stationary`, to which `options` are passed.

        The search starts at infinite width, or at `initial` if it is given. `initial=None` starts at random points.
        """
        architecture, base = self.problem.architecture, self.theory.base
        if "initial" not in options:
            point = self.problem.bound.point(gp_limit(architecture))
            point[mean_symbols(base)[0]] = point[base.symbols.first]
            options["initial"] = {symbol: point[symbol] for symbol in self.theory.action.order_parameters}
        size = architecture.overlap_sizes[0]
        return saddle.stationary(self.theory.action, self.values, index=size * (size + 1) // 2, **options)

    def _kernels(self, point, test_features):
        base, features = self.theory.base, self.problem.data.features
        u1, v1 = point[base.symbols.first], point[mean_symbols(base)[0]]
        here, there = (_mean_readings(self.problem.architecture, each) for each in (features, test_features))
        return _kernels(u1, v1, features, here, test_features, there)


@jit
def _centred_kernels(features: ImplicitFeatures, means: Float[Array, "examples paths"]):
    return features.path_kernels() - jnp.einsum("ea,vb->abev", means, means)


def mean_by_path(architecture: Architecture, features: ImplicitFeatures) -> Float[Array, "examples paths"]:
    """Return the mean that each path reads from each example."""
    flat = features.tokens.reshape(-1, features.tokens.shape[2])
    of_tokens = token_means(architecture.embedding, features.rules[0], flat).reshape(features.tokens.shape[:2])
    return jnp.einsum("es,esp->ep", of_tokens, features.readings)


def _mean_readings(architecture: Architecture, features: ImplicitFeatures) -> Float[Array, "rows n"]:
    """Return the means, with one row per label and one column per (path, output)."""
    return flat_features(architecture, mean_by_path(architecture, features)[:, :, None])


@jit
def _kernels(u1, v1, features, here, test_features, there):
    kernel = features.kernel(u1, features) + here @ (v1 - u1) @ here.T
    between = test_features.kernel(u1, features) + there @ (v1 - u1) @ here.T
    diagonal = test_features.kernel_diagonal(u1) + jnp.sum(there @ (v1 - u1) * there, axis=1)
    return kernel, between, diagonal
