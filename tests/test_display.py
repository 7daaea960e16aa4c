"""Objects that users print: a few lines at a prompt, Markdown in a notebook, and the numbers of the object."""

import re

import jax
import numpy as np
import pytest
import sympy

from theorykit import bpkr, saddle
from theorykit.symbolic.documents import verbatim

RNG = np.random.default_rng(0)
NAMES = ("$a$ `b` **c**", "<b> & |d|", "e_f* [g](h) \\")
FEATURES, LABELS = RNG.normal(size=(20, 4, 5)) / 4, RNG.choice(NAMES, 20)
ARCHITECTURE = bpkr.Architecture((4,), 12.0, temperature=0.1, outputs=3)


@pytest.fixture(scope="module")
def shown() -> dict[str, object]:
    data = bpkr.Data.of_classes(FEATURES, LABELS, FEATURES[:9], LABELS[:9])
    problem = bpkr.Problem(ARCHITECTURE, data)
    solution = bpkr.solve(problem)
    prediction = bpkr.predict(problem, solution)
    point = solution.order_parameters
    values = (ARCHITECTURE, problem, problem.bound.action, solution, point, prediction)
    return {type(value).__name__: value for value in values}


def test_objects_show_a_few_lines_without_arrays_and_markdown(shown):
    for value in shown.values():
        text = repr(value)
        assert 0 < len(text.splitlines()) <= 15 and len(text) <= 1500
        assert not re.search(r"\b[fi](32|64)\[| object at 0x|\barray\(", text)
        assert value._repr_markdown_().count("<details") == value._repr_markdown_().count("</details>")
    action = shown["Action"]
    named = re.findall(r"`(\w+)`", action._repr_markdown_())
    assert {"entropies", "predictor"} <= set(named) and all(hasattr(action, name) for name in named)


def test_order_parameters_are_a_line_each():
    network = bpkr.Architecture([bpkr.Skip(2, 0.5), bpkr.Dense()], 9.0, temperature=0.1, embedding="erf")
    assert "embedding erf, Skip(layer=Attention(heads=2), gain=0.5), Dense()" in repr(network)
    point = bpkr.OrderParameters((np.array([[2.0, -0.5], [-0.5, 1.0]]),), 3.0)
    assert repr(point).splitlines() == ["U_1  -0.5 to 2, shape (2, 2)", "u    3"]


def test_names_of_symbols_are_verbatim():
    x, h = sympy.Symbol("x**2 $ `y` **", real=True), sympy.Symbol("h_*a*", real=True)
    action = saddle.Action(x**2 / 2 - h * x, {x: saddle.Real()}, (h,))
    for text in (action.render_markdown(), action.render_latex(), repr(action), action._repr_markdown_()):
        assert "<strong>" not in text and "textbf" not in text
    assert r"\text{x**2 \$ `y` **}" in action.render_latex() and "x**2 $ `y` **" in repr(action)
    with jax.enable_x64(True):
        solution = saddle.minimise(action, {h: 0.5}, initial={x: 0.1})
    assert "x**2 $ `y` **" in repr(solution) and "h_*a*" in repr(solution)
    assert verbatim("h_*a*") in solution._repr_markdown_()
