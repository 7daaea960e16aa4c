"""Problems that the tests of theory 1 draw (few shapes: each costs a compilation; any numbers), explicit oracles."""

import itertools
import math
import re
from dataclasses import dataclass

import equinox as eqx
import numpy as np
import pytest
from hypothesis import strategies as st
from jax.typing import ArrayLike
from sympy import Identity, KroneckerProduct, OneMatrix, sqrt

from theorykit import bpkr
from theorykit.bpkr import AbstractLayer, Attention, Dense, Skip

from . import problems as drawn
from .problems import INPUT_FEATURES, Problem

READOUTS = ("first", "last", "mean")


@dataclass(frozen=True)
class Case:
    """An architecture but for its temperature; layers, widths and variances differ from layer to layer."""

    layers: tuple[int | AbstractLayer, ...]
    widths: tuple[float, ...]
    variances: tuple[float, ...]
    outputs: int = 1
    read_tokens: int = 1
    embedding: str = "identity"

    def architecture(self, temperature: float = 0.3) -> bpkr.Architecture:
        return bpkr.Architecture(
            self.layers,
            self.widths,
            self.variances,
            temperature=temperature,
            outputs=self.outputs,
            read_tokens=self.read_tokens,
            embedding=self.embedding,
        )

    @property
    def heads(self) -> tuple[int, ...]:
        """Heads of every layer; 0 where a layer has none."""
        return tuple(layer if isinstance(layer, int) else layer.heads for layer in self.layers)


class CorrelatedHeads(AbstractLayer):
    """Attention whose heads' value weights have a prior covariance of their own."""

    covariance: ArrayLike
    heads: int = eqx.field(static=True)

    def forward(self, layer):
        return Attention(self.heads).forward(layer)

    def prior(self, layer):
        return layer.covariance("kappa", layer.heads)

    def parameters(self, layer):
        return {layer.covariance("kappa", layer.heads): self.covariance}


class TiedHeads(AbstractLayer):
    """Attention whose heads share one block of value weights."""

    heads: int = eqx.field(static=True)

    def forward(self, layer):
        everywhere = KroneckerProduct(OneMatrix(1, layer.heads), layer.hidden)
        return layer.weights(1) * everywhere * layer.attention / sqrt(layer.heads * layer.width)

    def prior(self, layer):
        return layer.variance * Identity(1)


class Pooling(AbstractLayer):
    """Weights act on the token itself, and a skip connection hands on the average over tokens."""

    gain: ArrayLike

    @property
    def heads(self):
        return 0

    def forward(self, layer):
        average = OneMatrix(layer.tokens, layer.tokens) / layer.tokens
        return layer.weights(1) * layer.hidden / sqrt(layer.width) + layer.number("c") * layer.hidden * average

    def prior(self, layer):
        return layer.variance * Identity(1)

    def parameters(self, layer):
        return {layer.number("c"): self.gain}


ONE_HEAD = Case((1, 1), (7.0, 12.0, 9.0), (1.3, 0.8, 1.7, 0.6))
ONE_LAYER = Case((3,), (30.0, 20.0), (1.2, 0.7, 1.5))
TWO_LAYERS = Case((3, 2), (40.0, 25.0, 60.0), (0.9, 1.3, 0.6, 1.7))
THREE_LAYERS = Case((2, 1, 2), (50.0, 20.0, 30.0, 45.0), (1.1, 0.7, 1.4, 0.9, 1.2))
CASES = (ONE_HEAD, ONE_LAYER, TWO_LAYERS, THREE_LAYERS)  # of attention alone

DENSE_BETWEEN = Case((2, Dense(), 2), (30.0, 20.0, 25.0, 40.0), (1.1, 0.8, 1.4, 0.9, 0.7))
SKIP_FIRST = Case((Skip(2, 0.7), 3), (30.0, 30.0, 20.0), (0.8, 1.2, 0.9, 1.3))
SKIP_LAST = Case((2, Skip(Dense(), 1.3)), (20.0, 30.0, 30.0), (0.9, 1.4, 0.7, 1.2))
ALL_SKIPS = Case((Skip(2, 0.6), Skip(1, 1.2)), (40.0, 40.0, 40.0), (1.3, 0.7, 1.1, 0.8), outputs=2)
TWO_OUTPUTS = Case((3, 2), (40.0, 25.0, 30.0), (0.9, 1.3, 0.6, 1.7), outputs=2)
DEEP_LINEAR = Case((Dense(), Dense()), (12.0, 20.0, 15.0), (0.8, 1.2, 0.9, 1.3), outputs=3)
CORRELATED = np.array([[1.4, 0.3], [0.3, 0.6]])
OWN_KINDS = Case(
    (CorrelatedHeads(CORRELATED, 2), Pooling(0.8), TiedHeads(3)), (30.0, 25.0, 25.0, 20.0), (1.1, 1.0, 0.8, 1.3, 0.9)
)
SKIP_AROUND_OWN = Case((Skip(CorrelatedHeads(np.diag([1.5, 0.5]), 2), 0.9),), (25.0, 25.0), (1.2, 1.0, 0.8))
GRAMMAR = (DENSE_BETWEEN, SKIP_FIRST, SKIP_LAST, ALL_SKIPS, TWO_OUTPUTS, DEEP_LINEAR, OWN_KINDS, SKIP_AROUND_OWN)

NO_LAYERS = Case((), (15.0,), (1.2, 0.8), outputs=2)
EVERY_TOKEN = Case((Skip(2, 0.7),), (25.0, 25.0), (0.9, 1.3, 0.7), read_tokens=2)
EVERY_TOKEN_ALONE = Case((), (20.0,), (1.1, 0.7), read_tokens=3)
READOUTS_OF_TOKENS = (NO_LAYERS, EVERY_TOKEN, EVERY_TOKEN_ALONE)

ANY_CASE = st.sampled_from(CASES)
ANY_OF_THE_GRAMMAR = st.sampled_from(GRAMMAR)
ANY_ACTION = st.sampled_from((*CASES, *GRAMMAR, *READOUTS_OF_TOKENS))
SHALLOW_OR_DEEP = st.sampled_from((ONE_LAYER, THREE_LAYERS))  # where the number of layers in between does not matter
SEEDS = st.integers(0, 2**32 - 1)
TEMPERATURES = st.floats(-2, 1).map(lambda exponent: 10.0**exponent)


def problems(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[Problem]:
    """Problems of any of `cases`, at any temperature."""
    architectures = st.builds(Case.architecture, cases, TEMPERATURES)
    return st.builds(drawn.random_problem, architectures, SEEDS)


def random_problem(case: Case, seed: int) -> Problem:
    """The problem of `case` with this seed, at a random temperature."""
    temperature = 10 ** np.random.default_rng(seed).uniform(-2, 1)
    return drawn.random_problem(case.architecture(float(temperature)), seed)


def explicit_gain(layer: AbstractLayer) -> float:
    """The strength of a layer's skip connection; zero where there is none."""
    return float(layer.gain) if isinstance(layer, (Skip, Pooling)) else 0.0


def explicit_branches(layer: AbstractLayer, attention: np.ndarray | None, tokens: int) -> list[np.ndarray]:
    """How each branch of a layer mixes tokens (keys x queries), from its `attention` (heads, keys, queries)."""
    if isinstance(layer, Skip):
        return [np.eye(tokens), *explicit_branches(layer.layer, attention, tokens)]
    if isinstance(layer, Pooling):
        return [np.full((tokens, tokens), 1 / tokens), np.eye(tokens)]
    if isinstance(layer, Dense):
        return [np.eye(tokens)]
    heads = [head / math.sqrt(layer.heads) for head in attention]
    return [sum(heads)] if isinstance(layer, TiedHeads) else heads


def explicit_covariance(layer: AbstractLayer, variance: float) -> np.ndarray:
    """The prior covariance of a layer's weight blocks."""
    if isinstance(layer, Skip):
        return explicit_covariance(layer.layer, variance)
    if isinstance(layer, CorrelatedHeads):
        return np.asarray(layer.covariance)
    return variance * np.eye(layer.heads if isinstance(layer, Attention) else 1)


def random_key_queries(heads: tuple[int, ...], rng: np.random.Generator, features: int = INPUT_FEATURES):
    """Key-query products of every layer that has heads."""
    return [rng.normal(size=(head, features, features)) / features for head in heads if head]


def random_projections(heads: tuple[int, ...], rng: np.random.Generator):
    """Queries and keys with biases of every layer that has heads."""
    shapes = [(count, 3, INPUT_FEATURES) for count in heads if count]
    found = {name: [rng.normal(size=shape) for shape in shapes] for name in ("query", "key")}
    return found | {f"{name}_bias": [rng.normal(size=shape[:2]) for shape in shapes] for name in found}


def explicit_kernel(order_parameters: bpkr.OrderParameters, features: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Eq. (10) as it stands: one term for each pair of paths, and of outputs."""
    paths = features.shape[1]
    mixing = np.asarray(order_parameters.first)
    outputs = len(mixing) // paths
    kernel = np.zeros((len(features), outputs, len(other), outputs))
    for a, c, b, d in itertools.product(range(paths), range(outputs), repeat=2):
        kernel[:, c, :, d] += mixing[a * outputs + c, b * outputs + d] * features[:, a] @ other[:, b].T
    return kernel.reshape(len(features) * outputs, -1)


def explicit_entropies(architecture: bpkr.Architecture, order_parameters: bpkr.OrderParameters) -> list[float]:
    """[S_1, ..., S_L, S_a] with every Kronecker product formed."""
    outer = np.atleast_2d(order_parameters.readout)
    width, variance = architecture.widths[-1], architecture.prior_variances[-1]
    entropies = [width * (np.trace(outer) / variance - log_det(outer))]
    numbers = zip(architecture.layers, architecture.widths, architecture.prior_variances[1:], strict=False)
    for (layer, width, variance), matrix in reversed(list(zip(numbers, order_parameters.matrices, strict=True))):
        matrix, covariance = np.asarray(matrix), explicit_covariance(layer, variance)
        blocks, schur_log_det = matrix, log_det(matrix)
        if explicit_gain(layer):  # the powers of the gain in the determinants are constants, and dropped
            blocks, schur_log_det = matrix[len(outer) :, len(outer) :], log_det(matrix) - log_det(outer)
        mismatch = np.trace(np.linalg.inv(np.kron(covariance, outer)) @ blocks)
        entropies.append(width * (mismatch - schur_log_det + len(covariance) * log_det(outer)))
        outer = matrix
    return entropies[::-1]


def log_det(matrix: np.ndarray) -> float:
    sign, value = np.linalg.slogdet(matrix)
    assert sign > 0
    return value


def explicit_energy(problem: Problem) -> float:
    """Eq. (12) by an explicit inverse."""
    kernel = explicit_kernel(problem.order_parameters, problem.features, problem.features)
    regularised = kernel + problem.architecture.temperature * np.eye(len(kernel))
    labels = problem.labels.ravel()
    return log_det(regularised) + labels @ np.linalg.inv(regularised) @ labels


def assert_close(actual, desired, tolerance: float = 1e-10) -> None:
    """Equal to within `tolerance` of the largest entry."""
    desired = np.asarray(desired)
    np.testing.assert_allclose(actual, desired, rtol=0, atol=tolerance * max(np.max(np.abs(desired)), 1e-300))


def refused(text: str):
    """Expects a ValueError whose message contains `text`."""
    return pytest.raises(ValueError, match=re.escape(text))
