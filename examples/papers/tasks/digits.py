"""Scikit-learn's handwritten digits: real scanned images that need no download."""

import numpy as np
from sklearn.datasets import load_digits

from theorykit.checks import checked_whole_number

from .image_files import SIZE, resize
from .images import ImageSet, image_set

_DARKEST = 16  # each published pixel counts the inked pixels of 4 x 4 in the scan


def handwritten_digits(*, size: int = SIZE) -> ImageSet:
    """Load 1797 handwritten digits, black on white, in classes "0" to "9"; `pixels` is (1797, size, size).

    They are the test set of the Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak (1998), UCI
    Machine Learning Repository, https://archive.ics.uci.edu/ml/datasets/Optical+Recognition+of+Handwritten+Digits, and
    come with scikit-learn. The images have 8 x 8 pixels from 0 to 16, and `resize` enlarges them smoothly.
    """
    checked_whole_number("size", size, least=1)
    published = load_digits()
    grey = np.rint(255 - published.images * (255 / _DARKEST)).astype(np.uint8)
    pixels = np.stack([resize(image, size) for image in grey])
    return image_set(pixels, published.target, [str(name) for name in published.target_names])
