"""Branches of stationary points: through folds, where two solutions coexist, and through pitchforks."""

import numpy as np
import pytest
from sympy import symbols

from theorykit.saddle import Action, Real, follow, minimise, stationary

from ..bpkr.cases import assert_close
from .textbook import CURIE_WEISS, beta, h, m, spinodal


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


def test_what_cannot_be_followed_is_refused():
    values = {beta: 0.8, h: 0.0}
    solution = minimise(CURIE_WEISS, values, initial={m: 0.3})
    with pytest.raises(ValueError, match="parameter must be a number among beta, h"):
        follow(CURIE_WEISS, values, solution, "g", (0, 1))
    with pytest.warns(Warning), pytest.raises(ValueError, match="no stationary point to start from"):
        follow(CURIE_WEISS, values, stationary(CURIE_WEISS, values, index=1, initial={m: 3.0}), h, (-1, 1))


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
