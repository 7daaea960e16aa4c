"""Finite networks against all spins of small ones; fluctuations against differences of the map, and simulation."""

import collections
import itertools
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import dmft
from theorykit.dmft import Parameters, network
from theorykit.dmft.map import State
from theorykit.dmft.weights import FAMILIES, positional_overlaps

# Standard errors by which correct estimates may be off; of some 10^3 estimates in this file.
FAR = 5.0
SMALL = dmft.Weights.iid(2, 8, 2, segments=3, key=jax.random.key(7))
CONTEXT, PATTERNS, RUNS, STEPS = 4, 2, 4000, 9
WARM = Parameters(1.2, 4.0, 0.1)
pytestmark = pytest.mark.filterwarnings("ignore:the predicted standard deviation")
both_starts = pytest.mark.parametrize("convention", ("token", "window"))


def sums(weights=SMALL, repeats=1):
    return network.class_sum_network(weights, CONTEXT, repeats)


def first_state(drawn, parameters=WARM, convention="token"):
    return dmft.start(drawn.limit, parameters, SMALL.prompt(), convention)


def found(of, convention="token", parameters=WARM, steps=STEPS):
    return network.fluctuations(of, parameters, first_state(of, parameters, convention), steps=steps)


def settled(weights, context, parameters):
    """The state on the attractor that the first pattern's prompt comes to."""
    limit = dmft.self_attention_limit(weights, context)
    start = dmft.start(limit, parameters, weights.prompt(), "window")
    return dmft.advance(limit, parameters, start, 4000)


# ---- samples


def runs(drawn, seed, parameters, convention="token", samples=RUNS):
    """Attentions and overlaps, (samples, steps, ...) each, from the first output pattern of `SMALL`."""
    first, key = first_state(drawn, parameters, convention), jax.random.key(seed)
    path = network.run(drawn, parameters, first, steps=6, samples=samples, key=key)
    return np.asarray(path.attention[:, 1:]), np.asarray(path.overlaps)


def attentions_of(tokens, positions, gamma, epsilon, context, forgotten):
    """Eqs. (1) and (2), token by token with nothing remembered; the first `forgotten` tokens are not attended to."""
    table, attentions = positional_overlaps(SMALL, context), []
    overlaps = [
        (1 - epsilon) * SMALL.semantic @ spins / SMALL.neurons + epsilon * table[position]
        for spins, position in zip(tokens, positions, strict=True)
    ]
    for time in range(1, len(tokens)):
        attended = overlaps[max(forgotten, time - context + 1) : time + 1]
        scores = np.array([np.exp(gamma * overlaps[time][2] @ token[3]) for token in attended])
        attentions.append(scores @ np.array([token[1] for token in attended]) / scores.sum())
    return np.array(overlaps[1:]), np.array(attentions)


def fields_of_the_first_step(beta, epsilon):
    """beta h of every neuron after the prompt, whose attention is its value."""
    prompt = SMALL.semantic @ SMALL.semantic[0, 0].astype(float) / SMALL.neurons
    attention = (1 - epsilon) * prompt[1] + epsilon * positional_overlaps(SMALL, 4)[0, 1]
    return beta * attention @ SMALL.semantic[0]


def test_the_law_of_a_step_is_that_of_the_spins():
    """The probability of every attention after one step, by enumeration of all spins."""
    beta, gamma, epsilon = 0.7, 2.0, 0.1
    fields, law = fields_of_the_first_step(beta, epsilon), collections.Counter()
    for spins in itertools.product((-1, 1), repeat=SMALL.neurons):
        attention = attentions_of([SMALL.semantic[0, 0], spins], (0, 1), gamma, epsilon, 4, 0)[1][0]
        law[outcome(attention)] += np.prod(np.exp(spins * fields) / (2 * np.cosh(fields)))  # Eq. (4)
    seen = collections.Counter(map(outcome, runs(sums(), 3, Parameters(beta, gamma, epsilon))[0][:, 0]))
    assert set(seen) <= set(law)
    for attention, probability in law.items():
        error = np.sqrt(probability * (1 - probability) / RUNS)
        assert abs(seen[attention] / RUNS - probability) < FAR * error + 2 / RUNS


def outcome(attention):
    return tuple(np.round(attention, 9) + 0.0)


@both_starts
def test_attentions_are_of_the_overlaps_of_the_context(convention):
    """Eq. (2) afresh from all overlaps of a run."""
    drawn = sums()
    attention, overlaps = (each[0] for each in runs(drawn, 1, WARM, convention, samples=2))
    prompt = np.asarray(first_state(drawn).values[0]) if convention == "token" else None
    for time in range(6):
        seen = overlaps[max(0, time - CONTEXT + 1) : time + 1]
        keys, values = seen[:, 3], seen[:, 1]
        if convention == "token" and time < CONTEXT - 1:
            keys = np.concatenate([np.asarray(first_state(drawn).keys)[:1], keys])
            values = np.concatenate([prompt[None], values])
        scores = np.exp(float(WARM.gamma) * keys @ overlaps[time, 2])
        np.testing.assert_allclose(attention[time], scores @ values / scores.sum(), atol=1e-13)


def test_at_zero_temperature_nothing_is_left_to_chance():
    """Where no field vanishes, every spin is the sign of its field, and finite networks are the mean field."""
    cold, drawn = Parameters(1e6, 2.0, 0.05), sums()
    expected = np.asarray(dmft.run(drawn.limit, cold, first_state(drawn, cold), steps=6).attention[1:])
    sampled = runs(drawn, 0, cold)[0]
    np.testing.assert_allclose(sampled, np.broadcast_to(expected, sampled.shape), rtol=0, atol=1e-12)


def test_a_batch_is_networks_at_other_parameters():
    """Of so many neurons that each member is next to the mean field at its own parameters."""
    batch = Parameters(np.array([0.3, 0.9, 1.5]), np.array([1.0, 2.0, 3.0]), 0.1)
    large = sums(repeats=10**9)
    start = first_state(large, batch)
    path = network.run(large, batch, start, steps=6, samples=2, key=jax.random.key(0))
    assert path.attention.shape == (3, 2, 7, 2) and path.end.attention.shape == (3, 2, 4, 2)
    mean_field = np.asarray(dmft.run(large.limit, batch, start, steps=6).attention)[:, None]
    assert 0 < np.max(np.abs(path.attention - mean_field)) < 1e-3
    assert np.min(np.ptp(np.asarray(path.attention[..., 1:, :]), axis=1)) > 0


# ---- fluctuations


@both_starts
def test_overlaps_of_the_first_token_have_the_covariance_of_all_spins(convention):
    """Exact at any size, for the first attention is the same in all networks; every configuration is tried."""
    drawn = sums()
    first = first_state(drawn, convention=convention)
    fields = float(WARM.beta) * np.array(first.latest) @ SMALL.semantic[0]
    configurations = np.array(list(itertools.product((-1.0, 1.0), repeat=SMALL.neurons)))
    probabilities = np.prod(np.exp(configurations * fields) / (2 * np.cosh(fields)), axis=1)
    overlaps = (1 - float(WARM.epsilon)) * configurations @ SMALL.semantic.reshape(-1, SMALL.neurons).T / SMALL.neurons
    centred = overlaps - probabilities @ overlaps
    covariance = (probabilities[:, None] * centred).T @ centred
    predicted = network.fluctuations(drawn, WARM, first, steps=1)
    np.testing.assert_allclose(predicted.overlaps[0].reshape(covariance.shape), covariance, atol=1e-15)
    np.testing.assert_array_equal(predicted.attention[0], 0.0)
    deviations = np.sqrt(np.diag(covariance)).reshape(len(FAMILIES), PATTERNS)
    np.testing.assert_allclose(predicted.overlap_deviation[0], deviations, atol=1e-12)


def remembered(state):
    return np.concatenate([np.ravel(part) for part in (state.latest, state.keys, state.values)])


def following(limit, numbers, noise, position, tokens):
    """What is remembered after a token with `noise` added to its overlaps, Eqs. (2) and (5) in NumPy; its overlaps."""
    attention, slots = numbers[:PATTERNS], numbers[PATTERNS:].reshape(2, CONTEXT, PATTERNS).copy()
    spins = np.tanh(float(WARM.beta) * attention @ SMALL.semantic[0])
    semantic = SMALL.semantic @ spins / SMALL.neurons
    share = float(WARM.epsilon)
    overlaps = (1 - share) * semantic + share * np.asarray(limit.positional[position]) + noise.reshape(semantic.shape)
    slots[0][position], slots[1][position] = overlaps[3], overlaps[1]
    live = min(tokens + 1, CONTEXT)
    scores = np.exp(float(WARM.gamma) * slots[0][:live] @ overlaps[2])
    return np.concatenate([scores @ slots[1][:live] / scores.sum(), slots.ravel()]), overlaps.ravel()


def slope(function, at, step=1e-6):
    moves = step * np.eye(len(at))
    ends = [[np.concatenate(function(at + sign * move)) for sign in (1, -1)] for move in moves]
    return np.stack([(above - below) / (2 * step) for above, below in ends], axis=-1)


@both_starts
def test_covariances_are_those_of_the_recursion_by_finite_differences(convention):
    """Token by token: the derivative of the map in NumPy, and the noise as a sum over neurons."""
    drawn = sums()
    state = first_state(drawn, convention=convention)
    predicted = network.fluctuations(drawn, WARM, state, steps=STEPS)
    np.testing.assert_allclose(predicted.mean, dmft.run(drawn.limit, WARM, state, steps=STEPS).attention, atol=1e-14)
    size, silent = len(remembered(state)), np.zeros(4 * PATTERNS)
    token = partial(following, drawn.limit)
    covariance, columns = np.zeros((size, size)), SMALL.semantic.reshape(-1, SMALL.neurons)
    for step in range(STEPS):
        at, place = remembered(state), (int(state.position), int(state.tokens))
        variances = 1 - np.tanh(float(WARM.beta) * at[:PATTERNS] @ SMALL.semantic[0]) ** 2
        noise = (1 - float(WARM.epsilon)) ** 2 * (variances * columns) @ columns.T / SMALL.neurons**2
        carry = slope(lambda numbers, place=place: token(numbers, silent, *place), at)
        take_up = slope(lambda noise, at=at, place=place: token(at, noise, *place), silent)
        both = carry @ covariance @ carry.T + take_up @ noise @ take_up.T
        covariance = both[:size, :size]
        state = dmft.advance(drawn.limit, WARM, state, 1)
        np.testing.assert_allclose(token(at, silent, *place)[0], remembered(state), atol=1e-13)
        np.testing.assert_allclose(predicted.attention[step + 1], covariance[:PATTERNS, :PATTERNS], atol=1e-9)
        overlaps = predicted.overlaps[step].reshape(4 * PATTERNS, -1)
        np.testing.assert_allclose(overlaps, both[size:, size:], atol=1e-9)
    assert np.max(predicted.attention[-1]) > 1e-3


def test_covariances_are_inverse_to_the_neurons():
    one, many = found(sums()), found(sums(repeats=1000))
    assert (float(one.neurons), float(many.neurons)) == (8, 8000)
    np.testing.assert_array_equal(one.mean, many.mean)
    np.testing.assert_allclose(1000 * many.attention, one.attention, rtol=1e-12, atol=1e-18)
    np.testing.assert_allclose(1000 * many.overlaps, one.overlaps, rtol=1e-12, atol=1e-18)


def test_a_batch_of_fluctuations_is_networks_at_other_parameters():
    batch = Parameters(np.array([0.3, 1.5]), np.array([1.0, 3.0]), 0.1)
    together = found(sums(), parameters=batch)
    for number in range(2):
        alone = found(sums(), parameters=Parameters(batch.beta[number], batch.gamma[number], 0.1))
        np.testing.assert_allclose(together.attention[number], alone.attention, rtol=1e-10, atol=1e-16)
        np.testing.assert_allclose(together.overlaps[number], alone.overlaps, rtol=1e-10, atol=1e-16)
        np.testing.assert_allclose(together.rms[number], alone.rms, rtol=1e-10)


def test_where_the_orbit_is_unstable_covariances_grow_to_infinity_without_nan():
    """One pattern that copies itself, so that deviations double in a token and more; the other of a batch is stable."""
    signs = np.ones((1, 6), dtype=int)
    drawn = network.class_sum_network(dmft.Weights.of_arrays(signs, signs, signs, signs, position_bits=1), 1)
    silent = State(*[jnp.zeros((1, 1))] * 3, jnp.asarray(0), jnp.asarray(0))
    predicted = network.fluctuations(drawn, Parameters(np.array([3.0, 0.5]), 1.0, 0.0), silent, steps=700)
    # A' = A tanh' beta: the variance is the geometric sum of beta^2.
    geometric = np.cumsum(3.0 ** (2 * np.arange(60))) / 5
    np.testing.assert_allclose(predicted.attention[0, 1:61, 0, 0], geometric, rtol=1e-12)
    np.testing.assert_allclose(predicted.attention[:, -1, 0, 0], [np.inf, 1 / (1 - 0.25) / 5], rtol=1e-12)
    assert not any(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(predicted))


def test_a_prediction_that_is_not_small_warns():
    """The network of 99 neurons at beta = 1.15 has deviations of 0.14, not of more than 1."""
    weights = dmft.Weights.published()
    drawn, parameters = network.class_sum_network(weights, 4), Parameters(1.15, dmft.attention_gain(2.2, 100, 3), 0.02)
    start = dmft.start(drawn.limit, parameters, weights.prompt())
    with pytest.warns(UserWarning, match="the predicted standard deviation of attentions, which are at most 1"):
        network.fluctuations(drawn, parameters, start, steps=200)


IID = dmft.Weights.iid(2, 60, 2, key=jax.random.key(3))
SIX = dmft.Weights.iid(2, 60, 2, segments=6, key=jax.random.key(3))
EIGHT = dmft.Weights.iid(1, 8, 2, segments=8, key=jax.random.key(1))
# weights, context, parameters, and how often neurons are repeated: 10^4 of them and more
POINTS = {
    "published, a cycle": (dmft.Weights.published(), 4, Parameters(0.5, 127.0, 0.02), 1000),
    "two patterns in six classes": (SIX, 4, Parameters(1.5, 20.0, 0.1), 500),
    "published, silent": (dmft.Weights.published(), 4, Parameters(0.3, 127.0, 0.02), 102),
    "published, near the torus": (dmft.Weights.published(), 4, Parameters(1.2, 127.0, 0.02), 10_000),
    "two patterns in 55 classes": (IID, 4, Parameters(2.0, 20.0, 0.1), 167),
    "one pattern, three tokens": (EIGHT, 3, Parameters(1.5, 3.0, 0.05), 12_500),
    "four patterns, eight tokens": (
        dmft.Weights.iid(4, 40, 3, key=jax.random.key(4)),
        8,
        Parameters(1.0, 10.0, 0.1),
        500,
    ),
}
BRIEF = ("two patterns in six classes",)


@cache
def simulated(point, samples, steps):
    """Prediction and simulation of as many tokens on the attractor."""
    weights, context, parameters, repeats = POINTS[point]
    start, drawn = settled(weights, context, parameters), network.class_sum_network(weights, context, repeats)
    path = network.run(drawn, parameters, start, steps=steps, samples=samples, key=jax.random.key(2))
    return network.fluctuations(drawn, parameters, start, steps=steps), path


def ratio(predicted, path):
    """Root mean square deviation of sampled attentions from the map, over the predicted one; its standard error."""
    squares = np.mean((path.attention[:, 1:] - predicted.mean[1:]) ** 2, axis=(1, 2))
    rms = np.sqrt(np.mean(squares))
    return rms / float(predicted.rms), np.std(squares) / np.sqrt(len(squares)) / (2 * rms * float(predicted.rms))


@pytest.mark.parametrize("point", BRIEF)
def test_networks_deviate_as_predicted(point):
    found, error = ratio(*simulated(point, 500, 24))
    assert error < 0.01
    assert abs(found - 1) < FAR * error


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_networks_deviate_as_predicted_within_two_percent(point):
    """On cycles, of weights with one to four patterns and three to 55 classes."""
    found, error = ratio(*simulated(point, 4000, 100))
    assert error < 0.006
    assert abs(found - 1) < 0.02


@pytest.mark.parametrize("point", BRIEF)
def test_attentions_and_overlaps_have_the_covariance_predicted_between_patterns_too(point):
    predicted, path = simulated(point, 500, 24)
    samples, steps, families, patterns = path.overlaps.shape
    all_overlaps = predicted.overlaps.reshape(steps, families * patterns, -1)
    for sampled, covariance in (
        (path.attention[:, 1:], predicted.attention[1:]),
        (path.overlaps.reshape(samples, steps, -1), all_overlaps),
    ):
        centred = np.asarray(sampled - np.mean(sampled, axis=0))
        products = np.einsum("sti,stj->tijs", centred, centred)
        errors = products.std(axis=-1) / np.sqrt(samples)
        assert np.all(np.abs(products.mean(axis=-1) - covariance) < FAR * errors + 1e-15)
