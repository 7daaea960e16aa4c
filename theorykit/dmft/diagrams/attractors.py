"""Coexisting attractors: what orbits of one network at the same parameters settle to, by where they start."""

from pathlib import Path

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from ... import dmft
from ...checks import checked_instance, checked_key, checked_number, checked_whole_number
from ...settings import usual_settings
from ...workers import Workers
from ..map.self_attention import checked_fit
from .blocks import ORBIT
from .orbits import OrbitSettings, checked_settings, orbit_diagram


def nearby_windows(window: dmft.Window, count: int, spread: float, *, key: PRNGKeyArray) -> dmft.Window:
    """`count` windows, one batch, whose attentions differ from those of `window` by normal numbers of width `spread`.

    Raises `TypeError` or `ValueError` for a count below one, a width below zero, and a window that is a batch.
    """
    checked_instance("window", window, dmft.Window)
    checked_whole_number("count", count, least=1)
    checked_number("spread", spread, least=0.0)
    checked_key("key", key)
    if window.batch_shape:
        raise ValueError(f"window must be a single one, got a batch of shape {window.batch_shape}")
    noise = jax.random.normal(key, (*window.attention.shape, count))
    return dmft.Window(window.attention[..., None] + spread * noise, window.position)


def random_windows(model: dmft.SelfAttention, count: int, *, key: PRNGKeyArray) -> dmft.Window:
    """`count` windows, one batch, of attentions uniform between -1 and 1; `TypeError` or `ValueError` as there."""
    checked_instance("model", model, dmft.SelfAttention)
    checked_whole_number("count", count, least=1)
    checked_key("key", key)
    shape = (model.context, model.patterns, count)
    return dmft.Window(jax.random.uniform(key, shape, minval=-1.0, maxval=1.0), 0)


@usual_settings()
def coexisting_attractors(
    model: dmft.SelfAttention,
    parameters: dmft.Parameters,
    windows: dmft.Window,
    settings: OrbitSettings | None = None,
    *,
    tolerance: float = 0.01,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.Dataset:
    """The orbit diagram of a batch of starts at single numbers of `parameters`, and which of them end up alike.

    - `attractor` (orbit): the number, from 1, of the attractor; that with most starts is the first. Two orbits are on
      one if the lowest and highest value of every output overlap, and the leading exponent, differ by less than
      `tolerance` (or two errors of the exponent).
    - `share`, `share_error` (basin): of starts that end there, and `typical` (basin), an orbit that does.

    `folder`, `executor`, `progress` and errors are as in `orbit_diagram`.
    """
    settings = checked_settings(OrbitSettings() if settings is None else settings, model, parameters)
    checked_number("tolerance", tolerance, least=0.0)
    if parameters.batch_shape:
        raise ValueError(f"starts are compared at one set of parameters, got some of shape {parameters.batch_shape}")
    checked_fit("windows", windows, dmft.Window, model)
    if len(windows.batch_shape) != 1:
        raise ValueError(f"windows are a batch of one axis, got one of shape {windows.batch_shape}")
    (count,) = windows.batch_shape
    every = dmft.Parameters(np.full(count, parameters.beta), parameters.gamma, parameters.epsilon)

    def begin(model: dmft.SelfAttention, parameters: dmft.Parameters) -> dmft.State:
        return dmft.state_from_window(model, parameters, windows)

    options = {"folder": folder, "executor": executor, "label": "starts", "progress": progress}
    found = orbit_diagram(model, every, begin, settings, **options)
    groups = sorted(_groups(found, tolerance), key=len, reverse=True)
    numbers = np.zeros(count, dtype=int)
    for number, members in enumerate(groups, 1):
        numbers[members] = number
    shares = np.array([len(members) / count for members in groups])
    return found.assign(
        attractor=(ORBIT, numbers),
        share=("basin", shares),
        share_error=("basin", np.sqrt(shares * (1 - shares) / count)),
        typical=("basin", np.array([members[0] for members in groups])),
        basin=np.arange(1, len(groups) + 1),
    )


def _groups(found: xr.Dataset, tolerance: float) -> list[list[int]]:
    """Orbits that are alike to the first of their group."""
    groups: list[list[int]] = []
    for orbit in range(found.sizes[ORBIT]):
        alike = (members for members in groups if _alike(found, members[0], orbit, tolerance))
        group = next(alike, None)
        if group is None:
            groups.append([orbit])
        else:
            group.append(orbit)
    return groups


def _alike(found: xr.Dataset, first: int, second: int, tolerance: float) -> bool:
    one, other = found.isel({ORBIT: first}), found.isel({ORBIT: second})
    extents = max(float(np.abs(one[name] - other[name]).max()) for name in ("lowest", "highest"))
    if extents > tolerance or "exponent" not in found:
        return extents <= tolerance
    error = float(np.hypot(one["exponent_error"][0], other["exponent_error"][0]))
    return abs(float(one["exponent"][0] - other["exponent"][0])) <= max(tolerance, 2 * error)
