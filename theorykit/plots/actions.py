"""Draw landscapes, curves and phase diagrams of custom actions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from sympy import Expr, Symbol

from ..checks import by_name, checked_arguments
from ..saddle import Action
from ..symbolic import latex
from .results import draws_results
from .style import LIMITS, THEORY, _new_axes

# Number of points along each axis of a landscape.
_POINTS = 201
_LINES = {
    "coexistence": {"color": THEORY, "linestyle": "-"},
    "coexistence, metastable": {"color": THEORY, "linestyle": ":"},
    "coexistence, unknown": {"color": THEORY, "linestyle": "-."},
    "continuous transition": {"color": LIMITS[2], "linestyle": "-"},
    "spinodal": {"color": LIMITS[0], "linestyle": "--"},
    "critical point": {"color": "black", "marker": "o", "linestyle": ""},
    "triple point": {"color": "black", "marker": "^", "linestyle": ""},
    "tricritical point": {"color": "black", "marker": "D", "linestyle": ""},
}
# Place the legend above the axes, where nothing is drawn.
_ABOVE = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2}


@checked_arguments
def draw_landscape(action: Action, values: Mapping[Expr | str, Any], axes: Axes | None = None) -> Axes:
    """Draw the action S as curves against one order parameter, or as contours in two.

    Args:
        action: the action.
        values: all order parameters and parameters, by symbol or name. One or two order parameters have a range (low,
            high). With one range, one parameter may be a list, with one curve per entry.
        axes: where to draw. The default is new axes.
    """
    given = by_name("values", values)
    symbols = {symbol.name: symbol for symbol in action.symbols}
    ranges = [s.name for s in action.order_parameters if isinstance(s, Symbol) and np.ndim(given.get(s.name, 0)) == 1]
    lists = [s.name for s in action.parameters if isinstance(s, Symbol) and np.ndim(given.get(s.name, 0)) == 1]
    if len(ranges) not in (1, 2) or len(lists) > 2 - len(ranges):
        raise ValueError(
            "values must have a range (low, high) for one or two order parameters, and a list for at most one "
            f"parameter and one range; got ranges for {ranges} and lists for {lists}"
        )
    axes = _new_axes(axes)
    grid = {name: np.linspace(*given[name], _POINTS) for name in ranges}
    labels = {name: f"${latex(symbols[name])}$" for name in [*ranges, *lists]}
    if len(ranges) == 2:
        across, up = np.meshgrid(*grid.values())
        heights = action(given | dict(zip(ranges, (across, up), strict=True)))
        image = axes.contourf(across, up, heights, levels=30, cmap="Greys_r", alpha=0.6)
        axes.contour(across, up, heights, levels=30, colors="0.4", linewidths=0.4)
        axes.figure.colorbar(image, ax=axes, label="action $S$")
        axes.set(xlabel=labels[ranges[0]], ylabel=labels[ranges[1]])
        return axes
    curves = [{name: value} for name in lists for value in given[name]] or [{}]
    for curve, shade in zip(curves, np.linspace(0.15, 0.85, len(curves)), strict=True):
        label = ", ".join(f"{labels[name]} = {value:g}" for name, value in curve.items())
        color = plt.get_cmap("viridis")(shade)
        axes.plot(grid[ranges[0]], action(given | curve | grid), color=color, label=label or None)
    axes.set(xlabel=labels[ranges[0]], ylabel="action $S$")
    if lists:
        axes.legend(**_ABOVE)
    return axes


@draws_results
def draw_curve(curve: xr.Dataset, name: str, axes: Axes | None = None) -> Axes:
    """Draw a quantity along a curve against its parameter, with its events.

    The line is solid where cycles are stable, or where the index of stationary points is lowest, and otherwise dashed.

    Args:
        curve: the result of `curve.trace`, `saddle.follow` or `dynamics.follow`.
        name: a variable of the curve. Of an array, the first entry is drawn.
        axes: where to draw. The default is new axes.
    """
    axes, parameter = _new_axes(axes), curve.attrs["parameter"]
    values = curve[name].values.reshape(curve.sizes["point"], -1)[:, 0]
    at, kinds = curve[parameter].values, curve["event"].values
    solid = np.ones(len(at), bool)
    if "stable" in curve or "index" in curve:
        lowest = curve["stable"] if "stable" in curve else curve["index"] == curve["index"].min()
        solid = lowest.values | (kinds != "")
    axes.plot(at, values, "--", color=THEORY, linewidth=0.8)
    axes.plot(at, np.where(solid, values, np.nan), color=THEORY)
    for number, kind in enumerate(sorted(set(kinds) - {""})):
        here = kinds == kind
        axes.plot(at[here], values[here], "oDsx^v"[number % 6], color="black", markerfacecolor="white", label=kind)
    axes.set(xlabel=f"${latex(Symbol(parameter))}$", ylabel=f"${latex(Symbol(name))}$")
    if set(kinds) - {""}:
        axes.legend(**_ABOVE)
    return axes


@draws_results
def draw_phase_diagram(diagram: xr.Dataset, axes: Axes | None = None) -> Axes:
    """Draw the lines of a phase diagram, and the critical points at their ends.

    Args:
        diagram: the result of `saddle.phase_diagram`.
        axes: where to draw. The default is new axes.
    """
    axes, (across, up) = _new_axes(axes), (diagram.attrs["across"], diagram.attrs["up"])
    kinds, lines, stability = (diagram[name].values for name in ("kind", "line", "stability"))
    known = set()
    for line in np.unique(lines):
        part = np.flatnonzero(lines == line)
        kind = str(kinds[part[0]])
        # Split a coexistence line where its minima become metastable.
        changes = np.flatnonzero(stability[part][:-1] != stability[part][1:]) + 1
        for begin, end in itertools.pairwise([0, *changes.tolist(), len(part)]):
            state = stability[part[begin]]
            name = kind if state == "stable" else f"{kind}, {state}"
            shown, label = part[max(begin - 1, 0) : end], None if name in known else name
            places = diagram[across].values[shown], diagram[up].values[shown]
            axes.plot(*places, **_LINES[name], label=label, clip_on=False)
            known.add(name)
    low, high, bottom, top = diagram.attrs["ranges"]
    axes.set(xlim=(low, high), ylim=(bottom, top), xlabel=f"${latex(Symbol(across))}$", ylabel=f"${latex(Symbol(up))}$")
    if known:
        axes.legend(**_ABOVE)
    return axes
