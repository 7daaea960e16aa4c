"""How many functions stand between `bpkr.solve` and the generated functions of the action."""

import jax
import numpy as np
import optimistix as optx
import pytest

from theorykit import bpkr
from theorykit.bpkr.evaluation import energies
from theorykit.saddle.solvers.minimisers import AcceleratedSweeps

from ...hops import deepest_stacks

# functions on the stack, from `solve` to the caller of a generated function
MOST = 6

# with input features that no other case has: what was traced before is not traced again
NEWTON, SWEEPS, BFGS = (None, 3), (AcceleratedSweeps(), 4), (optx.BFGS(rtol=1e-9, atol=1e-9), 5)
SOLVES = {
    "path kernels": ("path kernels", *NEWTON),
    "features": ("features", *NEWTON),
    "moments": ("moments", *NEWTON),
    "path kernels, sweeps": ("path kernels", *SWEEPS),
    "moments, BFGS": ("moments", *BFGS),
}


@pytest.mark.parametrize(("form", "solver", "width"), SOLVES.values(), ids=SOLVES)
def test_so_many_functions_stand_between_solve_and_the_generated_functions(form, solver, width, monkeypatch):
    deepest = deepest_stacks(monkeypatch, bpkr.solve)
    if form == "features":
        monkeypatch.setattr(energies, "_PATH_KERNEL_BYTES", 0)
    examples = 23 if form == "moments" else 7
    rng = np.random.default_rng(0)
    examples += form == "features"
    architecture = bpkr.Architecture((2, 2), 10.0, temperature=0.5)
    features = rng.standard_normal((examples, 4, width)) / np.sqrt(4 * width)
    labels = np.sign(rng.standard_normal(examples))
    jax.eval_shape(lambda features: bpkr.solve(architecture, bpkr.Data(features, labels), solver=solver), features)
    assert {"entropy", "dual_slopes" if form == "moments" else "kernel_energy"} <= set(deepest)
    # a stack that does not begin with `solve` was not recorded
    assert all(calls and calls[-1].endswith(":solve") for calls in deepest.values())
    hops = {name: len(calls) for name, calls in deepest.items()}
    assert {name: number for name, number in hops.items() if number > MOST} == {}
    # the limit is reached, so one more anywhere would show
    assert max(hops.values()) == MOST
