"""Random problems of theory 1: order parameters of an architecture and data that fit it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import equinox as eqx
import numpy as np

from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import compiled_terms
from theorykit.bpkr.evaluation.values import ActionTerms
from theorykit.bpkr.order_parameters import from_overlaps
from theorykit.bpkr.specification.layers import evaluate_form

# Sizes are small and fixed, because every new shape needs another compilation.
EXAMPLES, TEST_EXAMPLES, TOKENS, INPUT_FEATURES = 5, 3, 4, 6


@dataclass(frozen=True, repr=False)
class Problem:
    """An architecture, random positive definite order parameters, and path features with labels."""

    architecture: bpkr.Architecture
    order_parameters: bpkr.OrderParameters
    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    seed: int | None = None

    def __repr__(self):
        return f"{'Problem' if self.seed is None else 'random_problem'}({self.architecture}, seed={self.seed})"

    def evaluate(self):
        """Evaluate the action and its parts at the order parameters."""
        return bpkr.evaluate(self._bound(), self.order_parameters)

    def predict(self):
        """Predict the test examples at the order parameters."""
        return bpkr.predict(self._bound(), self.order_parameters, self.test_features)

    def _bound(self):
        return bpkr.Problem(self.architecture, bpkr.Data(self.features, self.labels))

    def at_temperature(self, temperature) -> Problem:
        """Return the same problem at another temperature."""
        return replace(self, architecture=replace(self.architecture, temperature=temperature))


def random_problem(architecture: bpkr.Architecture, seed: int) -> Problem:
    """Draw a problem with 5 training examples, 3 test examples and 6 input features."""
    rng = np.random.default_rng(seed)
    order_parameters = random_order_parameters(architecture, rng)
    shape, outputs = (architecture.paths, INPUT_FEATURES), architecture.outputs
    return Problem(
        architecture=architecture,
        order_parameters=order_parameters,
        features=rng.normal(size=(EXAMPLES, *shape)) / math.sqrt(math.prod(shape)),
        labels=rng.normal(size=(EXAMPLES, outputs) if outputs > 1 else EXAMPLES),
        test_features=rng.normal(size=(TEST_EXAMPLES, *shape)) / math.sqrt(math.prod(shape)),
        seed=seed,
    )


def random_order_parameters(architecture: bpkr.Architecture, rng: np.random.Generator) -> bpkr.OrderParameters:
    """Draw (U_1, ..., U_L, u). Across a skip connection, U_{l+1} times the squared gain is a block of U_l."""

    def positive_definite(size: int) -> np.ndarray:
        factor = rng.normal(size=(size, size + 2))
        return rng.uniform(0.3, 3) * (factor @ factor.T / (size + 2) + 0.1 * np.eye(size))

    numbers = architecture.layer_numbers()
    *sizes, last = architecture.overlap_sizes
    found = [positive_definite(last)]
    for form, size in zip(reversed(architecture.forms), reversed(sizes), strict=True):
        matrix = positive_definite(size)
        if form.has_skip:
            matrix = with_leading_block(matrix, float(evaluate_form(form.gain, numbers)) ** 2 * found[0])
        found.insert(0, matrix)
    return from_overlaps(found)


def with_leading_block(matrix: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Return a positive definite matrix similar to `matrix` with the leading block `block`."""
    # A congruence preserves positive definiteness. This one transforms the leading block L L^T to `block`.
    size, change = len(block), np.eye(len(matrix))
    old = np.linalg.cholesky(matrix[:size, :size])
    change[:size, :size] = np.linalg.solve(old.T, np.linalg.cholesky(block).T).T
    result = change @ matrix @ change.T
    result[:size, :size] = block
    return result


@eqx.filter_jit
def action_terms(bound, order_parameters: bpkr.OrderParameters, features, labels) -> ActionTerms:
    """Evaluate the generated function of arrays."""
    given = bound.numbers() | bound.point(order_parameters) | bound.data(features, labels)
    *entropies, energy, _ = compiled_terms(bound.action).call_from(given).values()
    return ActionTerms(tuple(entropies), energy)


def symbol_values(problem: Problem) -> dict[str, np.ndarray | float]:
    """Return the values of all symbols of the action, including sizes, by name, for `codegen.interpret`."""
    architecture, point = problem.architecture, problem.order_parameters
    symbols, outputs = bpkr.derive(architecture).symbols, architecture.outputs
    matrices = (*point.matrices, point.readout) if point.matrices else (point.first,)
    values = {
        **architecture.layer_numbers(),
        symbols.input_features.name: problem.features.shape[2],
        symbols.examples.name: len(problem.features),
        "P_test": len(problem.test_features),
        **{symbol.name: value for symbol, value in zip(symbols.order_parameters, matrices, strict=True)},
        symbols.features.name: _feature_matrix(problem.features, outputs),
        symbols.test_features.name: _feature_matrix(problem.test_features, outputs),
        symbols.labels.name: problem.labels.reshape(-1, 1),
    }
    return {name: np.asarray(value) if np.ndim(value) else float(value) for name, value in values.items()}


def _feature_matrix(features: np.ndarray, outputs: int) -> np.ndarray:
    """Return Phi, with one row per (example, output) pair and one column per (path, output, feature)."""
    examples, paths, width = features.shape
    found = np.zeros((examples, outputs, paths, outputs, width))
    for output in range(outputs):
        found[:, output, :, output] = features
    return found.reshape(examples * outputs, -1)


def random_inputs(rng: np.random.Generator, examples: int = EXAMPLES) -> np.ndarray:
    """Draw standard normal inputs (examples, 4 tokens, 6 features)."""
    return rng.normal(size=(examples, TOKENS, INPUT_FEATURES))
