"""Branches of stationary points: through folds, where two solutions coexist, and through pitchforks; and their ends."""

import jax
import numpy as np
import pytest
from sympy import Add, diff, exp, log, symbols

from theorykit import curve
from theorykit.codegen import interpret
from theorykit.saddle import Action, Between, Positive, Real, StationaryPoints, follow, minimise, stationary
from theorykit.symbolic import gaussian_average, log_cosh, log_normal_cdf

from ..bpkr.cases import assert_close
from ..marks import slow
from .textbook import BLUME_CAPEL, CURIE_WEISS, GLASS, T, beta, delta, h, m, q, spinodal

x, s = symbols("x", real=True), symbols("s", positive=True)


@pytest.fixture(scope="module")
def hysteresis():
    values = {beta: 1.5, h: 0.4}
    solution = minimise(CURIE_WEISS, values, initial={m: 1.0})
    return follow(CURIE_WEISS, values, solution, h, (-0.4, 0.4), direction=-1)


def events(branch, *kinds):
    return branch.isel(point=branch["event"].isin(kinds) if kinds else branch["event"] != "")


def test_both_folds_of_a_first_order_transition_are_where_they_are_known_to_be(hysteresis):
    edge, field = spinodal(1.5)
    folds = events(hysteresis)
    assert folds["event"].values.tolist() == ["fold", "fold"]
    assert_close(folds["h"], [field, -field], 1e-11)
    assert_close(folds["m"], [edge, -edge], 1e-7)


def test_folds_are_differentiable_under_grad_and_vmap(hysteresis):
    """The field of a fold is h(beta) = artanh(m) / beta - m with m^2 = 1 - 1 / beta."""
    first = events(hysteresis, "fold").isel(point=0)

    def fold(inverse):
        return curve.refine(StationaryPoints.of(CURIE_WEISS, {beta: inverse, h: 0.0}, h), first)["h"]

    inverse = np.array([1.45, 1.5])
    fields, slopes = jax.vmap(jax.value_and_grad(fold))(inverse)
    edge, field = spinodal(inverse)
    assert_close(fields, field, 1e-13)
    assert_close(slopes, -np.arctanh(edge) / inverse**2, 1e-10)
    solution = minimise(CURIE_WEISS, {beta: 1.5, h: 0.4}, initial={m: 1.0})
    with pytest.raises(ValueError, match=r"`curve\.refine` finds one event"):
        jax.grad(lambda b: follow(CURIE_WEISS, {beta: b, h: 0.4}, solution, h, (-0.4, 0.4))["m"][0])(1.5)
    with pytest.raises(ValueError, match="event is of a trace in h"):
        curve.refine(StationaryPoints.of(CURIE_WEISS, {beta: 1.5, h: 0.4}, beta), first)


def test_every_point_of_a_branch_solves_the_equation_and_the_index_changes_at_the_folds(hysteresis):
    magnetisation, field = hysteresis["m"].values, hysteresis["h"].values
    assert_close(magnetisation, np.tanh(1.5 * (magnetisation + field)), 1e-10)
    assert "-0.4" in hysteresis.attrs["ended"]
    index = hysteresis["index"].values
    changes = np.flatnonzero(np.diff(index))
    assert index[[0, -1]].tolist() == [0, 0] and len(changes) == 2
    assert np.all(index[changes[0] + 1 : changes[1] + 1] == 1)


def test_another_branch_of_the_same_action_compiles_nothing(hysteresis, caplog):
    values = {beta: 1.4, h: 0.4}
    solution = minimise(CURIE_WEISS, values, initial={m: 1.0})
    with jax.log_compiles():
        branch = follow(CURIE_WEISS, values, solution, h, (-0.4, 0.4), direction=-1)
        assert not [each for each in caplog.messages if "XLA compilation" in each]
        jax.jit(lambda: 0.0)()
    assert branch.sizes != hysteresis.sizes
    assert [each for each in caplog.messages if "XLA compilation" in each]


def test_a_branch_that_starts_or_ends_on_an_event_reports_it():
    solution = minimise(CURIE_WEISS, {beta: 0.8, h: 0.0}, initial={m: 0.3})
    ends = follow(CURIE_WEISS, {beta: 0.8, h: 0.0}, solution, beta, (0.7, 1.0))
    assert events(ends)["event"].values.tolist() == ["branch point"] and "reached 1" in ends.attrs["ended"]
    quartic = Action(m**4 / 4 - h * m**2 / 2, {m: Real()}, [h])
    starts = follow(quartic, {h: 0.0}, minimise(quartic, {h: 0.0}, initial={m: 0.3}), h, (-1, 1))
    assert starts["event"].values[0] == "branch point"


def test_curvatures_that_vanish_together_are_one_branch_point():
    """The uniform phase of three Potts states, p = 1/3, has equal curvatures, 3 - s beta, so both vanish at 3 / s."""
    states = symbols("p1:4", positive=True)
    action = Add(*(p * log(p) - beta * s * p**2 / 2 for p in states)) + m * (Add(*states) - 1)
    potts = Action(action, {**dict.fromkeys(states, Between(0, 1)), m: Real()}, [beta, s])
    values, initial = {beta: 2.95, s: 1.0}, {**dict.fromkeys(states, 1 / 3), m: 1.0}
    solution = stationary(potts, values, index=1, initial=initial)
    branch = follow(potts, values, solution, beta, (2.9, 3.05))
    assert branch["index"].values[[0, -1]].tolist() == [1, 3]
    (crossing,) = (events(branch).isel(point=i) for i in range(events(branch).sizes["point"]))
    assert crossing["event"] == "branch point"

    def inverse(scale):
        return curve.refine(StationaryPoints.of(potts, {beta: 2.95, s: scale}, beta), crossing)["beta"]

    for scale in (1.0, 1.01):
        assert_close(jax.value_and_grad(inverse)(scale), [3 / scale, -3 / scale**2], 1e-9)
    # Without the multiplier, all slopes vanish there.
    pair = states[:2]
    reduced = Action(action.subs(states[2], 1 - Add(*pair)), dict.fromkeys(pair, Between(0, 1)), [beta, s])
    start = minimise(reduced, {beta: 2.76, s: 1.0}, initial={pair[0]: 0.3, pair[1]: 0.35})
    branch = follow(reduced, {beta: 2.76, s: 1.0}, start, beta, (2.7, 3.2))
    assert events(branch)["event"].values.tolist() == ["branch point"]


@pytest.mark.quick("0.001")
@pytest.mark.parametrize("largest_step", [None, 0.001])
def test_a_broken_symmetry_turns_back_at_a_pitchfork_and_does_not_jump(largest_step):
    """Blume and Capel: past a fold, the magnetisation vanishes at exp(Delta / T) = 2 (1 - T) / T."""
    values = {T: 0.2, delta: 0.48}
    start = minimise(BLUME_CAPEL, values, initial={m: 1.0})
    branch = follow(BLUME_CAPEL, values, start, delta, (0.4, 0.6), largest_step=largest_step)
    assert events(branch)["event"].values.tolist() == ["fold", "branch point", "fold"]
    assert_close(events(branch, "branch point")["Delta"], [0.2 * np.log(8)], 1e-10)
    assert branch["m"][-1] < -0.5


def test_what_cannot_be_followed_is_refused():
    values = {beta: 0.8, h: 0.0}
    solution = minimise(CURIE_WEISS, values, initial={m: 0.3})
    with pytest.raises(ValueError, match="parameter must be a number among beta, h"):
        follow(CURIE_WEISS, values, solution, "g", (0, 1))
    with pytest.raises(TypeError, match="solution must be of type Solution, got None"):
        follow(CURIE_WEISS, values, None, h, (0, 1))
    with pytest.raises(ValueError, match=r"bounds must be two numbers, the lower first; got 1\.0"):
        follow(CURIE_WEISS, values, solution, h, 1.0)
    with pytest.raises(ValueError, match=r"another value of beta: 0\.8"):
        follow(CURIE_WEISS, {**values, beta: 1.2}, solution, h, (0, 1))
    with pytest.warns(Warning), pytest.raises(ValueError, match="not one stationary point"):
        follow(CURIE_WEISS, values, stationary(CURIE_WEISS, values, index=1, initial={m: 3.0}), h, (-1, 1))
    index = symbols("index", real=True)
    action = Action((index - h) ** 2 / 2, {index: Real()}, [h])
    with pytest.raises(ValueError, match="index is a name in results"):
        follow(action, {h: 1.0}, minimise(action, {h: 1.0}, initial={index: 0.7}), h, (0.8, 1.2))


# an action, a start at h = 1, bounds of h, and why the branch ends towards larger and towards smaller h
TWICE = (m**2 - h) ** 2 / 4 + (x**2 - h) ** 2 / 4
BRANCHES = {
    "edge": (s - h * log(s), {s: 1.0}, (-1.0, 2.0), "h reached", "an order parameter reaches an edge"),
    "two curvatures vanish": (TWICE, {m: 1.0, x: 1.0}, (-1.0, 2.0), "h reached", "h reached"),
    "runs off": (exp(-x) + h * x, {x: 0.0}, (-1.0, 2.0), "h reached", "grows without bound"),
    "a pole": ((1 - h / 2) * x**2 / 2 - x, {x: 2.0}, (0.0, 3.0), "grows without bound", "h reached"),
    "log-normal": (x**2 / 2 - log_normal_cdf(h * x), {x: 0.1}, (-30.0, 30.0), "h reached", "h reached"),
}


@pytest.mark.quick("a pole--1")
@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("name", BRANCHES)
def test_every_point_is_stationary_and_every_end_has_its_reason(name, direction):
    expression, start, bounds, *reasons = BRANCHES[name]
    action = Action(expression, {symbol: Positive() if symbol == s else Real() for symbol in start}, [h])
    values = {h: 1.0}
    branch = follow(action, values, minimise(action, values, initial=start), h, bounds, direction=direction)
    assert reasons[direction < 0] in branch.attrs["ended"]
    assert branch.sizes["point"] < 200
    for symbol in action.order_parameters:
        slope, curvature = (diff(action.expression, symbol, order) for order in (1, 2))
        for number in range(branch.sizes["point"]):
            at = {each.name: float(branch[each.name][number]) for each in action.symbols}
            # what the slope is summed from, and the rounding of the parameter times what it multiplies
            scale = 1 + abs(interpret(curvature, at) * at[symbol.name]) + 1e-6 * abs(at[symbol.name])
            assert abs(interpret(slope, at)) < 1e-9 * scale


@pytest.mark.parametrize("unit", [1e-9, *slow([1e-6, 1e6]), 1e9])
def test_steps_are_in_units_of_the_problem(unit):
    action = Action((x - h) ** 2 / 2, {x: Real()}, [h])
    start = minimise(action, {h: unit}, initial={x: 0.0})
    branch = follow(action, {h: unit}, start, h, (-unit, unit), direction=-1)
    assert branch.sizes["point"] < 100 and "h reached" in branch.attrs["ended"]
    assert_close(branch["x"] / unit, branch["h"] / unit, 1e-12)


def test_derivatives_and_branches_have_as_many_nodes_as_they_need():
    action = Action(m**2 / 2 - gaussian_average(log_cosh(beta * (m + x + h)), x) / beta, {m: Real()}, [beta, h])
    point, slope = jax.value_and_grad(lambda field: minimise(action, {beta: 3.0, h: field}, initial={m: 0.9})[m])(0.1)
    at = np.linspace(-12, 12, 20_001)
    weights = np.exp(-(at**2) / 2) / np.sum(np.exp(-(at**2) / 2))
    assert_close(point, weights @ np.tanh(3 * (point + at + 0.1)), 1e-10)
    gain = weights @ (3 / np.cosh(3 * (point + at + 0.1)) ** 2)
    assert_close(slope, gain / (1 - gain), 1e-10)
    # Without a node at zero, q = 1 would be stationary. Neither 64 nodes nor 256 meet the bump.
    with pytest.raises(RuntimeError, match="quadrature"):
        stationary(GLASS, {beta: 1e4, h: 0.0}, index=1, throw=True)
    bump = Action(m**2 / 2 - gaussian_average(exp(-(((x - m) * beta) ** 4)), x) - h * m, {m: Real()}, [beta, h])
    for rough, at_beta in ((action.with_nodes(10_000), 1e5), (bump, 100.0), (bump, 1000.0)):
        with pytest.raises(RuntimeError, match="quadrature"):
            minimise(rough, {beta: at_beta, h: 0.1}, initial={m: 0.9}, throw=True)
    solution = minimise(action, {beta: 3.0, h: 0.1}, initial={m: 0.9})
    branch = follow(action, {beta: 3.0, h: 0.1}, solution, beta, (2.0, 1e4), largest_step=40.0)
    off = np.tanh(branch["beta"].values[:, None] * (branch["m"].values[:, None] + at + 0.1)) @ weights - branch["m"]
    assert branch.sizes["point"] > 3 and "averages are inaccurate" in branch.attrs["ended"]
    assert np.all(np.abs(off) <= branch["quadrature_error"] + 1e-12)
    # Without a field, the average over x leaves m = 0 within its error.
    start = minimise(action, {beta: 0.5, h: 0.0}, initial={m: 0.01})
    flat = follow(action, {beta: 0.5, h: 0.0}, start, beta, (0.2, 0.9))
    assert "beta reached" in flat.attrs["ended"] and np.max(np.abs(flat["m"])) < 1e-12


@pytest.mark.slow
def test_other_nodes_are_the_same_action_and_quadrature_is_stated_at_every_point():
    values = {beta: 2.0, h: 0.1}
    start = stationary(GLASS, values, index=1, initial={q: 0.5})
    branch = follow(GLASS.with_nodes(6), values, start, h, (0.0, 0.1), direction=-1)
    assert np.all(branch.quadrature_error < 1e-9)
    assert_close(branch["q"][-1], stationary(GLASS, {beta: 2.0, h: 0.0}, index=1, initial={q: 0.5})[q], 1e-8)
