"""Tests of generated characters: drawings of one are similar, of others different, and a seed fixes all."""

import jax
import numpy as np
import pytest

from papers.tasks.strokes import Pen, stroke_characters


@pytest.fixture(scope="module")
def characters():
    return stroke_characters(12, 6, key=jax.random.key(3))


def as_ink(images) -> np.ndarray:
    """Make (classes, drawings, pixels), 1 for ink, blurred so that small shifts count little."""
    ink = 1 - np.asarray(images.pixels, dtype=float) / 255
    kernel = np.exp(-(np.linspace(-2, 2, 9) ** 2))
    for axis in (1, 2):
        ink = np.apply_along_axis(np.convolve, axis, ink, kernel, mode="same")
    return ink.reshape(len(images.class_names), -1, ink[0].size)


def test_characters_are_dark_ink_on_white_paper(characters):
    pixels = np.asarray(characters.pixels)
    assert pixels.shape == (72, 32, 32)
    assert np.median(pixels) == 255
    assert (pixels.min(axis=(1, 2)) < 40).all()
    assert 0.02 < np.mean(pixels < 128) < 0.3


def test_the_nearest_other_drawing_is_mostly_of_the_same_character(characters):
    ink = as_ink(characters)
    flat = ink.reshape(-1, ink.shape[-1])
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    likeness = flat @ flat.T - 2 * np.eye(len(flat))
    classes = np.repeat(np.arange(12), 6)
    assert np.mean(classes[likeness.argmax(axis=1)] == classes) > 0.9
    assert len(np.unique(flat.round(6), axis=0)) == len(flat)


def test_a_key_determines_the_drawings(characters):
    again = stroke_characters(12, 6, key=jax.random.key(3))
    np.testing.assert_array_equal(again.pixels, characters.pixels)
    other = stroke_characters(12, 6, key=jax.random.key(4))
    assert np.mean(np.asarray(other.pixels) != np.asarray(characters.pixels)) > 0.05


def test_without_jitter_all_drawings_are_the_same():
    still = stroke_characters(2, 3, key=jax.random.key(0), size=16, pen=Pen((1, 1), 0.0, 0.0, 0.0, 0.05, 0.0))
    pixels = np.asarray(still.pixels).reshape(2, 3, 16, 16)
    np.testing.assert_array_equal(pixels, np.broadcast_to(pixels[:, :1], pixels.shape))
