"""Means of the papers' results over seeds and over trained networks, with standard errors."""

import numpy as np
import xarray as xr

from theorykit import summaries
from theorykit.checks import checked_choice
from theorykit.plots.results import draws_results


@draws_results
def over_seeds(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Average over seeds and trained networks, with the standard error, like `theorykit.summaries.over_seeds`.

    For several trained networks, average over `training_seed` and `seed`. The standard error then comes from
    `variance_components`, and covers the scatter of both networks and examples. For one trained network, it covers the
    scatter of the examples only.
    """
    if values.sizes.get("training_seed", 1) > 1:
        return values.mean(["training_seed", "seed"]), variance_components(values)["mean"] ** 0.5
    return summaries.over_seeds(
        values.squeeze("training_seed", drop=True) if "training_seed" in values.dims else values
    )


@draws_results
def variance_components(values: xr.DataArray) -> xr.Dataset:
    """Split the variance of `values` (training_seed, seed, ...) into the parts of networks and examples.

    Every network sees the same examples, so a value is the sum of independent effects of its network, of its examples,
    and of both together: y_ij = m + a_i + b_j + e_ij. Mean squares of a two-way analysis of variance give

    - `training_seed`, `seed`, `rest`: the variances of a, b and e, unbiased except that negative values become zero; e
      includes the sampling error. NaN for an axis with one value.
    - `mean`: the variance of the mean over both axes, for new networks and new examples; at least the part of e alone.
    """
    networks, draws = values.sizes["training_seed"], values.sizes["seed"]
    over_draws, over_networks = values.mean("seed"), values.mean("training_seed")
    total = over_draws.mean("training_seed")
    of_networks = draws * over_draws.var("training_seed", ddof=1) if networks > 1 else xr.full_like(total, float("nan"))
    of_draws = networks * over_networks.var("seed", ddof=1) if draws > 1 else xr.full_like(total, float("nan"))
    left = values - over_draws - over_networks + total
    degrees = (networks - 1) * (draws - 1)
    rest = (left**2).sum(["training_seed", "seed"]) / degrees if degrees else xr.full_like(total, float("nan"))
    # With one draw of the examples, a and e cannot be separated: both contribute to the scatter.
    known = [part.fillna(0) for part in (of_networks, of_draws, rest)]
    of_mean = np.maximum(known[0] + known[1] - known[2], known[2]) / (networks * draws)
    return xr.Dataset(
        {
            "training_seed": ((of_networks - rest.fillna(0)) / draws).clip(min=0),
            "seed": ((of_draws - rest.fillna(0)) / networks).clip(min=0),
            "rest": rest,
            "mean": of_mean,
        }
    )


@draws_results
def first_network(dataset: xr.Dataset) -> xr.Dataset:
    """Select the first of several trained networks, because heads of different networks do not correspond."""
    return dataset.isel(training_seed=0) if "training_seed" in dataset.dims else dataset


@draws_results
def over_networks(values: xr.DataArray) -> xr.DataArray:
    """Compute the mean over trained networks."""
    return values.mean("training_seed") if "training_seed" in values.dims else values


@draws_results
def with_error(values: xr.DataArray, sign: str = "-", of_sampling: xr.DataArray | None = None) -> str:
    """Format the mean of `values` (seed,) or (training_seed, seed), and its standard error if there are several.

    For one value the error is `of_sampling`, with the same axes, if given and above zero. `sign` is a format
    specification: "+" also shows the sign of positive numbers.
    """
    checked_choice("sign", sign, ("-", "+", " "))
    mean, error = (float(value) for value in over_seeds(values))
    several = int(values.count()) > 1
    if not several and of_sampling is not None:
        error = float(over_seeds(of_sampling)[0])
    # Adding zero removes the sign of a negative zero.
    return f"{round(mean, 3) + 0.0:{sign}.3f}" + (f" +- {error:.3f}" if several or error > 0 else "")
