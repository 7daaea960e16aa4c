"""Phase diagrams: the regime of settled orbits over two parameters, by exponents, and by how many levels they visit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr
from jax.typing import ArrayLike

from ... import dmft
from ...arguments import checked_array, checked_instance, checked_number
from ...dynamics.regimes import PHASE_DIAGRAM, classify_by_levels, differ
from .blocks import ORBIT
from .orbits import OrbitSettings, Start, orbit_diagram


def phase_diagram(
    model: dmft.SelfAttention,
    gammas: ArrayLike,
    betas: ArrayLike,
    epsilon: float | int,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    folder: Path | str | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Settled orbits for every pair of `gammas` and `betas`; axes (gamma, beta).

    - `regime`: by the two largest exponents, "undecided" where an error bar contains the threshold.
    - `regime_by_levels`: the published rule of thumb, from the number of distinct levels of the first output overlap;
      `dynamics.regimes.classify_by_levels` makes others of `distinct`.
    - `differs`: where `regime` is decided and the published rule says another one, quasi-periodic of both kinds and
      chaotic of both taken for one.
    - what else `orbit_diagram` returns, but for marks.

    `settings` ask for two exponents or more; or for none, and then there is only the published rule. `folder`,
    `progress` and errors are as there.
    """
    settings = OrbitSettings(100_000, 20_000, exponents=2, measured=100_000) if settings is None else settings
    checked_instance("settings", settings, OrbitSettings)
    if settings.exponents == 1:
        raise ValueError("settings: a regime needs two exponents, got exponents=1")
    checked_number("epsilon", epsilon, least=0.0, most=1.0)
    gammas, betas = _checked_axis("gammas", gammas), _checked_axis("betas", betas)
    every_gamma, every_beta = (grid.ravel() for grid in np.meshgrid(gammas, betas, indexing="ij"))
    parameters = dmft.Parameters(every_beta, every_gamma, epsilon)
    unmarked = replace(settings, levels=2, sections=())
    flat = orbit_diagram(model, parameters, start, unmarked, folder=folder, label="phase diagram", progress=progress)
    flat = flat.drop_vars(["visited", "in_section", "section", "level", "beta", "gamma", "epsilon"])
    axes = {"gamma": gammas, "beta": betas}
    folded = flat.coarsen({ORBIT: len(betas)}).construct({ORBIT: tuple(axes)})
    regimes = classify_by_levels(folded["distinct"].sel(pattern=1).values, PHASE_DIAGRAM).astype(str)
    folded = folded.assign(regime_by_levels=(tuple(axes), regimes)).assign_coords({**axes, "epsilon": float(epsilon)})
    if "regime" in folded:
        folded["differs"] = tuple(axes), differ(folded["regime"].values, regimes)
    return folded


def _checked_axis(name: str, values: ArrayLike) -> np.ndarray:
    found = np.atleast_1d(checked_array(name, values))
    if found.ndim != 1 or not len(found):
        raise ValueError(f"{name} must be on one axis, got shape {found.shape}")
    return found
