"""Problems that the tests of theory 1 draw (few shapes: each costs a compilation; any numbers), explicit oracles."""

import itertools
import math
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from theorykit import bpkr

EXAMPLES, TEST_EXAMPLES, TOKENS, INPUT_FEATURES = 5, 3, 4, 6
READOUTS = ("first", "last", "mean")


@dataclass(frozen=True)
class Case:
    """An architecture but for its temperature; heads, widths and variances differ from layer to layer."""

    heads: tuple[int, ...]
    widths: tuple[float, ...]
    variances: tuple[float, ...]

    def architecture(self, temperature: float = 0.3) -> bpkr.Architecture:
        return bpkr.Architecture(self.heads, self.widths, self.variances, temperature=temperature)


ONE_HEAD = Case((1, 1), (7.0, 12.0, 9.0), (1.3, 0.8, 1.7, 0.6))
ONE_LAYER = Case((3,), (30.0, 20.0), (1.2, 0.7, 1.5))
TWO_LAYERS = Case((3, 2), (40.0, 25.0, 60.0), (0.9, 1.3, 0.6, 1.7))
THREE_LAYERS = Case((2, 1, 2), (50.0, 20.0, 30.0, 45.0), (1.1, 0.7, 1.4, 0.9, 1.2))
CASES = (ONE_HEAD, ONE_LAYER, TWO_LAYERS, THREE_LAYERS)

ANY_CASE = st.sampled_from(CASES)
SHALLOW_OR_DEEP = st.sampled_from((ONE_LAYER, THREE_LAYERS))  # where the number of layers in between does not matter
SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Problem:
    """An architecture, order parameters of random positive definite matrices, and random data."""

    architecture: bpkr.Architecture
    order_parameters: bpkr.OrderParameters
    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray

    def evaluate(self) -> bpkr.ActionTerms:
        return bpkr.evaluate(self.architecture, self.order_parameters, self.features, self.labels)

    def predict(self) -> bpkr.Prediction:
        return bpkr.predict(self.architecture, self.order_parameters, self.features, self.labels, self.test_features)

    def at_temperature(self, temperature: float) -> "Problem":
        old = self.architecture
        new = bpkr.Architecture(old.heads, old.widths, old.prior_variances, temperature=temperature)
        return replace(self, architecture=new)


def random_problem(case: Case, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    architecture = case.architecture(temperature=float(10 ** rng.uniform(-2, 1)))
    shape = (architecture.paths, INPUT_FEATURES)
    return Problem(
        architecture=architecture,
        order_parameters=random_order_parameters(architecture, rng),
        features=rng.normal(size=(EXAMPLES, *shape)) / math.sqrt(math.prod(shape)),
        labels=rng.normal(size=EXAMPLES),
        test_features=rng.normal(size=(TEST_EXAMPLES, *shape)) / math.sqrt(math.prod(shape)),
    )


def random_order_parameters(architecture: bpkr.Architecture, rng: np.random.Generator) -> bpkr.OrderParameters:
    def positive_definite(size):
        factor = rng.normal(size=(size, size + 2))
        return rng.uniform(0.3, 3) * (factor @ factor.T / (size + 2) + 0.1 * np.eye(size))

    matrices = tuple(positive_definite(size) for size in architecture.order_parameter_sizes)
    return bpkr.OrderParameters(matrices, rng.uniform(0.3, 3))


def random_key_queries(heads: tuple[int, ...], rng: np.random.Generator, features: int = INPUT_FEATURES):
    return [rng.normal(size=(head, features, features)) / features for head in heads]


def random_inputs(rng: np.random.Generator, examples: int = EXAMPLES) -> np.ndarray:
    return rng.normal(size=(examples, TOKENS, INPUT_FEATURES))


def random_permutation(architecture: bpkr.Architecture, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """A layer (counted from 0) and a permutation of its heads."""
    layer = int(rng.integers(architecture.depth))
    return layer, rng.permutation(architecture.heads[layer])


def permuted_paths(heads: tuple[int, ...], layer: int, permutation: np.ndarray) -> np.ndarray:
    """The old index of every (partial) path through `heads` once the heads of `layer` are permuted."""
    return np.arange(math.prod(heads)).reshape(heads).take(permutation, axis=layer).ravel()


def permuted_order_parameters(
    architecture: bpkr.Architecture, order_parameters: bpkr.OrderParameters, layer: int, permutation: np.ndarray
) -> bpkr.OrderParameters:
    matrices = list(order_parameters.matrices)
    for i in range(layer + 1):
        order = permuted_paths(architecture.heads[i:], layer - i, permutation)
        matrices[i] = matrices[i][np.ix_(order, order)]
    return bpkr.OrderParameters(tuple(matrices), order_parameters.readout)


def explicit_kernel(order_parameters: bpkr.OrderParameters, features: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Eq. (10) as it stands: one term for each pair of paths."""
    mixing = np.asarray(order_parameters.matrices[0])
    pairs = itertools.product(range(len(mixing)), repeat=2)
    return sum(mixing[a, b] * features[:, a] @ other[:, b].T for a, b in pairs)


def explicit_entropies(architecture: bpkr.Architecture, order_parameters: bpkr.OrderParameters) -> list[float]:
    """[S_1, ..., S_L, S_a] with every Kronecker product I (x) U_{l+1} formed."""
    outer = np.asarray(order_parameters.readout).reshape(1, 1)
    width, variance = architecture.widths[-1], architecture.prior_variances[-1]
    entropies = [width * (outer[0, 0] / variance - math.log(outer[0, 0]))]
    numbers = zip(architecture.heads, architecture.widths, architecture.prior_variances[1:], strict=False)
    for (heads, width, variance), matrix in reversed(list(zip(numbers, order_parameters.matrices, strict=True))):
        matrix, prior = np.asarray(matrix), np.kron(np.eye(heads), outer)
        mismatch = np.trace(np.linalg.inv(prior) @ matrix) / variance
        entropies.append(width * (mismatch - np.linalg.slogdet(matrix)[1] + np.linalg.slogdet(prior)[1]))
        outer = matrix
    return entropies[::-1]


def explicit_energy(problem: Problem) -> float:
    """Eq. (12) by an explicit inverse."""
    kernel = explicit_kernel(problem.order_parameters, problem.features, problem.features)
    regularised = kernel + problem.architecture.temperature * np.eye(len(kernel))
    return np.linalg.slogdet(regularised)[1] + problem.labels @ np.linalg.inv(regularised) @ problem.labels


def symbol_values(problem: Problem) -> dict[str, np.ndarray | float]:
    """The value of every symbol of the action by name, sizes included, for the NumPy interpreter."""
    architecture, symbols = problem.architecture, bpkr.derive(problem.architecture).symbols
    scalars = {
        **dict(zip(symbols.heads, map(float, architecture.heads), strict=True)),
        **dict(zip(symbols.widths, architecture.widths, strict=True)),
        **dict(zip(symbols.variances, architecture.prior_variances[1:], strict=True)),
        symbols.temperature: architecture.temperature,
        symbols.input_features: float(INPUT_FEATURES),
        symbols.readout: float(problem.order_parameters.readout),
        symbols.labels.shape[0]: float(EXAMPLES),
        symbols.test_features.shape[0]: float(TEST_EXAMPLES),
    }
    matrices = {
        **dict(zip(symbols.matrices, map(np.asarray, problem.order_parameters.matrices), strict=True)),
        symbols.features: problem.features.reshape(EXAMPLES, -1),
        symbols.test_features: problem.test_features.reshape(TEST_EXAMPLES, -1),
        symbols.labels: problem.labels[:, None],
    }
    return {symbol.name: value for symbol, value in {**scalars, **matrices}.items()}


def assert_close(actual, desired, tolerance: float = 1e-10) -> None:
    """Equal to within `tolerance` of the largest entry."""
    desired = np.asarray(desired)
    np.testing.assert_allclose(actual, desired, rtol=0, atol=tolerance * max(np.max(np.abs(desired)), 1e-300))


def changed(array: np.ndarray, index, value) -> np.ndarray:
    """A copy of `array` with one entry, or one example, replaced."""
    copy = np.array(array)
    copy[index] = value
    return copy


def refused(text: str):
    """Expects a ValueError whose message contains `text`."""
    return pytest.raises(ValueError, match=re.escape(text))
