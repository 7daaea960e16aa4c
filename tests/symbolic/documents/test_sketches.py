"""Small drawings: their marks are where the numbers are."""

import re
from xml.etree import ElementTree

import numpy as np

from theorykit.symbolic.documents.sketches import bars, brief, curves


def test_numbers_in_a_few_characters():
    assert brief(0.123456) == "0.1235" and brief([1, 2.5]) == "1, 2.5"
    assert brief(np.arange(9.0), 2) == "0, 1, ... (9 in all)"
    assert brief(np.arange(4.0).reshape(2, 2)) == "0 to 3, shape (2, 2)"


def test_curves_break_where_a_value_is_not_finite():
    picture = curves({"one": [0.0, 1.0, np.nan, 2.0], "other": [2.0, 2.0, 2.0, 2.0]}, "caption")
    marks = ElementTree.fromstring(picture.svg)
    commands = [mark.get("d") for mark in marks if mark.get("d")]
    assert re.sub(r"[^ML]", "", commands[0]) == "MLM"
    heights = [float(number) for number in re.findall(r" (\S+?)(?=[ML]|$)", commands[0])]
    assert heights[0] - heights[1] == heights[1] - heights[2] > 0
    assert picture.text == "▁▅\N{MIDDLE DOT}█  caption"


def test_bars_have_the_heights_of_their_numbers():
    marks = ElementTree.fromstring(bars([1.0, -2.0, -np.inf], [0.1, 0.1, np.nan], "caption").svg)
    heights = [float(mark.get("height")) for mark in marks if mark.tag.endswith("rect")]
    assert heights == [26.0, 52.0]
    assert sum(mark.tag.endswith("circle") for mark in marks) == 1
