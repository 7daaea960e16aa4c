"""Exponents against the published program, differentiation of the whole map, Eq. (8), and eighty digits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from theorykit import dmft, dynamics
from theorykit.codegen import interpret

from .precise_exponents import growth, windows_of
from .reference import cases, perturbed

CASES = {repr(case): case for case in cases("lyapunov")}
REGULAR = [case for case in CASES.values() if not case.about["chaotic"]]
CHAOTIC = [case for case in CASES.values() if case.about["chaotic"]]
WEIGHTS = dmft.Weights.published()


def start_of(case) -> dmft.State:
    position = case.about["position_of_row0_at_lyapunov_start"]
    return case.model.resume(case.parameters, case["A_window_start"], position)


def units(model, number=None):
    """The perturbations that the published program starts with: of one attention each, newest first, by pattern."""
    size = model.context * model.patterns
    return np.eye(size)[:number].reshape(-1, model.context, model.patterns)


def spectrum(model, parameters, state, perturbations, **asked):
    moved = perturbed(model, state, parameters, perturbations)
    return dynamics.lyapunov_spectrum(model, state, parameters, perturbations=moved, **asked)


@pytest.mark.quick("l02", "l03")
@pytest.mark.parametrize("case", CASES.values(), ids=repr)
def test_published_growth_token_by_token(case):
    leading = case.about["leading_exponents_comparable_per_step_first50"]
    start = units(case.model, leading)
    found = spectrum(case.model, case.parameters, start_of(case), start, steps=50, blocks=50).blocks
    resolved = np.isfinite(found[0])
    assert np.all(resolved[: min(3, leading)])
    atol = 1e-6 if case.about["chaotic"] else 1e-10
    expected = case["S_i_first50"][:, :leading]
    np.testing.assert_allclose(found[:, resolved], expected[:, resolved], atol=atol)


@pytest.mark.quick("l02")
@pytest.mark.parametrize("case", REGULAR, ids=repr)
def test_published_exponents_of_regular_orbits(case):
    found = spectrum(case.model, case.parameters, start_of(case), units(case.model, 3), steps=2000)
    np.testing.assert_allclose(found.exponents, case["S"][:3], atol=1e-10)


@pytest.mark.quick("l06", "l07")
@pytest.mark.parametrize("case", CHAOTIC, ids=repr)
def test_published_exponents_of_chaotic_orbits(case):
    """Averages of two orbits that rounding has parted: they agree within their errors, not to rounding."""
    asked = {"steps": 32_000, "exponents": 3}
    found = dynamics.lyapunov_spectrum(case.model, start_of(case), case.parameters, **asked)
    # The long run has as many steps, and so an error of the same size; the published run a sixteenth.
    long_run, published = np.array(case.about["long_run_lambda_1_to_3"]), case["S"][:3]
    # Errors are estimated from twenty blocks: Student's t, exceeded by rounding's choice once in 10,000.
    most = scipy.stats.t(len(found.blocks) - 1).isf(0.5e-4)
    assert np.all(np.abs(found.exponents - long_run) < most * np.sqrt(2) * found.errors)
    assert np.all(np.abs(found.exponents - published) < most * np.sqrt(17) * found.errors)
    assert found.exponents[0] > 5 * found.errors[0]


def small_case():
    weights = dmft.Weights(np.random.default_rng(3).choice([-1, 1], size=(4, 2, 32)), 2)
    model, parameters = dmft.SelfAttention.from_weights(weights, 3), dmft.Parameters(1.5, 4.0, 0.1)
    window = np.random.default_rng(0).uniform(-0.5, 0.5, size=(3, 2))
    return model, parameters, model.resume(parameters, window, 1)


@jax.jit
def jacobian(model, parameters, window, position):
    """The Jacobian of one token as a function of the whole window, newest attention first."""

    def following(window):
        return model(model.resume(parameters, window, position), parameters).attention

    return jax.jacfwd(following)(window)


def test_the_derived_blocks_are_the_derivative_of_a_step():
    """Eq. (8) as the derivation has it, against differentiation of the compiled step."""
    theory, (model, parameters, state) = dmft.derive(), small_case()
    window, position = np.asarray(state.attention), int(state.position)
    expected = jacobian(model, parameters, state.attention, state.position)[0]
    numbers = {name: float(getattr(parameters, name)) for name in ("beta", "gamma", "epsilon")}
    numbers |= {"L": model.context, "M": model.patterns, "J": len(model.directions)}
    moments, positional = np.asarray(model.moments), np.asarray(model.positional)
    places = (position - np.arange(model.context)) % model.context

    def of(expression, family, age):
        given = {"Omega": np.asarray(model.directions), "C": moments[family], "A": window[age][:, None]}
        return interpret(expression, {**numbers, **given, "r": positional[places[age], family][:, None]})

    ages = range(model.context)
    overlaps = {f: np.stack([of(theory.overlap, f, age)[:, 0] for age in ages]) for f in (1, 2, 3)}
    at = {**numbers, "K": overlaps[3], "V": overlaps[1], "q": overlaps[2][0][:, None], "ell": np.zeros((3, 1))}
    weights, rows = interpret(theory.attention_weights, at), interpret(theory.attention_response, at)
    for age in ages:
        responses = {f"D_{name}": of(theory.overlap_response, f, age) for name, f in (("v", 1), ("q", 2), ("k", 3))}
        here = {**at, **responses, "s": float(weights[age, 0]), "g": rows[[age]].T, "G": rows}
        block = interpret(theory.row_response, here) + (age == 0) * interpret(theory.query_response, here)
        np.testing.assert_allclose(block, expected[:, age], atol=1e-12)


def assert_as_precise(context, parameters, tokens=24):
    """Every finite exponent is right, and what is lost has shrunk to a millionth in a context."""
    weights = dmft.Weights.published(position_bits=max(2, (context - 1).bit_length()))
    model = dmft.SelfAttention.from_weights(weights, context)
    state = dynamics.advance(model, model.start(parameters, weights.prompt(), "window"), parameters, 300)
    size = context * model.patterns
    start = np.random.default_rng(0).standard_normal((size, context, model.patterns))
    windows = windows_of(model, parameters, state, tokens)
    exact = growth(model, parameters, windows, start)
    lengths = np.concatenate([np.zeros((1, size)), np.cumsum(exact, axis=0)])
    left = np.min(lengths[context:] - lengths[:-context], axis=0)
    found = np.asarray(spectrum(model, parameters, state, start, steps=tokens, blocks=2).exponents)
    finite = np.isfinite(found)
    np.testing.assert_allclose(tokens * found[finite], lengths[-1, finite], atol=0.05)
    assert np.all(left[~finite] < np.log(1e-6))
    return finite


def hostile(context):
    rng = np.random.default_rng(context)
    return [(context, (rng.uniform(0.1, 20), 10 ** rng.uniform(0, 4), rng.uniform(0, 1))) for _ in range(20)]


KNOWN = [(2, (13.57, 1.75, 0.556)), (3, (14.0, 62.26, 0.799)), (4, (4.767, 8577.0, 0.371)), (8, (1.9, 400.0, 0.1))]


@pytest.mark.slow
@pytest.mark.parametrize("points", [KNOWN, *map(hostile, (2, 3, 4))])
def test_exponents_are_those_of_eighty_digits_or_lost(points):
    pytest.importorskip("mpmath")
    for context, parameters in points:
        finite = assert_as_precise(context, dmft.Parameters(*parameters))
        assert np.any(finite) or (context, parameters) not in KNOWN


def test_perturbations_that_the_map_annihilates_leave_the_others_as_they_are():
    """Two patterns, of which tokens see one combination; the others have the exponents of a companion matrix."""
    directions, seen, gain = np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([0.6, 0.8]), 0.6
    moments = np.broadcast_to(np.linalg.solve(directions.T, seen)[:, None], (4, 2, 2))
    arrays = map(jnp.asarray, (directions, moments, np.zeros((3, 4, 2))))
    model, parameters = dmft.SelfAttention(*arrays), dmft.Parameters(gain, 0.0, 0.0)
    companion = np.eye(3, k=-1)
    companion[0] = gain * sum(seen) / 3
    expected = np.sort(np.log(np.abs(np.linalg.eigvals(companion))))[::-1]
    state = model.resume(parameters, np.full((3, 2), 1e-9))
    found = dynamics.lyapunov_spectrum(model, state, parameters, steps=2000, blocks=2)
    np.testing.assert_allclose(found.exponents[:3], expected, atol=1e-2)
    assert np.isneginf(found.exponents[3:]).all() and not np.isnan(found.errors).any()


@pytest.mark.slow
def test_multipliers_are_the_exponents_of_the_orbit_on_a_cycle():
    """lambda = log |mu| / tokens: of complex pairs in the mean, once perturbations have turned to their planes."""
    model = dmft.SelfAttention.from_weights(WEIGHTS, 4)
    parameters = dmft.Parameters(0.5, 2.2 * 100 / np.sqrt(3), 0.02)
    cycle = dynamics.find_cycle(dmft.stroboscope(model, parameters), jnp.zeros((1, 12)), 0.5, 1)
    exponents = np.log(cycle["multiplier_modulus"].values) / 4
    published = [-0.3273587531701332, -0.3273817763009178, -0.5254413768063048]
    np.testing.assert_allclose(exponents[:3], published, atol=1e-4)  # of 2000 tokens
    state = model.resume(parameters, cycle["points"].values.reshape(4, 3))
    found = dynamics.lyapunov_spectrum(model, state, parameters, steps=1600, exponents=4, blocks=2)
    of_pairs = found.blocks[-1].reshape(2, 2).mean(axis=1)
    np.testing.assert_allclose(of_pairs, exponents[[0, 2]], atol=1e-10)
