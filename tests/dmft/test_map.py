"""The map against the published program, its conventions and starts, and the pitchfork of one pattern."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import dmft
from theorykit.dynamics import find_cycle, follow

from ..marks import slow
from .reference import cases

WEIGHTS = dmft.Weights.published()
GAMMA = dmft.attention_gain(2.2, 100, 3)


@pytest.mark.quick(20)
@pytest.mark.parametrize("case", cases("trajectories"), ids=repr)
def test_published_trajectories_in_the_window_convention(case):
    model, parameters = case.model, case.parameters
    found = dmft.run(model, parameters, dmft.start(model, parameters, case.prompt, "window"), steps=60)
    atol = case.about["suggested_atol"]
    np.testing.assert_allclose(found.attention[0], case["A0"], atol=1e-15)
    np.testing.assert_allclose(found.attention[1:], case["att"], atol=atol)
    np.testing.assert_allclose(found.overlaps, case["m_ovqk"], atol=atol)
    semantic = jax.vmap(lambda before: dmft.semantic_overlap(model, parameters, before))(found.attention[:-1])
    np.testing.assert_allclose(semantic[:, dmft.OUTPUT], case["mo_se"], atol=atol)


@pytest.mark.quick(3)
@pytest.mark.parametrize("case", [*cases("general_M")[:-1], *slow(cases("general_M")[-1:])], ids=repr)
def test_published_trajectories_in_the_token_exact_convention(case):
    model, parameters = case.model, case.parameters
    found = dmft.run(model, parameters, dmft.start(model, parameters, case.prompt), steps=60)
    atol = case.about["suggested_atol"]
    np.testing.assert_allclose(found.attention, case["att"], atol=atol)
    np.testing.assert_allclose(found.overlaps, case["m_ovqk"][1:], atol=atol)


def literal_step(weights, window, positions, beta, gamma, epsilon):
    """Eqs. (5) and (2) as they stand, from the weights of every neuron; `window` newest first."""
    code = 2 * ((positions[:, None] >> np.arange(weights.position_bits)[::-1]) & 1) - 1
    spins = np.tanh(beta * window @ weights.semantic[0])
    semantic = np.einsum("fmn,ln->lfm", weights.semantic, spins) / weights.neurons
    positional = np.einsum("fmp,lp->lfm", weights.positional, code) / weights.position_bits
    overlaps = (1 - epsilon) * semantic + epsilon * positional
    _, values, queries, keys = np.moveaxis(overlaps, 1, 0)
    scores = gamma * keys @ queries[0]
    weight = np.exp(scores - scores.max())
    return weight @ values / weight.sum()


@settings(max_examples=4)
@given(patterns=st.sampled_from((1, 4)), context=st.sampled_from((1, 3, 8)), seed=st.integers(0, 99))
def test_a_step_from_a_window_is_the_formula_as_it_stands(patterns, context, seed):
    weights = dmft.Weights.iid(patterns, 20, 3, key=jax.random.key(seed))
    model, rng = dmft.self_attention_limit(weights, context), np.random.default_rng(seed)
    window, position = rng.uniform(-1, 1, size=(context, patterns)), int(rng.integers(context))
    settings = (1.7, 5.0, 0.2)
    parameters = dmft.Parameters(*settings)
    start = dmft.state_from_window(model, parameters, window, position)
    found = dmft.run(model, parameters, start, steps=1).attention[1]
    expected = literal_step(weights, window, (position - np.arange(context)) % context, *settings)
    np.testing.assert_allclose(found, expected, atol=1e-14)


def _start(model, parameters):
    return dmft.start(model, parameters, WEIGHTS.prompt(), "window")


def test_a_window_takes_a_run_up_where_it_stopped():
    model, parameters = dmft.self_attention_limit(WEIGHTS, 4), dmft.Parameters(1.24, GAMMA, 0.02)
    whole = dmft.run(model, parameters, _start(model, parameters), steps=50)
    end = dmft.run(model, parameters, _start(model, parameters), steps=21).end
    np.testing.assert_array_equal(end.window, whole.attention[21:17:-1])
    rest = dmft.run(model, parameters, dmft.state_from_window(model, parameters, end.window, end.position), steps=29)
    np.testing.assert_allclose(rest.attention, whole.attention[21:], atol=1e-13)
    np.testing.assert_array_equal(dmft.run(model, parameters, end, steps=29).attention, whole.attention[21:])
    settled = dmft.advance(model, parameters, _start(model, parameters), 50)
    np.testing.assert_allclose(settled.attention, whole.end.attention, atol=1e-13)


def test_a_batch_is_runs_of_their_own():
    model = dmft.self_attention_limit(WEIGHTS, 4)
    betas, gammas, epsilons = np.array([[0.5, 1.2], [1.3, 2.0]]), np.array([10.0, 30.0]), np.array([[0.0], [0.1]])
    every = dmft.Parameters(betas, gammas, epsilons)
    found = dmft.run(model, every, _start(model, every), steps=12).attention
    assert found.shape == (2, 2, 13, 3)
    for instance in np.ndindex(2, 2):
        alone = dmft.Parameters(betas[instance], gammas[instance[1]], epsilons[instance[0], 0])
        expected = dmft.run(model, alone, _start(model, alone), steps=12).attention
        np.testing.assert_allclose(found[instance], expected, atol=1e-13)


@pytest.mark.parametrize("name", ["epsilon", *slow(["beta", "gamma"])])
def test_every_parameter_is_that_of_the_call(name):
    model, given = dmft.self_attention_limit(WEIGHTS, 4), {"beta": 1.1, "gamma": 20.0, "epsilon": 0.1}

    def last(value):
        parameters = dmft.Parameters(**{**given, name: value})
        return jnp.sum(dmft.run(model, parameters, _start(model, parameters), steps=6).attention[-1] ** 2)

    last = jax.jit(last)
    slope = jax.jit(jax.grad(last))(given[name])
    difference = (last(given[name] + 1e-5) - last(given[name] - 1e-5)) / 2e-5
    assert abs(slope) > 1e-8
    np.testing.assert_allclose(slope, difference, rtol=1e-5)


def test_the_conventions_differ_only_while_the_prompt_is_remembered():
    model, parameters = dmft.self_attention_limit(WEIGHTS, 4), dmft.Parameters(0.5, 3.0, 0.0)
    prompt = WEIGHTS.prompt()
    exact = dmft.run(model, parameters, dmft.start(model, parameters, prompt, "token"), steps=400)
    window = dmft.run(model, parameters, dmft.start(model, parameters, prompt, "window"), steps=400)
    np.testing.assert_array_equal(exact.attention[0], window.attention[0])
    assert np.abs(exact.attention[1] - window.attention[1]).max() > 1e-3
    np.testing.assert_allclose(exact.attention[-1], window.attention[-1], atol=1e-9)


# ---- whole turns of the positions, and cycles of one pattern that are known


def after(model, window, parameters, tokens):
    """The window of attentions so many tokens later, newest first; fewer than the context keep part of the window."""
    new = dmft.run(model, parameters, dmft.state_from_window(model, parameters, window), steps=tokens).attention
    return np.concatenate([new[:0:-1], window])[: model.context]


@pytest.mark.parametrize(
    ("scanned", "tokens", "epsilon"),
    [("gamma", 4, 0.1), ("epsilon", None, 0.1), ("beta", 1, 0.0), ("beta", 6, 0.0)],
)
def test_a_stroboscope_scans_the_named_parameter_over_any_number_of_tokens(scanned, tokens, epsilon):
    model, given = dmft.self_attention_limit(WEIGHTS, 4), {"beta": 1.1, "gamma": 20.0, "epsilon": epsilon}
    turn, value = dmft.stroboscope(model, dmft.Parameters(**given), scanned, tokens), 1.5 * given[scanned]
    window = np.random.default_rng(1).uniform(-1, 1, (4, 3))
    expected = after(model, window, dmft.Parameters(**{**given, scanned: value}), 4 if tokens is None else tokens)
    np.testing.assert_allclose(turn(window.ravel(), value).reshape(4, 3), expected, atol=1e-13)


def one_pattern(correlation):
    """One pattern whose value, query and key have one `correlation` with the output; a map token by token."""
    correlations = {(0,): np.array([1.0, correlation, correlation, correlation])[:, None]}
    model = dmft.self_attention_from_correlations(correlations, np.zeros((4, 4, 1)))
    return dmft.stroboscope(model, dmft.Parameters(1.0, 3.0, 0.0), tokens=1)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [1.0, 0.6])
def test_the_pitchfork_of_one_pattern_is_located(correlation):
    """A = c tanh(beta A) at a fixed point, where all tokens are alike: branches meet at beta = 1 / c."""
    token, pitchfork = one_pattern(correlation), 1 / correlation
    bounds = (0.8 * pitchfork, 1.3 * pitchfork)
    silent = follow(token, find_cycle(token, np.zeros((1, 4)), bounds[0], 1), bounds)
    (event,) = np.flatnonzero(silent["event"] != "")
    assert silent["event"][event] == "branch point"
    assert abs(silent["parameter"][event] - pitchfork) < 1e-8


@pytest.mark.slow
def test_the_cycle_of_the_positions_gives_way_to_a_torus():
    model = dmft.self_attention_limit(WEIGHTS, 4)
    turn = dmft.stroboscope(model, dmft.Parameters(1.0, GAMMA, 0.02))
    branch = follow(turn, find_cycle(turn, np.zeros((1, 12)), 0.5, 1), (0.5, 1.3))
    (event,) = np.flatnonzero(branch["event"] != "")
    assert branch["event"][event] == "Neimark-Sacker"
    np.testing.assert_allclose(branch["parameter"][event], 1.243444548, atol=1e-8)
