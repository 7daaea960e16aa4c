"""Figures draw the numbers of a result, in new axes or in given ones, with every mark in a legend."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from tests.bpkr.sweeps.problems import ARCHITECTURE, random_data, swept
from theorykit import bpkr, plots
from theorykit.bpkr import sweeps
from theorykit.plots.solution import figure as figure_of_solution
from theorykit.plots.sweep import figure as figure_of_sweep

ALL = ("saddle", "one_over_n", "exact", "gibbs", "nuts", "infinite_width")


@pytest.fixture(scope="module")
def sweep() -> xr.Dataset:
    return swept(random_data(0), width=(20, 80, np.inf), temperature=(0.1, 1.0))


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def legend(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


# ---- sweeps and solutions


def test_one_solution_is_drawn_as_a_matrix_with_red_for_positive_entries(sweep):
    one = sweep.isel(width=0, temperature=0)
    axes = plots.draw_order_parameters(one)
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), one["U_1"])
    low, high = image.get_clim()
    assert low == -high == -np.abs(one["U_1"]).max()
    assert image.cmap(1.0)[0] > image.cmap(1.0)[2]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]
    with pytest.raises(ValueError, match="U_1 has several points, along width, temperature: select one"):
        plots.draw_order_parameters(sweep)


def test_the_style_leaves_the_interactive_mode_to_the_backend():
    with plt.rc_context({"font.size": 7}):
        with plots.style.use_style():
            assert plt.rcParams["font.size"] == 9
            plt.ion()
        assert plt.isinteractive() and plt.rcParams["font.size"] == 7


@pytest.mark.parametrize("score", [None, "U_1"])
def test_sweeps_are_drawn_into_given_axes(sweep, score):
    _, (left, right) = plt.subplots(1, 2)
    assert plots.draw_scores_over_width(sweep, right, score=score) is right
    assert right.lines and not left.lines
    assert plots.draw_scores_over_width(sweep, score=score).figure is not right.figure


SEVERAL = ("one width", "one temperature", "infinite width alone", "three classes", "two layers", "seeds", "one seed")


def result(kind: str) -> xr.Dataset:
    """Return a sweep of every kind that the pages describe."""
    alone = {"one width": {"width": (20,)}, "infinite width alone": {"width": (np.inf,)}}
    alone["one temperature"] = {"temperature": (0.1,)}
    options = {"width": (20, 80, np.inf), "temperature": (0.1, 1.0), **alone.get(kind, {})}
    if kind in ("seeds", "one seed"):
        seeds = range(3 if kind == "seeds" else 1)
        return sweeps.sweep(ARCHITECTURE, random_data, seeds=seeds, **options, progress=False)
    data, architecture = random_data(0), ARCHITECTURE
    if kind == "three classes":
        architecture = bpkr.Architecture(ARCHITECTURE.layers, 10.0, temperature=0.3, outputs=3)
        data = bpkr.Data.of_classes(data.features, np.arange(len(data.labels)) % 3, data.features[:3], [0, 1, 2])
    elif kind == "two layers":
        architecture = bpkr.Architecture((1, *ARCHITECTURE.layers), 10.0, temperature=0.3)
        options["width"] = np.array([(10, 20, 30), (20, 20, 20)])
    return sweeps.sweep(architecture, data, **options, progress=False)


@pytest.mark.quick("infinite width alone")
@pytest.mark.parametrize("kind", SEVERAL)
def test_every_sweep_is_drawn_and_saved(kind, tmp_path):
    found = result(kind)
    plots.style.save(figure_of_sweep(found), tmp_path / "new" / "a.png")
    assert (tmp_path / "new" / "a.png").stat().st_size > 10_000
    for name in {"log_evidence", "action", "test_error"} & set(found):
        plots.draw_scores_over_width(found, score=name).figure.canvas.draw()
    selected = found.isel({name: 0 for name in ("width", "temperature", "seed") if name in found.dims})
    figure_of_solution(selected).savefig(tmp_path / "b.png")


def test_seeds_are_drawn_as_their_mean_with_its_standard_error():
    found = result("seeds")
    axes = plots.draw_scores_over_width(found, score="log_evidence")
    at = found["log_evidence"].sel(temperature=1.0, width=[20, 80])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), at.mean("seed"))
    heights = [np.ptp(segment[:, 1]) / 2 for segment in axes.containers[0].lines[2][0].get_segments()]
    np.testing.assert_allclose(heights, at.std("seed", ddof=1) / 3**0.5)
    assert len(plots.draw_scores_over_width(found, score="U_1").containers) == found.sizes["path_1"]


def test_scores_have_their_standard_errors_and_failures_are_crossed_out(sweep):
    failed = sweep.assign(converged=sweep["converged"].where(sweep["width"] != 80, 0))
    axes = plots.draw_scores_over_width(failed, score="test_log_loss")
    assert axes.get_ylabel() == "test log loss"
    assert legend(axes) == ["infinite width", "not a solution", "$T=1$", "$T=0.1$"]
    at = sweep.sel(width=[20, 80], temperature=0.1)
    drawn = np.array([segment[:, 1] for segment in axes.containers[1].lines[2][0].get_segments()])
    np.testing.assert_allclose(np.ptp(drawn, axis=1) / 2, at["test_log_loss_error"])
    np.testing.assert_allclose(drawn.mean(axis=1), at["test_log_loss"])
    crosses = [line.get_xydata() for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    np.testing.assert_allclose(crosses[1], [[80, at["test_log_loss"].sel(width=80)]])
    with pytest.raises(ValueError, match=r"score must be one of 'test_accuracy', .* got 'test_r_squared'"):
        plots.draw_scores_over_width(sweep, score="test_r_squared")
    only = plots.draw_scores_over_width(sweep.sel(temperature=[0.1]))
    assert only.get_legend().legend_handles[0].get_color() == only.lines[0].get_color()


def test_a_spectrum_has_eigenvalues_and_squared_cosines():
    data = random_data(0)
    kernel = bpkr.kernel(bpkr.Problem(ARCHITECTURE, bpkr.Data(data.features)), bpkr.gp_limit(ARCHITECTURE))
    alignment = bpkr.kernel_task_alignment(kernel, data.labels)
    axes = plots.draw_kernel_spectrum(alignment.eigenvalues, alignment.cosines)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), alignment.eigenvalues)
    (right,) = (other for other in axes.figure.axes if other is not axes)
    np.testing.assert_allclose([bar.get_height() for bar in right.patches], alignment.cosines**2)
    assert legend(axes) == ["eigenvalue (left)", "squared cosine (right)"]


# ---- orbits


@pytest.mark.parametrize("over", ["beta", "gamma"])
def test_marked_levels_are_drawn_over_any_parameter(over):
    visited = np.zeros((3, 2, 40), dtype=bool)
    visited[np.arange(3), 1, [10, 11, 12]] = True
    coordinates = {name: ("orbit", np.full(3, 0.3)) for name in ("beta", "gamma")}
    coordinates |= {over: ("orbit", [1.0, 1.5, 3.0]), "level": np.linspace(-1, 1, 40)}
    found = xr.Dataset({"visited": (("orbit", "component", "level"), visited)}, coordinates)
    axes = plots.draw_orbits(found, over=over, component=1)
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xydata(), np.transpose([[1.0, 1.5, 3.0], np.linspace(-1, 1, 40)[10:13]]))
    assert axes.get_xlabel() == over
    with pytest.raises(ValueError, match="component must be from 0 to 1, got -1"):
        plots.draw_orbits(found, over=over, component=-1)


# ---- comparisons


def compared(approaches=ALL, *, paths=2, outputs=1) -> xr.Dataset:
    """Return a result like that of `sampling.compare`, with random numbers."""
    rng = np.random.default_rng(0)
    rows = [f"{path + 1}:{output + 1}" for path in range(paths) for output in range(outputs)]
    shapes = {"U_1": (("path_1", "other_path_1"), (len(rows), len(rows))), "u": ((), ())}
    shapes |= {name: (("test_example", "output"), (7, outputs)) for name in ("mean", "variance")}
    found = {}
    for name, (axes, shape) in shapes.items():
        values = rng.normal(size=(len(approaches), *shape))
        values = values + np.swapaxes(values, 1, 2) if name == "U_1" else values
        is_sampled = np.isin(approaches, ("exact", "gibbs", "nuts")).reshape(-1, *[1] * len(shape))
        found[name] = xr.DataArray(values, dims=("approach", *axes))
        found[f"{name}_error"] = xr.DataArray(0.1 * is_sampled * np.ones_like(values), dims=("approach", *axes))
    if "exact" in approaches:
        for name in shapes:
            value, error = found[name], found[f"{name}_error"]
            there = list(approaches).index("exact")
            both = np.hypot(error, error.isel(approach=there))
            found[f"{name}_deviation"] = (value - value.isel(approach=there)) / both
    coordinates = {"approach": list(approaches), "path_1": rows, "other_path_1": rows}
    seconds = ("approach", np.arange(len(approaches)) / 2)
    return xr.Dataset(found, coordinates).assign(mixed=1, diagnosis="mixed", seconds=seconds)


@pytest.mark.quick(3)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(
    ("approaches", "paths"), [(ALL, 2), (ALL, 6), (("nuts", "gibbs"), 2), (("exact",), 2), (("gibbs", "exact"), 2)]
)
def test_comparisons_name_every_approach(approaches, paths, outputs, tmp_path):
    found = compared(approaches, paths=paths, outputs=outputs)
    axes = plots.draw_comparison(found)
    axes.figure.savefig(tmp_path / "a.png")
    assert len(legend(axes)) == len(approaches)
    if "exact" in approaches and len(approaches) > 1:
        differences = plots.draw_differences(found)
        differences.figure.savefig(tmp_path / "b.png")
        assert legend(differences) == ["order parameters", "mean outputs", "above: larger than chance"]


def test_points_are_the_numbers_with_bars_of_two_standard_errors():
    found = compared(("saddle", "exact", "gibbs"))
    axes = plots.draw_comparison(found)
    assert legend(axes) == ["saddle point", "order parameters, sampled", "weights, sampled by Gibbs"]
    line, _, (bars,) = axes.containers[2]
    expected = found["U_1"].sel(approach="gibbs").values[np.triu_indices(2)]
    np.testing.assert_allclose(line.get_ydata(), expected)
    spans = [segment[:, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(spans, np.stack([expected - 0.2, expected + 0.2], axis=1))
