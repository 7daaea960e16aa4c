"""Format the result of `papers.one_shot` as text."""

from collections.abc import Sequence
from textwrap import indent, wrap

import numpy as np
import xarray as xr

from theorykit.plots.results import draws_results

from .results import first_network, over_networks, over_seeds, variance_components, with_error

LITTLE = 0.01
_RULES = {
    "accuracy": "accuracy, temperature chosen by accuracy in distribution (looks at the test examples)",
    "evidence": "accuracy, temperature chosen by evidence (looks at the training labels alone)",
}


@draws_results
def table(result: xr.DataTree) -> str:
    """Format the main results of every variant: means over trained networks and seeds, with standard errors.

    The text contains accuracy over width, the paired gain of the smallest width over infinite width, the scatter over
    networks and draws, the agreement of U_1, and the heads of the first network.
    """
    if not result.children:
        raise KeyError("it has no variants")
    return "\n\n".join(_of_variant(name, variant) for name, variant in result.children.items())


def _of_variant(name: str, variant: xr.DataTree) -> str:
    theory, pruning = variant["theory"].to_dataset().sortby("width"), variant["pruning"].to_dataset()
    count, seeds, networks = theory.sizes["path_1"], theory.sizes["seed"], theory.sizes.get("training_seed", 1)
    several = f"{networks} trained network{'s' if networks > 1 else ''}, "
    head = f"{name}: {count} paths, {several}{seeds} seed{'s' if seeds > 1 else ''}"
    blocks = [
        f"{head}; {_trainings(variant['training/validation_accuracy'])}",
        *(f"{title}\n{indent(_accuracies(theory, rule), '  ')}" for rule, title in _RULES.items()),
        _scatter(theory),
        _agreement(variant["order_parameters"].to_dataset()),
        _check(variant["check"].to_dataset()),
        f"heads\n{indent(_heads(pruning, str(theory['distribution'].values[0])), '  ')}",
        _removable(pruning, str(theory["distribution"].values[0])),
    ]
    return "\n  ".join(block.replace("\n", "\n  ") for block in blocks)


def _trainings(validation: xr.DataArray) -> str:
    """Describe the best validation accuracy of every network, and its step."""
    networks = validation.transpose("training_seed", "step") if "training_seed" in validation.dims else [validation]
    best = [one.isel(step=int(one.argmax("step"))) for one in networks]
    accuracies = ", ".join(f"{float(one):.3f}" for one in best)
    steps = ", ".join(str(int(one["step"])) for one in best)
    return f"best validation accuracy {accuracies}, at step {steps}"


def _scatter(theory: xr.Dataset) -> str:
    """Describe the scatter of accuracies over trained networks, and over draws of the examples."""
    if theory.sizes.get("training_seed", 1) == 1:
        return "how much trained networks differ is not in these errors: there is one"
    theory = theory.sel(rule="accuracy", distribution=theory["distribution"].values[0])
    smallest = int(theory["width"].min())
    accuracy = theory["accuracy"].sel(width=smallest)
    accuracy = accuracy.sel(temperature=theory["chosen_temperature"].sel(width=smallest))
    limit = theory["gp_accuracy"].sel(temperature=theory["gp_chosen_temperature"])
    rows = [["standard deviation of accuracy over", "trained networks", "draws of examples", "the rest"]]
    for label, values in {
        str(smallest): accuracy,
        "infinite": limit,
        f"{smallest} - infinite": accuracy - limit,
    }.items():
        parts = variance_components(values.drop_vars(["temperature", "width"], errors="ignore"))
        rows.append(
            [f"width {label}", *(f"{float(parts[name]) ** 0.5:.3f}" for name in ("training_seed", "seed", "rest"))]
        )
    return _align(rows)


def _shown_temperature(temperatures: xr.DataArray) -> str:
    """Format the temperature, or the range from the lowest to the highest if networks differ."""
    lowest, highest = float(temperatures.min()), float(temperatures.max())
    return f"{lowest:g}" if lowest == highest else f"{lowest:g} to {highest:g}"


def _accuracies(theory: xr.Dataset, rule: str) -> str:
    """Format one line per width, one for infinite width, and one for the gain of the smallest over infinite width."""
    theory = theory.sel(rule=rule)
    temperatures, of_limit = theory["chosen_temperature"], theory["gp_chosen_temperature"]
    at_best = theory.sel(temperature=temperatures)
    accuracy, limit = at_best["accuracy"], theory["gp_accuracy"].sel(temperature=of_limit)
    is_solved = (at_best["converged"] == 1).all([name for name in at_best["converged"].dims if name != "width"])
    distributions, smallest = theory["distribution"].values, int(theory["width"].min())
    # The seeds' examples are the same at every width, so the error comes from the paired differences.
    gain = accuracy.sel(width=smallest) - limit

    def cells(values: xr.DataArray, sign: str = "-") -> list[str]:
        return [with_error(values.sel(distribution=name), sign) for name in distributions]

    rows = [["width", "T", *distributions]]
    for width in theory["width"].values:
        label = f"{width}{'' if is_solved.sel(width=width).item() else '*'}"
        rows.append([label, _shown_temperature(temperatures.sel(width=width)), *cells(accuracy.sel(width=width))])
    rows.append(["infinite", _shown_temperature(of_limit), *cells(limit)])
    rows.append([f"{smallest} - infinite", "", *cells(gain, "+")])
    note = "" if is_solved.all() else "\n* not a solution at every seed: not converged, or failed"
    return _align(rows) + note


def _agreement(between: xr.Dataset) -> str:
    """Format the pairwise agreement of the three U_1, and the accuracies of their networks on the same examples."""
    is_doubtful = between["mixed"].values.ravel() == 0
    star = "*" if is_doubtful.any() else ""
    rows = [["entries above the diagonal", "correlation", "same sign", "of them, in blocks"]]
    for of, origin in (("theory", "sampled"), ("theory", "trained"), ("sampled", "trained")):
        pair = between.sel(of=of, origin=origin)
        label = f"{of} and {origin}{star if 'sampled' in (of, origin) else ''}"
        names = ("correlation", "sign_agreement", "block_sign_agreement")
        rows.append([label, *(with_error(pair[name], of_sampling=pair[f"{name}_error"]) for name in names)])
    strength = between[["block_strength", "block_strength_error"]]
    strengths = ", ".join(
        f"{origin} {with_error(one['block_strength'], of_sampling=one['block_strength_error'])}"
        for origin, one in ((origin, strength.sel(origin=origin)) for origin in between["origin"].values)
    )
    lines = [
        f"U_1 at N={between.attrs['width']}, T={_shown_temperature(between['temperature'])}",
        indent(_align(rows), "  "),
        "  mean magnitude in blocks (pairs that share the first layer's head) over that outside:",
        f"    {strengths}",
        indent(_align(_accuracies_by_origin(between, star)), "  "),
        *wrap(_of_sampling(between), 116, initial_indent="  ", subsequent_indent="    "),
    ]
    if star:
        reason = between["diagnosis"].values.ravel()[is_doubtful][0]
        complaint = f"* not mixed at {is_doubtful.sum()} of {is_doubtful.size} runs; at the first of them: {reason}"
        lines += wrap(complaint, 116, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)


def _accuracies_by_origin(between: xr.Dataset, star: str) -> list[list[str]]:
    """Make rows for theory, sampled networks and the trained one, and for sampled minus theory, seed by seed."""
    accuracy, errors = between["accuracy"], between["accuracy_error"]
    names = accuracy["distribution"].values

    def cells(values: xr.DataArray, origin: str, sign: str = "-") -> list[str]:
        of_sampling = errors.sel(origin=origin)
        return [
            with_error(values.sel(distribution=name), sign, of_sampling=of_sampling.sel(distribution=name))
            for name in names
        ]

    rows = [["accuracy", *map(str, names)]]
    for origin in map(str, accuracy["origin"].values):
        rows.append([f"{origin}{star if origin == 'sampled' else ''}", *cells(accuracy.sel(origin=origin), origin)])
    difference = accuracy.sel(origin="sampled") - accuracy.sel(origin="theory")
    return [*rows, [f"sampled{star} - theory", *cells(difference, "sampled", "+")]]


def _of_sampling(between: xr.Dataset) -> str:
    """Describe how chains mix, and the Monte Carlo error of the mean, which the error over seeds already includes."""
    pair = between.sel(of="theory", origin="sampled")
    accuracy = between["accuracy_error"].sel(origin="sampled").isel(distribution=0)
    parts = [
        ("correlation", pair["correlation_error"]),
        ("same sign", pair["sign_agreement_error"]),
        ("in blocks", pair["block_sign_agreement_error"]),
        ("strength of blocks", between["block_strength_error"].sel(origin="sampled")),
        ("accuracy", accuracy),
    ]
    shares = ", ".join(f"{name} {_of_mean(errors):.4f}" for name, errors in parts)
    worst = float(between["r_hat"].max()), float(between["ess"].min())
    return (
        f"sampled weights: largest split R-hat {worst[0]:.3f}, smallest effective sample size {worst[1]:.0f}; of their "
        f"errors, sampling alone makes: {shares}"
    )


def _of_mean(errors: xr.DataArray) -> float:
    """Compute the standard error of a mean of values with independent `errors`."""
    return float(np.sqrt(np.sum(errors.values**2))) / errors.size


def _check(check: xr.Dataset) -> str:
    """Describe the distance of U_1 between sampled weights and the sampler of order parameters."""
    deviation = check["U_1_deviation"].values
    above = deviation[np.triu_indices(len(deviation))]
    known = above[np.isfinite(above)]
    text = (
        f"check of the sampled U_1 at seed {check.attrs['seed']} by the exact posterior of the order parameters: of "
        f"{len(known)} entries the root mean square difference is {np.sqrt(np.mean(known**2)):.2f} standard errors, "
        f"the largest {np.max(np.abs(known)):.2f}; largest split R-hat {check['r_hat'].item():.3f}, smallest effective "
        f"sample size {check['ess'].item():.0f}"
    )
    doubt = "" if check["mixed"].item() else f"; not mixed: {check['diagnosis'].item()}"
    return "\n".join(wrap(text + doubt, 116, subsequent_indent="  "))


def _heads(pruning: xr.Dataset, distribution: str) -> str:
    """Format a line per head of the first network by ascending score."""
    pruning = first_network(pruning)
    rows = [["layer.head", "score", "of trained weights", "accuracy without it"]]
    for i in np.argsort(pruning["score"].values, kind="stable"):
        head = pruning.isel(head=i).sel(distribution=distribution)
        scores = [f"{head[name].item():.3f}" for name in ("score", "trained_score")]
        rows.append([str(head["head"].item()), *scores, with_error(head["single_accuracy"])])
    return _align(rows)


def _removable(pruning: xr.Dataset, distribution: str) -> str:
    """Describe how many heads can be removed in order of score at little loss, and the savings."""
    accuracy = pruning["accuracy"].sel(distribution=distribution, removal="score")
    change = accuracy - accuracy.sel(removed=0)
    # Round, because rounding error could decide whether a loss equal to the limit passes.
    is_little = -over_seeds(change)[0].values.round(9) < LITTLE
    count = int(np.argmin(is_little)) - 1 if not is_little.all() else len(is_little) - 1
    saved = {
        label: 100 * (1 - over_networks(pruning[name].sel(removed=count) / pruning[name].sel(removed=0)).item())
        for name, label in (("parameters", "parameters"), ("inference_seconds", "inference time"))
    }
    return (
        f"removing heads by score: {count} of {pruning.sizes['head']} can go at less than {LITTLE} lost accuracy "
        f"({with_error(change.sel(removed=count), '+')} from {with_error(accuracy.sel(removed=0))}),\n"
        f"  which saves {' and '.join(f'{share:.0f} % of {label}' for label, share in saved.items())}"
    )


def _align(rows: Sequence[Sequence[str]]) -> str:
    """Align cells in columns: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("   ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)
