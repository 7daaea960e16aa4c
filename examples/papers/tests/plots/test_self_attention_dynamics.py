"""Tests that figures and table of trajectories and orbit diagrams show the data, from small fixed results."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_rgba
from theorykit.dynamics.regimes import CHAOTIC, PERIODIC, REGIMES, UNDECIDED

from papers.plots import self_attention_dynamics as plots
from papers.plots.self_attention_dynamics import number_with_error
from tests.plots.test_phases import phases
from theorykit.plots.style import use_style

BETAS = (1.255, 1.28)


def trajectories() -> xr.Dataset:
    """Make a cycle of four tokens, and noise labelled as chaos."""
    draw, tokens, frequencies = np.random.default_rng(0), 200, 1001
    cycle = np.tile([0.1, -0.2, 0.3, -0.4], (3, tokens // 4)) * np.array([[1.0], [0.5], [0.2]])
    amplitude = np.full((2, 3, frequencies), 1e-4)
    amplitude[:, :, 501] = 0.25
    return xr.Dataset(
        {
            "overlap": (("beta", "pattern", "token"), np.stack([cycle, draw.uniform(-0.5, 0.5, (3, tokens))])),
            "exponent": (("beta", "number"), [[-0.0321, -np.inf, -np.inf], [0.1446, -0.0566, -0.16]]),
            "exponent_error": (("beta", "number"), [[0.000041, 0.0, 0.0], [0.0019, 0.0012, 0.001]]),
            "regime": ("beta", [PERIODIC, CHAOTIC]),
            "period": ("beta", [4, 0]),
            "dimension": ("beta", [0.0, 2.559]),
            "chaos": ("beta", [-0.001, 0.998]),
            "amplitude": (("beta", "pattern", "frequency"), amplitude),
            "autocorrelation": (("beta", "pattern", "lag"), draw.uniform(-1, 1, (2, 3, 30))),
        },
        {
            "beta": list(BETAS),
            "pattern": [1, 2, 3],
            "number": [1, 2, 3],
            "position": ("token", np.arange(tokens) % 4),
            "frequency": np.linspace(0, 0.5, frequencies),
        },
    )


def diagram(values: int = 7, levels: int = 41) -> xr.Dataset:
    """Make orbits at few betas from 1.2 to 1.3, the odd ones periodic, with random marks."""
    draw = np.random.default_rng(1)
    marks = (draw.uniform(size=(2, values, 1, levels)) < 0.1).astype(np.uint8)
    marks[..., :5] = marks[..., -5:] = 0
    regime = np.where(np.arange(values) % 2 == 1, PERIODIC, CHAOTIC).astype(object)
    regime[-1] = UNDECIDED
    exponent = np.sort(draw.normal(size=(values, 3)), axis=1)[:, ::-1].copy()
    exponent[0, 2] = -np.inf
    return xr.Dataset(
        {
            "visited": (("beta", "pattern", "level"), marks[0]),
            "in_section": (("beta", "section", "level"), marks[1]),
            "exponent": (("beta", "number"), exponent),
            "exponent_error": (("beta", "number"), draw.uniform(0.01, 0.1, (values, 3))),
            "regime": ("beta", regime.astype(str)),
        },
        {"beta": np.linspace(1.2, 1.3, values), "level": np.linspace(-1, 1, levels), "number": [1, 2, 3]},
    )


def tree(**more: xr.Dataset) -> xr.DataTree:
    nodes = {"trajectories": trajectories(), "diagram": diagram(), "zoom": diagram(9), "phases": phases(), **more}
    return xr.DataTree.from_dict(nodes)


@pytest.fixture
def axes():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


@pytest.fixture
def rows():
    """Draw trajectories; yield the axes, one row per orbit."""
    with use_style():
        figure = plots.trajectories(trajectories())
    figure.draw_without_rendering()
    yield np.reshape(figure.axes, (len(BETAS), -1))
    plt.close(figure)


def test_periodic_orbits_are_shown_whole_and_others_in_section():
    given_diagram = diagram()
    thinned = plots.thin(given_diagram)
    for number, regime in enumerate(given_diagram["regime"].values):
        whole = given_diagram["visited" if regime == PERIODIC else "in_section"][number, 0]
        np.testing.assert_array_equal(thinned[number], whole)


def test_exponents_are_drawn_where_they_are_finite(axes):
    data = diagram()
    plots.draw_exponents(axes, data)
    drawn = {container.get_label(): container for container in axes.containers}
    for number in (1, 2, 3):
        values = data["exponent"].sel(number=number).values
        points, _, (bars,) = drawn[rf"$\lambda_{number}$"]
        np.testing.assert_array_equal(points.get_ydata().astype(float), np.where(np.isfinite(values), values, np.nan))
        heights = [np.ptp(segment[:, 1]) / 2 for segment in bars.get_segments() if len(segment)]
        errors = data["exponent_error"].sel(number=number).values[np.isfinite(values)]
        np.testing.assert_allclose([height for height in heights if np.isfinite(height)], errors)
    assert axes.get_ylim()[1] > float(data["exponent"].max())


def test_the_strip_and_its_names_have_the_colours_of_the_regimes(axes):
    data = diagram()
    plots.draw_regimes(axes, data)
    colors = np.asarray(axes.images[0].get_array())[0]
    for color, name in zip(colors, data["regime"].values, strict=True):
        assert tuple(color) == to_rgba(plots.REGIME_COLORS[name])
    (legend,) = axes.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [PERIODIC, CHAOTIC, UNDECIDED]
    assert len(set(plots.REGIME_COLORS.values())) == len(REGIMES)


def test_triangles_stand_at_the_trajectories_in_range():
    for betas, within in (([1.255, 1.4], [1.255]), ([0.5, 0.7], []), ([1.2, 1.3], [1.2, 1.3])):
        figure = plots.orbit_diagram(diagram(), trajectories().assign_coords(beta=betas))
        assert [triangle.get_xdata()[0] for triangle in figure.axes[0].lines] == within
        plt.close(figure)


def test_a_row_shows_its_orbit(rows):
    for number, (words, series, plane, spectrum, correlation) in enumerate(rows):
        orbit = trajectories().isel(beta=number)
        for line, overlap in zip(series.lines, orbit["overlap"].values, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), overlap[: plots.SHOWN_TOKENS])
        every, once = (points.get_offsets() for points in plane.collections)
        np.testing.assert_array_equal(every, orbit["overlap"].values[:2].T)
        np.testing.assert_array_equal(once, orbit["overlap"].values[:2, ::4].T)
        assert np.max(spectrum.lines[0].get_ydata()) == 0.25
        np.testing.assert_array_equal(correlation.lines[1].get_ydata(), orbit["autocorrelation"].values[0])
        assert f"{BETAS[number]:g}" in words.texts[0].get_text()
    said = ["\n".join(text.get_text() for text in row[0].texts) for row in rows]
    assert "periodic, period 4" in said[0]
    assert r"$\lambda_1 = -0.032100 \pm 0.000041$" in said[0]
    assert r"$\lambda_2 = -\infty$" in said[0]
    assert "0-1 test 0.00" in said[0]
    assert r"$\lambda_1 = 0.1446 \pm 0.0019$" in said[1]
    assert "dimension 2.56" in said[1]


def test_no_words_run_into_the_panel_beside_them(rows):
    for words, series, *_ in rows:
        renderer = words.figure.canvas.get_renderer()
        edge = series.get_tightbbox(renderer).x0
        assert all(text.get_window_extent(renderer).x1 < edge for text in words.texts)


@pytest.mark.slow
def test_all_figures_are_written(tmp_path):
    written = plots.draw_all(tree(), tmp_path)
    assert written == list(plots.figure_paths(tmp_path))
    assert all(path.stat().st_size > 10_000 for path in written)


def test_the_table_has_a_line_a_trajectory_and_counts_regimes():
    head, cycle, chaos, empty, first, second, pairs, rule = plots.table(tree()).splitlines()
    assert head.split() == ["beta", "lambda_1", "lambda_2", "regime", "period", "K", "dimension", "reference"]
    assert cycle.split() == ["1.255", "-0.032100", "+-", "0.000041", "-inf", "periodic", "4", "0.00", "0.00"]
    assert chaos.split()[-4:] == ["chaotic", "-", "1.00", "2.56"]
    assert not empty
    assert first == "diagram, 7 values of beta from 1.2 to 1.3: 3 chaotic, 3 periodic, 1 undecided"
    assert second.startswith("zoom, 9 values of beta")
    assert pairs == "phases, 6 pairs of gamma and beta"
    assert rule == "  by the published rule: 3 periodic, 2 chaotic, 1 quasi-periodic"


def test_a_reference_out_of_reach_has_a_star():
    reference = xr.Dataset({"exponent": ("beta", [-0.05, 0.146])}, {"beta": list(BETAS)})
    lines = plots.table(tree(reference=reference)).splitlines()
    assert lines[1].endswith(" -0.05*")
    assert lines[2].endswith(" 0.146")
    assert lines[3].startswith("* ")
    rounded = xr.Dataset({"exponent": ("beta", [-0.0325, 0.15])}, {"beta": list(BETAS)})
    assert "*" not in plots.table(tree(reference=rounded))


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.14462, 0.0019, "0.1446 +- 0.0019"),
        (-0.0000002, 0.00002, "0.000000 +- 0.000020"),
        (-1.5, 0.31, "-1.50 +- 0.31"),
        (-0.25, 0.0, "-0.250000 +- 0.000000"),
        (3.0, 12.0, "3.00 +- 12.00"),
        (-np.inf, 0.0, "-inf"),
    ],
)
def test_numbers_have_the_digits_that_their_errors_leave(value, error, text):
    assert number_with_error(value, error) == text
