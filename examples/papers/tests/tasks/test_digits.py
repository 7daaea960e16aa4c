"""Tests that the digits from scikit-learn are the published ones, as ink on paper."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from papers.tasks.digits import handwritten_digits


def test_at_their_own_size_the_digits_are_the_published_ones():
    published, images = load_digits(), handwritten_digits(size=8)
    assert images.class_names == tuple("0123456789")
    order = np.argsort(published.target, kind="stable")
    np.testing.assert_allclose(16 * (1 - np.asarray(images.pixels) / 255), published.images[order], atol=16 / 255 / 2)
    np.testing.assert_array_equal(images.counts, np.bincount(published.target))


def test_enlarged_they_are_the_same_pictures():
    small, large = (np.asarray(handwritten_digits(size=size).pixels, dtype=float) for size in (8, 32))
    assert large.shape == (1797, 32, 32)
    averaged = large.reshape(1797, 8, 4, 8, 4).mean((2, 4))
    assert np.corrcoef(averaged.ravel(), small.ravel())[0, 1] > 0.98
    # The images are smooth: few neighbouring pixels differ by much.
    assert np.quantile(np.abs(np.diff(large, axis=2)), 0.9) < 64


def test_ink_is_black_on_white_paper():
    pixels = np.asarray(handwritten_digits().pixels)
    assert pixels.min() == 0 and pixels.max() == 255
    corners = pixels[:, ::31, ::31]
    assert corners.mean() == pytest.approx(255, abs=15)
