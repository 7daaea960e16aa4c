"""Label draws in one tree, with the diagnostics of ArviZ, and estimate order parameters and outputs from them."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from jaxtyping import Float

from ... import bpkr
from ...checks import counted
from ...extras import Lazy
from ..data.classes import class_accuracy
from ..sweeps.datasets import label

arviz_stats = Lazy("arviz_stats", "the diagnosis of draws")

# Largest split R-hat of chains that mixed: A. Vehtari et al., "Rank-normalization, folding, and localization: an
# improved R-hat", Bayesian Analysis 16 (2021).
R_HAT = 1.01
# Smallest effective sample size per chain, from the same paper.
ESS_PER_CHAIN = 100
# Smallest BFMI: M. Betancourt, "Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo", arXiv
# 1604.00695 (2016).
BFMI = 0.3
# With fewer draws per chain, the diagnostics of ArviZ are NaN.
_FEWEST_DRAWS = 4
# Smallest number of parts of the chains that the jackknife leaves out in turn.
_JACKKNIFE = 20

STATISTICS = ("mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat")


class MixingWarning(UserWarning):
    """Warns of chains that did not mix or are too short to judge. Their means and error bars may be wrong."""


def label_draws(
    architecture: bpkr.Architecture, drawn: Mapping[str, np.ndarray], settings: Mapping[str, str]
) -> xr.DataTree:
    """Return the tree described in `sample_order_parameters`; issue a `MixingWarning` if the chains did not mix."""
    known = ("u", "mean", "variance", "sampled_output", *(f"U_{layer}" for layer in range(1, architecture.depth + 1)))
    seconds = {name: float(drawn[name]) for name in ("seconds", "warmup_seconds")}
    chains, draws = (("chain",), np.arange(len(drawn["u"]))), (("draw",), np.arange(drawn["u"].shape[1]))
    posterior = {name: values for name, values in drawn.items() if name in known}
    if "weights" in drawn:
        posterior["weights"] = ("chain", "draw", "weight"), drawn["weights"]
    stats = {name: (("chain", "draw"), drawn[name]) for name in drawn if name not in (*posterior, *seconds)}
    tree = xr.DataTree.from_dict(
        {
            "posterior": label(architecture, None, along=("chain", "draw"), chain=chains, draw=draws, **posterior),
            "sample_stats": xr.Dataset({**stats, "chain": chains, "draw": draws}),
        }
    )
    tree["summary"] = xr.DataTree(summarise(tree["posterior"].to_dataset()))
    complaints = _complaints(tree)
    diagnosis = "; ".join(complaints) or "mixed"
    tree.attrs = {
        "sampler": settings["sampler"],
        "mixed": int(not complaints),
        "diagnosis": diagnosis,
        **seconds,
        "settings": json.dumps(settings, ensure_ascii=False, separators=(",", ":")),
    }
    if complaints:
        warnings.warn(f"{settings['sampler']}: {diagnosis}", MixingWarning, stacklevel=5)
    return tree


def summarise(posterior: xr.Dataset) -> xr.Dataset:
    """Return `STATISTICS` of every variable (chain, draw, ...), along an axis `statistic`; NaN for too few draws."""
    with np.errstate(invalid="ignore", divide="ignore"):  # R-hat of a constant is NaN.
        parts = [
            posterior.mean(("chain", "draw")),
            posterior.std(("chain", "draw"), ddof=1),
            arviz_stats.mcse(posterior, method="mean"),
            arviz_stats.ess(posterior, method="bulk"),
            arviz_stats.ess(posterior, method="tail"),
            arviz_stats.rhat(posterior),
        ]
    return xr.concat(parts, dim="statistic").assign_coords(statistic=list(STATISTICS))


def _complaints(tree: xr.DataTree) -> Sequence[str]:
    """List the reasons not to trust the draws."""
    summary, stats = tree["summary"].to_dataset(), tree["sample_stats"]
    chains, draws = tree["posterior"].sizes["chain"], tree["posterior"].sizes["draw"]
    if draws < _FEWEST_DRAWS:
        return [f"{counted(draws, 'draw')} per chain, but diagnostics need at least {_FEWEST_DRAWS}"]
    if not float(summary.sel(statistic="sd").max().to_array().max()) > 0:
        return ["all draws are equal: the chains do not move"]
    found = []
    # The extreme entry of every variable.
    r_hat = summary.sel(statistic="r_hat").max().to_array()
    if chains == 1:
        found.append("a single chain cannot show whether chains agree: run at least two")
    elif r_hat.max() > R_HAT:
        where, worst = r_hat.idxmax().item(), float(r_hat.max())
        found.append(f"split R-hat of {where} is {worst:.3f}, above {R_HAT}: run longer, or warm up longer")
    for statistic in ("ess_bulk", "ess_tail"):
        size = summary.sel(statistic=statistic).min().to_array()
        if size.min() < ESS_PER_CHAIN * chains:
            found.append(
                f"{statistic} of {size.idxmin().item()} is {float(size.min()):.0f}, below {ESS_PER_CHAIN} for each of "
                f"{counted(chains, 'chain')}: run longer"
            )
    if "diverging" in stats and (diverging := int(stats["diverging"].sum())):
        found.append(f"{diverging} of {chains * draws} transitions diverged: raise target_accept")
    if "energy" in stats and (lowest := float(arviz_stats.bfmi(tree)["energy"].min())) < BFMI:
        found.append(f"BFMI is {lowest:.2f}, below {BFMI}: the energy is explored too slowly; warm up longer")
    return found


def entry_estimates(tree: xr.DataTree) -> xr.Dataset:
    """Return the posterior mean of every order parameter, and its standard error as `U_l_error` and so on."""
    summary = tree["summary"].to_dataset()
    summary = summary[[name for name in summary.data_vars if name == "u" or name.startswith("U_")]]
    errors = summary.sel(statistic="mcse_mean", drop=True)
    errors = errors.rename({name: f"{name}_error" for name in errors.data_vars})
    return summary.sel(statistic="mean", drop=True).merge(errors).drop_attrs()


def output_estimates(posterior: xr.Dataset) -> xr.Dataset:
    """Return `mean` and `variance` of outputs on test examples, with standard errors, by the law of total variance."""
    means = posterior["mean" if "mean" in posterior else "sampled_output"]
    spread = (means - means.mean(("chain", "draw"))) ** 2
    if "variance" in posterior:
        spread += posterior["variance"]
    series = xr.Dataset({"mean": means, "variance": spread})
    errors = arviz_stats.mcse(series, method="mean").rename({"mean": "mean_error", "variance": "variance_error"})
    return series.mean(("chain", "draw")).merge(errors).drop_attrs()


def accuracy_estimate(posterior: xr.Dataset, test_labels: ArrayLike) -> tuple[float, float]:
    """Return the accuracy of the posterior mean of the output, and its standard error by a jackknife."""
    means, labels = posterior["mean" if "mean" in posterior else "sampled_output"].values, np.asarray(test_labels)
    accuracy, error = of_posterior_mean(means, lambda mean: float(class_accuracy(mean, labels)))
    return float(accuracy), float(error)


def of_posterior_mean(
    draws: Float[np.ndarray, "chains draws *axes"], function: Callable[[np.ndarray], ArrayLike]
) -> tuple[np.ndarray, np.ndarray]:
    """Return `function` of the mean over all draws, of any shape, and its standard error by a jackknife.

    The jackknife leaves out contiguous parts. If the chains mix, parts are longer than the correlation time.
    """
    count = -(-_JACKKNIFE // len(draws))
    parts = [part for chain in draws for part in np.array_split(chain, min(count, len(chain)))]
    sums, counts = np.stack([part.sum(axis=0) for part in parts]), np.array([len(part) for part in parts])
    total, number = sums.sum(axis=0), counts.sum()
    estimate = np.asarray(function(total / number))
    if len(parts) == 1:
        return estimate, np.full(estimate.shape, np.nan)
    without = np.stack([np.asarray(function((total - sums[i]) / (number - counts[i]))) for i in range(len(parts))])
    # Equal values have no error, but their mean may differ from them by rounding.
    spread = np.where(np.ptp(without, axis=0) > 0, without - without.mean(axis=0), 0.0)
    return estimate, np.asarray(np.sqrt((len(without) - 1) / len(without) * np.sum(spread**2, axis=0)))
