"""The result of `theorykit.reproduce.self_attention_dynamics` as text."""

import numpy as np
import xarray as xr

from ..checks import check_is_number
from .phases import share_that_differs
from .results import draws_results

_HEAD = ("beta", "lambda_1", "lambda_2", "regime", "period", "K", "dimension", "reference")
# standard errors, and half of the last digit of a reference
_FAR, _ROUNDING = 5, 0.0005
_FOOTNOTE = (
    "* more than 5 standard errors from the reference: where attractors coexist, as at 1.26451 and 1.27,\n"
    "  rounding decides which one an orbit comes to"
)


@draws_results
def table(result: xr.DataTree) -> str:
    """A line a trajectory, and how many orbits of the diagrams are in which regime.

    The last column has lambda_1 as found by another program, where there is one.
    """
    orbits = result["trajectories"].to_dataset()
    reference = _reference(result)
    rows = [_HEAD, *(_row(orbits.isel(beta=number), reference) for number in range(orbits.sizes["beta"]))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    notes = [_FOOTNOTE] if any(row[-1].endswith("*") for row in rows) else []
    counts = [_count(name, result[name].to_dataset()) for name in ("diagram", "zoom")]
    counts += [_phases(result["phases"].to_dataset())] if "phases" in result.children else []
    return "\n".join([*lines, *notes, "", *counts])


def number_with_error(value: float, error: float) -> str:
    """A number and its standard error, which has two digits, or as many as make six decimals."""
    check_is_number("value", value)
    check_is_number("error", error)
    if np.isneginf(value):
        return "-inf"
    decimals = 6 if error < 1e-5 else int(np.clip(1 - np.floor(np.log10(error)), 2, 6))
    return f"{round(value, decimals) + 0.0:.{decimals}f} +- {error:.{decimals}f}"


def _reference(result: xr.DataTree) -> dict[float, float]:
    if "reference" not in result.children:
        return {}
    known = result["reference"].to_dataset()
    return dict(zip(known["beta"].values.tolist(), known["exponent"].values.tolist(), strict=True))


def _row(orbit: xr.Dataset, reference: dict[float, float]) -> tuple[str, ...]:
    beta, regime, period, chaos, dimension = (
        orbit[name].item() for name in ("beta", "regime", "period", "chaos", "dimension")
    )
    exponents, errors = orbit["exponent"].values, orbit["exponent_error"].values
    found = [number_with_error(*pair) for pair in zip(exponents[:2], errors[:2], strict=True)]
    is_far = beta in reference and abs(exponents[0] - reference[beta]) > _FAR * errors[0] + _ROUNDING
    elsewhere = f"{reference[beta]:g}{'*' if is_far else ''}" if beta in reference else ""
    numbers = (str(period or "-"), f"{round(chaos, 2) + 0.0:.2f}", f"{dimension:.2f}")
    return f"{beta:g}", *found, regime, *numbers, elsewhere


def _count(name: str, diagram: xr.Dataset) -> str:
    beta = diagram["beta"].values
    return f"{name}, {len(beta)} values of beta from {beta[0]:g} to {beta[-1]:g}: {_in_regimes(diagram['regime'])}"


def _phases(phases: xr.Dataset) -> str:
    """By exponents, and by the published rule."""
    lines = [f"phases, {phases['distinct'].sel(pattern=1).size} pairs of gamma and beta"]
    if "regime" in phases:
        lines[0] += f": {_in_regimes(phases['regime'])}"
        lines.append(f"  the published rule says otherwise at {share_that_differs(phases):.1%} of those decided")
    return "\n".join([*lines, f"  by the published rule: {_in_regimes(phases['regime_by_levels'])}"])


def _in_regimes(found: xr.DataArray) -> str:
    names, counts = np.unique(found.values, return_counts=True)
    return ", ".join(f"{counts[i]} {names[i]}" for i in np.argsort(-counts))
