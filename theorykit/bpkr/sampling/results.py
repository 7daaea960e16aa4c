"""Label draws in one tree, with diagnostics of their convergence."""

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
from ..sweeps.datasets import axes, path_coordinates, readout_axes
from .chains import Draws

arviz_base = Lazy("arviz_base", "labelling draws")
arviz_stats = Lazy("arviz_stats", "the diagnosis of draws")

# Largest split R-hat of chains that mixed: A. Vehtari et al., "Rank-normalization, folding, and localization: an
# improved R-hat", Bayesian Analysis 16 (2021).
R_HAT = 1.01
# Smallest effective sample size per chain, from the same paper.
ESS_PER_CHAIN = 100
# Smallest BFMI: M. Betancourt, "Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo", arXiv
# 1604.00695 (2016).
BFMI = 0.3
# Smallest number of draws per chain for any diagnostic.
_FEWEST_DRAWS = 8
# Smallest number of parts of the chains that the jackknife leaves out in turn.
_JACKKNIFE = 20

STATISTICS = ("mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat")


class MixingWarning(UserWarning):
    """Warns of chains that did not mix or are too short to judge. Their means and error bars may be wrong."""


def label_draws(architecture: bpkr.Architecture, drawn: Draws, settings: Mapping[str, str]) -> xr.DataTree:
    """Return the tree described in `sample_order_parameters`; issue a `MixingWarning` if the chains did not mix."""
    dims = {f"U_{layer}": list(axes(layer)) for layer in range(1, architecture.depth + 1)}
    dims["u"] = list(readout_axes(architecture))
    predicted = ["test_example"] if architecture.outputs == 1 else ["test_example", "output"]
    dims |= dict.fromkeys(("mean", "variance", "sampled_output"), predicted)
    tree = arviz_base.from_dict(
        {"posterior": dict(drawn.record), "sample_stats": dict(drawn.stats)},
        dims={name: axis for name, axis in dims.items() if name in drawn.record},
        coords=path_coordinates(architecture),
    )
    summary = summarise(tree["posterior"].to_dataset())
    tree["summary"] = xr.DataTree(summary)
    complaints = _complaints(tree, summary)
    diagnosis = "; ".join(complaints) or "mixed"
    tree.attrs = {
        "sampler": settings["sampler"],
        "mixed": int(not complaints),
        "diagnosis": diagnosis,
        "seconds": drawn.seconds,
        "warmup_seconds": drawn.warmup_seconds,
        "settings": json.dumps(settings, ensure_ascii=False, separators=(",", ":")),
    }
    if complaints:
        warnings.warn(f"{settings['sampler']}: {diagnosis}", MixingWarning, stacklevel=5)
    return tree


def summarise(posterior: xr.Dataset) -> xr.Dataset:
    """Return `STATISTICS` of every variable (chain, draw, ...), along an axis `statistic`; NaN for too few draws."""
    parts = [posterior.mean(("chain", "draw"))]
    if posterior.sizes["draw"] < _FEWEST_DRAWS:
        nothing = xr.full_like(posterior.isel(chain=0, draw=0, drop=True), np.nan, dtype=np.float64)
        parts += [nothing] * (len(STATISTICS) - 1)
    else:
        with np.errstate(invalid="ignore", divide="ignore"):  # Statistics of a constant are NaN.
            parts += [
                posterior.std(("chain", "draw"), ddof=1),
                arviz_stats.mcse(posterior, method="mean"),
                arviz_stats.ess(posterior, method="bulk"),
                arviz_stats.ess(posterior, method="tail"),
                arviz_stats.rhat(posterior),
            ]
    return xr.concat(parts, dim="statistic").assign_coords(statistic=list(STATISTICS))


def _complaints(tree: xr.DataTree, summary: xr.Dataset) -> Sequence[str]:
    """List the reasons not to trust the draws."""
    chains, draws = tree["posterior"].sizes["chain"], tree["posterior"].sizes["draw"]
    if draws < _FEWEST_DRAWS:
        return [f"{counted(draws, 'draw')} per chain, but diagnostics need at least {_FEWEST_DRAWS}"]
    found, varies = [], _varies(summary)
    if chains == 1:
        found.append("a single chain cannot show whether chains agree: run at least two")
    elif not varies:
        found.append("all draws are equal: the chains do not move")
    else:
        where, worst = _extreme(summary, "r_hat", 1)
        if worst > R_HAT:
            found.append(f"split R-hat of {where} is {worst:.3f}, above {R_HAT}: run longer, or warm up longer")
    for statistic in ("ess_bulk", "ess_tail") if varies else ():
        where, worst = _extreme(summary, statistic, -1)
        if worst < ESS_PER_CHAIN * chains:
            found.append(
                f"{statistic} of {where} is {worst:.0f}, below {ESS_PER_CHAIN} for each of {counted(chains, 'chain')}: "
                "run longer"
            )
    stats = tree["sample_stats"]
    if "diverging" in stats and (diverging := int(stats["diverging"].sum())):
        found.append(f"{diverging} of {chains * draws} transitions diverged: raise target_accept")
    if "energy" in stats and (lowest := float(arviz_stats.bfmi(tree)["energy"].min())) < BFMI:
        found.append(f"BFMI is {lowest:.2f}, below {BFMI}: the energy is explored too slowly; warm up longer")
    return found


def _varies(summary: xr.Dataset) -> bool:
    return any(bool((values.sel(statistic="sd") > 0).any()) for values in summary.data_vars.values())


def _extreme(summary: xr.Dataset, statistic: str, sign: int) -> tuple[str, float]:
    """Return the entry with the largest `sign` times `statistic`, and its value, without constant entries."""
    found = []
    for name, values in summary.sel(statistic=statistic).data_vars.items():
        if bool(values.notnull().any()):
            index = np.unravel_index(np.nanargmax(sign * values.values), values.shape)
            labels = zip(values.dims, index, strict=True)
            place = ", ".join(str(values[dim].values[i]) if dim in values.coords else str(i) for dim, i in labels)
            found.append((f"{name}[{place}]" if place else str(name), float(values.values[index])))
    return max(found, key=lambda entry: sign * entry[1])


def worst_diagnostics(tree: xr.DataTree) -> Mapping[str, float]:
    """Return the largest split `r_hat` and the smallest `ess`, bulk or tail, of all entries; NaN for constants."""
    summary = tree["summary"].to_dataset()
    if not _varies(summary):
        return {"r_hat": np.nan, "ess": np.nan}
    sizes = [_extreme(summary, name, -1)[1] for name in ("ess_bulk", "ess_tail")]
    return {"r_hat": _extreme(summary, "r_hat", 1)[1], "ess": min(sizes)}


def entry_estimates(tree: xr.DataTree) -> xr.Dataset:
    """Return the posterior mean of every order parameter, and its standard error as `U_l_error` and so on."""
    summary = tree["summary"].to_dataset()
    names = [str(name) for name in summary.data_vars if str(name) == "u" or str(name).startswith("U_")]
    means, errors, deviations = (
        summary[names].sel(statistic=statistic, drop=True) for statistic in ("mean", "mcse_mean", "sd")
    )
    # An entry that a skip connection fixes has no error.
    errors = errors.where(deviations != 0, 0.0)
    return means.merge(errors.rename({name: f"{name}_error" for name in names})).drop_attrs()


def _predicted_means(posterior: xr.Dataset) -> xr.DataArray:
    return posterior["mean" if "mean" in posterior else "sampled_output"]


def output_estimates(posterior: xr.Dataset) -> xr.Dataset:
    """Return `mean` and `variance` of outputs on test examples, with standard errors, by the law of total variance."""
    means = _predicted_means(posterior)
    squares = (means - means.mean(("chain", "draw"))) ** 2
    spread = squares + posterior["variance"] if "mean" in posterior else squares
    series = xr.Dataset({"mean": means, "variance": spread})
    errors = arviz_stats.mcse(series, method="mean").rename({"mean": "mean_error", "variance": "variance_error"})
    return series.mean(("chain", "draw")).merge(errors).drop_attrs()


def accuracy_estimate(posterior: xr.Dataset, test_labels: ArrayLike) -> tuple[float, float]:
    """Return the accuracy of the posterior mean of the output, and its standard error by a jackknife."""
    means, labels = _predicted_means(posterior).values, np.asarray(test_labels)
    accuracy, error = of_posterior_mean(means, lambda mean: float(class_accuracy(mean, labels)))
    return float(accuracy), float(error)


def of_posterior_mean(
    draws: Float[np.ndarray, "chains draws *axes"], function: Callable[[np.ndarray], ArrayLike]
) -> tuple[np.ndarray, np.ndarray]:
    """Return `function` of the mean over all draws, of any shape, and its standard error by a jackknife.

    The jackknife leaves out contiguous parts. If the chains mix, parts are longer than the correlation time.
    """
    pieces = max(1, -(-_JACKKNIFE // len(draws)))
    parts = [piece for chain in draws for piece in np.array_split(chain, min(pieces, len(chain)))]
    sums, counts = [piece.sum(axis=0) for piece in parts], [len(piece) for piece in parts]
    total, number = np.sum(sums, axis=0), sum(counts)
    estimate = np.asarray(function(total / number))
    if len(parts) == 1:
        return estimate, np.full(estimate.shape, np.nan)
    parts = zip(sums, counts, strict=True)
    without = np.stack([np.asarray(function((total - one) / (number - count))) for one, count in parts])
    # Keep the error exactly zero if nothing changes.
    spread = np.where(np.ptp(without, axis=0) > 0, without - without.mean(axis=0), 0.0)
    return estimate, np.asarray(np.sqrt((len(without) - 1) / len(without) * np.sum(spread**2, axis=0)))
