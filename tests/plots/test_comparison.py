"""The figure and the table of a comparison, from small datasets made by hand."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import theorykit
from theorykit.plots import comparison
from theorykit.plots.style import use_style

ALL = ("saddle", "one_over_n", "exact", "gibbs", "nuts", "infinite_width")


def compared(approaches=ALL, *, paths=2, outputs=1, tests=7, left_out=(), not_mixed=()) -> xr.Dataset:
    """What `sampling.compare` returns, of numbers drawn at random."""
    draw = np.random.default_rng(0)
    rows = [f"{path + 1}:{output + 1}" for path in range(paths) for output in range(outputs)]
    several = outputs > 1
    shapes = {"U_1": (("path_1", "other_path_1"), (len(rows), len(rows))), "u": ((), ())}
    if several:
        shapes["u"] = (("output", "other_output"), (outputs, outputs))
    if tests:
        on_tests = (("test_example", "output"), (tests, outputs)) if several else (("test_example",), (tests,))
        shapes |= {"mean": on_tests, "variance": on_tests}
        if not several:
            shapes["accuracy"] = ((), ())
    found = {}
    for name, (axes, shape) in shapes.items():
        values = draw.normal(size=(len(approaches), *shape))
        if any(axis.startswith("other_") for axis in axes):
            values = values + np.swapaxes(values, 1, 2)
        is_sampled = np.isin(approaches, ("exact", "gibbs", "nuts")).reshape(-1, *[1] * len(shape))
        found[name] = xr.DataArray(values, dims=("approach", *axes))
        found[f"{name}_error"] = xr.DataArray(0.1 * is_sampled * np.ones_like(values), dims=("approach", *axes))
    if "exact" in approaches:
        there = list(approaches).index("exact")
        for name in shapes:
            error = np.hypot(found[f"{name}_error"], found[f"{name}_error"].isel(approach=there))
            found[f"{name}_deviation"] = (found[name] - found[name].isel(approach=there)) / error
    dataset = xr.Dataset(found, coords={"approach": list(approaches), "path_1": rows, "other_path_1": rows})
    dataset = dataset.where(~dataset["approach"].isin(left_out))
    sound = [int(approach not in (*left_out, *not_mixed)) for approach in approaches]
    diagnosis = ["mixed" if one else "it is said why" for one in sound]
    return dataset.assign(
        mixed=("approach", sound),
        diagnosis=("approach", diagnosis),
        seconds=("approach", np.arange(len(approaches)) / 2),
    )


@pytest.fixture
def panels():
    """The panels of a comparison's figure, by title."""

    def drawn(result: xr.Dataset):
        with use_style():
            figure = comparison.figure(result)
            figure.canvas.draw()
        return {axes.get_title(loc="left").split(":")[0]: axes for axes in figure.axes}

    yield drawn
    plt.close("all")


def names(axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


ENTRIES, OUTPUTS = "order parameters", "mean output on test examples"
DIFFERENCES = "differences from the exact posterior"


@pytest.mark.quick(3)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("paths", [2, 6])
def test_all_approaches_have_three_panels(outputs, paths, panels):
    drawn = panels(compared(paths=paths, outputs=outputs))
    assert list(drawn) == [ENTRIES, OUTPUTS, DIFFERENCES]
    assert len(names(drawn[OUTPUTS])) == len(ALL) - 1
    entries_one_by_one = paths * outputs < 5
    assert len(names(drawn[ENTRIES])) == len(ALL) - (not entries_one_by_one)
    if entries_one_by_one:
        count = paths * outputs
        assert len(drawn[ENTRIES].get_xticklabels()) == count * (count + 1) / 2


def test_dots_stand_where_the_numbers_are(panels):
    result = compared(("saddle", "exact", "gibbs"))
    entries = panels(result)[ENTRIES]
    _, gibbs = entries.containers
    line, _, (bars,) = gibbs
    expected = result["U_1"].sel(approach="gibbs").values[np.triu_indices(2)]
    np.testing.assert_allclose(line.get_ydata(), expected)
    spans = [segment[:, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(spans, np.stack([expected - 0.2, expected + 0.2], axis=1))


def test_differences_are_every_distinct_one(panels):
    result = compared(("exact", "gibbs"), outputs=2)
    filled, _, hollow, *_ = panels(result)[DIFFERENCES].lines
    order_parameters, mean = (np.sort(line.get_ydata()) for line in (filled, hollow))
    assert len(order_parameters) == 10 + 3 and len(mean) == 7 * 2
    np.testing.assert_allclose(mean, np.sort(np.abs(result["mean_deviation"].sel(approach="gibbs").values.ravel())))


@pytest.mark.parametrize(
    ("approaches", "options", "expected"),
    [
        (ALL, {"tests": 0}, [ENTRIES, DIFFERENCES]),
        (("saddle", "one_over_n", "gibbs"), {}, [ENTRIES, OUTPUTS]),
        (("nuts", "gibbs"), {"outputs": 2, "tests": 0, "paths": 6}, [ENTRIES]),
        (("saddle",), {"paths": 6}, [ENTRIES]),
        (("exact",), {}, [ENTRIES]),
        (("gibbs", "exact"), {}, [ENTRIES, OUTPUTS, DIFFERENCES]),
    ],
)
def test_there_are_panels_for_what_there_is(approaches, options, expected, panels):
    assert list(panels(compared(approaches, **options))) == expected


@pytest.mark.parametrize("approaches", [ALL, ("one_over_n", "gibbs", "saddle")])
def test_what_was_left_out_is_not_drawn(approaches, panels):
    result = compared(approaches, left_out=("one_over_n",))
    drawn = panels(result)
    assert not any("fluctuations" in name for axes in drawn.values() for name in names(axes))
    assert len(names(drawn[OUTPUTS])) == len(approaches) - 2
    assert theorykit.summary(result).loc["one_over_n"].iloc[0] == "-"
