"""Draw theory and sampling from the result of `theorykit.bpkr.sampling.compare`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..summaries import MEASURE, SAMPLED, distinct, order_parameter_names, standard_errors_between
from .results import draws_results
from .style import LIMITS, THEORY, _new_axes, save, use_style

__all__ = ["draw", "figure"]

# Length of error bars in standard errors.
_BARS = 2
# Difference in standard errors that is marked as larger than chance.
_BEYOND_CHANCE = 4
# Largest number of entries of U_1 that are drawn side by side.
_ENTRY_BY_ENTRY = 10
# Width of the slot of an entry. Entries are at distance one.
_SLOT = 0.9


class _Look(NamedTuple):
    """Name and colour of an approach."""

    name: str
    color: str


_LOOKS = {
    "saddle": _Look("saddle point", THEORY),
    "one_over_n": _Look("saddle point and fluctuations", LIMITS[2]),
    "exact": _Look("exact posterior, sampled", "black"),
    "gibbs": _Look("weights, sampled by Gibbs", LIMITS[0]),
    "nuts": _Look("weights, sampled by NUTS", LIMITS[1]),
    "infinite_width": _Look("infinite width", "0.6"),
}


@draws_results
def draw(result: xr.Dataset, path: Path) -> Path:
    """Write the figure of a comparison to `path`. An existing file must have theorykit's mark, and is replaced."""
    with use_style():
        return save(figure(result), path)


@draws_results
def figure(result: xr.Dataset) -> Figure:
    """Draw U_1 entry by entry and, if available, predictions and differences in standard errors."""
    shown = _not_left_out(result)
    several = shown.sizes["approach"] > 1
    panels: list[Callable[[Axes, xr.Dataset], object]] = [_order_parameters]
    if "mean" in shown and several:
        panels.append(partial(_over_measure, name="mean"))
    if "U_1_deviation" in shown and several:
        panels.append(_differences)
    ratios = [1.5, *[1.0] * (len(panels) - 1)]
    drawn = plt.figure(figsize=(1.2 + 2.9 * sum(ratios), 3.6))
    grid = drawn.subplots(1, len(panels), squeeze=False, width_ratios=ratios)
    for axes, panel in zip(grid[0], panels, strict=True):
        panel(axes, shown)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return drawn


@draws_results
def draw_comparison(result: xr.Dataset, axes: Axes | None = None) -> Axes:
    """Draw every distinct entry of U_1. Theories are lines, and samplers are dots with bars of two standard errors.

    Args:
        result: the result of `bpkr.sampling.compare`. If there are many entries, they are drawn against the entries
            of the exact posterior, or of the first approach.
        axes: where to draw. The default is new axes.
    """
    axes = _new_axes(axes)
    _order_parameters(axes, result)
    axes.legend()
    return axes


def _order_parameters(axes: Axes, result: xr.Dataset) -> None:
    axes.set(title="order parameters: entries of $U_1$")
    result = _not_left_out(result)
    paths = result["path_1"].values
    pairs = [f"{paths[i]}\n{paths[j]}" for i, j in zip(*np.triu_indices(len(paths)), strict=True)]
    if len(pairs) > _ENTRY_BY_ENTRY:
        _over_measure(axes, result, "U_1")
        return
    places, looks = np.arange(len(pairs)), {approach: _LOOKS[approach] for approach in _approaches(result)}
    theories = [approach for approach in looks if approach not in SAMPLED]
    for number, approach in enumerate(theories):
        # Make later lines shorter, so that no line hides another.
        half, look = _SLOT / 2 * 0.65**number, looks[approach]
        values = distinct(result, approach, "U_1")
        axes.hlines(values, places - half, places + half, color=look.color, linewidth=1.6, label=look.name)
    samplers = [approach for approach in looks if approach in SAMPLED]
    for number, approach in enumerate(samplers, 1):
        values, errors = (distinct(result, approach, name) for name in ("U_1", "U_1_error"))
        beside = places + _SLOT * (number / (len(samplers) + 1) - 0.5)
        style = {"fmt": "o", "markersize": 3, "linewidth": 1, "color": looks[approach].color}
        axes.errorbar(beside, values, _BARS * errors, **style, label=looks[approach].name)
    axes.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    axes.set_xticks(places, pairs)
    axes.set(xlabel="pair of paths", ylabel="entry of $U_1$")


def _differences(axes: Axes, result: xr.Dataset) -> None:
    """Draw differences from the exact posterior in standard errors. Points are filled for order parameters."""
    others = [approach for approach in _approaches(result) if approach != MEASURE]
    kinds = {"order parameters": order_parameter_names(result), "mean outputs": ["mean"] if "mean" in result else []}
    for side, (kind, names) in zip((-1, 1), kinds.items(), strict=True):
        if not names:
            continue
        for place, approach in enumerate(others):
            sizes, color = standard_errors_between(result, approach, names), _LOOKS[approach].color
            face = color if side < 0 else "none"
            # Multiples of the golden ratio spread points evenly.
            spread = (np.arange(len(sizes)) * (np.sqrt(5) - 1) / 2) % 1 - 0.5
            at = place + 0.2 * side + 0.28 * spread
            axes.plot(at, sizes, "o", markersize=3, color=color, markerfacecolor=face, markeredgewidth=0.6)
        axes.plot([], [], "o", markersize=3, color="0.4", markerfacecolor="0.4" if side < 0 else "none", label=kind)
    axes.axhline(_BEYOND_CHANCE, color="0.4", linestyle="--", linewidth=1)
    # The axis is linear up to the threshold and logarithmic beyond. A sixth of its height is for the legend.
    axes.set_yscale("symlog", linthresh=_BEYOND_CHANCE)
    top = max(float(axes.dataLim.ymax), 2.0 * _BEYOND_CHANCE)
    end = _BEYOND_CHANCE * 10 ** (1.2 * (1 + np.log10(top / _BEYOND_CHANCE)) - 1)
    ticks = [0, 1, 2, 3, _BEYOND_CHANCE, *(10.0 ** np.arange(1, np.ceil(np.log10(top)) + 1))]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_xticks(range(len(others)), [fill(other.replace("_", " "), 8) for other in others])
    axes.set(xlim=(-0.6, len(others) - 0.4), ylim=(-0.2, end))
    axes.set(ylabel="|difference| / standard error", title="differences from the exact posterior")
    axes.legend(loc="upper right", handletextpad=0.1)


def _over_measure(axes: Axes, result: xr.Dataset, name: str) -> None:
    """Draw values of `name` against the exact posterior or the first approach, with the diagonal."""
    approaches = _approaches(result)
    measure = MEASURE if MEASURE in approaches else approaches[0]
    values, errors = (distinct(result, measure, each) for each in (name, f"{name}_error"))
    ends = [np.nanmin(values), np.nanmax(values)]
    axes.plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
    for approach in [approach for approach in approaches if approach != measure]:
        look = _LOOKS[approach]
        bars = {"yerr": _BARS * distinct(result, approach, f"{name}_error"), "xerr": _BARS * errors}
        shape = {"fmt": "o", "markerfacecolor": "none"} if approach in SAMPLED else {"fmt": "x", "zorder": 3}
        style = {"markersize": 3, "markeredgewidth": 0.8, "elinewidth": 0.4, "color": look.color}
        axes.errorbar(values, distinct(result, approach, name), **bars, **shape, **style, label=look.name)
    axes.set(xlabel=_LOOKS[measure].name, ylabel="the other approaches")
    if name == "mean":
        axes.set(title="mean output on test examples")


def _not_left_out(result: xr.Dataset) -> xr.Dataset:
    if "approach" not in result.dims:
        raise KeyError(
            "it has no axis approach: select approaches with a list, such as result.sel(approach=['saddle'])"
        )
    if "seed" in result.dims:
        raise KeyError("it has an axis seed: select one seed, such as result.isel(seed=0)")
    has_numbers = result["U_1"].notnull().any(set(result["U_1"].dims) - {"approach"})
    if not has_numbers.any():
        raise ValueError(f"nothing to draw: {'; '.join(map(str, np.unique(result['diagnosis'])))}")
    return result.isel(approach=np.flatnonzero(has_numbers))


def _approaches(result: xr.Dataset) -> list[str]:
    return result["approach"].values.tolist()
