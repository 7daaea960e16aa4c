"""Which point of a sweep does best."""

import xarray as xr

from ...checks import checked_instance


def best_temperatures(result: xr.Dataset) -> xr.DataArray:
    """The temperature of the best predictions at every width, (width,), from the result of a sweep with test labels.

    Best is the highest `test_accuracy`, or where labels are no classes the lowest `test_error`; of equals, the lowest
    temperature. Over seeds, their mean decides. Points that failed do not compete; NaN where all did.
    """
    checked_instance("result", result, xr.Dataset, "as sweep returns them")
    if "test_error" not in result:
        raise ValueError("result has no test_error to choose by: it was given no test_labels")
    signs = "test_accuracy" in result
    errors = -result["test_accuracy"] if signs else result["test_error"]
    means = errors.mean([dimension for dimension in errors.dims if dimension not in ("width", "temperature")])
    means = means.sortby("temperature")
    best = means.fillna(float("inf")).idxmin("temperature")
    chosen_by = "highest test accuracy" if signs else "lowest test error"
    return best.where(means.notnull().any("temperature")).rename("best_temperature").assign_attrs(chosen_by=chosen_by)
