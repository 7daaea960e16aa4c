"""Numbers, matrices and curves in a few characters."""

import numpy as np

from theorykit.symbolic.documents.values import brief, curves, sketch


def test_numbers_in_a_few_characters():
    assert brief(0.123456) == "0.1235" and brief([1, 2.5]) == "1, 2.5"
    assert brief(np.arange(9.0), 2) == "0, 1, ... (9 in all)"
    assert brief(np.arange(4.0).reshape(2, 2)) == "0 to 3, shape (2, 2)"


def test_a_sketch_has_a_dot_where_a_value_is_not_finite():
    assert sketch([0.0, 1.0, np.nan, 2.0], "caption").text == "▁▅\N{MIDDLE DOT}█  caption"
    assert sketch([np.nan, np.inf], "caption").text == "\N{MIDDLE DOT}" * 2 + "  caption"
    assert [each.text for each in curves({"a": [0.0, 1.0], "b": [1.0, 1.0]}, "c")] == ["▁█  a: c", "▁▁  b: c"]
