"""Panels for figures of one's own: what they draw is in the result, in new axes or in those given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import theorykit
from tests.bpkr.sweeps.problems import ARCHITECTURE, random_data, swept
from tests.plots.test_comparison import compared
from theorykit import bpkr, plots
from theorykit.bpkr import sweeps
from theorykit.summaries import over_seeds


@pytest.fixture(scope="module")
def sweep() -> xr.Dataset:
    return swept(random_data(0), width=(20, 80, np.inf), temperature=(0.1, 1.0))


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def orbits(over="beta", values=(1.0, 1.5, 2.0)) -> xr.Dataset:
    """What an orbit diagram has to do with the drawing: marks at levels that the parameter's place determines."""
    visited = np.zeros((len(values), 2, 40), dtype=bool)
    visited[np.arange(len(values)), 1, 10 + np.arange(len(values))] = True
    coordinates = {name: ("orbit", np.full(len(values), 0.3)) for name in ("beta", "gamma", "epsilon")}
    coordinates[over] = ("orbit", np.array(values))
    return xr.Dataset(
        {"visited": (("orbit", "component", "level"), visited)}, {**coordinates, "level": np.linspace(-1, 1, 40)}
    )


@pytest.mark.slow
def test_order_parameters_are_the_colours_of_a_matrix(sweep):
    one = sweep.isel(width=0, temperature=0)
    axes = plots.draw_order_parameters(one)
    np.testing.assert_array_equal(axes.images[0].get_array(), one["U_1"])
    low, high = axes.images[0].get_clim()
    assert low == -high == -np.abs(one["U_1"]).max()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]
    with pytest.raises(ValueError, match="U_1 has several points, along width, temperature: select one"):
        plots.draw_order_parameters(sweep)
    with pytest.raises(ValueError, match=r"is not a result that draw_order_parameters can draw: .*U_2"):
        plots.draw_order_parameters(one, layer=2)


@pytest.mark.parametrize("draw", [plots.draw_scores_over_width, plots.draw_order_parameters_over_width])
def test_sweeps_are_drawn_into_the_axes_that_are_given(sweep, draw):
    _, (left, right) = plt.subplots(1, 2)
    assert draw(sweep, right) is right
    assert right.lines and not left.lines
    assert draw(sweep).figure is not right.figure


DRAWN = [plots.draw_scores_over_width, plots.draw_order_parameters_over_width, plots.sweep.figure]
SEVERAL = ("one width", "one temperature", "infinite width alone", "three classes", "two layers", "seeds", "one seed")


def result(kind: str) -> xr.Dataset:
    """A sweep of every kind that the pages describe."""
    options = {"width": (20, 80, np.inf), "temperature": (0.1, 1.0)}
    if kind == "one width":
        options["width"] = (20,)
    elif kind == "infinite width alone":
        options["width"] = (np.inf,)
    elif kind == "one temperature":
        options["temperature"] = (0.1,)
    if kind in ("seeds", "one seed"):
        seeds = range(3 if kind == "seeds" else 1)
        return sweeps.sweep(ARCHITECTURE, random_data, seeds=seeds, **options, progress=False)
    data, architecture = random_data(0), ARCHITECTURE
    if kind == "three classes":
        architecture = bpkr.Architecture(ARCHITECTURE.layers, 10.0, temperature=0.3, outputs=3)
        data = bpkr.Data.of_classes(data.features, np.arange(len(data.labels)) % 3, data.features[:3], [0, 1, 2])
    elif kind == "two layers":
        architecture = bpkr.Architecture((1, *ARCHITECTURE.layers), 10.0, temperature=0.3)
        options["width"] = ((10, 20, 30), (20, 20, 20))
    return sweeps.sweep(architecture, data, **options, progress=False)


def test_seeds_without_a_number_do_not_count():
    mean, error = over_seeds(xr.DataArray([1.0, 3.0, np.nan], dims="seed"))
    assert (float(mean), float(error)) == (2.0, 1.0)


@pytest.mark.quick("infinite width alone")
@pytest.mark.parametrize("kind", SEVERAL)
def test_every_sweep_is_drawn_by_every_function_and_saved(kind, tmp_path):
    found = result(kind)
    for draw in DRAWN:
        drawn = draw(found)
        (drawn if isinstance(drawn, plt.Figure) else drawn.figure).savefig(tmp_path / "a.png")
    for name in {"log_evidence", "action", "test_error"} & set(found):
        plots.draw_scores_over_width(found, score=name)
    assert len(theorykit.summary(found))
    selected = found.isel({name: 0 for name in ("width", "temperature", "seed") if name in found.dims})
    plots.draw_order_parameters(selected).figure.savefig(tmp_path / "b.png")


def test_seeds_are_drawn_as_their_mean_with_its_standard_error():
    found = result("seeds")
    axes = plots.draw_scores_over_width(found, score="log_evidence")
    at = found["log_evidence"].sel(temperature=0.1, width=[20, 80, np.inf])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), at.mean("seed")[:2])
    heights = [np.ptp(segment[:, 1]) / 2 for segment in axes.containers[0].lines[2][0].get_segments()]
    np.testing.assert_allclose(heights, at.std("seed", ddof=1) / 3**0.5)
    axes = plots.draw_order_parameters_over_width(found)
    assert len(axes.containers) == found.sizes["path_1"]


def test_scores_have_their_standard_errors(sweep):
    axes = plots.draw_scores_over_width(sweep)
    (bars, _) = (container.lines[2][0] for container in axes.containers)
    drawn = np.array([segment[:, 1] for segment in bars.get_segments()])
    at = sweep.sel(width=[20, 80, np.inf], temperature=0.1)
    np.testing.assert_allclose(np.ptp(drawn, axis=1) / 2, at["test_accuracy_error"])
    np.testing.assert_allclose(drawn.mean(axis=1), at["test_accuracy"])


def test_any_score_of_a_sweep_is_drawn(sweep):
    axes = plots.draw_scores_over_width(sweep, score="test_log_loss")
    assert axes.get_ylabel() == "test log loss"
    np.testing.assert_allclose(axes.lines[0].get_ydata(), sweep["test_log_loss"].sel(width=[20, 80], temperature=0.1))
    with pytest.raises(ValueError, match=r"score must be one of 'test_accuracy', .* got 'test_r_squared'"):
        plots.draw_scores_over_width(sweep, score="test_r_squared")


def test_a_comparison_names_every_approach():
    axes = plots.draw_comparison(compared(("saddle", "exact")))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["saddle point", "exact posterior, sampled"]


def test_a_spectrum_has_eigenvalues_and_squared_cosines():
    data = random_data(0)
    kernel = bpkr.kernel(bpkr.Problem(ARCHITECTURE, bpkr.Data(data.features)), bpkr.gp_limit(ARCHITECTURE))
    alignment = bpkr.kernel_task_alignment(kernel, data.labels)
    axes = plots.draw_kernel_spectrum(alignment.eigenvalues, alignment.cosines)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), alignment.eigenvalues)
    (right,) = (other for other in axes.figure.axes if other is not axes)
    np.testing.assert_allclose([bar.get_height() for bar in right.patches], alignment.cosines**2)
    with pytest.raises(ValueError, match="must be one for each of 12 eigenvalues"):
        plots.draw_kernel_spectrum(np.asarray(alignment.eigenvalues), np.ones(3))


def test_costs_of_heads_are_bars_beside_their_scores():
    data = random_data(0)
    problem = bpkr.Problem(ARCHITECTURE, data)
    costs = bpkr.head_costs(problem, bpkr.solve(problem), progress=False)
    for name, what in {"log_evidence": "lost log evidence", "prediction": "lost expected accuracy"}.items():
        axes = plots.draw_head_costs(costs, cost=name)
        heights = [bar.get_height() for bar in axes.patches]
        np.testing.assert_array_equal(heights, np.concatenate(getattr(costs, name)))
        (right,) = (other for other in axes.figure.axes if other is not axes)
        np.testing.assert_array_equal(right.lines[0].get_ydata(), np.concatenate(costs.scores))
        assert axes.get_ylabel() == what and len(axes.get_legend().get_texts()) == 3
    costs = bpkr.head_costs(
        bpkr.Problem(ARCHITECTURE, bpkr.Data(data.features, data.labels)), bpkr.solve(problem), progress=False
    )
    with pytest.raises(ValueError, match="needs costs of test examples"):
        plots.draw_head_costs(costs, cost="prediction")


@pytest.mark.parametrize("over", ["beta", "gamma", "epsilon"])
def test_orbits_are_drawn_over_any_parameter(over):
    axes = plots.draw_orbits(orbits(over), over=over, component=1)
    (image,) = axes.images
    assert axes.get_xlabel() == over and np.allclose(image.get_extent()[:2], (0.75, 2.25))
    rows, columns = np.nonzero(np.asarray(image.get_array()) > 0)
    assert columns.tolist() == sorted(columns) and len(set(rows)) == 3
    with pytest.raises(ValueError, match=f"values of over='{over}' must ascend in equal steps"):
        plots.draw_orbits(orbits(over, (1.0, 1.2, 2.0)), over=over)


def test_recorded_values_are_drawn_as_points():
    values = np.array([[[0.1], [0.2]], [[0.3], [0.4]]])
    result = xr.Dataset({"values": (("orbit", "step", "component"), values)}, {"parameter": ("orbit", [1.0, 3.0])})
    first, second = plots.draw_orbits(result).lines
    assert first.get_xydata().tolist() == [[1.0, 0.1], [3.0, 0.3]]
    assert second.get_xydata().tolist() == [[1.0, 0.2], [3.0, 0.4]]
