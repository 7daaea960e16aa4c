"""Tests of the hidden-Markov task: the paper's statistics, and heads that act as their names say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from papers.tasks import hidden_markov as hm
from theorykit import bpkr

TASK = hm.HiddenMarkovTask()
SHORT = hm.HiddenMarkovTask(length=6, dimension=8)


@pytest.fixture(scope="module")
def sample() -> hm.Examples:
    return hm.sample_examples(TASK, 400, key=jax.random.key(0))


def hidden_states(sample: hm.Examples) -> np.ndarray:
    """Recover +1 or -1 for each token: which half of the features has the larger mean."""
    tokens = np.asarray(sample.inputs[:, 1:, : TASK.dimension])
    half = TASK.dimension // 2
    return np.sign(tokens[..., :half].mean(-1) - tokens[..., half:].mean(-1))


def test_shapes_and_classes(sample):
    assert sample.inputs.shape == (400, 31, 231)
    assert sorted(np.unique(sample.labels)) == [-1.0, 1.0]
    assert float(sample.labels.sum()) == 0.0
    assert float(hm.sample_examples(SHORT, 7, key=jax.random.key(0)).labels.sum()) == 1.0


def test_the_beginning_token_is_zero_and_positions_are_one_hot(sample):
    assert not np.any(sample.inputs[:, 0, : TASK.dimension])
    np.testing.assert_array_equal(sample.inputs[3, :, TASK.dimension :], np.eye(31))


def test_states_stay_as_often_as_their_class_says(sample):
    states = hidden_states(sample)
    stays = states[:, 1:] == states[:, :-1]
    for label, probability in ((1.0, 0.7), (-1.0, 0.3)):
        chosen = stays[np.asarray(sample.labels) == label]
        assert abs(chosen.mean() - probability) < 4 * np.sqrt(0.21 / chosen.size)
    assert abs((states[:, 0] > 0).mean() - 0.5) < 4 * np.sqrt(0.25 / len(states))


@pytest.mark.parametrize("orthogonal", [1.0, 5.0])
def test_noise_has_its_strength_inside_and_outside_the_plane(orthogonal):
    task = hm.HiddenMarkovTask(parallel_noise=0.5, orthogonal_noise=orthogonal)
    sample = hm.sample_examples(task, 200, key=jax.random.key(1))
    tokens = np.asarray(sample.inputs[:, 1:, :200]).reshape(-1, 200)
    halves = np.stack([np.arange(200) < 100, np.arange(200) >= 100]) / 10.0
    along = tokens @ halves.T
    residual = tokens - along @ halves
    assert residual.std() == pytest.approx(orthogonal * np.sqrt(198 / 200), rel=0.01)
    norm_of_mean = np.sqrt(2) * 10
    first = along[np.argmax(along, 1) == 0]
    assert first[:, 0].mean() == pytest.approx(norm_of_mean, rel=0.01)
    assert first[:, 1].std() == pytest.approx(0.5, rel=0.1)


def test_the_good_head_attends_the_predecessor_in_the_same_state_and_nothing_otherwise():
    silent = hm.HiddenMarkovTask(parallel_noise=0.0, orthogonal_noise=0.0)
    sample = hm.sample_examples(silent, 20, key=jax.random.key(2))
    first, second = (hm.good_head(silent, layer)[None] for layer in (1, 2))
    attention, uniform = bpkr.attention(sample.inputs, key_query=[first, second])
    states = hidden_states(sample)
    same = states[:, 1:] == states[:, :-1]
    chosen = np.argmax(np.asarray(attention[:, 0]), axis=1)[:, 2:]
    predecessor = np.arange(1, 30)
    np.testing.assert_array_equal(chosen, np.where(same, predecessor, 0))
    assert float(np.max(np.asarray(attention[:, 0]), axis=1)[:, 2:].min()) > 0.85
    np.testing.assert_allclose(uniform, 1 / 31, rtol=1e-12)


def test_random_heads_have_the_scale_of_their_blocks():
    head = np.asarray(hm.random_head(TASK, key=jax.random.key(3))) / TASK.hardness
    features, positions = slice(0, 200), slice(200, None)
    for rows, columns, deviation in (
        (features, features, 1 / 200),
        (positions, positions, 1.0),
        (features, positions, 200**-0.5),
    ):
        entries = head[rows, columns].ravel()
        assert entries.std() == pytest.approx(deviation, rel=4 / np.sqrt(2 * entries.size))


def test_keys_decide_and_nothing_else():
    one, again, other = (hm.sample_examples(SHORT, 5, key=jax.random.key(k)) for k in (0, 0, 1))
    assert jnp.array_equal(one.inputs, again.inputs)
    assert not jnp.array_equal(one.inputs, other.inputs)
