"""Trajectories and orbit diagrams of self-attention, from the result of `theorykit.reproduce.self_attention_dynamics`.

Marks of orbit diagrams are drawn in pixels, where one is inked if any mark falls into it, so that none is lost.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ..checks import checked_arguments, checked_array, checked_sequence, checked_whole_number
from ..dynamics import regimes
from .phases import REGIME_COLORS, phase_diagram
from .results import draws_results
from .self_attention_dynamics_table import number_with_error, table
from .style import LIMITS, THEORY, save, use_style

__all__ = [
    "REGIME_COLORS",
    "draw_all",
    "draw_exponents",
    "draw_marks",
    "draw_regimes",
    "figure_paths",
    "ink",
    "orbit_diagram",
    "table",
    "thin",
    "trajectories",
]

# one a pattern, or one an exponent
_COLORS = (THEORY, *LIMITS)
SHOWN_TOKENS = 120
_SPECTRAL_BINS = 512
# columns and rows of an orbit diagram at most, and the ink of a pixel with few marks
_PIXELS = (1600, 420)
_LEAST_INK = 0.5
_INK = LinearSegmentedColormap.from_list("ink", ["white", "#7c9fd4", THEORY])


@checked_arguments
def figure_paths(folder: Path) -> tuple[Path, ...]:
    """The files that `draw_all` writes."""
    return tuple(folder / f"{name}.png" for name in ("trajectories", "diagram", "zoom", "phases"))


@draws_results
def draw_all(result: xr.DataTree, folder: Path) -> list[Path]:
    """Write the figures of trajectories, orbits and phases to `folder`, replacing what is there; their paths."""
    orbits, diagram, zoom = (result[name].to_dataset() for name in ("trajectories", "diagram", "zoom"))
    with use_style():
        diagrams = (orbit_diagram(diagram, orbits), orbit_diagram(zoom, orbits))
        figures = (trajectories(orbits), *diagrams, phase_diagram(result["phases"].to_dataset()))
        return [save(figure, path) for figure, path in zip(figures, figure_paths(folder), strict=True)]


@draws_results
def trajectories(orbits: xr.Dataset) -> Figure:
    """A row an orbit: its regime, the overlaps over time, a plane of them, a spectrum and an autocorrelation."""
    count = orbits.sizes["beta"]
    figure = plt.figure(figsize=(10, 0.7 + 1.45 * count))
    grid = figure.subplots(count, 5, squeeze=False, width_ratios=(1.7, 2.1, 1.15, 1.6, 1.6))
    for number, row in enumerate(grid):
        orbit = orbits.isel(beta=number)
        for axes, draw in zip(row, (_words, _time_series, _plane, _spectrum, _correlation), strict=True):
            draw(axes, orbit)
    titles = ("", "overlaps", "plane $m^o_1, m^o_2$", "amplitude of $m^o_1$", "autocorrelation")
    labels = ("", "token", "dark: once a context", "frequency (1/token)", "lag (tokens)")
    for first, last, title, label in zip(grid[0], grid[-1], titles, labels, strict=True):
        first.set_title(title)
        last.set_xlabel(label)
    for axes in grid[:-1, (1, 3, 4)].flat:
        axes.tick_params(labelbottom=False)
    grid[0, 1].legend(loc="lower right", bbox_to_anchor=(1.04, 0.95), ncols=3, handlelength=1, columnspacing=0.8)
    return figure


def _words(axes: Axes, orbit: xr.Dataset) -> None:
    """What sort of orbit it is, in words and numbers."""
    axes.axis("off")
    regime, period = orbit["regime"].item(), orbit["period"].item()
    lines = [
        *(_exponent(orbit, number) for number in (1, 2)),
        f"dimension {orbit['dimension'].item():.2f}",
        f"0-1 test {round(orbit['chaos'].item(), 2) + 0.0:.2f}",
    ]
    sort = f"{regime}, period {period}" if period else regime
    for height, text, look in (
        (1, rf"$\beta = {orbit['beta'].item():g}$", {"fontsize": 10}),
        (0.8, sort, {"color": REGIME_COLORS[regime], "fontweight": "bold"}),
        (0.62, "\n".join(lines), {"fontsize": 8, "linespacing": 1.35}),
    ):
        # the panel is as wide as they are, and need not be moved for them
        axes.text(0, height, text, va="top", transform=axes.transAxes, in_layout=False, **look)


def _exponent(orbit: xr.Dataset, number: int) -> str:
    value, error = (orbit[name].sel(number=number).item() for name in ("exponent", "exponent_error"))
    text = number_with_error(value, error).replace("+-", r"\pm").replace("inf", r"\infty")
    return rf"$\lambda_{number} = {text}$"


def _time_series(axes: Axes, orbit: xr.Dataset) -> None:
    shown = orbit["overlap"].isel(token=slice(SHOWN_TOKENS))
    for pattern, color in zip(shown["pattern"].values, _COLORS, strict=False):
        axes.plot(shown["token"], shown.sel(pattern=pattern), color=color, linewidth=0.8, label=f"$m^o_{pattern}$")
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.ticklabel_format(axis="y", scilimits=(-3, 3))


def _plane(axes: Axes, orbit: xr.Dataset) -> None:
    """All tokens pale, and those of one position dark: a section once a period of the driving."""
    size = 0.7 if orbit["period"] == 0 else 7
    for tokens, color in ((slice(None), "#c9d3e3"), (orbit["position"].values == 0, THEORY)):
        first, second = (orbit["overlap"].isel(pattern=number, token=tokens) for number in range(2))
        axes.scatter(first, second, s=size, color=color, linewidths=0, rasterized=True)
    axes.xaxis.set_major_locator(MaxNLocator(2))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.ticklabel_format(scilimits=(-3, 3))


def _spectrum(axes: Axes, orbit: xr.Dataset) -> None:
    """The highest amplitude in each of some 500 bins of frequency, the mean left out."""
    amplitude = orbit["amplitude"].isel(pattern=0).isel(frequency=slice(1, None))
    size = -(-amplitude.sizes["frequency"] // _SPECTRAL_BINS)
    binned = amplitude.coarsen(frequency=size, boundary="pad").max()
    axes.plot(binned["frequency"], binned, linewidth=0.6)
    axes.set(yscale="log", ylim=(1e-7, 1), yticks=[1e-6, 1e-4, 1e-2, 1], xlim=(0, 0.5))


def _correlation(axes: Axes, orbit: xr.Dataset) -> None:
    correlation = orbit["autocorrelation"].isel(pattern=0)
    axes.axhline(0, color="0.7", linewidth=0.6)
    axes.plot(correlation["lag"], correlation, linewidth=0.7)
    axes.set(ylim=(-1.05, 1.05), yticks=[-1, 0, 1])


@draws_results
def orbit_diagram(diagram: xr.Dataset, orbits: xr.Dataset) -> Figure:
    """What orbits visit over beta, a section of it, their leading exponents and regimes.

    Triangles stand at the values of beta of `orbits`.
    """
    figure = plt.figure(figsize=(10, 7.6))
    top, middle, bottom, strip = figure.subplots(4, 1, sharex=True, height_ratios=(2.2, 1.8, 1.5, 0.12))
    draw_marks(top, diagram["visited"].isel(pattern=0))
    draw_marks(middle, thin(diagram))
    top.set(title="what orbits visit; triangles: those in trajectories.png", ylabel="semantic overlap $m^o_1$")
    middle.set(title="where $m^o_2$ is zero, and all of periodic orbits", ylabel="semantic overlap $m^o_1$")
    draw_exponents(bottom, diagram)
    draw_regimes(strip, diagram)
    strip.set(xlabel=r"inverse temperature of the output, $\beta$")
    above = {"clip_on": False, "transform": top.get_xaxis_transform()}
    for beta in orbits["beta"].values:
        if diagram["beta"].values[0] <= beta <= diagram["beta"].values[-1]:
            top.plot(beta, 1, "v", color="black", markersize=4, **above)
    return figure


@draws_results
def thin(diagram: xr.Dataset) -> xr.DataArray:
    """Marks of the first pattern in its first section, but all of periodic orbits, which may miss the plane."""
    whole, section = diagram["visited"].isel(pattern=0), diagram["in_section"].isel(section=0)
    return xr.where(diagram["regime"] == regimes.PERIODIC, whole, section)


@draws_results
def draw_marks(axes: Axes, marks: xr.DataArray) -> None:
    """Marks (parameter, level) as pixels, on as much of the level axis as has any.

    The parameter's values must be evenly spaced.
    """
    (over,) = set(marks.dims) - {"level"}
    levels = np.flatnonzero(marks.any(over))
    low, high = (levels[0], levels[-1]) if levels.size else (0, marks.sizes["level"] - 1)
    margin = 1 + (high - low) // 30
    marks = marks.transpose(over, "level").isel(level=slice(max(low - margin, 0), high + margin + 1))
    side = [-(-size // most) for size, most in zip(marks.shape, _PIXELS, strict=True)]
    image = ink(marks.values, side)
    values, level = marks[over].values, marks["level"].values
    # the last pixels may be of marks beyond the last
    across, upwards = (pixels * marks_a_pixel for pixels, marks_a_pixel in zip(image.shape, side, strict=True))
    look = {"cmap": _INK, "vmin": 0, "vmax": 1, "origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    axes.imshow(image.T, extent=(*_edges(values, across), *_edges(level, upwards)), **look)
    axes.set(xlim=_edges(values, len(values)), ylim=_edges(level, len(level)))


@checked_arguments
def ink(marks: np.ndarray, side: Sequence[int]) -> np.ndarray:
    """Pixels of so many marks (beta, level) a side: 0 where there is none, else ink from 0.5 to 1 by their share."""
    marks = checked_array("marks", marks, "betas levels")
    side = [
        checked_whole_number(f"side[{i}]", size, least=1)
        for i, size in enumerate(checked_sequence("side", side, "sizes", 2))
    ]
    padded = np.pad(marks, [(0, -size % step) for size, step in zip(marks.shape, side, strict=True)])
    pixels = padded.reshape(padded.shape[0] // side[0], side[0], padded.shape[1] // side[1], side[1])
    share = pixels.mean(axis=(1, 3))
    return np.where(share > 0, _LEAST_INK + (1 - _LEAST_INK) * share, 0.0)


def _edges(centres: np.ndarray, count: int) -> tuple[float, float]:
    """Where the first of `count` evenly spaced cells begins and the last ends, from the centres of the first."""
    step = centres[1] - centres[0]
    return centres[0] - step / 2, centres[0] + (count - 0.5) * step


@draws_results
def draw_exponents(axes: Axes, diagram: xr.Dataset) -> None:
    """The leading exponents with their standard errors; of those far below, the lowest in a hundred, not all."""
    beta, finite = diagram["beta"], diagram["exponent"].where(np.isfinite(diagram["exponent"]))
    axes.axhline(0, color="0.5", linewidth=0.6)
    numbers = diagram["number"].values[: len(_COLORS)]
    for number, color in reversed(list(zip(numbers, _COLORS, strict=False))):
        bars = {"fmt": ".", "markersize": 1.6, "elinewidth": 0.4, "label": rf"$\lambda_{number}$"}
        axes.errorbar(
            beta, finite.sel(number=number), diagram["exponent_error"].sel(number=number), color=color, **bars
        )
    lowest, highest = float(finite.quantile(0.01)), float(finite.max())
    margin = 0.08 * (highest - lowest)
    axes.set(ylim=(lowest - margin, highest + margin), title="Lyapunov exponents", ylabel=r"$\lambda$ per token")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.97), ncols=len(numbers), reverse=True, markerscale=5)


@draws_results
def draw_regimes(axes: Axes, diagram: xr.Dataset) -> None:
    """A strip of the regimes' colours; their names are below the figure."""
    names = diagram["regime"].values
    colors = np.array([to_rgba(REGIME_COLORS[name]) for name in names])
    beta = diagram["beta"].values
    axes.imshow(colors[None], aspect="auto", extent=(*_edges(beta, len(beta)), 0, 1), interpolation_stage="rgba")
    axes.spines[:].set_visible(False)
    axes.set(yticks=[])
    patches = [Patch(color=color, label=name) for name, color in REGIME_COLORS.items() if name in names]
    axes.figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
