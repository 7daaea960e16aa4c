"""Tests of the one-shot task: contents of a sequence, labels that follow from the context, and tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from papers.tasks.images import image_set
from papers.tasks.one_shot import OneShotTask, episodes, tokens

TASK = OneShotTask(image_size=8, patch_size=4, channels=3, pixel_mean=0.5, pixel_deviation=0.3)


def flat_images(counts):
    """Make images of one grey except one pixel: 10 * class + number identifies the image in a sequence."""
    classes = np.repeat(np.arange(len(counts)), counts)
    numbers = np.concatenate([np.arange(count) for count in counts])
    pixels = np.broadcast_to((10 * classes + numbers).astype(np.uint8)[:, None, None], (len(classes), 8, 8))
    return image_set(pixels, classes, [f"class {i}" for i in range(len(counts))])


IMAGES = flat_images((3, 2, 5, 4))


def shown(examples: int, seed: int = 0):
    """Return the grey of the images of each sequence, and the answers, drawn like `Episodes`."""
    from papers.tasks import one_shot

    keys = jax.random.split(jax.random.key(seed), examples)
    rows, labels, answers = jax.vmap(lambda key: one_shot._draw(IMAGES, key))(keys)
    return np.asarray(IMAGES.pixels)[np.asarray(rows), 0, 0].astype(int), np.asarray(labels), np.asarray(answers)


@pytest.mark.slow
def test_the_third_image_is_another_one_of_the_class_that_the_label_names():
    greys, labels, answers = shown(2000)
    classes = greys // 10
    assert (classes[:, 0] != classes[:, 1]).all()
    assert (np.sort(labels[:, :2], axis=1) == [0, 1]).all()
    assert (labels[:, 2] == 2).all()
    plus = classes[np.arange(2000), labels[:, :2].argmin(axis=1)]
    minus = classes[np.arange(2000), labels[:, :2].argmax(axis=1)]
    np.testing.assert_array_equal(classes[:, 2], np.where(answers > 0, plus, minus))
    assert (greys[:, 2:] != greys[:, :2]).all()


@pytest.mark.slow
def test_classes_images_labels_and_answers_are_uniform_and_independent():
    greys, labels, answers = shown(8000, seed=1)
    for position in range(3):
        share = np.bincount(greys[:, position] // 10, minlength=4) / 8000
        np.testing.assert_allclose(share, 0.25, atol=4.5 * (0.25 * 0.75 / 8000) ** 0.5)
    of_first_class = greys[greys[:, 2] // 10 == 0, 2]
    np.testing.assert_allclose(np.bincount(of_first_class) / len(of_first_class), 1 / 3, atol=0.05)
    asked_first = greys[:, 2] // 10 == greys[:, 0] // 10
    plus_first = labels[:, 0] == 0
    for signs in (answers, 2.0 * asked_first - 1, 2.0 * plus_first - 1, (2.0 * asked_first - 1) * answers):
        assert abs(signs.mean()) < 4.5 / 8000**0.5


def test_tokens_are_patches_positions_and_labels():
    task = OneShotTask(image_size=4, patch_size=2, channels=1, pixel_mean=0.5, pixel_deviation=0.25)
    pixels = np.zeros((1, 3, 4, 4), dtype=np.uint8)
    pixels[0, 1, 2:, :2] = [[0, 255], [255, 0]]
    sequence = np.asarray(tokens(task, jnp.asarray(pixels), jnp.array([[0, 1, 2]]))[0])
    blank = np.asarray(tokens(task, jnp.zeros((1, 3, 4, 4), dtype=jnp.uint8), jnp.array([[0, 1, 2]]))[0])
    changed = np.flatnonzero(np.abs(sequence - blank).max(axis=1) > 1e-12)
    assert changed.tolist() == [4 + 2]  # second image, lower left patch
    np.testing.assert_allclose((sequence - blank)[6], [-1, 1, 1, -1], atol=1e-5)
    # Label and position are left: the same label, at positions one image apart.
    labels = [blank[image * 4 : image * 4 + 4] for image in range(3)]
    relabelled = np.asarray(tokens(task, jnp.zeros((1, 3, 4, 4), dtype=jnp.uint8), jnp.array([[1, 0, 2]]))[0])
    np.testing.assert_allclose(relabelled[:4] - labels[0], -(relabelled[4:8] - labels[1]), atol=1e-12)
    np.testing.assert_allclose(relabelled[8:], labels[2])


@pytest.mark.slow
def test_patches_are_normalised_whatever_ink_and_paper():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
    labels = jnp.array([[0, 1, 2]] * 2)
    blank = tokens(TASK, jnp.zeros((2, 3, 8, 8), dtype=jnp.uint8), labels)
    patches = np.asarray(tokens(TASK, jnp.asarray(pixels), labels) - blank)
    np.testing.assert_allclose(patches.mean(axis=-1), 0, atol=1e-12)
    np.testing.assert_allclose((patches**2).mean(axis=-1), 1, rtol=1e-4)
    inverted = np.asarray(tokens(TASK, jnp.asarray(255 - pixels), labels) - blank)
    np.testing.assert_allclose(inverted, -patches, atol=1e-12)


@pytest.mark.slow
def test_episodes_are_a_pytree_that_a_key_determines():
    drawn = episodes(TASK, IMAGES)
    first = drawn(5, key=jax.random.key(2))
    compiled = jax.jit(lambda source, key: source(5, key=key))(drawn, jax.random.key(2))
    assert first.inputs.shape == (5, TASK.tokens, TASK.input_features) == (5, 12, 48)
    np.testing.assert_allclose(compiled.inputs, first.inputs, atol=1e-12)
    np.testing.assert_array_equal(compiled.labels, first.labels)


def test_images_that_do_not_make_the_task_are_refused():
    with pytest.raises(ValueError, match="class 'class 1' has 1 image; each needs at least 2"):
        episodes(TASK, flat_images((3, 1)))
    with pytest.raises(ValueError, match="at least 2 classes, got 1"):
        episodes(TASK, flat_images((3,)))
    with pytest.raises(ValueError, match=r"images of \(8, 8\) pixels do not fit image_size=32"):
        episodes(OneShotTask(), IMAGES)


def test_a_selection_of_classes_keeps_their_images():
    chosen = IMAGES.of_classes([2, 0])
    assert chosen.class_names == ("class 2", "class 0")
    np.testing.assert_array_equal(np.asarray(chosen.pixels)[:, 0, 0], [20, 21, 22, 23, 24, 0, 1, 2])


@pytest.mark.slow
def test_images_without_a_class_are_refused():
    pixels = np.zeros((2, 8, 8), dtype=np.uint8)
    with pytest.raises(ValueError, match="class 'b' has no images"):
        image_set(pixels, np.array([0, 0]), ["a", "b"])
