"""Label draws in one tree, judge them with ArviZ, and estimate means with their errors."""

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from jaxtyping import Float

from ... import bpkr
from ...checks import counted
from ...extras import Lazy
from ..sweeps.datasets import label

arviz_stats = Lazy("arviz_stats", "the diagnosis of draws")

# Largest split R-hat, and smallest effective sample size per chain: A. Vehtari et al., Bayesian Analysis 16 (2021).
R_HAT = 1.01
ESS_PER_CHAIN = 100
# Smallest BFMI: M. Betancourt, arXiv 1604.00695.
BFMI = 0.3
# With fewer draws per chain, the diagnostics of ArviZ are NaN.
_FEWEST_DRAWS = 4
# Smallest number of parts that the jackknife leaves out in turn.
_JACKKNIFE = 20


def label_draws(architecture: bpkr.Architecture, drawn: Mapping[str, np.ndarray]) -> xr.DataTree:
    """Return draws, their statistics and ArviZ's summary, with `mixed`, `diagnosis` and times as attributes."""
    known = ("u", "mean", "variance", "sampled_output", *(f"U_{layer}" for layer in range(1, architecture.depth + 1)))
    seconds = {name: float(drawn[name]) for name in ("seconds", "warmup_seconds")}
    axes = {axis: ((axis,), np.arange(size)) for axis, size in zip(("chain", "draw"), drawn["u"].shape, strict=False)}
    posterior = {name: values for name, values in drawn.items() if name in known}
    stats = {name: (tuple(axes), drawn[name]) for name in drawn if name not in (*known, *seconds)}
    posterior = label(architecture, None, along=tuple(axes), **axes, **posterior)
    with np.errstate(invalid="ignore", divide="ignore"):  # R-hat of a constant is NaN.
        summary = arviz_stats.summary(posterior, fmt="xarray", round_to="none").rename(summary="statistic")
    parts = {"posterior": posterior, "sample_stats": xr.Dataset({**stats, **axes}), "summary": summary}
    tree = xr.DataTree.from_dict(parts)
    complaints = _complaints(tree)
    tree.attrs = {"mixed": int(not complaints), "diagnosis": "; ".join(complaints) or "mixed", **seconds}
    return tree


def _complaints(tree: xr.DataTree) -> list[str]:
    """List the reasons not to trust the draws."""
    chains, draws = (tree["posterior"].sizes[axis] for axis in ("chain", "draw"))
    if draws < _FEWEST_DRAWS:
        return [f"{counted(draws, 'draw')} per chain, but diagnostics need at least {_FEWEST_DRAWS}"]
    summary, stats = tree["summary"].to_dataset(), tree["sample_stats"]
    if not summary.sel(statistic="sd").max().to_array().max() > 0:
        return ["all draws are equal: the chains do not move"]
    found = ["a single chain cannot show whether chains agree"] if chains == 1 else []
    r_hat = summary.sel(statistic="r_hat").max().to_array()
    if r_hat.max() > R_HAT:
        found.append(f"split R-hat of {r_hat.idxmax().item()} is {r_hat.max():.3f}, above {R_HAT}")
    for statistic in ("ess_bulk", "ess_tail"):
        size = summary.sel(statistic=statistic).min().to_array()
        if size.min() < ESS_PER_CHAIN * chains:
            found.append(f"{statistic} of {size.idxmin().item()} is {size.min():.0f}, below {ESS_PER_CHAIN} per chain")
    if "diverging" in stats and (diverging := int(stats["diverging"].sum())):
        found.append(f"{diverging} of {chains * draws} transitions diverged: raise target_accept")
    if "energy" in stats and (lowest := float(arviz_stats.bfmi(tree)["energy"].min())) < BFMI:
        found.append(f"BFMI is {lowest:.2f}, below {BFMI}: the energy is explored too slowly")
    return found


def entry_estimates(tree: xr.DataTree) -> xr.Dataset:
    """Return the posterior mean of every order parameter, and its standard error as `U_l_error` and so on."""
    summary = tree["summary"].to_dataset()
    summary = summary[[name for name in summary.data_vars if name == "u" or name.startswith("U_")]]
    errors = summary.sel(statistic="mcse_mean", drop=True)
    errors = errors.rename({name: f"{name}_error" for name in errors.data_vars})
    return summary.sel(statistic="mean", drop=True).merge(errors).drop_attrs()


def output_estimates(posterior: xr.Dataset) -> xr.Dataset:
    """Return `mean` and `variance` of test outputs with errors, by the law of total variance."""
    means = posterior["mean" if "mean" in posterior else "sampled_output"]
    spread = (means - means.mean(("chain", "draw"))) ** 2 + posterior.get("variance", 0.0)
    series = xr.Dataset({"mean": means, "variance": spread})
    errors = arviz_stats.mcse(series, method="mean").rename(mean="mean_error", variance="variance_error")
    return series.mean(("chain", "draw")).merge(errors).drop_attrs()


def of_posterior_mean(
    draws: Float[np.ndarray, "chains draws *axes"], function: Callable[[np.ndarray], ArrayLike]
) -> tuple[np.ndarray, np.ndarray]:
    """Return `function` of the mean over all draws, and its standard error by a jackknife.

    The jackknife leaves out contiguous parts, which are longer than the correlation time if
    chains mix.
    """
    chains, length, *axes = draws.shape
    count = min(-(-_JACKKNIFE // chains), length)
    whole = draws[:, : length - length % count]
    means = whole.reshape(chains * count, -1, *axes).mean(axis=1)
    parts = len(means)
    others = (means.sum(axis=0) - means) / (parts - 1)
    values = np.stack([np.asarray(function(mean)) for mean in others])
    # Equal values have no error, but their mean may differ from them by rounding.
    error = np.sqrt((parts - 1) * np.var(values - values[0], axis=0))
    return np.asarray(function(draws.mean(axis=(0, 1)))), error
