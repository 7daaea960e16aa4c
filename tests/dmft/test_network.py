"""Finite networks against brute force, exact laws and the mean field; how fast they tend to it."""

import collections
import itertools

import jax
import numpy as np
import pytest

from theorykit import dmft
from theorykit.dmft import network
from theorykit.dmft.map import Parameters, pattern_prompt, self_attention_limit, token_start, window_start
from theorykit.dmft.weights import Weights, positional_overlaps, published_weights, segment_weights

from ..marks import slow

# standard errors by which correct estimates may be off; of some 10^3 estimates in this file
FAR = 5.0
SMALL = segment_weights(2, 8, 2, segments=3, key=jax.random.key(7))
RUNS, STEPS = 4000, 6
WARM = Parameters(1.2, 4.0, 0.1)
KINDS = (network.spin_network, network.class_sum_network)


def runs(drawn, seed, parameters, start=token_start, samples=RUNS):
    """Attentions, overlaps and spins, (samples, steps, ...) each; compiled once for many tests.

    They start from the first output pattern of `SMALL`.
    """
    first = start(drawn.limit, parameters, pattern_prompt(SMALL))
    key = jax.random.key(seed)
    path = network.run(drawn, parameters, first, steps=STEPS, samples=samples, keep_spins=True, key=key)
    return tuple(np.moveaxis(np.asarray(part), -1, 0) for part in (path.attention[1:], path.overlaps, path.spins))


def assert_same_moments(ours, theirs):
    """Means and covariances of two samples, the first axis, agree within their errors."""
    ours, theirs = (samples.reshape(len(samples), -1) for samples in (ours, theirs))
    for one, other in ((ours, theirs), (products(ours), products(theirs))):
        error = np.sqrt(one.var(axis=0) / len(one) + other.var(axis=0) / len(other))
        assert np.all(np.abs(one.mean(axis=0) - other.mean(axis=0)) <= FAR * error + 1e-12)


def products(samples):
    centred = samples - np.mean(samples, axis=0)
    return np.einsum("si,sj->sij", centred, centred)


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


@pytest.mark.parametrize("context", (1, 2, 4))
@pytest.mark.parametrize("start", (token_start, window_start))
def test_attention_is_over_the_spins_of_the_context(context, start):
    """The spins of a run, and Eqs. (1) and (2) of all of them afresh, give its overlaps and attentions."""
    gamma, epsilon = 3.0, 0.2
    drawn = network.spin_network(SMALL, context)
    found = runs(drawn, 1, Parameters(1.5, gamma, epsilon), start, samples=2)
    for attention, overlaps, spins in zip(*found, strict=True):
        assert set(np.unique(spins)) <= {-1.0, 1.0}
        exact = start is token_start
        positions = [time % context if exact else max(time - 1, 0) % context for time in range(STEPS + 1)]
        tokens = [SMALL.semantic[0, 0], *spins]
        expected = attentions_of(tokens, positions, gamma, epsilon, context, 0 if exact else 1)
        np.testing.assert_allclose(overlaps, expected[0], rtol=0, atol=1e-13)
        np.testing.assert_allclose(attention, expected[1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("make", KINDS)
def test_all_of_a_steps_law_is_that_of_the_spins(make):
    """The probability of every attention after one step, by enumeration of all spins."""
    beta, gamma, epsilon = 0.7, 2.0, 0.1
    fields, law = fields_of_the_first_step(beta, epsilon), collections.Counter()
    for spins in itertools.product((-1, 1), repeat=SMALL.neurons):
        attention = attentions_of([SMALL.semantic[0, 0], spins], (0, 1), gamma, epsilon, 4, 0)[1][0]
        law[outcome(attention)] += np.prod(np.exp(spins * fields) / (2 * np.cosh(fields)))  # Eq. (4)
    seen = collections.Counter(map(outcome, runs(make(SMALL, 4), 3, Parameters(beta, gamma, epsilon))[0][:, 0]))
    assert set(seen) <= set(law)
    for attention, probability in law.items():
        error = np.sqrt(probability * (1 - probability) / RUNS)
        assert abs(seen[attention] / RUNS - probability) < FAR * error + 2 / RUNS


def outcome(attention):
    return tuple(np.round(attention, 9) + 0.0)


@pytest.mark.parametrize("start", (token_start, window_start))
def test_class_sums_have_the_law_of_the_spins(start):
    """Means and covariances of the attentions of six steps, between steps too."""
    spins, sums = (runs(make(SMALL, 4), seed, WARM, start)[0] for seed, make in enumerate(KINDS))
    assert_same_moments(spins, sums)


def test_repeats_are_more_neurons_of_the_same_law():
    tripled = Weights(np.repeat(SMALL.semantic, 3, axis=2), SMALL.positional)
    copies = runs(network.spin_network(tripled, 4), 0, WARM)[0]
    assert_same_moments(copies, runs(network.class_sum_network(SMALL, 4, 3), 1, WARM)[0])


def test_at_zero_temperature_nothing_is_left_to_chance():
    """Where no field vanishes, every spin is the sign of its field, and finite networks are the mean field."""
    cold = Parameters(1e6, 2.0, 0.05)
    spins, sums = (runs(make(SMALL, 4), 0, cold) for make in KINDS)
    assert np.all(np.abs(sums[2]) == 1)
    limit = network.spin_network(SMALL, 4).limit
    start = token_start(limit, cold, pattern_prompt(SMALL))
    mean_field = np.asarray(dmft.run(limit, cold, start, steps=STEPS).attention[1:])
    for drawn in (spins, sums):
        np.testing.assert_allclose(drawn[0], np.broadcast_to(mean_field, drawn[0].shape), rtol=0, atol=1e-12)


def test_the_key_determines_a_run():
    sums = network.class_sum_network(SMALL, 4)
    one, again, other = (runs(sums, seed, WARM)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert np.any(one != other)
    assert np.any(one[0] != one[1])


def test_a_run_is_the_same_whether_spins_are_kept():
    sums = network.class_sum_network(SMALL, 4)
    start = token_start(sums.limit, WARM, pattern_prompt(SMALL))
    path = network.run(sums, WARM, start, steps=STEPS, samples=RUNS, key=jax.random.key(5))
    attention, overlaps, _ = runs(sums, 5, WARM)
    np.testing.assert_allclose(np.moveaxis(path.attention[1:], -1, 0), attention, rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.moveaxis(path.overlaps, -1, 0), overlaps, rtol=0, atol=1e-13)
    for end, last in zip(path.end.attention, path.attention[-1], strict=True):
        np.testing.assert_array_equal(end, last)


def test_a_batch_is_networks_at_other_parameters():
    """Of so many neurons that each member is next to the mean field at its own parameters."""
    batch = Parameters(np.array([0.3, 0.9, 1.5]), np.array([1.0, 2.0, 3.0]), 0.1)
    large = network.class_sum_network(SMALL, 4, 10**9)
    start = token_start(large.limit, batch, pattern_prompt(SMALL))
    path = network.run(large, batch, start, steps=STEPS, samples=2, key=jax.random.key(0))
    assert path.attention.shape == (STEPS + 1, 2, 2, 3)
    mean_field = np.asarray(dmft.run(large.limit, batch, start, steps=STEPS).attention)[:, :, None]
    assert 0 < np.max(np.abs(path.attention - mean_field)) < 1e-3
    assert np.min(np.ptp(np.asarray(path.attention[1:]), axis=2)) > 0


def published_convergence(parameters=(0.5, 127.02, 0.02), **study):
    weights = published_weights()
    settled = dict(samples=100, key=jax.random.key(0)) | study
    parameters = Parameters(*parameters)
    start = token_start(self_attention_limit(weights, 4), parameters, pattern_prompt(weights))
    return network.convergence(weights, 4, parameters, start, **settled)


@pytest.mark.slow
def test_networks_tend_to_the_mean_field_as_the_root_of_their_size():
    """Published weights at beta = 1/2, where the mean field follows the positions and forgets what perturbs it."""
    found = published_convergence(repeats=(64, 512, 4096, 16384))
    assert abs(found.slope + 0.5) < 0.03
    assert found.slope_error < 0.01
    largest = found.sel(neurons=99 * 16384)
    assert abs(largest.rms / 4.6e-4 - 1) < 0.05
    assert np.all(abs(largest.bias) < FAR * largest.bias_error)
    assert largest.rms_of_step.max() < 3 * largest.rms_of_step[0]
    assert np.all(abs(found.rms - found.predicted) < FAR * found.rms_error)
    np.testing.assert_allclose(np.sqrt(np.mean(found.predicted_of_step**2, axis=1)), found.predicted, rtol=1e-12)
    assert np.all(abs(found.rms_of_step / found.predicted_of_step - 1) < 0.3)


def test_a_power_law_is_found_within_its_error():
    """Errors are those of fits to many draws; chi_square, one on average, widens them where it is above one."""
    sizes = np.array([10.0, 100.0, 1e4])
    values = 3 * sizes**-0.7 * np.exp(0.05 * np.random.default_rng(0).normal(size=(400, 3)))
    exact = network.power_law(sizes, 3 * sizes**-0.7, 0.15 * sizes**-0.7)
    assert abs(exact["slope"] + 0.7) < 1e-12
    assert exact["chi_square"] < 1e-20
    slopes, errors, misfits = np.array(
        [[*network.power_law(sizes, drawn, 0.05 * drawn).values()] for drawn in values]
    ).T
    assert abs(np.mean(slopes) + 0.7) < FAR * exact["slope_error"] / np.sqrt(len(values))
    assert abs(np.std(slopes) / exact["slope_error"] - 1) < 0.15
    assert abs(np.mean(misfits) - 1) < 0.3
    np.testing.assert_allclose(errors, exact["slope_error"] * np.sqrt(np.maximum(1, misfits)), rtol=1e-9)


@pytest.mark.parametrize("certain", [*slow([(0.5, 1.0, 1.0)]), (1e9, 1.0, 0.02)])
def test_a_slope_of_networks_that_do_not_differ_from_the_mean_field_is_refused(certain):
    with pytest.raises(ValueError, match="no network of 99 neurons differs from the mean field"):
        published_convergence(certain, repeats=(1, 2))
    with pytest.raises(ValueError, match=r"must be one set of parameters, got a batch of shape \(2,\)"):
        published_convergence((np.ones(2), 1.0, 0.1), repeats=(1, 2))
