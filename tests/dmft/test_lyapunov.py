"""Exponents against the published program, differentiation of the whole map, Eq. (8), and eighty digits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from theorykit import dmft, dynamics
from theorykit.codegen import interpret

from .precise_exponents import growth, windows_of
from .reference import cases

CASES = {repr(case): case for case in cases("lyapunov")}
REGULAR = [case for case in CASES.values() if not case.about["chaotic"]]
CHAOTIC = [case for case in CASES.values() if case.about["chaotic"]]
WEIGHTS = dmft.Weights.published()


def start_of(case) -> dmft.map.State:
    position = case.about["position_of_row0_at_lyapunov_start"]
    return dmft.state_from_window(case.model, case.parameters, case["A_window_start"], position)


def units(model, number=None):
    """The perturbations that the published program starts with: of one attention each, newest first, by pattern."""
    size = model.context * model.patterns
    return np.eye(size)[:number].reshape(-1, model.context, model.patterns)


def token_by_token(model, parameters, state, *, steps, perturbations):
    """log R_jj of every token."""
    asked = {"steps": steps, "blocks": steps, "perturbations": perturbations}
    return dmft.lyapunov_spectrum(model, parameters, state, **asked).blocks


@pytest.mark.quick("l02", "l03")
@pytest.mark.parametrize("case", CASES.values(), ids=repr)
def test_published_growth_token_by_token(case):
    leading = case.about["leading_exponents_comparable_per_step_first50"]
    start = units(case.model, leading)
    found = token_by_token(case.model, case.parameters, start_of(case), steps=50, perturbations=start)
    resolved = np.isfinite(found[0])
    assert np.all(resolved[: min(3, leading)])
    atol = 1e-6 if case.about["chaotic"] else 1e-10
    expected = case["S_i_first50"][:, :leading]
    np.testing.assert_allclose(found[:, resolved], expected[:, resolved], atol=atol)


@pytest.mark.quick("l02")
@pytest.mark.parametrize("case", REGULAR, ids=repr)
def test_published_exponents_of_regular_orbits(case):
    start = units(case.model, 3)
    found = dmft.lyapunov_spectrum(case.model, case.parameters, start_of(case), steps=2000, perturbations=start)
    np.testing.assert_allclose(found.exponents, case["S"][:3], atol=1e-10)


@pytest.mark.quick("l06", "l07")
@pytest.mark.parametrize("case", CHAOTIC, ids=repr)
def test_published_exponents_of_chaotic_orbits(case):
    """Averages of two orbits that rounding has parted: they agree within their errors, not to rounding."""
    found = dmft.lyapunov_spectrum(case.model, case.parameters, start_of(case), steps=32_000, exponents=3)
    # The long run has as many steps, and so an error of the same size; the published run a sixteenth.
    long_run, published = np.array(case.about["long_run_lambda_1_to_3"]), case["S"][:3]
    # Errors are estimated from twenty blocks: Student's t, exceeded by rounding's choice once in 10,000.
    most = scipy.stats.t(len(found.blocks) - 1).isf(0.5e-4)
    assert np.all(np.abs(found.exponents - long_run) < most * np.sqrt(2) * found.errors)
    assert np.all(np.abs(found.exponents - published) < most * np.sqrt(17) * found.errors)
    assert found.exponents[0] > 5 * found.errors[0]


def small_case():
    weights = dmft.Weights.iid(2, 30, 2, key=jax.random.key(3))
    model, parameters = dmft.self_attention_limit(weights, 3), dmft.Parameters(1.5, 4.0, 0.1)
    window = np.random.default_rng(0).uniform(-0.5, 0.5, size=(3, 2))
    return model, parameters, dmft.state_from_window(model, parameters, window, 1)


@jax.jit
def jacobian(model, parameters, window, position):
    """The Jacobian of one token as a function of the whole window, newest attention first."""

    def following(window):
        state = dmft.state_from_window(model, parameters, window, position)
        return model(state, parameters).window

    return jax.jacfwd(following)(window)


def test_the_derived_blocks_are_the_derivative_of_a_step():
    """Eq. (8) as the derivation has it, against differentiation of the compiled step."""
    theory, (model, parameters, state) = dmft.derive(), small_case()
    window, position = np.asarray(state.window), int(state.position)
    expected = jacobian(model, parameters, state.window, state.position)[0]
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


def test_growth_is_that_of_the_product_of_jacobians():
    """QR of the Jacobians of the whole window, one after the other."""
    model, parameters, state = small_case()
    size, at, expected = model.context * model.patterns, state, []
    basis = np.eye(size)
    for _ in range(7):
        matrix = jacobian(model, parameters, at.window, at.position).reshape(size, size)
        basis, triangle = np.linalg.qr(np.asarray(matrix) @ basis)
        expected.append(np.log(np.abs(np.diag(triangle))))
        at = dmft.advance(model, parameters, at, 1)
    found = token_by_token(model, parameters, state, steps=7, perturbations=units(model))
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_a_batch_is_orbits_of_their_own():
    model, _, state = small_case()
    asked, betas = {"steps": 40, "exponents": 2, "blocks": 2}, np.array([0.8, 1.5])
    both = dmft.lyapunov_spectrum(model, dmft.Parameters(betas, 4.0, 0.1), state, **asked)
    for instance, beta in enumerate(betas):
        alone = dmft.lyapunov_spectrum(model, dmft.Parameters(beta, 4.0, 0.1), state, **asked)
        np.testing.assert_allclose(both.exponents[instance], alone.exponents, atol=1e-12)


def assert_as_precise(context, parameters, tokens=24):
    """Every finite exponent is right, and what is lost has shrunk to a millionth in a context."""
    weights = dmft.Weights.published(position_bits=max(2, (context - 1).bit_length()))
    model = dmft.self_attention_limit(weights, context)
    state = dmft.advance(model, parameters, dmft.start(model, parameters, weights.prompt(), "window"), 300)
    size = context * model.patterns
    start = np.random.default_rng(0).standard_normal((size, context, model.patterns))
    windows = windows_of(model, parameters, state, tokens)
    exact = growth(model, parameters, windows, start)
    lengths = np.concatenate([np.zeros((1, size)), np.cumsum(exact, axis=0)])
    left = np.min(lengths[context:] - lengths[:-context], axis=0)
    asked = {"steps": tokens, "blocks": 2, "perturbations": start}
    found = np.asarray(dmft.lyapunov_spectrum(model, parameters, state, **asked).exponents)
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
    model, parameters = dmft.SelfAttention(directions, moments, np.zeros((3, 4, 2))), dmft.Parameters(gain, 0.0, 0.0)
    companion = np.eye(3, k=-1)
    companion[0] = gain * sum(seen) / 3
    expected = np.sort(np.log(np.abs(np.linalg.eigvals(companion))))[::-1]
    state = dmft.state_from_window(model, parameters, np.full((3, 2), 1e-9))
    found = dmft.lyapunov_spectrum(model, parameters, state, steps=2000, blocks=2)
    np.testing.assert_allclose(found.exponents[:3], expected, atol=1e-2)
    assert np.isneginf(found.exponents[3:]).all() and not np.isnan(found.errors).any()


@pytest.mark.slow
def test_multipliers_are_the_exponents_of_the_orbit_on_a_cycle():
    """lambda = log |mu| / tokens: of complex pairs in the mean, once perturbations have turned to their planes."""
    model = dmft.self_attention_limit(WEIGHTS, 4)
    parameters = dmft.Parameters(0.5, dmft.attention_gain(2.2, 100, 3), 0.02)
    cycle = dynamics.find_cycle(dmft.stroboscope(model, parameters), jnp.zeros((1, 12)), 0.5, 1)
    exponents = np.log(np.abs(cycle.multipliers)) / 4
    published = [-0.3273587531701332, -0.3273817763009178, -0.5254413768063048]
    np.testing.assert_allclose(exponents[:3], published, atol=1e-4)  # of 2000 tokens
    state = dmft.state_from_window(model, parameters, cycle.points[0].reshape(4, 3))
    spectrum = dmft.lyapunov_spectrum(model, parameters, state, steps=1600, exponents=4, blocks=2)
    of_pairs = spectrum.blocks[-1].reshape(2, 2).mean(axis=1)
    np.testing.assert_allclose(of_pairs, exponents[jnp.array([0, 2])], atol=1e-10)
