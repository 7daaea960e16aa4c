"""Phase diagrams as drawn: every pair of parameters in the colour of its regime."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex
from theorykit.dynamics.regimes import CHAOTIC, PERIODIC, QUASI_PERIODIC, UNDECIDED

from theorykit.plots.phases import REGIME_COLORS, phase_diagram, share_that_differs

REGIMES = np.array([[PERIODIC, CHAOTIC, CHAOTIC], [PERIODIC, PERIODIC, QUASI_PERIODIC]])


def phases() -> xr.Dataset:
    distinct = np.arange(1, 13).reshape(2, 3, 2)
    return xr.Dataset(
        {"regime_by_levels": (("gamma", "beta"), REGIMES), "distinct": (("gamma", "beta", "pattern"), distinct)},
        {"gamma": [1.0, 5.0], "beta": [0.5, 1.0, 2.0], "pattern": [1, 2]},
    )


@pytest.fixture
def figure():
    figure = phase_diagram(phases())
    yield figure
    plt.close(figure)


def test_each_cell_has_the_colour_of_its_regime(figure):
    mesh = figure.axes[0].collections[0]
    drawn = [to_hex(color) for color in mesh.to_rgba(mesh.get_array()).reshape(-1, 4)]
    assert drawn == [to_hex(REGIME_COLORS[str(name)]) for name in REGIMES.ravel()]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [PERIODIC, QUASI_PERIODIC, CHAOTIC]


def test_counts_are_those_of_the_first_pattern(figure):
    np.testing.assert_array_equal(figure.axes[1].collections[0].get_array().ravel(), np.arange(1, 12, 2))


def test_regimes_by_exponents_come_first_and_the_published_rule_says_where_it_differs():
    other = np.array([[PERIODIC, QUASI_PERIODIC, CHAOTIC], [PERIODIC, PERIODIC, UNDECIDED]])
    result = phases().assign(
        regime=(("gamma", "beta"), other), differs=(("gamma", "beta"), (other != REGIMES) & (other != UNDECIDED))
    )
    assert share_that_differs(result) == 0.2
    figure = phase_diagram(result)
    drawn = [
        [to_hex(color) for color in axes.collections[0].to_rgba(axes.collections[0].get_array()).reshape(-1, 4)]
        for axes in figure.axes[:2]
    ]
    assert drawn == [[to_hex(REGIME_COLORS[str(name)]) for name in shown.ravel()] for shown in (other, REGIMES)]
    assert "20%" in figure.axes[1].get_title(loc="left") + figure.axes[1].get_title()
    plt.close(figure)
