"""Tests of figures and table of the one-shot experiment, from small fixed trees."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from papers.plots import one_shot
from papers.plots.results import over_seeds, variance_components
from theorykit.plots.style import LIMITS, THEORY, use_style

from .one_shot_results import AGREEMENT, UNSEEN, WIDTHS, networks, tree, variant


@pytest.fixture
def panels():
    """Yield a function that draws a figure and returns lists of axes by panel."""

    def found(figure: Figure):
        for part in figure.subfigs:
            title = part.get_suptitle()
            yield from [(title[0], part.axes)] if title else found(part)

    def drawn(stages: dict[str, xr.Dataset]) -> dict[str, list]:
        with use_style():
            figure = one_shot.figure(tree(some=stages)["some"])
            figure.canvas.draw()
        return dict(found(figure))

    yield drawn
    plt.close("all")


def mean_and_error(values) -> tuple[np.ndarray, np.ndarray]:
    values = np.asarray(values)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / len(values) ** 0.5


def cell(values: np.ndarray, sign: str = "") -> str:
    """Format one number per seed as in the table."""
    mean, error = mean_and_error(values)
    return f"{mean:{sign}.3f} +- {error:.3f}"


def assert_bars(container, values) -> None:
    """Check that points with error bars are means over the first axis of `values`, and standard errors."""
    line, _, (bars,) = container
    mean, error = mean_and_error(values)
    np.testing.assert_allclose(line.get_ydata().astype(float), mean)
    spans = [segment[:, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(spans, np.stack([mean - error, mean + error], axis=1))


@pytest.mark.slow
@pytest.mark.quick("heads3-2-unseen3")
@pytest.mark.parametrize(
    ("heads", "seeds", "unseen"),
    [((2, 2), 2, UNSEEN), ((4, 4), 1, UNSEEN), ((3, 3, 3), 3, ("digits", "mnist")), ((8, 8), 2, UNSEEN)],
)
def test_every_shape_has_all_panels_and_a_table(heads, seeds, unseen, panels):
    stages = variant(heads, seeds=seeds, unseen=unseen)
    drawn = panels(stages)
    counts = {letter: len(axes) for letter, axes in drawn.items()}
    assert counts == dict(b=1, c=1, d=6, e=2, f=2 + len(unseen))
    rows = [line for line in one_shot.table(tree(some=stages)).splitlines() if "+-" in line]
    # For one seed only sampling has an error.
    assert rows and (seeds > 1 or all("sampled" in row for row in rows))


@pytest.mark.slow
def test_accuracy_over_width_is_that_at_the_chosen_temperatures(panels):
    stages = variant(seeds=3)
    (axes,) = panels(stages)["b"]
    accuracy = stages["theory"]["accuracy"].values
    by_accuracy, by_evidence, unseen_by_accuracy, _ = axes.containers
    assert_bars(by_accuracy, accuracy[:, [0, 1, 2], [1, 0, 0], 0])
    assert_bars(by_evidence, accuracy[:, [0, 1, 2], [0, 0, 1], 0])
    assert_bars(unseen_by_accuracy, accuracy[:, [0, 1, 2], [1, 0, 0], 1])
    np.testing.assert_allclose(by_accuracy[0].get_xdata(), WIDTHS)
    assert axes.get_xscale() == "log" and by_evidence[0].get_markerfacecolor() == "white"
    levels = {
        (to_hex(line.get_color()), line.get_linestyle()): line.get_ydata()[0]
        for line in axes.lines
        if line.get_linestyle() in ("--", ":")
    }
    limit = stages["theory"]["gp_accuracy"].mean("seed").values
    expected = {(THEORY, "--"): limit[0, 0], (LIMITS[0], "--"): limit[0, 1]}
    expected |= {(THEORY, ":"): limit[1, 0], (LIMITS[0], ":"): limit[1, 1]}
    assert levels == pytest.approx(expected)
    bands = [(patch.get_y(), patch.get_y() + patch.get_height()) for patch in axes.patches]
    mean, error = mean_and_error(stages["theory"]["gp_accuracy"].values[:, 0])
    np.testing.assert_allclose(bands, np.stack([mean - error, mean + error], axis=1))


@pytest.mark.slow
def test_what_is_no_solution_is_crossed_out(panels):
    stages = variant()
    stages["theory"]["converged"][1, 0, 1] = False
    (axes,) = panels(stages)["b"]
    crosses = [line.get_xydata() for line in axes.lines if line.get_marker() == "x"]
    expected = stages["theory"]["accuracy"].values[:, 0, 1].mean(axis=0)
    np.testing.assert_allclose(crosses[0], [[10, expected[0]]])
    np.testing.assert_allclose(crosses[2], [[10, expected[1]]])
    assert len(crosses[1]) == len(crosses[3]) == 0
    text = one_shot.table(tree(some=stages))
    assert "\n    10*" in text and text.count("* not a solution") == 1


@pytest.mark.slow
def test_kernel_components_are_of_the_smallest_width_and_the_limit(panels):
    stages = variant()
    (axes,) = panels(stages)["c"]
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    np.testing.assert_allclose(heights, stages["kernel"]["alignment"].values[[0, 2], :50])


@pytest.mark.slow
def test_order_parameters_have_scales_of_their_own(panels):
    stages = variant(mixed=0)
    axes = panels(stages)["d"]
    between = stages["order_parameters"]
    for panel, matrix in zip(axes[:3], between["U_1"].values[0], strict=True):
        (image,) = panel.images
        np.testing.assert_allclose(image.get_array(), matrix)
        np.testing.assert_allclose(image.get_clim(), np.abs(matrix).max() * np.array([-1, 1]))
        assert len(panel.lines) == 2 and not panel.texts
        assert [label.get_text() for label in panel.get_xticklabels()] == ["11", "12", "21", "22"]
    theory, sampled, trained = (panel.get_title() for panel in axes[:3])
    assert theory == "theory\n$N=10$, $T=0.5$"
    assert sampled.startswith("sampled*, not mixed: ") and trained.startswith("trained: ")
    for origin, title in ((1, sampled), (2, trained)):
        shown = [mean_and_error(between[name].values[:, 0, origin]) for name in AGREEMENT]
        (correlation, bar), *signs = [(float(mean), float(error)) for mean, error in shown]
        in_all, in_blocks = (rf"{100 * mean:.0f} $\pm$ {100 * error:.0f} %" for mean, error in signs)
        assert title.endswith(
            rf"correlation {correlation:.3f} $\pm$ {bar:.3f}" f"\nsame sign {in_all}, in blocks {in_blocks}"
        )


def test_many_paths_are_named_by_their_first_head(panels):
    first, *_ = panels(variant((3, 3, 3)))["d"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["1.1", "1.2", "1.3"]
    np.testing.assert_allclose(first.get_yticks(), [4, 13, 22])
    assert sorted({line.get_ydata()[0] for line in first.lines[::2]}) == [8.5, 17.5]


def test_heads_of_two_digits_are_told_apart(panels):
    stages = variant((12, 2))
    names = [f"{first}.{second}" for first in range(1, 13) for second in (1, 2)]
    stages["order_parameters"] = stages["order_parameters"].assign_coords(path_1=names, other_path_1=names)
    first, *_ = panels(stages)["d"]
    assert [label.get_text() for label in first.get_yticklabels()] == [f"1.{head}" for head in range(1, 13)]


@pytest.mark.slow
def test_heads_stand_in_ascending_order_with_accuracy_without_each(panels):
    stages = variant()
    above, below = panels(stages)["e"]
    found = stages["pruning"]
    order = np.argsort(found["score"].values)
    np.testing.assert_allclose([bar.get_height() for bar in above.containers[0]], found["score"].values[order])
    single = found["single_accuracy"].sel(distribution="in distribution")
    assert_bars(below.containers[0], single.values[:, order])
    assert [label.get_text() for label in below.get_xticklabels()] == found["head"].values[order].tolist()
    whole = next(line for line in below.lines if line.get_label() == "whole network")
    np.testing.assert_allclose(whole.get_ydata(), 0.855)


@pytest.mark.slow
def test_accuracy_over_heads_removed_by_order_and_what_is_left(panels):
    stages = variant((3, 3))
    inside, outside, left = panels(stages)["f"]
    accuracy = stages["pruning"]["accuracy"]
    for axes, name in ((inside, "in distribution"), (outside, "digits")):
        assert axes.get_title() == name
        orders = [container.get_label() for container in axes.containers]
        assert orders == ["order: score", "order: leave one out", "order: random"]
        for container, order in zip(axes.containers, ("score", "leave one out", "random"), strict=True):
            assert_bars(container, accuracy.sel(distribution=name, removal=order))
    parameters, seconds = left.lines
    np.testing.assert_allclose(parameters.get_ydata(), 1 - 0.1 * np.arange(5))
    np.testing.assert_allclose(seconds.get_ydata(), 1 - 0.05 * np.arange(5))


def test_of_one_seed_sampling_alone_has_error_bars(panels):
    stages = variant(seeds=1)
    drawn = panels(stages)
    _, sampled, trained = (panel.get_title() for panel in drawn["d"][:3])
    correlation = stages["order_parameters"]["correlation"].values[0, 0, 1]
    assert rf"correlation {correlation:.3f} $\pm$ 0.010" in sampled and "pm" not in trained
    points = [container for axes in ("b", "f") for one in drawn[axes] for container in one.containers]
    assert not any(container.has_yerr for container in points)
    assert not drawn["b"][0].patches


@pytest.mark.slow
def test_figures_are_written_under_the_names_of_the_paper(tmp_path):
    names = ["L2H4", "L3H3", "L2H8", "L1H2"]
    result = tree(**{name: variant(seeds=1) for name in names})
    expected = [tmp_path / f"figure-{name}.png" for name in ("3", "6", "7", "L1H2")]
    assert list(one_shot.figure_paths(tmp_path, names)) == expected
    assert one_shot.figure_paths(tmp_path, names[:1]) == (expected[0],)
    few = xr.DataTree.from_dict({"/": xr.Dataset(), **{name: result[name] for name in names[2:]}})
    written = [tmp_path / "new" / path.name for path in expected[2:]]
    assert one_shot.draw_all(few, tmp_path / "new") == written
    assert all(path.stat().st_size > 10_000 for path in (tmp_path / "new").iterdir())
    assert not plt.get_fignums()


def test_the_table_has_accuracies_and_paired_differences():
    stages = variant(seeds=4)
    text = one_shot.table(tree(some=stages))
    accuracy, limit = stages["theory"]["accuracy"].values, stages["theory"]["gp_accuracy"].values
    lines = [line.split() for line in text.splitlines()]

    def row(values, sign="") -> list[str]:
        return " ".join(cell(column, sign) for column in np.moveaxis(values, 1, 0)).split()

    assert text.startswith("some: 4 paths, 1 trained network, 4 seeds; best validation accuracy 0.830, at step 200\n")
    assert [line for line in lines if line[0] == "10"] == [
        ["10", "0.5", *row(accuracy[:, 0, 1])],
        ["10", "-", "infinite", *row(accuracy[:, 0, 1] - limit[:, 0], "+")],
        ["10", "0.1", *row(accuracy[:, 0, 0])],
        ["10", "-", "infinite", *row(accuracy[:, 0, 0] - limit[:, 1], "+")],
    ]
    assert ["infinite", "0.1", *row(limit[:, 0])] in lines
    assert ["infinite", "0.5", *row(limit[:, 1])] in lines
    assert ["1000", "0.5", *row(accuracy[:, 2, 1])] in lines


def test_the_table_says_how_far_matrices_agree_and_what_not_to_rely_on():
    stages = variant(mixed=0)
    text = one_shot.table(tree(sound=variant(), unsound=stages))
    sound, unsound = text.split("\n\n")
    between = stages["order_parameters"]
    lines = [" ".join(line.split()) for line in unsound.splitlines()]
    for label, of, origin in (
        ("theory and sampled*", 0, 1),
        ("theory and trained", 0, 2),
        ("sampled and trained*", 1, 2),
    ):
        expected = " ".join(cell(between[name].values[:, of, origin]) for name in AGREEMENT)
        assert f"{label} {expected}" in lines
    assert any(line.startswith("theory 9.100 +- 0.000, sampled 8.200") for line in lines)
    accuracy = between["accuracy"].values
    assert f"trained {cell(accuracy[:, 2, 0])} {cell(accuracy[:, 2, 1])}" in lines
    gained = accuracy[:, 1] - accuracy[:, 0]
    assert f"sampled* - theory {cell(gained[:, 0], '+')} {cell(gained[:, 1], '+')}" in lines
    count = between.sizes["seed"]
    assert f"* not mixed at 1 of {count} runs; at the first of them: it is said why" in lines
    text = " ".join(unsound.split())
    # The error of a mean over independent chains is smaller by the root of their number.
    share = count**-0.5
    assert f"largest split R-hat {1.001 + 0.001 * count:.3f}, smallest effective sample size {701 - count}" in text
    assert f"sampling alone makes: correlation {0.01 * share:.4f}, same sign {0.01 * share:.4f}" in text
    assert f"strength of blocks {0.1 * share:.4f}, accuracy {0.02 * share:.4f}" in text
    deviations = stages["check"]["U_1_deviation"].values
    above = deviations[np.triu_indices(len(deviations))]
    assert f"of {above.size} entries the root mean square difference is {np.sqrt(np.mean(above**2)):.2f}" in text
    assert f"the largest {np.abs(above).max():.2f}; largest split R-hat 1.004" in text
    assert "not mixed: its chains differ" in text
    assert "*" not in sound and "not mixed" not in sound
    assert sound.startswith("sound: ") and unsound.startswith("unsound: ")


def test_the_table_has_a_line_a_head_and_how_many_can_go():
    stages = variant((3, 3))
    text = one_shot.table(tree(some=stages))
    found = stages["pruning"]
    order = np.argsort(found["score"].values)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    single = found["single_accuracy"].sel(distribution="in distribution").values
    start = next(i for i, line in enumerate(lines) if line.startswith("layer.head")) + 1
    assert lines[start : start + 6] == [
        f"{found['head'].values[i]} {found['score'].values[i]:.3f} {found['trained_score'].values[i]:.3f} "
        f"{cell(single[:, i])}"
        for i in order
    ]
    # Every head costs 0.004 at every seed.
    assert "2 of 6 can go at less than 0.01 lost accuracy (-0.008 +- 0.000 from 0.855 +- 0.005)," in text
    assert lines[-1] == "which saves 20 % of parameters and 10 % of inference time"


@pytest.mark.parametrize(
    ("accuracies", "count"),
    [((0.85, 0.84, 0.85, 0.85, 0.85), 0), ((0.85, 0.845, 0.8, 0.849, 0.7), 1), ((0.85, 0.86, 0.85, 0.86, 0.87), 4)],
)
def test_heads_can_go_as_long_as_none_before_them_costs_much(accuracies, count):
    stages = variant((3, 3), seeds=1)
    stages["pruning"]["accuracy"].loc[{"distribution": "in distribution", "removal": "score"}] = list(accuracies)
    assert f"{count} of 6 can go" in one_shot.table(tree(some=stages))


@pytest.mark.slow
def test_several_networks_are_drawn_and_told_apart(panels):
    stages = networks(3)
    drawn = panels(stages)
    accuracy = stages["theory"]["accuracy"].values[:, :, 0, 1, 0]
    points, _, (bars,) = drawn["b"][0].containers[0]
    assert points.get_ydata()[0] == pytest.approx(accuracy.mean())
    error = float(over_seeds(xr.DataArray(accuracy, dims=("training_seed", "seed")))[1])
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], accuracy.mean() + error * np.array([-1, 1]))
    # Heads of different networks do not correspond.
    order = np.argsort(stages["pruning"]["score"].values[0])
    np.testing.assert_allclose(
        [bar.get_height() for bar in drawn["e"][0].containers[0]], stages["pruning"]["score"].values[0, order]
    )
    (image,) = drawn["d"][0].images
    np.testing.assert_allclose(image.get_array(), stages["order_parameters"]["U_1"].values[0, 0, 0])
    text = one_shot.table(tree(some=stages))
    assert text.startswith("some: 4 paths, 3 trained networks, 2 seeds; best validation accuracy 0.830, 0.830, 0.830,")
    parts = variance_components(xr.DataArray(accuracy, dims=("training_seed", "seed")))
    shown = [f"{float(parts[name]) ** 0.5:.3f}" for name in ("training_seed", "seed", "rest")]
    assert ["width", "10", *shown] in [line.split() for line in text.splitlines()]
    alone = one_shot.table(tree(some=networks(1)))
    assert "standard deviation" not in alone and "networks differ is not in these errors" in alone
