"""Means over seeds and their standard errors."""

import xarray as xr

from ..arguments import checked_choice
from .results import draws_results


@draws_results
def over_seeds(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Mean over seeds and its standard error, zero where there is one seed."""
    if "seed" not in values.dims:
        raise ValueError(f"values must have an axis seed, got the axes {values.dims}")
    count = values.sizes["seed"]
    spread = values.std("seed", ddof=1) if count > 1 else xr.zeros_like(values.isel(seed=0))
    return values.mean("seed"), spread / count**0.5


@draws_results
def with_error(values: xr.DataArray, sign: str = "-") -> str:
    """The mean of `values` (seed,) as text, and its standard error where there are several seeds.

    `sign` is that of format specifications: "+" shows it also of numbers above zero.
    """
    checked_choice("sign", sign, ("-", "+", " "))
    mean, error = (float(value) for value in over_seeds(values))
    # adding zero turns a negative zero into one without a sign
    return f"{round(mean, 3) + 0.0:{sign}.3f}" + (f" +- {error:.3f}" if values.sizes["seed"] > 1 else "")
