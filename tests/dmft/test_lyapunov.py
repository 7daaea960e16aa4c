"""Exponents against the published program, the sum rule of the determinant, and differentiation of the whole map."""

from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from theorykit import dmft
from theorykit.dmft.weights import ColumnLaw
from theorykit.dynamics import classify, gram_schmidt, householder
from theorykit.dynamics.regimes import UNDECIDED

from .precise_exponents import growth, windows_of
from .reference import cases

CASES = {repr(case): case for case in cases("lyapunov")}
REGULAR = [case for case in CASES.values() if not case.about["chaotic"]]
CHAOTIC = [case for case in CASES.values() if case.about["chaotic"]]


def window_of(case) -> dmft.Window:
    return dmft.Window(case["A_window_start"], case.about["position_of_row0_at_lyapunov_start"])


def units(model, number=None):
    """The perturbations that the published program starts with: of one attention each, newest first, by pattern."""
    size = model.context * model.patterns
    return np.eye(size)[:number].reshape(-1, model.context, model.patterns)


def token_by_token(model, parameters, window, *, steps, **asked):
    """log R_jj of every token."""
    return dmft.lyapunov_spectrum(model, parameters, window, steps=steps, every=1, blocks=steps, **asked).blocks


@pytest.mark.quick("l02", "l03")
@pytest.mark.parametrize("case", CASES.values(), ids=repr)
def test_published_growth_token_by_token(case):
    leading = case.about["leading_exponents_comparable_per_step_first50"]
    model = case.model
    found = token_by_token(model, case.parameters, window_of(case), steps=50, exponents=units(model))
    atol = 1e-6 if case.about["chaotic"] else 1e-10
    np.testing.assert_allclose(found[:, :leading], case["S_i_first50"][:, :leading], atol=atol)


FAST = {"exponents": 3, "every": 1, "orthonormalise": gram_schmidt}
WHOLE = {"exponents": None, "every": None, "orthonormalise": householder}


@pytest.mark.quick("l02-asked2", "l03-asked3")
@pytest.mark.parametrize(
    ("case", "asked"),
    [
        *((case, FAST) for case in REGULAR),
        pytest.param(CASES["l01"], {**FAST, "every": 4}, marks=pytest.mark.slow),
        *(pytest.param(CASES[name], WHOLE, marks=pytest.mark.slow) for name in ("l01", "l05", "l08")),
    ],
    ids=lambda value: None if isinstance(value, dict) else repr(value),
)
def test_published_exponents_of_regular_orbits(case, asked):
    start, steps = units(case.model, asked["exponents"]), 2000
    found = dmft.lyapunov_spectrum(
        case.model, case.parameters, window_of(case), steps=steps, **{**asked, "exponents": start}
    )
    comparable = asked["exponents"] or case.about["leading_exponents_comparable_over_2000"]
    np.testing.assert_allclose(found.exponents[:comparable], case["S"][:comparable], atol=1e-10)


@pytest.mark.quick("l06", "l07")
@pytest.mark.parametrize("case", CHAOTIC, ids=repr)
def test_published_exponents_of_chaotic_orbits(case):
    """Averages of two orbits that rounding has parted: they agree within their errors, not to rounding."""
    found = dmft.lyapunov_spectrum(
        case.model, case.parameters, window_of(case), steps=32_000, exponents=3, orthonormalise=gram_schmidt
    )
    # the long run has as many steps, and so an error of the same size; the published run a sixteenth
    long_run, published = np.array(case.about["long_run_lambda_1_to_3"]), case["S"][:3]
    # errors are estimated from twenty blocks: Student's t, exceeded by rounding's choice once in 10,000
    most = scipy.stats.t(len(found.blocks) - 1).isf(0.5e-4)
    assert np.all(np.abs(found.exponents - long_run) < most * np.sqrt(2) * found.errors)
    assert np.all(np.abs(found.exponents - published) < most * np.sqrt(17) * found.errors)
    assert found.exponents[0] > 5 * found.errors[0]


def small_case():
    weights = dmft.iid_weights(2, 30, 2, key=jax.random.key(3))
    model, parameters = dmft.self_attention_limit(weights, 3), dmft.Parameters(1.5, 4.0, 0.1)
    window = dmft.Window(np.random.default_rng(0).uniform(-0.5, 0.5, size=(3, 2)), 1)
    return model, parameters, window


@eqx.filter_jit
def whole_map(model, parameters, flat, position):
    """One token, as a function of the whole window of attentions."""
    window = dmft.Window(flat.reshape(model.context, model.patterns), position)
    after = dmft.run(model, parameters, dmft.state_from_window(model, parameters, window), steps=1).end
    return jnp.concatenate([jnp.stack(after.attention), flat[: -model.patterns]])


@eqx.filter_jit
def jacobian_of_the_whole_map(model, parameters, flat, position):
    return jax.jacobian(lambda at: whole_map(model, parameters, at, position))(flat)


@pytest.mark.slow
@pytest.mark.parametrize("orthonormalise", [gram_schmidt, householder])
def test_the_derived_jacobian_is_that_of_the_whole_map(orthonormalise):
    model, parameters, window = small_case()
    size = model.context * model.patterns
    flat, basis, expected = window.attention.ravel(), np.eye(size), []
    for token in range(7):
        at = (model, parameters, flat, jnp.asarray((1 + token) % 3))
        basis, triangle = np.linalg.qr(np.asarray(jacobian_of_the_whole_map(*at)) @ basis)
        expected.append(np.log(np.abs(np.diag(triangle))))
        flat = whole_map(*at)
    start = units(model)
    found = token_by_token(model, parameters, window, steps=7, exponents=start, orthonormalise=orthonormalise)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_blocks_are_means_whose_mean_is_the_exponent():
    model, parameters, window = small_case()
    found = dmft.lyapunov_spectrum(model, parameters, window, steps=120, exponents=2, blocks=4)
    np.testing.assert_allclose(found.blocks.mean(axis=0), found.exponents, rtol=1e-12)
    np.testing.assert_allclose(found.errors, np.std(found.blocks, axis=0, ddof=1) / 2, rtol=1e-10)


@pytest.mark.parametrize("steps, every", [(120, 2), pytest.param(121, 1, marks=pytest.mark.slow)])
def test_perturbations_are_orthonormal_a_quarter_of_the_context_apart_or_less(steps, every):
    """At two tokens of eight, or at every token where the number of tokens is odd: exponents are the same."""
    weights = dmft.iid_weights(1, 20, 3, key=jax.random.key(3))
    model, parameters = dmft.self_attention_limit(weights, 8), dmft.Parameters(0.9, 4.0, 0.1)
    window = dmft.Window(np.random.default_rng(0).uniform(-0.5, 0.5, size=(8, 1)))
    asked = {"steps": steps, "exponents": 2, "orthonormalise": gram_schmidt}
    found = dmft.lyapunov_spectrum(model, parameters, window, blocks=2, **asked)
    expected = dmft.lyapunov_spectrum(model, parameters, window, blocks=2, every=every, **asked)
    np.testing.assert_array_equal(found.exponents, expected.exponents)
    one_by_one = token_by_token(model, parameters, window, **asked)
    np.testing.assert_allclose(found.exponents, one_by_one.mean(axis=0), atol=1e-10)


@pytest.mark.slow
def test_a_batch_is_orbits_of_their_own():
    model, _, window = small_case()
    betas = np.array([0.8, 1.5])
    both = dmft.lyapunov_spectrum(model, dmft.Parameters(betas, 4.0, 0.1), window, steps=40, exponents=2, blocks=2)
    for instance, beta in enumerate(betas):
        alone = dmft.lyapunov_spectrum(
            model, dmft.Parameters(float(beta), 4.0, 0.1), window, steps=40, exponents=2, blocks=2
        )
        np.testing.assert_allclose(both.exponents[:, instance], alone.exponents, atol=1e-12)


@pytest.mark.slow
def test_a_batch_on_several_cores_is_that_on_one(monkeypatch):
    """In parts of which the last is filled up, along the longest of the axes that broadcast."""
    model, _, window = small_case()
    given = (np.linspace(0.8, 1.5, 7)[None], np.array([[4.0], [5.0]]), 0.1)
    asked = {"steps": 40, "exponents": 2, "blocks": 2, "orthonormalise": gram_schmidt}
    whole = dmft.lyapunov_spectrum(model, dmft.Parameters(*given), window, **asked)
    monkeypatch.setattr("theorykit.dmft.map._FEWEST", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    # an accelerator takes them whole, but can do so, too
    monkeypatch.setattr("jax.default_backend", lambda: "cpu")
    parts = []
    monkeypatch.setattr(
        "theorykit.dmft.map.ThreadPoolExecutor",
        lambda count: parts.append(count) or ThreadPoolExecutor(count),
    )
    cut = dmft.lyapunov_spectrum(model, dmft.Parameters(*given), window, **asked)
    assert parts == [3]
    assert cut.blocks.shape == (2, 2, 2, 7)
    np.testing.assert_allclose(cut.blocks, whole.blocks, atol=1e-12)


WEIGHTS = dmft.published_weights()


@pytest.mark.slow
@pytest.mark.parametrize("context, count", [(2, 3300), (3, 3300), (4, 3400)])
def test_leading_exponents_are_the_largest_of_all_at_ten_thousand_points(context, count):
    """Where the map annihilates directions, too: half of these points have exponents of minus infinity."""
    rng, tokens = np.random.default_rng(context), 400
    parameters = dmft.Parameters(rng.uniform(0.1, 20, count), 10 ** rng.uniform(0, 4, count), rng.uniform(0, 1, count))
    model = dmft.self_attention_limit(WEIGHTS, context)
    start = dmft.window_start(model, parameters, dmft.pattern_prompt(WEIGHTS))
    window = dmft.discard_transient(model, parameters, start, 300)
    asked = {"steps": tokens, "blocks": 2}
    for basis in (gram_schmidt, householder):
        whole = np.asarray(dmft.lyapunov_spectrum(model, parameters, window, orthonormalise=basis, **asked).exponents)
        assert not np.isnan(whole).any() and np.all(whole[:-1] >= whole[1:])
        for number in (1, 2, 3, 5):
            found = dmft.lyapunov_spectrum(model, parameters, window, exponents=number, orthonormalise=basis, **asked)
            leading = np.asarray(found.exponents)
            assert np.all(leading[:-1] >= leading[1:])
            # a few are on the very bound of what is lost, and rounding is not the same in two programs
            apart = np.isneginf(leading) != np.isneginf(whole[:number])
            assert np.mean(apart) < 1e-3 and np.all(np.maximum(leading, whole[:number])[apart] < -2)
            resolved = np.isfinite(leading) & np.isfinite(whole[:number])
            difference = np.abs(leading[resolved] - whole[:number][resolved])
            # of two that the cut parts, either may come first, as far as alignment in this time decides it
            assert np.all(difference[leading[resolved] > -2] < 10 / tokens) and np.mean(difference > 10 / tokens) < 1e-3
            # and rounding may make log 2 a context of those that are hardly more than it
            assert np.all(difference < 10 / tokens + np.log(2) / context)


def assert_as_precise(context, parameters, tokens=24):
    """Every exponent that is finite is right, and what is lost has shrunk, in a context, to what may be rounding."""
    weights = dmft.published_weights(position_bits=max(2, (context - 1).bit_length()))
    model = dmft.self_attention_limit(weights, context)
    start = dmft.window_start(model, parameters, dmft.pattern_prompt(weights))
    window = dmft.discard_transient(model, parameters, start, 300)
    size = context * model.patterns
    start = np.random.default_rng(0).standard_normal((size, context, model.patterns))
    windows = windows_of(model, parameters, window, tokens)
    exact = growth(model, parameters, windows, start)
    lengths = np.concatenate([np.zeros((1, size)), np.cumsum(exact, axis=0)])
    left = np.min(lengths[context:] - lengths[:-context], axis=0)
    for basis in (gram_schmidt, householder):
        asked = {"steps": tokens, "blocks": 2, "exponents": start, "orthonormalise": basis}
        found = np.asarray(dmft.lyapunov_spectrum(model, parameters, window, **asked).exponents)
        finite = np.isfinite(found)
        # those after a lost one have it beside them until it is lost, and not from then on
        alone = growth(model, parameters, windows, start[finite]).sum(axis=0) if np.any(finite) else 0.0
        error = np.maximum(lengths[-1, finite] - tokens * found[finite], tokens * found[finite] - alone)
        # the bound is log 2 a context; it is reached only where hardly more than rounding is left
        assert np.all(error < np.where(found[finite] > -4, 0.05, np.log(2) * tokens / context))
        assert np.all(left[~finite] < np.log(1e-9))
    return finite


def hostile(context):
    rng = np.random.default_rng(context)
    return [(context, (rng.uniform(0.1, 20), 10 ** rng.uniform(0, 4), rng.uniform(0, 1))) for _ in range(20)]


KNOWN = [(2, (13.57, 1.75, 0.556)), (3, (14.0, 62.26, 0.799)), (4, (4.767, 8577.0, 0.371)), (8, (1.9, 400.0, 0.1))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "points",
    [KNOWN[:1], *(pytest.param(more, marks=pytest.mark.slow) for more in (KNOWN[1:], *map(hostile, (2, 3, 4))))],
)
def test_exponents_are_those_of_eighty_digits_or_lost(points):
    pytest.importorskip("mpmath")
    for context, parameters in points:
        finite = assert_as_precise(context, dmft.Parameters(*parameters))
        assert np.any(finite) or (context, parameters) not in KNOWN


@pytest.mark.slow
def test_exponents_that_double_precision_does_not_tell_say_so():
    """Towards large gamma the orbits are those of the largest overlap alone, and rounding grows with gamma."""
    weights = dmft.published_weights()
    model = dmft.self_attention_limit(weights, context=4)
    parameters = dmft.Parameters(1.4, np.array([1e6, 1e12, 1e15]), 0.02)
    start = dmft.window_start(model, parameters, dmft.pattern_prompt(weights))
    window = dmft.discard_transient(model, parameters, start, 2000)
    with pytest.warns(
        UserWarning, match="of 6 Lyapunov exponents are minus infinity because double precision does not"
    ):
        spectrum = dmft.lyapunov_spectrum(model, parameters, window, steps=400, exponents=2)
    assert abs(spectrum.exponents[0, 0] - spectrum.exponents[0, 1]) < 1e-3
    assert spectrum.unresolved[0].tolist() == [False, False, True] and np.isneginf(spectrum.exponents[0, 2])
    assert classify(spectrum).tolist()[2] == UNDECIDED
    assert classify(spectrum.exponents.T, spectrum.errors.T).tolist()[2] != UNDECIDED
    forgetting, at = one_that_forgets(), dmft.Parameters(0.8, 0.0, 0.0)
    annihilated = dmft.lyapunov_spectrum(forgetting, at, dmft.Window(np.full((3, 2), 1e-9)), steps=400, blocks=2)
    assert np.isneginf(annihilated.exponents).any() and not annihilated.unresolved.any()


@pytest.mark.parametrize("orthonormalise", [gram_schmidt, householder])
@pytest.mark.parametrize("seen", [(0.0, 1.0), (0.6, 0.8)])
def test_a_complete_set_of_perturbations_has_every_finite_exponent(seen, orthonormalise):
    """The map annihilates one direction of each attention, exactly or but for rounding, whichever perturbation has it.

    The other directions have the exponents of a companion matrix.
    """
    model, gain = one_that_forgets(seen), 0.6
    window = dmft.Window(np.full((3, 2), 1e-9))
    companion = np.eye(3, k=-1)
    companion[0] = gain * sum(seen) / 3
    expected = np.sort(np.log(np.abs(np.linalg.eigvals(companion))))[::-1]
    annihilated = np.array([seen[1], -seen[0]])
    rotation = np.stack([annihilated, np.array(seen)])
    of_rotated = np.einsum("ij,ajk->aik", np.eye(3), np.kron(np.eye(3), rotation).reshape(6, 3, 2))
    random = np.random.default_rng(0).standard_normal((6, 3, 2))
    asked = {"steps": 2000, "blocks": 2, "orthonormalise": orthonormalise}
    for start in (units(model), of_rotated, of_rotated[::-1], random):
        found = dmft.lyapunov_spectrum(model, dmft.Parameters(gain, 0.0, 0.0), window, exponents=start, **asked)
        exponents = np.asarray(found.exponents)
        finite = np.isfinite(exponents)
        assert np.isneginf(exponents[~finite]).all() and not np.isnan(found.errors).any()
        np.testing.assert_allclose(exponents[finite], expected, atol=1e-2)


@pytest.mark.slow
def test_perturbations_that_the_map_annihilates_leave_the_others_as_they_are():
    """Twelve unit vectors, of which it keeps three directions; leading ones of random directions are the same."""
    parameters, model = dmft.Parameters(4.767, 8577.0, 0.371), dmft.self_attention_limit(WEIGHTS, 4)
    start = dmft.window_start(model, parameters, dmft.pattern_prompt(WEIGHTS))
    window = dmft.discard_transient(model, parameters, start, 300)
    order = np.random.default_rng(0).permutation(12)
    for exponents in (units(model), units(model)[order], 3):
        found = dmft.lyapunov_spectrum(model, parameters, window, steps=4000, exponents=exponents).exponents
        np.testing.assert_allclose(found[np.isfinite(found)], [-0.3307, -1.6491, -2.2258], atol=2e-3)


def one_that_forgets(seen=(0.0, 1.0)):
    """Two patterns, of which the tokens after see one combination of attentions alone, by default the second."""
    directions = np.array([[1.0, 1.0], [1.0, -1.0]])
    # mean of w^alpha tanh(beta w^o . A) is the combination for both patterns, as far as tanh is linear
    combined = np.linalg.solve(directions.T, np.array(seen))
    moments = np.broadcast_to(combined[:, None], (4, 2, 2))
    return dmft.SelfAttention(ColumnLaw(directions, moments), np.zeros((3, 4, 2)))


@pytest.mark.parametrize("orthonormalise", [gram_schmidt, householder])
def test_exponents_are_those_of_the_product_of_jacobians(orthonormalise):
    """The product itself, in 60 digits, where it is as singular as it likes, and its factor R."""
    mpmath = pytest.importorskip("mpmath")
    model, parameters, window = small_case()
    size, flat, product = model.context * model.patterns, window.attention.ravel(), None
    for token in range(24):
        at = (model, parameters, flat, jnp.asarray((1 + token) % 3))
        jacobian = mpmath.matrix(np.asarray(jacobian_of_the_whole_map(*at)).tolist())
        with mpmath.workdps(60):
            product = jacobian if product is None else jacobian * product
        flat = whole_map(*at)
    start = np.random.default_rng(0).standard_normal((size, size))
    with mpmath.workdps(60):
        _, triangle = mpmath.qr(product * mpmath.qr(mpmath.matrix(start.T.tolist()))[0])
        expected = [float(mpmath.log(abs(triangle[i, i]))) / 24 for i in range(size)]
    found = dmft.lyapunov_spectrum(model, parameters, window, steps=24, blocks=2, orthonormalise=orthonormalise)
    np.testing.assert_allclose(found.exponents, np.sort(expected)[::-1], atol=1e-9)
    given = dmft.lyapunov_spectrum(
        model,
        parameters,
        window,
        steps=24,
        blocks=2,
        exponents=start.reshape(size, 3, 2),
        orthonormalise=orthonormalise,
    )
    np.testing.assert_allclose(given.exponents, expected, atol=1e-9)
