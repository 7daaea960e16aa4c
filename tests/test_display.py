"""Objects that users print: a few lines at a prompt, well-formed HTML in a notebook, and the numbers of the object."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from theorykit import bpkr

RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.normal(size=(20, 4, 5)) / 4, RNG.choice(["<a>", "b & c", "d"], 20)
ARCHITECTURE = bpkr.Architecture((4,), 12.0, temperature=0.1, outputs=3)


class Nesting(HTMLParser):
    """Check that every tag closes the last open one."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("br", "hr", "img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def shown() -> dict[str, object]:
    data = bpkr.Data.of_classes(FEATURES, LABELS, FEATURES[:9], LABELS[:9])
    problem = bpkr.Problem(ARCHITECTURE, data)
    saddle = bpkr.solve(problem)
    prediction = bpkr.predict(problem, saddle)
    scores = bpkr.score_classes(data.classes, LABELS[:9], prediction.mean, prediction.variance)
    values = (ARCHITECTURE, data, problem, problem.action, saddle, saddle.order_parameters, prediction, scores)
    return {type(value).__name__: value for value in values}


def test_objects_show_a_few_lines_without_arrays_and_well_formed_html(shown):
    for value in shown.values():
        text, parser = repr(value), Nesting()
        assert 0 < len(text.splitlines()) <= 15 and len(text) <= 1500
        assert not re.search(r"\b[fi](32|64)\[| object at 0x|\barray\(", text)
        parser.feed(value._repr_html_() or "")
        assert not parser.open


def test_a_saddle_shows_the_scores_of_its_heads(shown):
    saddle = shown["Saddle"]
    here, wide = (bpkr.head_scores(ARCHITECTURE, point) for point in (saddle, bpkr.gp_limit(ARCHITECTURE)))
    lines = re.findall(r"^layer \d +(.*)$", repr(saddle), re.MULTILINE)
    expected = [[*np.round(a, 3), *np.round(b, 3)] for a, b in zip(here, wide, strict=True)]
    np.testing.assert_allclose([list(map(float, line.split())) for line in lines], expected, atol=1e-9)


def test_the_picture_of_a_matrix_has_its_entries_and_signs():
    point = bpkr.OrderParameters((np.array([[2.0, -0.5], [-0.5, 1.0]]),), 3.0)
    html = point._repr_html_()
    entries = re.findall(r'fill="(#\w+)" fill-opacity="(\d\.\d+)".*?<title>1, \d: (\S+)</title>', html)
    (positive, full, first), (negative, weak, second) = entries[:2]
    assert (float(first), float(second)) == (2.0, -0.5)
    assert positive != negative
    assert float(weak) == pytest.approx(float(full) / 2)
    assert repr(point).splitlines()[1:] == ["U_1     1     2", "  1     2  -0.5", "  2  -0.5     1", "u  3"]


def test_classes_are_counted_and_escaped(shown):
    data = shown["Data"]
    counts = np.asarray(data.labels).sum(axis=0).astype(int)
    assert f"'<a>': {counts[0]}, 'b & c': {counts[1]}, 'd': {counts[2]}" in repr(data)
    assert "<a>" not in data._repr_html_()
