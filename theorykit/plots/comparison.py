"""Draw theory and sampling, the result of `theorykit.bpkr.sampling.compare`."""

import re

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from .style import ABOVE, LIMITS, THEORY, _new_axes

# A difference in standard errors that is larger than chance.
_CHANCE = 4
_LOOKS = {
    "saddle": ("saddle point", THEORY),
    "one_over_n": ("saddle point and fluctuations", LIMITS[2]),
    "exact": ("order parameters, sampled", "black"),
    "gibbs": ("weights, sampled by Gibbs", LIMITS[0]),
    "nuts": ("weights, sampled by NUTS", LIMITS[1]),
    "infinite_width": ("infinite width", "0.6"),
}


def draw_comparison(result: xr.Dataset, axes: Axes | None = None) -> Axes:
    """Draw the distinct entries of U_1, with bars of two standard errors.

    Args:
        result: the result of `bpkr.sampling.compare`.
        axes: where to draw, by default new axes. They are returned.
    """
    axes, result = _new_axes(axes, "result", result, "approach", "bpkr.sampling.compare"), _not_left_out(result)
    paths, approaches = result["path_1"].values, result["approach"].values.tolist()
    pairs = [f"{paths[i]}\n{paths[j]}" for i, j in zip(*np.triu_indices(len(paths)), strict=True)]
    places, step = np.arange(len(pairs)), 1 + len(pairs) // 13
    for beside, approach in zip(np.linspace(-0.3, 0.3, len(approaches)), approaches, strict=True):
        label, color = _LOOKS[approach]
        bars = 2 * _distinct(result, approach, "U_1_error")
        values = _distinct(result, approach, "U_1")
        axes.errorbar(places + beside, values, bars, fmt="o", markersize=3, color=color, label=label)
    axes.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    axes.set_xticks(places[::step], pairs[::step])
    axes.set(xlabel="pair of paths", ylabel="entry of $U_1$,\nbars: two standard errors")
    axes.legend(**ABOVE)
    return axes


def draw_differences(result: xr.Dataset, axes: Axes | None = None) -> Axes:
    """Draw differences from sampled order parameters in standard errors.

    Args:
        result: the result of `bpkr.sampling.compare`, with the approach "exact".
        axes: where to draw, by default new axes. They are returned.
    """
    axes, result = _new_axes(axes, "result", result, "approach", "bpkr.sampling.compare"), _not_left_out(result)
    others = [approach for approach in result["approach"].values.tolist() if approach != "exact"]
    overlaps = [str(name) for name in result.data_vars if re.fullmatch(r"U_\d+|u", str(name))]
    kinds = [("order parameters", "o", overlaps)]
    kinds += [("mean outputs", "x", ["mean"])] if "mean" in result else []
    for side, (kind, marker, names) in zip((-0.2, 0.2) if len(kinds) == 2 else (0.0,), kinds, strict=True):
        for place, approach in enumerate(others):
            sizes = np.concatenate([np.abs(_distinct(result, approach, f"{name}_deviation")) for name in names])
            sizes = sizes[np.isfinite(sizes)]
            # Multiples of the golden ratio spread points evenly.
            at = place + side + 0.3 * (np.arange(len(sizes)) * (np.sqrt(5) - 1) / 2 % 1 - 0.5)
            axes.plot(at, sizes, marker, markersize=3, color=_LOOKS[approach][1])
        axes.plot([], [], marker, markersize=3, color="0.5", label=kind)
    axes.axhline(_CHANCE, color="0.4", linestyle="--", linewidth=1, label="above: larger than chance")
    # Linear up to the dashed line, and logarithmic above.
    axes.set_yscale("symlog", linthresh=_CHANCE)
    top = max(float(axes.dataLim.ymax), 2 * _CHANCE)
    axes.set_yticks([0, 1, 2, 3, _CHANCE, 10, 30, 100, 1000], [0, 1, 2, 3, _CHANCE, 10, 30, 100, 1000])
    axes.set_xticks(range(len(others)), [_LOOKS[each][0].replace(" ", "\n") for each in others])
    axes.set(ylim=(-0.2, 1.1 * top), ylabel="difference in standard errors\n(logarithmic above 4)")
    axes.legend(**ABOVE)
    return axes


def _not_left_out(result: xr.Dataset) -> xr.Dataset:
    """Select the approaches with numbers."""
    has_numbers = result["U_1"].notnull().any(set(result["U_1"].dims) - {"approach"})
    if not has_numbers.any():
        raise ValueError(f"nothing to draw: {'; '.join(map(str, np.unique(result['diagnosis'])))}")
    return result.isel(approach=np.flatnonzero(has_numbers))


def _distinct(result: xr.Dataset, approach: str, name: str) -> np.ndarray:
    """Return the entries of `name`, only the distinct ones of a symmetric matrix."""
    array = result[name].sel(approach=approach)
    is_symmetric = any(str(axis).startswith("other_") for axis in array.dims)
    return array.values[np.triu_indices(len(array))] if is_symmetric else array.values.ravel()
