"""Phase diagrams: the regime of settled orbits over two parameters, by exponents, and by how many levels they visit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from ... import dmft
from ...checks import checked_instance
from ...dynamics.regimes import PHASE_DIAGRAM, classify_by_levels, differ
from ...settings import usual_settings
from ...workers import Workers
from .blocks import ORBIT
from .orbits import OrbitSettings, Start, orbit_diagram


@usual_settings()
def phase_diagram(
    model: dmft.SelfAttention,
    parameters: dmft.Parameters,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.Dataset:
    """Settled orbits for every gamma and beta, `dmft.Parameters(betas, gammas[:, None], epsilon)`; axes (gamma, beta).

    - `regime`: by the two largest exponents, "undecided" where an error bar contains the threshold.
    - `regime_by_levels`: the published rule of thumb, from the number of distinct levels of the first output overlap;
      `dynamics.regimes.classify_by_levels` makes others of `distinct`.
    - `differs`: where `regime` is decided and the published rule says another one, quasi-periodic of both kinds and
      chaotic of both taken for one.
    - what else `orbit_diagram` returns, but for marks.

    `settings` ask for two exponents or more; or for none, and then there is only the published rule. `folder`,
    `executor`, `progress` and errors are as there.
    """
    settings = OrbitSettings(100_000, 20_000, exponents=2, measured=100_000) if settings is None else settings
    checked_instance("settings", settings, OrbitSettings)
    if settings.exponents == 1:
        raise ValueError("settings: a regime needs two exponents, got exponents=1")
    axes, epsilon = _axes(parameters)
    every_gamma, every_beta = (grid.ravel() for grid in np.meshgrid(*axes.values(), indexing="ij"))
    every = dmft.Parameters(every_beta, every_gamma, epsilon)
    unmarked = replace(settings, levels=2, sections=())
    options = {"folder": folder, "executor": executor, "label": "phase diagram", "progress": progress}
    flat = orbit_diagram(model, every, start, unmarked, **options)
    flat = flat.drop_vars(["visited", "in_section", "section", "level", "beta", "gamma", "epsilon"])
    folded = flat.coarsen({ORBIT: len(axes["beta"])}).construct({ORBIT: tuple(axes)})
    regimes = classify_by_levels(folded["distinct"].sel(pattern=1).values, PHASE_DIAGRAM).astype(str)
    folded = folded.assign(regime_by_levels=(tuple(axes), regimes)).assign_coords({**axes, "epsilon": epsilon})
    if "regime" in folded:
        folded["differs"] = tuple(axes), differ(folded["regime"].values, regimes)
    return folded


def _axes(parameters: dmft.Parameters) -> tuple[dict[str, np.ndarray], float]:
    """The values along (gamma, beta), and epsilon. `ValueError` where they are not on these two axes."""
    checked_instance("parameters", parameters, dmft.Parameters, "such as Parameters(betas, gammas[:, None], epsilon)")
    gamma, beta, epsilon = (np.asarray(value) for value in (parameters.gamma, parameters.beta, parameters.epsilon))
    if len(parameters.batch_shape) != 2 or gamma.shape[1:] != (1,) or beta.ndim != 1 or epsilon.ndim:
        raise ValueError(
            "parameters of a phase diagram are gammas (gammas, 1), betas (betas,) and one epsilon, such as "
            f"Parameters(betas, gammas[:, None], 0.02); got shapes {gamma.shape}, {beta.shape} and {epsilon.shape}"
        )
    return {"gamma": gamma[:, 0], "beta": beta}, float(epsilon)
