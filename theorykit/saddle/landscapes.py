"""S over one or two of its order parameters, labelled, with the stationary points of what is shown."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from sympy import Expr, MatrixSymbol

from ..checks import Count, checked_arguments
from ..compilation import jit
from ..curve.tracing import checked_bounds
from ..symbolic import latex
from .action import Action, named
from .bound_action import Values

# Newton's method for stationary points, from cells of the grid: number of steps, and largest distance in cells.
_STEPS, _CELLS = 30, 2.0
# Points closer than this, in cells, count as one.
_SAME = 1e-3


@checked_arguments
def landscape(action: Action, values: Values, points: Count = 201) -> xr.Dataset:
    """Evaluate S over a range of one or two order parameters, and find the stationary points in it.

    Args:
        action: The action.
        values: All order parameters and parameters, by symbol or name. One or two order parameters have a range
            (low, high); others are held at a value. With one range, one parameter may be a list of numbers.
        points: Number of grid points along each range.

    Returns:
        `action` over the grid, and for each `stationary` point its place, its `action` and its `kind`, "minimum",
        "maximum" or "saddle", as variables that end in `_stationary`. Points are stationary in the order parameters
        with a range, while the others are held fixed.
    """
    given = named("values", values, action.symbols)
    shown = [
        s for s in action.order_parameters if not isinstance(s, MatrixSymbol) and np.ndim(given.get(s.name, 0)) == 1
    ]
    lists = [s for s in action.parameters if not isinstance(s, MatrixSymbol) and np.ndim(given.get(s.name, 0)) == 1]
    if not 1 <= len(shown) <= 2 or len(lists) > 2 - len(shown):
        raise ValueError(
            "values must have a range (low, high) for one or two order parameters, and with one range at most one "
            f"parameter may be a list; ranges are given for {_listed(shown)}, lists for {_listed(lists)}"
        )
    limits = [checked_bounds(f"values[{symbol}]", given[symbol.name]) for symbol in shown]
    axes = {symbol.name: np.asarray(given[symbol.name], float) for symbol in lists}
    axes |= {symbol.name: np.linspace(*pair, points) for symbol, pair in zip(shown, limits, strict=True)}
    grid = dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
    free = lambda name: free_name(name, {symbol.name for symbol in action.symbols})  # noqa: E731
    names, found = [symbol.name for symbol in shown], []
    held = {name: value for name, value in given.items() if name not in axes}
    for value in axes[lists[0].name] if lists else [None]:
        others = held if value is None else {**held, lists[0].name: value}
        for place, kind in _stationary(action, others, names, [axes[name] for name in names]):
            at = dict(zip(names, place, strict=True))
            found.append({**({lists[0].name: value} if lists else {}), **at, "S": action(**others, **at), "kind": kind})
    data: dict[str, Any] = {free("action"): (tuple(axes), np.asarray(action(**held, **grid)))}
    for name in axes:
        data[f"{name}_stationary"] = free("stationary"), np.array([float(each[name]) for each in found])
    data["action_stationary"] = free("stationary"), np.array([float(each["S"]) for each in found])
    data["kind_stationary"] = free("stationary"), np.array([each["kind"] for each in found], str)
    result = xr.Dataset(data, coords=axes, attrs={"action": free("action"), "shown": names})
    for symbol in (*shown, *lists):
        result[symbol.name].attrs["long_name"] = f"${latex(symbol)}$"
    return result


def free_name(name: str, taken: Collection[str]) -> str:
    """Append underscores to `name` until no symbol of an action has this name."""
    return free_name(f"{name}_", taken) if name in taken else name


def _listed(symbols: list[Expr]) -> str:
    return ", ".join(symbol.name for symbol in symbols) or "none"


def _stationary(action: Action, held: dict[str, Any], names: list[str], axes: list[np.ndarray]):
    """Find stationary points in `names`, with kinds, by Newton's method from cells in which all slopes change sign."""

    @jit
    def slopes(places):
        return jax.vmap(jax.grad(at))(places)

    @jit
    def solved(places):
        def step(_, place):
            return place - jnp.linalg.solve(jax.hessian(at)(place), jax.grad(at)(place))

        ends = jax.vmap(lambda place: jax.lax.fori_loop(0, _STEPS, step, place))(places)
        return ends, jax.vmap(lambda end: jnp.linalg.eigvalsh(jax.hessian(at)(end)))(ends)

    def at(place):
        return action(**held, **dict(zip(names, place, strict=True)))

    corners = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    steps = np.array([axis[1] - axis[0] for axis in axes])
    slope = np.asarray(slopes(corners.reshape(-1, len(axes)))).reshape(corners.shape)
    around = np.stack(
        [
            slope[tuple(slice(by, by - 1 or None) for by in offset)]
            for offset in itertools.product((0, 1), repeat=len(axes))
        ]
    )
    candidates = np.all((around.min(0) <= 0) & (around.max(0) >= 0), axis=-1)
    starts = corners[tuple(slice(-1) for _ in axes)][candidates] + steps / 2
    found: list[np.ndarray] = []
    if not len(starts):
        return
    for start, end, curvatures in zip(starts, *map(np.asarray, solved(starts)), strict=True):
        near = np.all(np.abs(end - start) <= _CELLS * steps)
        inside = all(axis[0] <= x <= axis[-1] for axis, x in zip(axes, end, strict=True))
        if near and inside and not any(np.all(np.abs(end - each) <= _SAME * steps) for each in found):
            found.append(end)
            yield end, "minimum" if curvatures[0] > 0 else "maximum" if curvatures[-1] < 0 else "saddle"
