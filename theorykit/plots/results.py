"""Labelled results: as arguments of what draws them, and their means over seeds with standard errors."""

import functools
from collections.abc import Callable
from typing import TypeVar

import xarray as xr

from ..annotations import checked_arguments
from ..arguments import checked_choice

Function = TypeVar("Function", bound=Callable)


def draws_results(function: Function) -> Function:
    """`function`, which refuses arguments of other types, and results that lack a variable or dimension by its name."""
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
            what = " or ".join(results)
            raise ValueError(f"{what} is not a result that {function.__name__} is for: {reason}") from missing

    return drawn


@draws_results
def over_seeds(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Mean over seeds and its standard error, zero where there is one seed."""
    if "seed" not in values.dims:
        raise ValueError(f"values must have an axis seed, got the axes {values.dims}")
    count = values.sizes["seed"]
    spread = values.std("seed", ddof=1) if count > 1 else xr.zeros_like(values.isel(seed=0))
    return values.mean("seed"), spread / count**0.5


@draws_results
def with_error(values: xr.DataArray, sign: str = "-", of_sampling: xr.DataArray | None = None) -> str:
    """The mean of `values` (seed,) as text, and its standard error where there are several seeds.

    Of one seed the error is that `of_sampling` (seed,), if it is given and above zero. `sign` is that of format
    specifications: "+" shows it also of numbers above zero.
    """
    checked_choice("sign", sign, ("-", "+", " "))
    mean, error = (float(value) for value in over_seeds(values))
    several = values.sizes["seed"] > 1
    if not several and of_sampling is not None:
        error = float(over_seeds(of_sampling)[0])
    # adding zero turns a negative zero into one without a sign
    return f"{round(mean, 3) + 0.0:{sign}.3f}" + (f" +- {error:.3f}" if several or error > 0 else "")
