"""Whole turns of the position clock: the map that cycles are found of, and cycles of self-attention that are known."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import dmft
from theorykit.dmft.weights import ColumnLaw
from theorykit.dynamics import find_cycle, follow

WEIGHTS = dmft.published_weights()
CONTEXT, GAMMA = 4, dmft.attention_gain(2.2, 100, 3)
MODEL = dmft.self_attention_limit(WEIGHTS, CONTEXT)


def driven(beta):
    return dmft.Parameters(beta, GAMMA, 0.02)


def settled(beta, tokens):
    parameters = driven(beta)
    start = dmft.window_start(MODEL, parameters, dmft.pattern_prompt(WEIGHTS))
    return dmft.discard_transient(MODEL, parameters, start, tokens)


# beta is given as the value scanned, so that one compiled map does for all
TURN = dmft.Stroboscope(MODEL, driven(1.0))


@settings(max_examples=6)
@given(seed=st.integers(0, 99), beta=st.floats(0.1, 3.0))
def test_a_turn_is_as_many_tokens_as_the_context(seed, beta):
    window = dmft.Window(np.random.default_rng(seed).uniform(-1, 1, size=(CONTEXT, 3)), 0)
    found = eqx.filter_jit(TURN)(TURN.state(window), jnp.asarray(beta))
    np.testing.assert_allclose(found.reshape(CONTEXT, 3), after(window, driven(beta), CONTEXT), atol=1e-13)


def after(window, parameters, tokens):
    """The window of attentions so many tokens later, newest first; fewer than the context keep part of the window."""
    start = dmft.state_from_window(MODEL, parameters, window)
    new = dmft.run(MODEL, parameters, start, steps=tokens).attention[:0:-1]
    return np.concatenate([new, window.attention])[:CONTEXT]


@pytest.mark.parametrize(
    ("scanned", "tokens", "epsilon"),
    [("gamma", CONTEXT, 0.1), ("epsilon", CONTEXT, 0.1), ("beta", 1, 0.0), ("beta", 6, 0.0)],
)
def test_the_parameter_scanned_is_the_one_named_after_any_number_of_tokens(scanned, tokens, epsilon):
    given = {"beta": 1.1, "gamma": 20.0, "epsilon": epsilon}
    turn = dmft.Stroboscope(MODEL, dmft.Parameters(**given), scanned, tokens)
    window = dmft.Window(np.random.default_rng(1).uniform(-1, 1, (CONTEXT, 3)), 0)
    value = given[scanned] * 1.5
    found = turn(turn.state(window), jnp.asarray(value)).reshape(CONTEXT, 3)
    np.testing.assert_allclose(found, after(window, dmft.Parameters(**{**given, scanned: value}), tokens), atol=1e-13)


def test_times_at_which_the_clock_is_elsewhere_are_refused():
    for tokens in (3, 6):
        with pytest.raises(
            ValueError, match=f"after {tokens} tokens the position clock of period 4 is not where it was"
        ):
            dmft.Stroboscope(MODEL, driven(1.0), tokens=tokens)
    with pytest.raises(ValueError, match="after 0 tokens"):
        dmft.Stroboscope(MODEL, dmft.Parameters(1.0, GAMMA, 0.0), tokens=0)
    with pytest.raises(ValueError, match="next token of window must be at position 0, got 1"):
        TURN.state(dmft.Window(np.zeros((CONTEXT, 3)), 1))


# one pattern without positions


def one_pattern(correlation):
    """One pattern whose value, query and key have one `correlation` with the output; a map token by token."""
    moments = np.array([1.0, correlation, correlation, correlation]).reshape(4, 1, 1)
    model = dmft.SelfAttention(ColumnLaw(np.ones((1, 1)), moments), np.zeros((CONTEXT, 4, 1)))
    return dmft.Stroboscope(model, dmft.Parameters(1.0, 3.0, 0.0), tokens=1)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [1.0, 0.6])
def test_the_pitchfork_of_one_pattern_is_located_from_either_branch(correlation):
    """A = c tanh(beta A) at a fixed point, where all tokens are alike: they meet at beta = 1 / c."""
    token, pitchfork = one_pattern(correlation), 1 / correlation
    bounds = (0.8 * pitchfork, 1.3 * pitchfork)
    silent = follow(token, find_cycle(token, np.zeros((1, CONTEXT)), bounds[0], 1), bounds)
    assert events(silent)["event"].item() == "branch point"
    assert abs(events(silent)["parameter"].item() - pitchfork) < 1e-8
    np.testing.assert_array_equal(silent.stable, silent.parameter < pitchfork - 1e-9)

    beta = 1.2 * pitchfork
    above = find_cycle(token, np.full((1, CONTEXT), 0.6 * correlation), beta, 1)
    other = follow(token, above, bounds, direction=-1)
    assert events(other)["event"].item() == "branch point"
    assert abs(events(other)["parameter"].item() - pitchfork) < 1e-8
    attention = other.points.values[:, 0, 0]
    assert attention[0] > 0 > attention[-1]  # through the pitchfork to its mirror image
    np.testing.assert_allclose(attention, correlation * np.tanh(other.parameter.values * attention), atol=1e-11)


def test_a_value_opposed_to_the_output_starts_to_turn_in_fifths():
    """About zero, A' = -beta |c| times the mean of the last four: at beta |c| = 4 all fifth roots of one but one."""
    correlation = -0.8
    token = one_pattern(correlation)
    branch = follow(token, find_cycle(token, np.zeros((1, CONTEXT)), 4.0, 1), (4.0, 6.0))
    both = events(branch)
    assert both["event"].values.tolist() == ["Neimark-Sacker"] * 2
    np.testing.assert_allclose(both["parameter"], 4 / abs(correlation), atol=1e-8)
    angles = np.sort(both["angle"])
    np.testing.assert_allclose(angles, [2 * np.pi / 5, 4 * np.pi / 5], atol=1e-7)


def events(branch):
    return branch.isel(point=branch["event"] != "")


# the published network, driven by its positions


def cold_cycle():
    return find_cycle(TURN, np.zeros((1, CONTEXT * 3)), 0.5, 1)


@pytest.mark.slow
def test_multipliers_are_the_exponents_of_the_orbit_on_a_cycle():
    """lambda = log |mu| / tokens: of complex pairs in the mean, once perturbations have turned to their planes."""
    cycle = cold_cycle()
    assert cycle.period == 1 and cycle.is_stable
    exponents = np.log(np.abs(cycle.multipliers)) / CONTEXT
    published = [-0.3273587531701332, -0.3273817763009178, -0.5254413768063048]
    np.testing.assert_allclose(exponents[:3], published, atol=1e-4)  # of 2000 tokens
    window, tokens = dmft.Window(cycle.points[0].reshape(CONTEXT, 3), 0), 400 * CONTEXT
    spectrum = dmft.lyapunov_spectrum(MODEL, driven(0.5), window, steps=tokens, exponents=4, blocks=2)
    of_pairs = spectrum.blocks[-1].reshape(2, 2).mean(axis=1)
    np.testing.assert_allclose(of_pairs, exponents[[0, 2]], atol=1e-10)


@pytest.mark.slow
def test_the_cycle_of_the_positions_gives_way_to_a_torus():
    """Beside the Neimark-Sacker bifurcation orbits are periodic, or turn by its angle: the peak of their spectrum."""
    branch = follow(TURN, cold_cycle(), (0.5, 1.3))
    event = events(branch).squeeze("point")
    assert event["event"] == "Neimark-Sacker" and 1.24 < event["parameter"] < 1.255
    np.testing.assert_allclose(event["multiplier_modulus"][0], 1, atol=1e-9)

    beta = event["parameter"].item() + 5e-4
    torus = dmft.state_from_window(MODEL, driven(beta), settled(beta, 60_000))
    turns = 2048
    orbit = dmft.run(MODEL, driven(beta), torus, steps=turns * CONTEXT).attention[CONTEXT::CONTEXT, 0]
    amplitude = np.abs(np.fft.rfft((orbit - np.mean(orbit)) * np.hanning(turns)))
    assert abs(2 * np.pi * np.argmax(amplitude) / turns - event["angle"]) < 0.01
