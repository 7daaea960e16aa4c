"""Draw trajectories, orbit and phase diagrams of self-attention from `papers.self_attention_dynamics`."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from theorykit.checks import check_is_number, checked_arguments
from theorykit.dynamics import regimes
from theorykit.plots.panels import draw_marks
from theorykit.plots.phases import REGIME_COLORS, phase_diagram, share_that_differs
from theorykit.plots.results import draws_results
from theorykit.plots.style import LIMITS, THEORY, save, use_style

# One colour per pattern or per exponent.
_COLORS = (THEORY, *LIMITS)
SHOWN_TOKENS = 120
_SPECTRAL_BINS = 512
_HEAD = ("beta", "lambda_1", "lambda_2", "regime", "period", "K", "dimension", "reference")
# _FAR is in standard errors; _ROUNDING is half of the last digit of a reference.
_FAR, _ROUNDING = 5, 0.0005
_FOOTNOTE = (
    "* more than 5 standard errors from the reference: where attractors coexist, as at 1.26451 and 1.27,\n"
    "  rounding decides which one an orbit comes to"
)


@checked_arguments
def figure_paths(folder: Path) -> tuple[Path, ...]:
    """Return the files that `draw_all` writes."""
    return tuple(folder / f"{name}.png" for name in ("trajectories", "diagram", "zoom", "phases"))


@draws_results
def draw_all(result: xr.DataTree, folder: Path) -> list[Path]:
    """Write the figures of trajectories, orbits and phases to `folder`, replacing old files; return their paths."""
    orbits, diagram, zoom = (result[name].to_dataset() for name in ("trajectories", "diagram", "zoom"))
    with use_style():
        diagrams = (orbit_diagram(diagram, orbits), orbit_diagram(zoom, orbits))
        figures = (trajectories(orbits), *diagrams, phase_diagram(result["phases"].to_dataset()))
        return [save(figure, path) for figure, path in zip(figures, figure_paths(folder), strict=True)]


@draws_results
def trajectories(orbits: xr.Dataset) -> Figure:
    """Draw a row per orbit: its regime, the overlaps over time and in a plane, a spectrum and an autocorrelation."""
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
    """Describe the orbit in words and numbers."""
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
        # The panel is as wide as the text, so the layout can ignore the text.
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
    """Draw all tokens pale, and tokens at one position dark, which is a stroboscopic section."""
    size = 0.7 if orbit["period"] == 0 else 7
    for tokens, color in ((slice(None), "#c9d3e3"), (orbit["position"].values == 0, THEORY)):
        first, second = (orbit["overlap"].isel(pattern=number, token=tokens) for number in range(2))
        axes.scatter(first, second, s=size, color=color, linewidths=0, rasterized=True)
    axes.xaxis.set_major_locator(MaxNLocator(2))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.ticklabel_format(scilimits=(-3, 3))


def _spectrum(axes: Axes, orbit: xr.Dataset) -> None:
    """Draw the highest amplitude in each of about 500 frequency bins, without the mean."""
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
    """Draw orbits over beta, a section of them, their leading exponents and regimes.

    Triangles mark the values of beta in `orbits`.
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
    """Keep marks of the first pattern in the first section. Periodic orbits may not cross it, so keep all of theirs."""
    whole, section = diagram["visited"].isel(pattern=0), diagram["in_section"].isel(section=0)
    return xr.where(diagram["regime"] == regimes.PERIODIC, whole, section)


@draws_results
def draw_exponents(axes: Axes, diagram: xr.Dataset) -> None:
    """Draw the leading exponents with standard errors. The axis omits the lowest one percent."""
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
    """Draw a strip of the regimes' colours; their names are below the figure."""
    names = diagram["regime"].values
    colors = np.array([to_rgba(REGIME_COLORS[name]) for name in names])
    beta = diagram["beta"].values
    half = (beta[1] - beta[0]) / 2
    axes.imshow(colors[None], aspect="auto", extent=(beta[0] - half, beta[-1] + half, 0, 1), interpolation_stage="rgba")
    axes.spines[:].set_visible(False)
    axes.set(yticks=[])
    patches = [Patch(color=color, label=name) for name, color in REGIME_COLORS.items() if name in names]
    axes.figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))


@draws_results
def table(result: xr.DataTree) -> str:
    """Format one line per trajectory, and count the orbits of the diagrams in each regime.

    The last column has lambda_1 from another program, if available.
    """
    orbits = result["trajectories"].to_dataset()
    reference = _reference(result)
    rows = [_HEAD, *(_row(orbits.isel(beta=number), reference) for number in range(orbits.sizes["beta"]))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    notes = [_FOOTNOTE] if any(row[-1].endswith("*") for row in rows) else []
    counts = [_count(name, result[name].to_dataset()) for name in ("diagram", "zoom")]
    counts += [_phases(result["phases"].to_dataset())] if "phases" in result.children else []
    return "\n".join([*lines, *notes, "", *counts])


def number_with_error(value: float, error: float) -> str:
    """Format a number and its standard error, with two digits of the error, or up to six decimals."""
    check_is_number("value", value)
    check_is_number("error", error)
    if np.isneginf(value):
        return "-inf"
    decimals = 6 if error < 1e-5 else int(np.clip(1 - np.floor(np.log10(error)), 2, 6))
    return f"{round(value, decimals) + 0.0:.{decimals}f} +- {error:.{decimals}f}"


def _reference(result: xr.DataTree) -> dict[float, float]:
    if "reference" not in result.children:
        return {}
    known = result["reference"].to_dataset()
    return dict(zip(known["beta"].values.tolist(), known["exponent"].values.tolist(), strict=True))


def _row(orbit: xr.Dataset, reference: dict[float, float]) -> tuple[str, ...]:
    beta, regime, period, chaos, dimension = (
        orbit[name].item() for name in ("beta", "regime", "period", "chaos", "dimension")
    )
    exponents, errors = orbit["exponent"].values, orbit["exponent_error"].values
    found = [number_with_error(*pair) for pair in zip(exponents[:2], errors[:2], strict=True)]
    is_far = beta in reference and abs(exponents[0] - reference[beta]) > _FAR * errors[0] + _ROUNDING
    elsewhere = f"{reference[beta]:g}{'*' if is_far else ''}" if beta in reference else ""
    numbers = (str(period or "-"), f"{round(chaos, 2) + 0.0:.2f}", f"{dimension:.2f}")
    return f"{beta:g}", *found, regime, *numbers, elsewhere


def _count(name: str, diagram: xr.Dataset) -> str:
    beta = diagram["beta"].values
    return f"{name}, {len(beta)} values of beta from {beta[0]:g} to {beta[-1]:g}: {_in_regimes(diagram['regime'])}"


def _phases(phases: xr.Dataset) -> str:
    """Count the regimes by exponents, and by the published rule."""
    lines = [f"phases, {phases['distinct'].sel(pattern=1).size} pairs of gamma and beta"]
    if "regime" in phases:
        lines[0] += f": {_in_regimes(phases['regime'])}"
        lines.append(f"  the published rule says otherwise at {share_that_differs(phases):.1%} of those decided")
    return "\n".join([*lines, f"  by the published rule: {_in_regimes(phases['regime_by_levels'])}"])


def _in_regimes(found: xr.DataArray) -> str:
    names, counts = np.unique(found.values, return_counts=True)
    return ", ".join(f"{counts[i]} {names[i]}" for i in np.argsort(-counts))
