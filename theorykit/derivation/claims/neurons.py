"""Claims about many neurons: spins summed over, and neurons gathered into classes of equal weights."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sympy import Expr, MatrixSymbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...codegen import interpret
from ..sampling import Values
from .claim import Claim, define, difference


@dataclass(frozen=True)
class SpinSum(Claim):
    """exp(-after/2) is the sum of exp(-before/2) over the spins, a column whose entries are 1 or -1: all are tried."""

    spins: MatrixSymbol
    beyond = "a sum of exponentials"

    def _error(self, before, after, values, rng):
        exponents = [-interpret(before, at) / 2 for at in _every(self.spins, values)]
        return difference(interpret(after, values), -2 * np.logaddexp.reduce(exponents))


@dataclass(frozen=True)
class SpinCovariance(Claim):
    """`after` is the covariance of the column `value` over the spins, of weights exp(-before/2): all are tried."""

    spins: MatrixSymbol
    value: MatrixExpr
    beyond = "a sum of exponentials"

    def _error(self, before, after, values, rng):
        exponents = np.array([-interpret(before, at) / 2 for at in _every(self.spins, values)])
        columns = np.array([interpret(self.value, at)[:, 0] for at in _every(self.spins, values)])
        weights = np.exp(exponents - np.logaddexp.reduce(exponents))
        centred = columns - weights @ columns
        return difference(interpret(after, values), (weights[:, None] * centred).T @ centred)


def _every(spins: MatrixSymbol, values: Values) -> Iterator[Values]:
    """`values` with every column of signs for the spins."""
    for signs in itertools.product((-1.0, 1.0), repeat=len(values[spins.name])):
        yield {**values, spins.name: np.array(signs)[:, None]}


@dataclass(frozen=True)
class NeuronsGathered(Claim):
    """Both are the same where each neuron has the weights of one class, but for a sign, as `assignment` says.

    The assignment has a row a class and a column a neuron, in which one entry is 1 or -1 and the others are zero;
    `definitions` say in terms of it what the neurons' weights are, and the sums over classes.
    """

    assignment: MatrixSymbol
    definitions: tuple[tuple[Expr, Expr], ...]
    beyond = "an odd or even function of entries"

    def _error(self, before, after, values, rng):
        classes, neurons = values[self.assignment.name].shape
        assignment = np.zeros((classes, neurons))
        assignment[rng.integers(classes, size=neurons), np.arange(neurons)] = rng.choice([-1.0, 1.0], size=neurons)
        values = define({**values, self.assignment.name: assignment}, self.definitions)
        return difference(interpret(after, values), interpret(before, values))
