"""How many functions of the package stand between `minimise`, `stationary` and the generated functions of an action."""

import inspect
import sys
from pathlib import Path

import jax
import pytest

import theorykit
from theorykit.codegen import CompiledFunction
from theorykit.saddle import Action, Real, minimise, stationary

from .textbook import GLASS, RAYLEIGH, K, beta, h, lam, m, q, random_matrix, x

PACKAGE = str(Path(theorykit.__file__).parent)
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


def names_on_the_stack(functions) -> list[str]:
    """The package's functions on the stack, from the caller of a generated function out to a public one."""
    found, frame, ends = [], sys._getframe(2), [inspect.unwrap(function).__code__ for function in functions]
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            # a function inside another is read with it
            name = f"{frame.f_code.co_filename}:{frame.f_code.co_qualname.split('.<locals>')[0]}"
            found += [name] if not found or found[-1] != name else []
            if frame.f_code in ends:
                return found
        frame = frame.f_back
    return []


@pytest.mark.parametrize("name", SOLVES)
def test_few_functions_stand_between_a_solve_and_the_generated_functions(name, monkeypatch):
    deepest = []

    def recorded(call):
        def recording(self, *values, **arguments):
            nonlocal deepest
            if self.program.name not in ("shapes",):
                deepest = max(deepest, names_on_the_stack((minimise, stationary)), key=len)
            return call(self, *values, **arguments)

        return recording

    for method in ("__call__", "call_from"):
        monkeypatch.setattr(CompiledFunction, method, recorded(getattr(CompiledFunction, method)))
    SOLVES[name]()
    assert 3 <= len(deepest) <= MOST, deepest
