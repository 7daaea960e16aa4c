"""Summarise labelled results in tables: a solution, a sweep, a comparison, or draws."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from .checks import checked_choice, counted, shown
from .symbolic.documents.display import DisplayMixin, View
from .symbolic.documents.document import Block, Heading, Table, Text, verbatim

# Scores that can be shown against width, and their titles. The default is the first one that a result has.
TITLES = {
    "test_accuracy": "test accuracy",
    "test_log_loss": "test log loss",
    "test_error": "test error (mean square)",
    "test_r_squared": "test $R^2$",
    "log_evidence": "log evidence",
    "log_evidence_corrected": "log evidence to next order in the widths",
    "action": "action",
    "log_evidence_per_width": "log evidence per width",
}
# Scores of one solution, each with its number format and a suffix.
_SCORES = {
    "test_error": (".6g", " (mean square)"),
    "test_r_squared": (".4f", ""),
    "test_accuracy": (".4f", ""),
    "test_log_loss": (".4f", ""),
}
# Suffix of the name of the error that is due to the choice of test examples, if all seeds share them.
OF_EXAMPLES = "_error_of_test_examples"
# The reference approach in a comparison.
MEASURE = "exact"
# Approaches that draw samples, so their running time depends on the number of draws.
SAMPLED = ("exact", "gibbs", "nuts")
# Largest number of rows in a table of draws.
_ROWS = 12


def summary(result: Any) -> View:
    """Summarise a result in a short table for the terminal or a notebook.

    The commands `theorykit solve` and `sweep` print the same tables.

    Args:
        result: a dataset returned by `sweeps.label`, `sweeps.sweep`, `bpkr.sampling.compare`, `curve.trace`,
            `saddle.follow`, `dynamics.follow` or `saddle.phase_diagram`, or read from their files; the draws of a
            sampler; or an object with a `summary()` method, such as a `bpkr.Saddle`.

    Raises:
        TypeError: `result` has none of these types.
        ValueError: the dataset was not made by one of these functions.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> from theorykit.bpkr import sweeps
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> data = bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> theorykit.summary(sweeps.sweep(arch, data, width=[10, 1000], temperature=[0.1, 1.0], progress=False))
        log evidence
        width  T=0.1   T=1
        10     -91.02  -36.47
        1000   -94.37  -39.25
        log evidence to next order in the widths
        width  T=0.1   T=1
        10     -90.26  -35.79
        1000   -94.36  -39.24
        Highest evidence: width 10, T = 1.
    """
    if isinstance(result, DisplayMixin):
        return result.summary()
    if isinstance(result, xr.DataTree):
        if {"posterior", "summary"} <= set(result.children):
            return View(_draws(result))
        result = result.to_dataset()
    if not isinstance(result, xr.Dataset):
        raise TypeError(f"result must be a labelled dataset, draws, or an object with a summary, got {shown(result)}")
    if {"parameter", "ended"} <= set(result.attrs):
        return View(_curve(result))
    if {"across", "up"} <= set(result.attrs):
        return View(_diagram(result))
    if "approach" in result.dims:
        return View(_comparison(result))
    if "converged" not in result:
        raise ValueError(
            "result is not a dataset of a solution, a sweep, a comparison or draws: it has no variable `converged`"
        )
    return View(_sweep(result) if result["converged"].ndim else _solution(result))


# ---- a solution


def _solution(result: xr.Dataset) -> Iterator[Block]:
    numbers = {str(name): values.item() for name, values in result.data_vars.items() if values.ndim == 0}
    if np.isfinite(numbers.get("action", np.nan)):
        rows = [
            ("result", f"{numbers['result']} after {numbers['steps']} steps"),
            ("gradient norm", f"{numbers['gradient_norm']:.3g}"),
            (
                "action",
                f"{numbers['action']:.12g} (entropy {numbers['entropy']:.6g}, energy {numbers['energy']:.6g})",
            ),
            ("log evidence", _beside(result, "log_evidence", ".6g", "")),
        ]
    elif "action_per_width" in result:
        yield Text(f"infinitely wide, mean-field parameterisation: {numbers['result']} after {numbers['steps']} steps")
        rows = [
            ("gradient norm", f"{numbers['gradient_norm']:.3g}"),
            ("action per width", f"{numbers['action_per_width']:.12g}"),
            ("log evidence per width", f"{numbers['log_evidence_per_width']:.6g}"),
        ]
    elif "u" in result:
        yield Text(f"infinitely wide: a Gaussian process, log evidence {numbers['log_evidence']:.12g}")
        rows = []
    else:
        yield Text(f"failed: {verbatim(numbers.get('message', numbers.get('result', '')))}")
        return
    rows.append(("u", np.array2string(result["u"].values, precision=6)))
    for name in (str(name) for name in result.data_vars if str(name).startswith("head_score_")):
        rows.append((name.replace("_", " "), np.array2string(result[name].values, precision=3)))
    scores = {name: look for name, look in _SCORES.items() if name in result}
    rows += [(name.replace("_", " "), _beside(result, name, *look)) for name, look in scores.items()]
    yield Table(tuple(rows))


def _beside(result: xr.Dataset, name: str, form: str, unit: str) -> str:
    """Format a number with its error or unit."""
    error = f" +- {result[f'{name}_error'].item():.4f}" if f"{name}_error" in result else unit
    return f"{result[name].item():{form}}{error}"


# ---- a sweep


def _sweep(result: xr.Dataset) -> Iterator[Block]:
    """Tabulate a score and the log evidence, one row per width and one column per temperature, for every richness."""
    if "richness" in result.dims:
        for value in result["richness"].values:
            yield Text(f"**Richness {value:g}**")
            yield from _sweep(result.sel(richness=value))
        return
    result = with_temperatures(result)
    does_hold, ranking = holds(result), evidence_name(result)
    does_hold = does_hold.all("seed") if "seed" in does_hold.dims else does_hold
    for name in dict.fromkeys((select_shown(result), ranking, "log_evidence_per_width")):
        if name not in result:
            continue
        points, form = with_errors(result, name), ".4f" if name == "test_accuracy" else ".4g"
        kind = ""
        if f"{name}_error" in points:
            of_seeds, of_examples = result.sizes.get("seed", 1) > 1, f"{name}{OF_EXAMPLES}" in result
            over = "seeds and test examples" if of_examples else "seeds" if of_seeds else "test examples"
            kind = f", mean of {result.sizes['seed']} seeds" if of_seeds else ""
            kind += f", with standard errors over {over}"
        yield Text(f"{TITLES[name]}{kind}")
        header = ["width", *(temperature_name(value) for value in result["temperature"].values)]
        rows = [[_width_name(width)] for width in result["width"].values.tolist()]
        for i, row in enumerate(rows):
            for j in range(result.sizes["temperature"]):
                at = points.isel(width=i, temperature=j)
                has_error = f"{name}_error" in at and at[f"{name}_error"] > 0
                cell = with_error(at[name], at[f"{name}_error"]) if has_error else f"{at[name].item():{form}}"
                cell = "-" if at[name].isnull() else cell
                mark = "*" if not at["converged"] else "" if does_hold.isel(width=i, temperature=j) else "!"
                row.append(verbatim(f"{cell}{mark}"))
        if name != ranking and "best_temperature" in result:
            header.append("best $T$")
            rows = [[*row, f"{best:g}"] for row, best in zip(rows, result["best_temperature"].values, strict=True)]
        # The evidence at infinite width with a richness is per width, and has another table: converged points lack it.
        is_known = result[name].notnull() | ~result["converged"].astype(bool) | ~holds(result)
        has_score = [is_known.isel(width=i).any() for i in range(len(rows))]
        lines = [row for row, has in zip(rows, has_score, strict=True) if has]
        yield Table(tuple(map(tuple, lines)), tuple(header))
    if not result["converged"].values.all():
        yield Text(r"\* not a solution: not converged, or failed")
    if not does_hold.all():
        yield Text("! the theory does not hold: a layer has fewer units than partial paths")
    can_rank = result["converged"].astype(bool) & holds(result) & result.get(ranking, xr.DataArray(np.nan)).notnull()
    if result["converged"].size > 1 and can_rank.any():
        best = best_place(result, ranking)
        at = "" if np.isnan(best["temperature"]) else f", $T$ = {best['temperature']:g}"
        yield Text(f"Highest evidence: width {_width_name(best['width'])}{at}.")


def _width_name(width: Any) -> str:
    return width if isinstance(width, str) else f"{width:g}"


def holds(result: xr.Dataset) -> xr.DataArray:
    """Return where the theory holds in a sweep: no layer has fewer units than partial paths, in any seed."""
    if "units_per_path" not in result:
        return xr.ones_like(result["converged"], dtype=bool)
    # The Gaussian process has no units.
    return ~(result["units_per_path"] < 1)


def evidence_name(result: xr.Dataset) -> str:
    """Return the evidence that ranks points: to next order in the widths if all points at which it could be have it."""
    if "log_evidence_corrected" not in result:
        return "log_evidence"
    is_known = result["log_evidence_corrected"].notnull()
    is_needed = result["log_evidence"].notnull() & result["converged"].astype(bool) & holds(result)
    return "log_evidence_corrected" if is_known.where(is_needed, True).all() else "log_evidence"


def best_place(result: xr.Dataset, name: str) -> dict[str, Any]:
    """Return width, temperature and richness with the best mean of `name` over seeds.

    Points that are not solutions, or at which the theory does not hold, are left out. Raises `ValueError` if no point
    is left.
    """
    kept = ("width", "temperature", "richness")
    values = result[name].where(result["converged"].astype(bool) & holds(result))
    values = values.mean([axis for axis in values.dims if axis not in kept])
    if not values.notnull().any():
        raise ValueError(f"{name} has no value at any width and temperature at which the theory holds")
    is_loss = name in ("test_error", "test_log_loss", "action")
    at = values.argmin(...) if is_loss else values.argmax(...)
    return {axis: values[axis].values[index.item()].item() for axis, index in at.items()}


def select_shown(result: xr.Dataset, score: str | None = None) -> str:
    """Return `score` if `result` has it. The default is the first of `TITLES` in `result`."""
    if score is not None:
        checked_choice("score", score, TITLES)
    found = [name for name in TITLES if name in result]
    if not found:
        raise KeyError(f"the result has none of the scores {', '.join(TITLES)}")
    return found[0] if score is None else checked_choice("score", score, found)


def with_temperatures(result: xr.Dataset) -> xr.Dataset:
    """Add a temperature axis with the selected temperature, or with NaN if the temperature differs between widths."""
    if "width" not in result.dims:
        raise KeyError("the result has no axis width: select widths with a list, such as result.sel(width=[20])")
    if "temperature" in result.dims:
        return result
    if "temperature" not in result.coords or result["temperature"].ndim == 0:
        return result.expand_dims("temperature")
    selected = result["temperature"].drop_vars("temperature")
    result = result.drop_vars(["temperature", "best_temperature"], errors="ignore")
    return result.expand_dims(temperature=[np.nan]).assign(best_temperature=selected)


def temperature_name(temperature: float) -> str:
    """Return the label of a temperature in tables and legends."""
    return "selected $T$" if np.isnan(temperature) else f"$T={temperature:g}$"


def with_errors(result: xr.Dataset, name: str) -> xr.Dataset:
    """Return means of `name` over seeds, if there are several, with their standard errors.

    If all seeds share the test examples, the independent error from the choice of test examples is added.
    """
    if "seed" not in result.dims:
        return result
    if result.sizes["seed"] == 1:
        return result.isel(seed=0)
    mean, error = over_seeds(result[name])
    error = np.hypot(error, result.get(f"{name}{OF_EXAMPLES}", 0.0))
    found = {name: mean, f"{name}_error": error}
    if "converged" in result:
        found["converged"] = result["converged"].astype(bool).all("seed")
    return xr.Dataset(found)


def over_seeds(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean over seeds without NaN, and its standard error, which is zero for a single seed."""
    if "seed" not in values.dims:
        raise ValueError(f"values must have an axis seed, got the axes {values.dims}")
    if values.sizes["seed"] == 1:
        return values.mean("seed"), xr.zeros_like(values.isel(seed=0))
    return values.mean("seed"), values.std("seed", ddof=1) / values.count("seed") ** 0.5


# ---- a comparison


def _comparison(result: xr.Dataset) -> Iterator[Block]:
    """Tabulate an entry of U_1, accuracy, differences from the exact posterior and seconds, one row per approach."""
    path, is_measured = result["path_1"].values[0], "U_1_deviation" in result
    measured = {"max dU": order_parameter_names(result)} if is_measured else {}
    measured |= {"rms dmean": ["mean"], "max dmean": ["mean"]} if is_measured and "mean" in result else {}
    rows, notes = [], []
    for approach in result["approach"].values.tolist():
        one = result.sel(approach=approach)
        is_sound = bool(one["mixed"].item())
        notes += [] if is_sound else [Text(verbatim(f"* {approach}: {one['diagnosis'].item()}"))]
        row = {"approach": verbatim(approach + ("" if is_sound else "*"))}
        row[verbatim(f"U_1[{path}, {path}]")] = with_error(one["U_1"][0, 0], one["U_1_error"][0, 0])
        if "accuracy" in result:
            row["accuracy"] = with_error(one["accuracy"], one["accuracy_error"])
        for head, names in measured.items():
            sizes = standard_errors_between(result, approach, names)
            if approach == MEASURE or not len(sizes):
                row[head] = "-"
            else:
                row[head] = f"{np.sqrt(np.mean(sizes**2)) if head.startswith('rms') else np.max(sizes):.2f}"
        row["seconds"] = f"{one['seconds'].item():.1f}" if approach in SAMPLED else "-"
        rows.append(row)
    yield Table(tuple(tuple(row.values()) for row in rows), tuple(rows[0]))
    if is_measured:
        yield Text(f"differences from {MEASURE} are in standard errors")
    yield from notes


def order_parameter_names(result: xr.Dataset) -> list[str]:
    """Return the names of the order parameters in a dataset."""
    return [str(name) for name in result.data_vars if re.fullmatch(r"U_\d+|u", str(name))]


def distinct(result: xr.Dataset, approach: str, name: str) -> np.ndarray:
    """Return the entries of `name`, only the distinct ones of a symmetric matrix."""
    array = result[name].sel(approach=approach)
    is_symmetric = any(str(axis).startswith("other_") for axis in array.dims)
    return array.values[np.triu_indices(len(array))] if is_symmetric else array.values.ravel()


def standard_errors_between(result: xr.Dataset, approach: str, names: Sequence[str]) -> np.ndarray:
    """Return the finite absolute differences between an approach and the exact posterior, in standard errors."""
    found = np.concatenate([np.abs(distinct(result, approach, f"{name}_deviation")) for name in names])
    return found[np.isfinite(found)]


def with_error(value: xr.DataArray, error: xr.DataArray) -> str:
    """Format a value to five digits, or to the second digit of its error."""
    if not np.isfinite(value):
        return "-"
    if not error > 0:
        return f"{value.item():.5g}"
    decimals = max(0, 1 - int(np.floor(np.log10(error.item()))))
    return f"{value.item():.{decimals}f} +- {error.item():.{decimals}f}"


# ---- draws


def _draws(tree: xr.DataTree) -> Iterator[Block]:
    """Show whether chains mixed, and tabulate mean, error, deviation, effective sizes and R-hat of all numbers."""
    chains, draws = (tree["posterior"].sizes[axis] for axis in ("chain", "draw"))
    seconds = f"{tree.attrs['seconds']:.1f} s, and {tree.attrs['warmup_seconds']:.1f} s of warm-up"
    yield Table(
        (
            *([("posterior of", verbatim(tree.attrs["problem"]))] if "problem" in tree.attrs else []),
            ("sampler", verbatim(tree.attrs["sampler"])),
            ("draws", f"{counted(chains, 'chain')} of {draws}, in {seconds}"),
            ("diagnosis", verbatim(tree.attrs["diagnosis"])),
        )
    )
    statistics = tree["summary"].to_dataset()
    rows = []
    for name, values in statistics.data_vars.items():
        axes = [axis for axis in values.dims if axis != "statistic"]
        is_symmetric = any(str(axis).startswith("other_") for axis in axes)
        for index in np.ndindex(*(values.sizes[axis] for axis in axes)):
            if is_symmetric and list(index) != sorted(index):
                continue
            at = values.isel(dict(zip(axes, index, strict=True)))
            places = zip(axes, index, strict=True)
            place = ", ".join(str(at[axis].item()) if axis in at.coords else str(i) for axis, i in places)
            one = {each: at.sel(statistic=each) for each in at["statistic"].values.tolist()}
            mean, spread = with_error(one["mean"], one["mcse_mean"]), f"{one['sd'].item():.3g}"
            sizes = [f"{one[each].item():.0f}" for each in ("ess_bulk", "ess_tail")]
            rows.append(
                (f"{name}[{place}]" if place else str(name), mean, spread, *sizes, f"{one['r_hat'].item():.3f}")
            )
    yield Table(tuple(rows[:_ROWS]), ("number", "mean", "standard deviation", "ESS bulk", "ESS tail", "R-hat"))
    if len(rows) > _ROWS:
        yield Text(f"{len(rows) - _ROWS} more rows are in result['summary'].")


# ---- curves and phase diagrams


def _curve(curve: xr.Dataset) -> Iterator[Block]:
    """Describe a traced curve: its extent, its events and why it ends."""
    name = curve.attrs["parameter"]
    values, kinds = curve[name].values, curve["event"].values
    yield Heading(
        f"Curve of {counted(len(kinds), 'point')} for {verbatim(name)} from {values.min():.6g} to {values.max():.6g}"
    )
    if rows := [(str(kind), f"{value:.9g}") for kind, value in zip(kinds, values, strict=True) if kind]:
        yield Table(tuple(rows), ("event", verbatim(name)))
    yield Text(f"Ended: {verbatim(curve.attrs['ended'])}.")


def _diagram(diagram: xr.Dataset) -> Iterator[Block]:
    """Tabulate the boundaries of a phase diagram, and say what was not settled."""
    names = diagram.attrs["across"], diagram.attrs["up"]
    yield Heading(f"Phase diagram in {' and '.join(map(verbatim, names))}")
    rows = []
    for number in np.unique(diagram["line"].values):
        part = diagram.isel(point=diagram["line"].values == number)
        error, halves = float(part["error"].max()), np.diff(np.reshape(diagram.attrs["ranges"], (2, 2)))[:, 0] / 2
        where = [_range(part[name].values, error * half) for name, half in zip(names, halves, strict=True)]
        states = [f"{int(np.sum(part['stability'] == each))} {each}" for each in ("metastable", "unknown")]
        count = ", ".join([str(part.sizes["point"]), *(each for each in states if each[:2] != "0 ")])
        rows.append((part["kind"].values[0], *where, count, f"{error:.1g}"))
    if rows:
        yield Table(tuple(rows), ("boundary", *map(verbatim, names), "points", "largest error"))
    yield Text(f"Errors are in units of half a range. {verbatim(diagram.attrs['open'])}.")


def _range(values: np.ndarray, error: float) -> str:
    """Write the lowest and the highest value, or one value if they agree to the error. Values below the error are 0."""
    low, high = float(np.min(values)), float(np.max(values))
    numbers = [0.0 if abs(value) <= error else value for value in (low, high)[: 1 + (high - low > 2 * error)]]
    return " to ".join(f"{value:.5g}" for value in numbers)
