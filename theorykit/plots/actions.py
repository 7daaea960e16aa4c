"""Draw landscapes, curves and phase diagrams of custom actions."""

from __future__ import annotations

import itertools

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from sympy import Symbol

from ..symbolic import latex
from .results import draws_results
from .style import LIMITS, THEORY, _new_axes

_KINDS = {"minimum": ("o", THEORY), "maximum": ("^", LIMITS[0]), "saddle": ("s", LIMITS[1])}
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


@draws_results
def draw_landscape(landscape: xr.Dataset, axes: Axes | None = None) -> Axes:
    """Draw the action S as curves against one order parameter or as contours in two, with its stationary points.

    Args:
        landscape: the result of `saddle.landscape`.
        axes: where to draw. The default is new axes.
    """
    axes, values = _new_axes(axes), landscape[landscape.attrs["action"]]
    names = [str(name) for name in values.dims]
    labels = [landscape[name].attrs["long_name"] for name in names]
    places = [landscape[f"{name}_stationary"].values for name in names]
    is_map = names[0] in landscape.attrs["shown"] and len(names) == 2
    if is_map:
        image = axes.contourf(*(landscape[name] for name in names), values.T, levels=30, cmap="Greys_r", alpha=0.6)
        axes.contour(*(landscape[name] for name in names), values.T, levels=30, colors="0.4", linewidths=0.4)
        axes.figure.colorbar(image, ax=axes, label="action $S$")
    else:
        curves = values if len(names) == 2 else values.expand_dims("curve")
        shades = np.linspace(0.15, 0.85, len(curves))
        for curve, shade in zip(curves, shades, strict=True):
            label = f"{labels[0]} = {float(curve[names[0]]):g}" if len(names) == 2 else None
            axes.plot(landscape[names[-1]], curve, color=plt.get_cmap("viridis")(shade), label=label)
        places = [places[-1], landscape["action_stationary"].values]
    for kind, (marker, color) in _KINDS.items():
        of_kind = landscape["kind_stationary"].values == kind
        if of_kind.any():
            here = [each[of_kind] for each in places]
            axes.plot(*here, marker, color=color, markeredgecolor="white", label=kind, zorder=3)
    axes.set(xlabel=labels[0] if is_map else labels[-1], ylabel=labels[1] if is_map else "action $S$")
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
