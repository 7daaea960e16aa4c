"""Branches of stationary points: through folds, where two solutions coexist, and through pitchforks; and their ends."""

import jax
import numpy as np
import pytest
from sympy import Symbol, cosh, diff, exp, log, symbols

from theorykit.codegen import interpret
from theorykit.saddle import Action, Positive, Real, follow, minimise, stationary
from theorykit.symbolic import log_normal_cdf

from ..bpkr.cases import assert_close
from ..marks import slow
from .textbook import CURIE_WEISS, GLASS, beta, h, m, q, spinodal

x, s = symbols("x", real=True), symbols("s", positive=True)


@pytest.fixture(scope="module")
def hysteresis():
    values = {beta: 1.5, h: 0.4}
    solution = minimise(CURIE_WEISS, values, initial={m: 1.0})
    return follow(CURIE_WEISS, values, solution, h, (-0.4, 0.4), direction=-1)


def test_both_folds_of_a_first_order_transition_are_where_they_are_known_to_be(hysteresis):
    edge, field = spinodal(1.5)
    assert [turn.kind for turn in hysteresis.turns] == ["fold", "fold"]
    for turn, sign in zip(hysteresis.folds, (1, -1), strict=True):
        assert_close(turn.parameter, sign * field, 1e-11)
        assert_close(turn.order_parameters["m"], sign * edge, 1e-7)


def test_every_point_of_a_branch_solves_the_equation_and_the_index_changes_at_the_folds(hysteresis):
    magnetisation, field = hysteresis.order_parameters["m"], hysteresis.parameters
    assert_close(magnetisation, np.tanh(1.5 * (magnetisation + field)), 1e-10)
    assert "-0.4" in hysteresis.ended
    changes = np.flatnonzero(np.diff(hysteresis.index))
    assert hysteresis.index[[0, -1]].tolist() == [0, 0]
    assert len(changes) == 2
    assert np.all(hysteresis.index[changes[0] + 1 : changes[1] + 1] == 1)


def test_solutions_that_coexist_are_all_found_from_the_branch(hysteresis):
    values = {beta: 1.5, h: 0.01}
    first, middle, last = hysteresis.near(0.01)
    upper, lower = (minimise(CURIE_WEISS, values, initial=at) for at in (first, last))
    between = stationary(CURIE_WEISS, values, index=1, initial=middle)
    assert lower[m] < between[m] < 0.1 < upper[m]
    assert all(each.converged for each in (upper, between, lower))
    assert upper.action < lower.action < between.action


def test_another_branch_of_the_same_action_compiles_nothing(hysteresis, caplog):
    values = {beta: 1.4, h: 0.4}
    solution = minimise(CURIE_WEISS, values, initial={m: 1.0})
    with jax.log_compiles():
        branch = follow(CURIE_WEISS, values, solution, h, (-0.4, 0.4), direction=-1)
        assert not [each for each in caplog.messages if "XLA compilation" in each]
        jax.jit(lambda: 0.0)()
    assert len(branch) != len(hysteresis)
    assert [each for each in caplog.messages if "XLA compilation" in each]


def test_a_branch_is_labelled(hysteresis):
    labelled = hysteresis.to_xarray()
    assert labelled["m"].dims == ("point",)
    assert labelled.coords["h"].shape == labelled["action"].shape == (len(hysteresis),)
    assert labelled["turn_kind"].values.tolist() == ["fold", "fold"]
    assert len(list(hysteresis)) == len(hysteresis)


def test_a_pitchfork_is_told_from_a_fold():
    values = {beta: 0.8, h: 0.0}
    solution = minimise(CURIE_WEISS, values, initial={m: 0.3})
    branch = follow(CURIE_WEISS, values, solution, beta, (0.7, 1.3), largest_step=0.1)
    (turn,) = branch.turns
    assert turn.kind == "branch point"
    assert_close(turn.parameter, 1.0, 1e-9)
    assert branch.folds == ()


def test_a_branch_that_turns_back_shows_how_far_it_went():
    values = {beta: 1.2, h: 0.0}
    magnetised = minimise(CURIE_WEISS, values, initial={m: 1.0})
    branch = follow(CURIE_WEISS, values, magnetised, beta, (0.9, 1.3), direction=-1)
    down, up = (line.split() for line in repr(branch).splitlines() if line.startswith("0 "))
    assert down[1] == "1.2" and float(down[3]) == pytest.approx(1, abs=0.01) == float(up[1]) and up[3] == "1.3"


@pytest.mark.quick("0.001")
@pytest.mark.parametrize("largest_step", [None, 0.001])
def test_a_broken_symmetry_turns_back_at_a_pitchfork_and_does_not_jump(largest_step):
    """Blume and Capel: past a fold, the magnetisation vanishes at exp(Delta / T) = 2 (1 - T) / T."""
    delta = Symbol("Delta", real=True)
    temperature = Symbol("T", positive=True)
    weight = 2 * exp(-delta / temperature)
    action = Action(m**2 / 2 - temperature * log(1 + weight * cosh(m / temperature)), {m: Real()}, [temperature, delta])
    values = {temperature: 0.2, delta: 0.48}
    start = minimise(action, values, initial={m: 1.0})
    branch = follow(action, values, start, delta, (0.4, 0.6), largest_step=largest_step, progress=False)
    assert [turn.kind for turn in branch.turns] == ["fold", "branch point", "fold"]
    assert_close(branch.turns[1].parameter, 0.2 * np.log(8), 1e-7)
    assert branch.order_parameters["m"][-1] < -0.5


def test_what_cannot_be_followed_is_refused():
    values = {beta: 0.8, h: 0.0}
    solution = minimise(CURIE_WEISS, values, initial={m: 0.3})
    with pytest.raises(ValueError, match="parameter must be a number among beta, h"):
        follow(CURIE_WEISS, values, solution, "g", (0, 1))
    with pytest.warns(Warning), pytest.raises(ValueError, match="not a stationary point, and no branch"):
        follow(CURIE_WEISS, values, stationary(CURIE_WEISS, values, index=1, initial={m: 3.0}), h, (-1, 1))


@pytest.mark.quick("names1")
@pytest.mark.parametrize("names", [("action", "index"), ("point", "turn"), ("action_", "action"), ("eigenvalue", "h")])
def test_results_do_not_hide_what_is_the_users(names):
    x, g = symbols(names, real=True)
    action = Action((x - g) ** 2 / 2 + x**4 / 4, {x: Real()}, [g])
    branch = follow(action, {g: 1.0}, minimise(action, {g: 1.0}, initial={x: 0.7}), g, (0.8, 1.2), most_points=3)
    labelled = branch.to_xarray()
    np.testing.assert_array_equal(labelled[x.name], branch.order_parameters[x.name])
    np.testing.assert_array_equal(labelled[g.name], branch.parameters)
    ours = {"action": branch.action, "index": branch.index}
    for name, values in ours.items():
        while name in names:
            name += "_"
        np.testing.assert_array_equal(labelled[name], values)
    assert len(labelled.variables) == 8


UPPER, LOWER = "the upper bound", "the lower bound"
# an action, a start at h = 1, bounds of h, and why the branch ends towards larger and towards smaller h
TWICE = (m**2 - h) ** 2 / 4 + (x**2 - h) ** 2 / 4
BRANCHES = {
    "edge": (s - h * log(s), {s: 1.0}, (-1.0, 2.0), UPPER, "s reaches the edge of its domain"),
    "two curvatures vanish": (TWICE, {m: 1.0, x: 1.0}, (-1.0, 2.0), UPPER, UPPER),
    "runs off": (exp(-x) + h * x, {x: 0.0}, (-1.0, 2.0), UPPER, "x keeps changing while h is constant"),
    "a pole": ((1 - h / 2) * x**2 / 2 - x, {x: 2.0}, (0.0, 3.0), "x grows without bound", LOWER),
    "log-normal": (x**2 / 2 - log_normal_cdf(h * x), {x: 0.1}, (-30.0, 30.0), UPPER, LOWER),
}


@pytest.mark.quick("a pole--1")
@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("name", BRANCHES)
def test_every_point_is_stationary_and_every_end_has_its_reason(name, direction):
    expression, start, bounds, *reasons = BRANCHES[name]
    action = Action(expression, {symbol: Positive() if symbol == s else Real() for symbol in start}, [h])
    values = {h: 1.0}
    branch = follow(action, values, minimise(action, values, initial=start), h, bounds, direction=direction)
    assert reasons[direction < 0] in branch.ended
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
    assert len(branch.parameters) < 100 and "the lower bound" in branch.ended
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


def test_a_branch_shows_where_its_index_changes(hysteresis):
    lines = repr(hysteresis).splitlines()
    assert lines[0].startswith(f"Branch of {len(hysteresis)} stationary points for h from -0.4")
    assert [line.split()[0] for line in lines if line[0] in "01"] == ["0", "1", "0"]
    assert repr(hysteresis.folds[0]).startswith("fold at -0.13836")
