"""Weights and the map against the published program, its conventions and starts, and the pitchfork of one pattern."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import dmft
from theorykit.dynamics import advance, find_cycle, follow

from ..marks import slow
from .reference import cases
from .test_network import random_weights

WEIGHTS = dmft.Weights.published()
MODEL = dmft.SelfAttention.from_weights(WEIGHTS, 4)
GAMMA = 2.2 * 100 / np.sqrt(3)
EVERY = [case for kind in ("trajectories", "lyapunov", "general_M") for case in cases(kind)]


def test_published_seeds_give_the_published_weights():
    for case in EVERY:
        about = case.about
        options = {"position_bits": about["P"], "segments": about["num_segments"]}
        drawn = dmft.Weights.published(about["seed"], about["M"], about["N_semantic"], **options)
        np.testing.assert_array_equal(drawn.semantic, case.weights.semantic)
        np.testing.assert_array_equal(drawn.positional, case.weights.positional)


@pytest.mark.parametrize("case", cases("trajectories")[::4], ids=repr)
def test_published_correlations_give_the_same_network(case):
    """Eq. (7): pairs, and for three patterns the products of all three output weights."""
    model, patterns = case.model, case.about["M"]
    pairs = np.einsum("fjm,jb->fbm", model.moments, model.directions)
    np.testing.assert_allclose(pairs, case["pair_corr"], atol=1e-15)
    correlations = {(b,): case["pair_corr"][:, b] for b in range(patterns)}
    if patterns == 3:
        correlations[0, 1, 2] = case["quad_corr"]
    same = dmft.SelfAttention.from_correlations(correlations, model.positional)
    parameters, attention = dmft.Parameters(1.3, 1.0, 0.1), np.linspace(-0.7, 0.5, patterns)
    expected = model.overlaps(parameters, attention)
    np.testing.assert_allclose(same.overlaps(parameters, attention), expected, atol=1e-14)


@pytest.mark.quick(20)
@pytest.mark.parametrize("case", cases("trajectories"), ids=repr)
def test_published_trajectories_in_the_window_convention(case):
    model, parameters = case.model, case.parameters
    found = dmft.run(model, model.start(parameters, case.prompt, "window"), parameters, steps=60)
    atol = case.about["suggested_atol"]
    np.testing.assert_allclose(found.attention[0], case["A0"], atol=1e-15)
    np.testing.assert_allclose(found.attention[1:], case["att"], atol=atol)
    np.testing.assert_allclose(found.overlaps, case["m_ovqk"], atol=atol)
    semantic = jax.vmap(lambda before: model.overlaps(parameters, before))(found.attention[:-1])
    np.testing.assert_allclose(semantic[:, dmft.OUTPUT], case["mo_se"], atol=atol)


@pytest.mark.quick(3)
@pytest.mark.parametrize("case", [*cases("general_M")[:-1], *slow(cases("general_M")[-1:])], ids=repr)
def test_published_trajectories_in_the_token_exact_convention(case):
    model, parameters = case.model, case.parameters
    found = dmft.run(model, model.start(parameters, case.prompt), parameters, steps=60)
    atol = case.about["suggested_atol"]
    np.testing.assert_allclose(found.attention, case["att"], atol=atol)
    np.testing.assert_allclose(found.overlaps, case["m_ovqk"][1:], atol=atol)


def literal_step(weights, window, positions, beta, gamma, epsilon):
    """Eqs. (5) and (2) as they stand, from the weights of every neuron; `window` newest first."""
    code = 2 * ((positions[:, None] >> np.arange(3)[::-1]) & 1) - 1
    spins = np.tanh(beta * window @ weights.semantic[0])
    semantic = np.einsum("fmn,ln->lfm", weights.semantic, spins) / weights.semantic.shape[-1]
    positional = np.einsum("fmp,lp->lfm", weights.positional, code) / 3
    overlaps = (1 - epsilon) * semantic + epsilon * positional
    _, values, queries, keys = np.moveaxis(overlaps, 1, 0)
    scores = gamma * keys @ queries[0]
    weight = np.exp(scores - scores.max())
    return weight @ values / weight.sum()


@settings(max_examples=4)
@given(patterns=st.sampled_from((1, 4)), context=st.sampled_from((1, 3, 8)), seed=st.integers(0, 99))
def test_a_step_from_a_window_is_the_formula_as_it_stands(patterns, context, seed):
    weights, rng = random_weights(patterns, 20, seed, bits=3), np.random.default_rng(seed)
    model = dmft.SelfAttention.from_weights(weights, context)
    assert len(model.directions) <= 2 ** (patterns - 1)
    window, position = rng.uniform(-1, 1, size=(context, patterns)), int(rng.integers(context))
    settings = (1.7, 5.0, 0.2)
    parameters = dmft.Parameters(*settings)
    found = model(model.resume(parameters, window, position), parameters).attention
    expected = literal_step(weights, window, (position - np.arange(context)) % context, *settings)
    np.testing.assert_allclose(found, [expected, *window[:-1]], atol=1e-14)


def start(parameters):
    return MODEL.start(parameters, WEIGHTS.prompt(), "window")


def test_a_run_is_resumed_from_its_end_or_its_window():
    parameters = dmft.Parameters(1.24, GAMMA, 0.02)
    whole = dmft.run(MODEL, start(parameters), parameters, steps=50)
    end = dmft.run(MODEL, start(parameters), parameters, steps=21).end
    np.testing.assert_array_equal(end.attention, whole.attention[21:17:-1])
    again = MODEL.resume(parameters, end.attention, end.position)
    rest = dmft.run(MODEL, again, parameters, steps=29)
    np.testing.assert_allclose(rest.attention, whole.attention[21:], atol=1e-13)
    np.testing.assert_array_equal(dmft.run(MODEL, end, parameters, steps=29).attention, whole.attention[21:])
    settled = advance(MODEL, start(parameters), parameters, 50)
    np.testing.assert_allclose(settled.attention, whole.end.attention, atol=1e-13)


def test_a_run_is_differentiable_in_every_parameter():
    def last(values):
        parameters = dmft.Parameters(*values)
        return jnp.sum(dmft.run(MODEL, start(parameters), parameters, steps=6).attention[-1] ** 2)

    last, values = jax.jit(last), jnp.array([1.1, 20.0, 0.1])
    differences = [(last(values + step) - last(values - step)) / 2e-5 for step in 1e-5 * np.eye(3)]
    assert np.min(np.abs(differences)) > 1e-8
    np.testing.assert_allclose(jax.jit(jax.grad(last))(values), differences, rtol=1e-5)


def test_the_conventions_differ_only_while_the_prompt_is_remembered():
    parameters = dmft.Parameters(0.5, 3.0, 0.0)
    exact = dmft.run(MODEL, MODEL.start(parameters, WEIGHTS.prompt()), parameters, steps=400)
    window = dmft.run(MODEL, start(parameters), parameters, steps=400)
    np.testing.assert_array_equal(exact.attention[0], window.attention[0])
    assert np.abs(exact.attention[1] - window.attention[1]).max() > 1e-3
    np.testing.assert_allclose(exact.attention[-1], window.attention[-1], atol=1e-9)


# ---- whole turns of the positions, and cycles of one pattern that are known


@pytest.mark.parametrize(("scanned", "tokens", "epsilon"), [("gamma", 4, 0.1), ("epsilon", None, 0.1), ("beta", 6, 0)])
def test_a_stroboscope_scans_the_named_parameter_over_any_number_of_tokens(scanned, tokens, epsilon):
    given = {"beta": 1.1, "gamma": 20.0, "epsilon": epsilon}
    turn, value = dmft.stroboscope(MODEL, dmft.Parameters(**given), scanned, tokens), 1.5 * given[scanned]
    window, there = np.random.default_rng(1).uniform(-1, 1, (4, 3)), dmft.Parameters(**{**given, scanned: value})
    expected = dmft.run(MODEL, MODEL.resume(there, window), there, steps=tokens or 4).attention[:-5:-1]
    np.testing.assert_allclose(turn(window.ravel(), value).reshape(4, 3), expected, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [1.0, 0.6])
def test_the_pitchfork_of_one_pattern_is_located(correlation):
    """A = c tanh(beta A) at a fixed point, where all tokens are alike: branches meet at beta = 1 / c."""
    correlations = {(0,): np.array([1.0, correlation, correlation, correlation])[:, None]}
    model = dmft.SelfAttention.from_correlations(correlations, np.zeros((4, 4, 1)))
    token, pitchfork = dmft.stroboscope(model, dmft.Parameters(1.0, 3.0, 0.0), tokens=1), 1 / correlation
    bounds = (0.8 * pitchfork, 1.3 * pitchfork)
    silent = follow(token, find_cycle(token, np.zeros((1, 4)), bounds[0], 1), bounds)
    (event,) = np.flatnonzero(silent["event"] != "")
    assert silent["event"][event] == "branch point"
    assert abs(silent["parameter"][event] - pitchfork) < 1e-8


@pytest.mark.slow
def test_the_cycle_of_the_positions_gives_way_to_a_torus():
    turn = dmft.stroboscope(MODEL, dmft.Parameters(1.0, GAMMA, 0.02))
    branch = follow(turn, find_cycle(turn, np.zeros((1, 12)), 0.5, 1), (0.5, 1.3))
    (event,) = np.flatnonzero(branch["event"] != "")
    assert branch["event"][event] == "Neimark-Sacker"
    np.testing.assert_allclose(branch["parameter"][event], 1.243444548, atol=1e-8)
