"""Draw landscapes and phase diagrams of actions, and orbits of maps."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from sympy import Expr, Symbol

from ..checks import by_name, checked_instance, checked_sequence, checked_whole_number
from ..saddle import Action
from ..symbolic.documents.rendering import latex
from .style import ABOVE, LIMITS, THEORY, _new_axes, _shades

_LINES = {
    "coexistence": {"color": THEORY, "linestyle": "-"},
    "coexistence, metastable": {"color": THEORY, "linestyle": ":"},
    "continuous transition": {"color": LIMITS[2], "linestyle": "-"},
    "spinodal": {"color": LIMITS[0], "linestyle": "--"},
    "critical point": {"color": "black", "marker": "o", "linestyle": ""},
    "triple point": {"color": "black", "marker": "^", "linestyle": ""},
    "tricritical point": {"color": "black", "marker": "D", "linestyle": ""},
}


def draw_landscape(action: Action, values: Mapping[Expr | str, Any], axes: Axes | None = None) -> Axes:
    """Draw the action S as curves against one order parameter, or as contours in two.

    Args:
        action: the action.
        values: all order parameters and parameters, by symbol or name. One or two order
            parameters have a range (low, high). With one range, one parameter may be a
            list, with one curve per entry.
        axes: where to draw, by default new axes. They are returned.

    Raises:
        ValueError: no order parameter has a range, or too many symbols have several values.
    """
    given = by_name("values", values)
    several = [name for name, value in given.items() if np.ndim(value) == 1]
    order_parameters = {str(symbol) for symbol in checked_instance("action", action, Action).order_parameters}
    ranges = [name for name in several if name in order_parameters]
    lists = [name for name in several if name not in order_parameters]
    if len(ranges) not in (1, 2) or len(several) > 2:
        raise ValueError(f"values must have a range for one or two order parameters, got several for {several}")
    axes = _new_axes(axes)
    grid = {name: np.linspace(*checked_sequence(name, given[name], "ends", 2), 201) for name in ranges}
    if len(ranges) == 2:
        across, up = np.meshgrid(*grid.values())
        heights = action(given | dict(zip(ranges, (across, up), strict=True)))
        image = axes.contourf(across, up, heights, levels=30, cmap="Greys_r", alpha=0.6)
        axes.contour(across, up, heights, levels=30, colors="0.4", linewidths=0.4)
        axes.figure.colorbar(image, ax=axes, label="action $S$")
        axes.set(xlabel=_name(ranges[0]), ylabel=_name(ranges[1]))
        return axes
    curves = [{name: value} for name in lists for value in given[name]] or [{}]
    for curve, color in zip(curves, _shades(len(curves)), strict=True):
        label = ", ".join(f"{_name(name)} = {value:g}" for name, value in curve.items())
        axes.plot(grid[ranges[0]], action(given | curve | grid), color=color, label=label or None)
    axes.set(xlabel=_name(ranges[0]), ylabel="action $S$")
    if lists:
        axes.legend(**ABOVE)
    return axes


def draw_phase_diagram(diagram: xr.Dataset, axes: Axes | None = None) -> Axes:
    """Draw the lines of a phase diagram, and the critical points at their ends.

    Args:
        diagram: the result of `saddle.phase_diagram`.
        axes: where to draw, by default new axes. They are returned.
    """
    axes = _new_axes(axes, "diagram", diagram, "stability", "saddle.phase_diagram")
    across, up = diagram.attrs["across"], diagram.attrs["up"]
    kinds, lines, stability = (diagram[name].values for name in ("kind", "line", "stability"))
    known = set()
    for line in np.unique(lines):
        part = np.flatnonzero(lines == line)
        # Split a coexistence line where its minima become metastable.
        changes = np.flatnonzero(stability[part][:-1] != stability[part][1:]) + 1
        for begin, end in itertools.pairwise([0, *changes.tolist(), len(part)]):
            state, kind = stability[part[begin]], str(kinds[part[0]])
            name = kind if state == "stable" else f"{kind}, {state}"
            shown, label = part[max(begin - 1, 0) : end], None if name in known else name
            places = diagram[across].values[shown], diagram[up].values[shown]
            axes.plot(*places, **_LINES[name], label=label, clip_on=False)
            known.add(name)
    low, high, bottom, top = diagram.attrs["ranges"]
    axes.set(xlim=(low, high), ylim=(bottom, top), xlabel=_name(across), ylabel=_name(up))
    if known:
        axes.legend(**ABOVE)
    return axes


def draw_orbits(diagram: xr.Dataset, axes: Axes | None = None, *, over: str = "parameter", component: int = 0) -> Axes:
    """Draw the values or levels that orbits visit against a parameter.

    Args:
        diagram: the result of `dynamics.orbits`.
        axes: where to draw, by default new axes. They are returned.
        over: name of the parameter.
        component: number of the recorded value, from 0.
    """
    name = "visited" if "visited" in getattr(diagram, "data_vars", ()) else "values"
    axes = _new_axes(axes, "diagram", diagram, name, "dynamics.orbits")
    component = checked_whole_number("component", component, least=0, most=diagram.sizes["component"] - 1)
    places, values = diagram[over].values, diagram[name].isel(component=component)
    if name == "visited":
        orbits, levels = np.nonzero(values.transpose("orbit", "level").values)
        places, values = places[orbits], diagram["level"].values[levels]
    axes.plot(places, values, ".", markersize=1, markeredgewidth=0, color=THEORY, rasterized=True)
    axes.set(xlabel=over, ylabel="recorded value")
    return axes


def _name(name: str) -> str:
    return f"${latex(Symbol(name))}$"
