"""Labelled results: as arguments of what draws them, and their means over seeds with standard errors."""

import functools
from collections.abc import Callable
from typing import TypeVar

import xarray as xr

from ..checks import checked_arguments

Function = TypeVar("Function", bound=Callable)


def draws_results(function: Function) -> Function:
    """`function`, which refuses arguments of other types, and names what a result lacks."""
    checked = checked_arguments(function)
    parameters = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    results = [name for name, kind in parameters.items() if "xarray" in getattr(kind, "__module__", "")]

    @functools.wraps(function)
    def drawn(*arguments, **keywords):
        try:
            return checked(*arguments, **keywords)
        except (KeyError, AttributeError, ValueError) as missing:
            reason = str(missing.args[0]).partition("\n")[0]
            if isinstance(missing, ValueError) and any(name in reason for name in parameters):
                raise
            what = f"{' or '.join(results)} is not a result that {function.__name__} is for"
            raise ValueError(f"{what}: {reason}") from missing

    return drawn


@draws_results
def over_seeds(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Mean over seeds and its standard error, zero where there is one seed; seeds without a number are left out."""
    if "seed" not in values.dims:
        raise ValueError(f"values must have an axis seed, got the axes {values.dims}")
    if values.sizes["seed"] == 1:
        return values.mean("seed"), xr.zeros_like(values.isel(seed=0))
    return values.mean("seed"), values.std("seed", ddof=1) / values.count("seed") ** 0.5
