"""Cycles, branches and bifurcations, against maps whose own are known in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jaxtyping import Array

from theorykit import curve
from theorykit.dynamics import Cycles, cycle_near, double_period, find_cycle, follow

from ..frozen import delayed_logistic, henon, logistic


def opposite_crossings(state, parameter):
    """Of the multipliers, -1 - parameter leaves the unit circle at 0, and 1.001 - parameter enters it at 0.001."""
    return jnp.stack([-1 - parameter, 1.001 - parameter]) * state


class Cubic(eqx.Module):
    """A pitchfork at zero, which a shift takes apart."""

    shift: Array

    def __call__(self, state, parameter):
        return (1 + parameter) * state - state**3 + self.shift


class Affine(eqx.Module):
    """A map whose cycles are its fixed point, in a module with arrays."""

    matrix: Array
    shift: Array

    def __call__(self, state, parameter):
        return self.matrix @ state + parameter * self.shift


def events(branch):
    return branch.isel(point=branch["event"] != "")


def kinds(branch):
    return events(branch)["event"].values.tolist()


def at_events(branch):
    return events(branch)["parameter"].values.tolist()


def first_event(branch):
    return events(branch).isel(point=0)


def multipliers(cycles):
    return (cycles["multiplier_modulus"] * np.exp(1j * cycles["multiplier_angle"])).values


def first_multiplier(branch):
    return multipliers(branch)[:, 0].real


def logistic_branch(bounds=(2.0, 3.6), **options):
    return follow(logistic, find_cycle(logistic, np.array([0.6]), 2.8, 1), bounds, **options)


@given(seed=st.integers(0, 100), size=st.sampled_from((1, 4)), parameter=st.floats(-2, 2))
def test_the_fixed_point_of_an_affine_map_and_its_multipliers(seed, size, parameter):
    random = np.random.default_rng(seed)
    matrix, shift = random.normal(size=(size, size)), random.normal(size=size)
    assume(np.linalg.cond(np.eye(size) - matrix) < 100)
    cycle = find_cycle(Affine(jnp.array(matrix), jnp.array(shift)), random.normal(size=size), parameter, 1)
    expected = np.linalg.solve(np.eye(size) - matrix, parameter * shift)
    np.testing.assert_allclose(cycle["points"][0], expected, atol=1e-11)
    eigenvalues = np.linalg.eigvals(matrix)
    np.testing.assert_allclose(np.sort_complex(multipliers(cycle)), np.sort_complex(eigenvalues), atol=1e-10)
    assert np.all(np.diff(cycle["multiplier_modulus"]) <= 1e-12)
    assert cycle["stable"] == (np.max(np.abs(eigenvalues)) < 1)


@given(period=st.sampled_from((3, 12)), winding=st.integers(1, 6), seed=st.integers(0, 100))
def test_unstable_cycles_of_the_logistic_map_in_chaos(period, winding, seed):
    """At a growth of 4, x = sin^2 a maps to sin^2 2a: a cycle for a = pi k / (2^p - 1), with the multiplier 2^p."""
    angles = np.pi * winding / (2**period - 1) * 2.0 ** np.arange(period)
    orbit = np.sin(angles)[:, None] ** 2
    guess = orbit + 1e-5 * np.random.default_rng(seed).uniform(-1, 1, size=orbit.shape)
    cycle = find_cycle(logistic, guess, 4.0, period)
    np.testing.assert_allclose(cycle["points"], orbit, atol=1e-10)
    np.testing.assert_allclose(multipliers(cycle), [2.0**period], rtol=1e-7)
    assert not cycle["stable"]


@given(height=st.floats(0.4, 0.85))
def test_the_henon_cycle_that_an_orbit_settles_on(height):
    """Period two for heights from 0.3675 to 0.9125: the multipliers are those of the product of its Jacobians."""
    cycle = cycle_near(henon, np.array([0.1, 0.1]), height, 4)
    points = cycle["points"].values
    assert len(points) == 2 and cycle["stable"]
    product = np.eye(2)
    for x, _ in points:
        product = np.array([[-2 * height * x, 1], [0.3, 0]]) @ product
    expected = np.sort_complex(np.linalg.eigvals(product))
    np.testing.assert_allclose(np.sort_complex(multipliers(cycle)), expected, atol=1e-7)
    np.testing.assert_allclose(henon(points[1], height), points[0], atol=1e-12)
    # the sum over a two-cycle, from its quadratic equation
    np.testing.assert_allclose(np.sum(points[:, 0]), 0.7 / height, atol=1e-10)


def test_the_state_of_a_map_of_one_variable_may_be_a_number():
    """The cycle of period two of the logistic map has the sum (r + 1) / r and the multiplier 4 + 2 r - r^2."""
    for cycle in (find_cycle(logistic, 0.5, 3.2, 2), cycle_near(logistic, 0.5, 3.2, 4)):
        assert cycle["points"].shape == (2, 1)
        np.testing.assert_allclose(np.sum(cycle["points"]), 4.2 / 3.2, atol=1e-11)
        np.testing.assert_allclose(multipliers(cycle), [4 + 2 * 3.2 - 3.2**2], atol=1e-10)
    with pytest.raises(ValueError, match=r"guess must have entries, got shape \(0,\)"):
        find_cycle(logistic, [], 3.2, 2)


def test_no_cycle_is_an_error_that_says_why():
    with pytest.raises(RuntimeError, match=r"no cycle of period 3 was found at parameter 3\.8.*residual is"):
        find_cycle(logistic, np.array([0.5]), 3.8, 3)
    with pytest.raises(ValueError, match="cycle is not one of step, which misses a point by"):
        follow(henon, find_cycle(lambda x, a: a * x, [0.0, 0.0], 0.5, 1), (0.1, 1.0))
    with pytest.raises(RuntimeError, match="has period 1, not 2"):
        find_cycle(logistic, np.array([0.6]), 2.8, 2)
    with pytest.raises(RuntimeError, match=r"does not return to within 1e-06 in 12 steps"):
        cycle_near(logistic, np.array([0.3]), 3.9, 12)
    with pytest.raises(RuntimeError, match=r"parameter 4\.5 escapes to infinity"):
        cycle_near(logistic, np.array([0.3]), 4.5, 12)


def test_the_ghost_of_a_cycle_is_not_taken_for_one():
    """Just before the period-three window opens, orbits all but return where the cycle is to be."""
    fold = 1 + np.sqrt(8)
    window = cycle_near(logistic, np.array([0.3]), fold + 1e-7, 3, transient=100_000)
    with pytest.raises(RuntimeError, match="no cycle of period 3 was found"):
        cycle_near(logistic, window["points"][0], fold - 1e-8, 3, transient=0)


def test_the_branch_of_a_fixed_point_has_its_closed_form():
    branch = logistic_branch()
    growth = np.asarray(branch.parameter)
    np.testing.assert_allclose(branch.points[:, 0, 0], 1 - 1 / growth, atol=1e-12)
    np.testing.assert_allclose(first_multiplier(branch), 2 - growth, atol=1e-10)
    np.testing.assert_array_equal(branch.stable, growth < 3)
    assert np.all(np.diff(growth) > 0) and growth[0] == 2.8 and growth[-1] == 3.6
    assert branch.ended == "parameter reached 3.6"


def test_doubled_cycles_are_followed_to_the_next_doubling_and_back_to_their_birth():
    once = first_event(logistic_branch())
    cycle = double_period(logistic, once)
    assert cycle.sizes["time"] == 2 and cycle["stable"] and 3 < cycle["parameter"] < 3.01
    onwards = follow(logistic, cycle, (2.5, 3.55))
    assert kinds(onwards) == ["period doubling"]
    assert abs(at_events(onwards)[0] - (1 + np.sqrt(6))) < 1e-10
    # of a two-cycle the multiplier is 4 + 2 r - r^2
    growth = onwards.parameter
    np.testing.assert_allclose(first_multiplier(onwards), 4 + 2 * growth - growth**2, atol=1e-9)
    back = follow(logistic, onwards.isel(point=5), (2.5, 3.55), direction=-1)
    assert kinds(back) == ["branch point"] and back.ended == "the branch meets the cycles that it doubles"
    assert abs(at_events(back)[0] - 3) < 1e-10
    # A pair of multipliers, -1.05 + sqrt(p) and -1.05 - sqrt(p), becomes real next to the doubling.
    pair = lambda x, p: jnp.stack([-1.05 * x[0] + p * x[1], x[0] - 1.05 * x[1]])  # noqa: E731
    (doubling,) = at_events(follow(pair, find_cycle(pair, jnp.zeros(2), -0.9, 1), (-1, 1)))
    assert abs(doubling - 0.05**2) < 1e-12
    assert abs(first_multiplier(back)[-1] - 1) < 1e-7
    assert np.min(back.parameter) > 3 - 1e-12


@pytest.mark.parametrize("phase", [0, 1])
def test_a_doubling_is_found_from_any_point_of_the_cycle(phase):
    """Of the Ricker map x exp(r (1 - x)), one point of the two-cycle moves three times as far as the other."""
    ricker = lambda x, r: x * jnp.exp(r * (1 - x))  # noqa: E731
    event = first_event(follow(ricker, find_cycle(ricker, np.array([[0.3], [1.7]]), 2.4, 2), (2.4, 2.6)))
    points = np.roll(event["points"].values, phase, axis=0)
    found = double_period(ricker, event.assign(points=(event["points"].dims, points)), amplitude=0.03)
    halves = found["points"].values[:, 0].reshape(2, 2)
    np.testing.assert_allclose(np.max(np.abs(halves[0] - halves[1])) / 2, 0.03 * np.max(points), rtol=1e-9)


def test_a_doubling_too_close_to_see_is_an_error():
    with pytest.raises(RuntimeError, match="the amplitude 1e-09: try another one"):
        double_period(logistic, first_event(logistic_branch()), amplitude=1e-9)


def test_a_fold_of_cycles_is_passed():
    """The period-three window opens at 1 + sqrt(8); beyond the fold, the branch goes back, unstable."""
    cycle = cycle_near(logistic, np.array([0.3]), 3.835, 6)
    branch = follow(logistic, cycle, (3.8, 3.86), direction=-1, largest_step=0.01)
    assert kinds(branch) == ["fold"] and branch.ended == "parameter reached 3.86"
    assert abs(at_events(branch)[0] - (1 + np.sqrt(8))) < 1e-10
    assert branch.stable[0] and not branch.stable[-1]
    assert np.all(np.asarray(branch.parameter) >= at_events(branch)[0] - 1e-14)


def test_a_neimark_sacker_bifurcation_and_its_angle():
    branch = follow(delayed_logistic, find_cycle(delayed_logistic, np.array([0.4, 0.4]), 1.8, 1), (1.2, 2.2))
    assert kinds(branch) == ["Neimark-Sacker"]
    assert abs(at_events(branch)[0] - 2) < 1e-10
    assert abs(first_event(branch)["multiplier_angle"][0] - np.pi / 3) < 1e-9


def test_a_pitchfork_is_a_branch_point_from_either_branch():
    cubic = Cubic(jnp.array(0.0))
    trivial = follow(cubic, find_cycle(cubic, np.array([0.0]), -0.5, 1), (-0.6, 0.7))
    assert kinds(trivial) == ["branch point"] and abs(at_events(trivial)[0]) < 1e-12
    # the other branch turns back there, and goes on as its own mirror image; it is stable while |1 - 2 r| < 1
    other = follow(cubic, find_cycle(cubic, np.array([0.5]), 0.25, 1), (-0.6, 0.7), direction=-1)
    assert kinds(other) == ["branch point"] and abs(at_events(other)[0]) < 1e-12
    np.testing.assert_allclose(other.points[:, 0, 0] ** 2, other.parameter, atol=1e-12)
    assert other.points[0, 0, 0] > 0 > other.points[-1, 0, 0] and np.all(other.stable[other["event"] == ""])


def test_a_cycle_of_period_two_at_its_pitchfork_is_at_a_branch_point():
    """x' = x^3 - (1 + r) x has the cycle +-r^(1/2), which loses its symmetry at r = 1, with a multiplier of 1."""

    def odd(state, parameter):
        return state**3 - (1 + parameter) * state

    symmetric = find_cycle(odd, np.array([[0.7], [-0.7]]), 0.5, 2)
    branch = follow(odd, symmetric, (0.4, 1.2))
    assert kinds(branch) == ["branch point"] and abs(at_events(branch)[0] - 1) < 1e-10
    apart = find_cycle(odd, np.array([[1.2], [-0.8]]), 1.05, 2)
    branch = follow(odd, apart, (0.9, 1.1), direction=-1)
    assert kinds(branch)[0] == "branch point" and abs(at_events(branch)[0] - 1) < 1e-10
    np.testing.assert_allclose(branch["parameter"][[0, -1]], [1.05, 1.1], atol=1e-12)


def test_multipliers_that_cross_in_opposite_ways_within_a_step_are_told_apart():
    branch = follow(opposite_crossings, find_cycle(opposite_crossings, np.array([0.0, 0.0]), -0.05, 1), (-0.1, 0.1))
    assert kinds(branch) == ["period doubling", "branch point"]
    np.testing.assert_allclose(at_events(branch), [0, 0.001], atol=1e-10)
    assert np.max(np.diff(branch.parameter)) > 0.001


def test_events_are_differentiable():
    """x' = r x (1 - x) - c doubles its period at r = 1 + 2 c + ((1 + 2 c)^2 + 3)^(1/2)."""

    class Harvested(eqx.Module):
        taken: Array

        def __call__(self, state, growth):
            return growth * state * (1 - state) - self.taken

    step = Harvested(jnp.array(0.0))
    event = first_event(follow(step, find_cycle(step, [0.6], 2.8, 1), (2.5, 3.4)))

    def doubling(taken):
        return curve.refine(Cycles(Harvested(taken), 1), event)["parameter"]

    taken = jnp.array([-0.01, 0.0, 0.02])
    half = 1 + 2 * taken
    root = np.sqrt(half**2 + 3)
    np.testing.assert_allclose(jax.vmap(doubling)(taken), half + root, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(jax.grad(doubling))(taken), 2 + 2 * half / root, rtol=1e-10)
    closed = jax.grad(lambda c: curve.refine(Cycles(lambda x, r: r * x * (1 - x) - c, 1), event)["parameter"])
    np.testing.assert_allclose(closed(0.02), 2 + 2 * half[2] / root[2], rtol=1e-10)
    with pytest.raises(ValueError, match=r"curve\.refine"):
        jax.jit(lambda growth: follow(logistic, find_cycle(logistic, [0.6], 2.8, 1), (2.5, growth)))(3.4)
