"""Means of the papers' results over seeds and over trained networks, with standard errors."""

import numpy as np
import xarray as xr

from theorykit import summaries
from theorykit.checks import checked_choice
from theorykit.plots.results import draws_results


@draws_results
def over_seeds(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Mean over seeds and its standard error, as `theorykit.summaries.over_seeds`, and over trained networks.

    With an axis `training_seed` beside `seed` it is the mean over both, and its error as of networks and examples drawn
    anew: that of `variance_components`. Of one trained network, it is as of examples drawn anew.
    """
    if values.sizes.get("training_seed", 1) > 1:
        return values.mean(["training_seed", "seed"]), variance_components(values)["mean"] ** 0.5
    return summaries.over_seeds(
        values.squeeze("training_seed", drop=True) if "training_seed" in values.dims else values
    )


@draws_results
def variance_components(values: xr.DataArray) -> xr.Dataset:
    """How much of the variance of `values` (training_seed, seed, ...) each of the two makes.

    Every network sees the same examples, so that a value is the sum of independent effects of its network, of its
    examples, and of both together: y_ij = m + a_i + b_j + e_ij. From mean squares of a two-way analysis of variance,

    - `training_seed`, `seed`, `rest`: the variances of a, b and e, without bias, but zero where that is negative; e has
      what sampling adds. NaN for what has one value.
    - `mean`: the variance of the mean over both axes, with networks and examples drawn anew, at least that of e alone.
    """
    networks, draws = values.sizes["training_seed"], values.sizes["seed"]
    over_draws, over_networks = values.mean("seed"), values.mean("training_seed")
    total = over_draws.mean("training_seed")
    of_networks = draws * over_draws.var("training_seed", ddof=1) if networks > 1 else xr.full_like(total, float("nan"))
    of_draws = networks * over_networks.var("seed", ddof=1) if draws > 1 else xr.full_like(total, float("nan"))
    left = values - over_draws - over_networks + total
    degrees = (networks - 1) * (draws - 1)
    rest = (left**2).sum(["training_seed", "seed"]) / degrees if degrees else xr.full_like(total, float("nan"))
    # of one draw of the examples, networks and rest cannot be told apart, and make their scatter together
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
    """Of several trained networks the first: their heads have nothing in common but their number."""
    return dataset.isel(training_seed=0) if "training_seed" in dataset.dims else dataset


@draws_results
def over_networks(values: xr.DataArray) -> xr.DataArray:
    """The mean over trained networks."""
    return values.mean("training_seed") if "training_seed" in values.dims else values


@draws_results
def with_error(values: xr.DataArray, sign: str = "-", of_sampling: xr.DataArray | None = None) -> str:
    """The mean of `values` (seed,) or (training_seed, seed) as text, and its standard error where there are several.

    Of one alone the error is that `of_sampling`, of the same axes, if it is given and above zero. `sign` is that of
    format specifications: "+" shows it also of numbers above zero.
    """
    checked_choice("sign", sign, ("-", "+", " "))
    mean, error = (float(value) for value in over_seeds(values))
    several = int(values.count()) > 1
    if not several and of_sampling is not None:
        error = float(over_seeds(of_sampling)[0])
    # adding zero turns a negative zero into one without a sign
    return f"{round(mean, 3) + 0.0:{sign}.3f}" + (f" +- {error:.3f}" if several or error > 0 else "")
