"""How many functions of the package stand between `minimise`, `stationary` and the generated functions of an action."""

import jax
import pytest

from theorykit.saddle import Action, Real, minimise, stationary

from ..hops import deepest_stacks
from .textbook import GLASS, RAYLEIGH, K, beta, h, lam, m, q, random_matrix, x

MOST = 6
# eager and traced; with an edge, adaptive averages and a fixed-point map; of matrices
SOLVES = {
    "minimum": lambda: minimise(Action((m - beta) ** 2 + m**4, {m: Real()}, [beta]), {beta: 1.0}, initial={m: 0.5}),
    "average": lambda: stationary(GLASS.with_nodes(5), {beta: 0.8, h: 0.1}, index=1, initial={q: 0.5}),
    "matrices": lambda: stationary(
        RAYLEIGH, {K: random_matrix(1)}, index=1, initial={x: [[1.0], [2.0], [0.5]], lam: -0.4}
    ),
    "derivative": lambda: jax.grad(
        lambda b: minimise(Action((m - beta) ** 2 + m**6, {m: Real()}, [beta]), {beta: b}, initial={m: 0.5})[m]
    )(1.0),
}


@pytest.mark.quick("minimum")
@pytest.mark.parametrize("name", SOLVES)
def test_few_functions_stand_between_a_solve_and_the_generated_functions(name, monkeypatch):
    stacks = deepest_stacks(monkeypatch, minimise, stationary)
    SOLVES[name]()
    deepest = max((calls for program, calls in stacks.items() if program != "shapes"), key=len)
    assert 3 <= len(deepest) <= MOST, deepest
