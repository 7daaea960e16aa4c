"""Numbers and matrices in a few characters."""

import numpy as np

from theorykit.symbolic.documents.values import brief


def test_numbers_in_a_few_characters():
    assert brief(0.123456) == "0.1235" and brief([1, 2.5]) == "1, 2.5"
    assert brief(np.arange(9.0), 2) == "0, 1, ... (9 in all)"
    assert brief(np.arange(4.0).reshape(2, 2)) == "0 to 3, shape (2, 2)"
