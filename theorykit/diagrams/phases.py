"""Phase diagrams: the regime of settled orbits over two parameters, by how many levels they visit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr
from jax.typing import ArrayLike

from .. import dmft
from ..dynamics.regimes import PHASE_DIAGRAM, LevelRule, classify_by_levels
from .blocks import LANE
from .orbits import OrbitSettings, Start, orbit_diagram


def phase_diagram(
    model: dmft.SelfAttention,
    gammas: ArrayLike,
    betas: ArrayLike,
    epsilon: float | int,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    rule: LevelRule = PHASE_DIAGRAM,
    folder: Path | str | None = None,
) -> xr.Dataset:
    """Settled orbits for every pair of `gammas` and `betas`; axes (gamma, beta).

    - `regime_by_levels`: from the number of distinct levels of the first output overlap, by `rule`, as published.
    - what else `orbit_diagram` returns, but for marks; with exponents, and regimes by them, where `settings` ask for
      them. Progress and `folder` are as there.
    """
    settings = OrbitSettings(transient=100_000, recorded=20_000, exponents=0) if settings is None else settings
    gammas, betas = np.atleast_1d(np.asarray(gammas, dtype=float)), np.atleast_1d(np.asarray(betas, dtype=float))
    every_gamma, every_beta = (grid.ravel() for grid in np.meshgrid(gammas, betas, indexing="ij"))
    parameters = dmft.Parameters(every_beta, every_gamma, epsilon)
    unmarked = replace(settings, levels=2, sections=())
    flat = orbit_diagram(model, parameters, start, unmarked, folder=folder, label="phase diagram")
    flat = flat.drop_vars(["visited", "in_section", "section", "level", "beta", "gamma", "epsilon"])
    axes = {"gamma": gammas, "beta": betas}
    folded = flat.map(lambda variable: _folded(variable, axes), keep_attrs=True)
    regimes = classify_by_levels(folded["distinct"].sel(pattern=1).values, rule).astype(str)
    return folded.assign(regime_by_levels=(tuple(axes), regimes)).assign_coords({**axes, "epsilon": float(epsilon)})


def _folded(variable: xr.DataArray, axes: dict[str, np.ndarray]) -> xr.DataArray:
    """The axis of lanes as one axis a parameter."""
    if LANE not in variable.dims:
        return variable
    rest = variable.transpose(LANE, ...)
    values = rest.values.reshape(*map(len, axes.values()), *rest.shape[1:])
    kept = {name: coordinate for name, coordinate in rest.coords.items() if LANE not in coordinate.dims}
    return xr.DataArray(values, dims=(*axes, *rest.dims[1:]), coords=kept)
