"""Claims about many neurons: spins summed over, and neurons gathered into classes of equal weights."""

import itertools
from dataclasses import dataclass

import numpy as np
from sympy import Expr, MatrixSymbol

from ...codegen import interpret
from .claim import Claim, define, difference


@dataclass(frozen=True)
class SpinSum(Claim):
    """exp(-after/2) is the sum of exp(-before/2) over the spins, a column whose entries are 1 or -1: all are tried."""

    spins: MatrixSymbol
    beyond = "a sum of exponentials"

    def _error(self, before, after, values, rng):
        count = len(values[self.spins.name])
        columns = (np.array(signs)[:, None] for signs in itertools.product((-1.0, 1.0), repeat=count))
        exponents = [-interpret(before, {**values, self.spins.name: column}) / 2 for column in columns]
        return difference(interpret(after, values), -2 * np.logaddexp.reduce(exponents))


@dataclass(frozen=True)
class NeuronsGathered(Claim):
    """Both are the same where each neuron has the weights of one class, but for a sign, as `assignment` says.

    The assignment has a row a class and a column a neuron, in which one entry is 1 or -1 and the others are zero;
    `definitions` say in terms of it what the neurons' weights are, and the sums over classes.
    """

    assignment: MatrixSymbol
    definitions: tuple[tuple[Expr, Expr], ...]
    beyond = "an odd function of entries"

    def _error(self, before, after, values, rng):
        classes, neurons = values[self.assignment.name].shape
        assignment = np.zeros((classes, neurons))
        assignment[rng.integers(classes, size=neurons), np.arange(neurons)] = rng.choice([-1.0, 1.0], size=neurons)
        values = define({**values, self.assignment.name: assignment}, self.definitions)
        return difference(interpret(after, values), interpret(before, values))
