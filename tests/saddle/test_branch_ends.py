"""Where branches end, and that every point on the way is stationary: edges, crossings, bounds, and what runs off."""

import numpy as np
import pytest
from sympy import diff, exp, log, sqrt, symbols

from theorykit.codegen import interpret
from theorykit.saddle import Action, Between, Positive, Real, follow, minimise, stationary
from theorykit.symbolic import gaussian_average, log_cosh, log_normal_cdf

from ..bpkr.cases import assert_close
from ..marks import slow

m, x, z, h = symbols("m x z h", real=True)
q, s, beta = symbols("q s beta", positive=True)
GLASS = Action(
    -(beta**2) * (1 - q) ** 2 / 4 - gaussian_average(log_cosh(beta * (sqrt(q) * z + h)), z),
    {q: Between(0, 1)},
    [beta, h],
)

UPPER, LOWER = "which is the upper one of bounds", "which is the lower one of bounds"
# an action, a start at h = 1, bounds of h, and why the branch ends towards larger and towards smaller h
BRANCHES = {
    "edge": (
        Action(s - h * log(s), {s: Positive()}, [h]),
        {s: 1.0},
        (-1.0, 2.0),
        {1: UPPER, -1: "s reaches the edge of its domain"},
    ),
    "two curvatures vanish": (
        Action((m**2 - h) ** 2 / 4 + (x**2 - h) ** 2 / 4, {m: Real(), x: Real()}, [h]),
        {m: 1.0, x: 1.0},
        (-1.0, 2.0),
        {1: UPPER, -1: UPPER},
    ),
    "runs off": (
        Action(exp(-x) + h * x, {x: Real()}, [h]),
        {x: 0.0},
        (-1.0, 2.0),
        {1: UPPER, -1: "x moves on while h stays"},
    ),
    "a pole": (
        Action((1 - h / 2) * x**2 / 2 - x, {x: Real()}, [h]),
        {x: 2.0},
        (0.0, 3.0),
        {1: "x grows without bound", -1: LOWER},
    ),
    "log-normal": (
        Action(x**2 / 2 - log_normal_cdf(h * x), {x: Real()}, [h]),
        {x: 0.1},
        (-30.0, 30.0),
        {1: UPPER, -1: LOWER},
    ),
}


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("name", BRANCHES)
def test_every_point_is_stationary_and_every_end_has_its_reason(name, direction):
    action, start, bounds, reasons = BRANCHES[name]
    values = {h: 1.0}
    branch = follow(action, values, minimise(action, values, initial=start), h, bounds, direction=direction)
    assert reasons[direction] in branch.ended
    assert len(branch.parameters) < 200
    for symbol in action.order_parameters:
        slope, curvature = (diff(action.expression, symbol, order) for order in (1, 2))
        for number, parameter in enumerate(branch.parameters):
            at = {name: float(each[number]) for name, each in branch.order_parameters.items()} | {"h": float(parameter)}
            # what the slope is summed from, and the rounding of the parameter times what it multiplies
            scale = 1 + abs(interpret(curvature, at) * at[symbol.name]) + 1e-6 * abs(at[symbol.name])
            assert abs(interpret(slope, at)) < 1e-9 * scale


@pytest.mark.parametrize("unit", [1e-9, *slow([1e-6, 1e6]), 1e9])
def test_steps_are_in_units_of_the_problem(unit):
    action = Action((x - h) ** 2 / 2, {x: Real()}, [h])
    start = minimise(action, {h: unit}, initial={x: 0.0})
    branch = follow(action, {h: unit}, start, h, (-unit, unit), direction=-1)
    assert len(branch.parameters) < 100 and "which is the lower" in branch.ended
    assert_close(branch.order_parameters["x"] / unit, branch.parameters / unit, 1e-12)


@pytest.mark.slow
def test_other_nodes_are_the_same_action_and_quadrature_is_stated_at_every_point():
    values = {beta: 2.0, h: 0.1}
    start = stationary(GLASS, values, index=1, initial={q: 0.5})
    branch = follow(GLASS.with_nodes(512), values, start, h, (0.0, 0.1), direction=-1)
    assert branch.quadrature_error.shape == branch.parameters.shape
    assert np.all(branch.quadrature_error < 1e-9)
    few = follow(GLASS.with_nodes(6), values, start, h, (0.0, 0.1), direction=-1)
    assert_close(few.order_parameters["q"][-1], branch.order_parameters["q"][-1], 1e-8)
