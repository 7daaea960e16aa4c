"""Small fixed results of the one-shot experiment, as input of its figures and table."""

from itertools import product

import numpy as np
import xarray as xr

UNSEEN = ("digits",)
AGREEMENT = ("correlation", "sign_agreement", "block_sign_agreement")
# The origins are theory, sampled and trained; only sampling has a Monte Carlo error.
OF_SAMPLING = np.array([0.0, 1.0, 0.0])
WIDTHS, TEMPERATURES = (10, 100, 1000), (0.1, 0.5)


def networks(count: int, **options) -> dict[str, xr.Dataset]:
    """Make the stages of one variant with several trained networks."""
    found = [variant(network=number, **options) for number in range(count)]
    axis = xr.DataArray(range(count), dims="training_seed", name="training_seed")
    return {
        stage: found[0][stage] if stage == "check" else xr.concat([one[stage] for one in found], dim=axis)
        for stage in found[0]
    }


def variant(heads=(2, 2), *, seeds=2, unseen=UNSEEN, mixed=1, network=0) -> dict[str, xr.Dataset]:
    """Make the stages of one variant from random numbers."""
    draw = np.random.default_rng(network)
    distributions, layers = ["in distribution", *unseen], len(heads)
    paths = ["".join(map(str, path)) for path in product(*(range(1, count + 1) for count in heads))]
    along = {"path_1": paths, "other_path_1": paths}

    def uniform(low: float, high: float, **sizes: int):
        return tuple(sizes), draw.uniform(low, high, tuple(sizes.values()))

    points = {"seed": seeds, "width": len(WIDTHS), "temperature": len(TEMPERATURES)}
    theory = xr.Dataset(
        {
            "accuracy": uniform(0.7, 0.9, **points, distribution=len(distributions)),
            "gp_accuracy": uniform(0.7, 0.8, seed=seeds, temperature=2, distribution=len(distributions)),
            "converged": (tuple(points), np.ones(tuple(points.values()), dtype=bool)),
            "chosen_temperature": (("rule", "width"), [[0.5, 0.1, 0.1], [0.1, 0.1, 0.5]]),
            "gp_chosen_temperature": ("rule", [0.1, 0.5]),
        },
        coords={
            "seed": range(seeds),
            "width": list(WIDTHS),
            "temperature": list(TEMPERATURES),
            "distribution": distributions,
            "rule": ["accuracy", "evidence"],
            **along,
        },
    )
    kernel = xr.Dataset(
        {"alignment": uniform(0, 0.5, kernel_width=3, component=60)},
        coords={"kernel_width": [10.0, 1000.0, np.inf], "component": np.arange(1, 61)},
    )
    return {
        "training": xr.Dataset({"validation_accuracy": ("step", [0.6, 0.83, 0.81])}, coords={"step": [100, 200, 300]}),
        "theory": theory,
        "kernel": kernel,
        "order_parameters": between_paths(draw, along, mixed, seeds, distributions),
        "check": check(draw, along, mixed),
        "pruning": pruning(draw, heads, seeds, sorted(distributions), layers),
    }


def check(draw: np.random.Generator, along: dict[str, list[str]], mixed: int) -> xr.Dataset:
    count = len(along["path_1"])
    return xr.Dataset(
        {
            "U_1_deviation": (tuple(along), np.triu(draw.normal(size=(count, count)))),
            "mixed": mixed,
            "diagnosis": "mixed" if mixed else "its chains differ",
            "r_hat": 1.004,
            "ess": 612.0,
        },
        coords=along,
        attrs={"seed": 0},
    )


def between_paths(
    draw: np.random.Generator, along: dict[str, list[str]], mixed: int, seeds: int, distributions: list[str]
) -> xr.Dataset:
    """All seeds are mixed, or with `mixed` 0 all but the last."""
    origins, count = ["theory", "sampled", "trained"], len(along["path_1"])
    matrices = draw.normal(size=(seeds, 3, count, count)) / 5 + np.eye(count)
    agreement = draw.uniform(0.3, 0.9, (3, seeds, 3, 3))
    agreement = (agreement + np.swapaxes(agreement, 2, 3)) / 2
    is_mixed = [1] * (seeds - 1) + [mixed]
    of_pairs, of_examples = ("seed", "of", "origin"), ("seed", "origin", "distribution")
    return xr.Dataset(
        {
            "U_1": (("seed", "origin", *along), matrices + np.swapaxes(matrices, 2, 3)),
            **{name: (of_pairs, each) for name, each in zip(AGREEMENT, agreement, strict=True)},
            "block_strength": (("seed", "origin"), np.array([9.1, 8.2, 2.5]) + np.zeros((seeds, 1))),
            "accuracy": (of_examples, draw.integers(60, 90, (seeds, 3, len(distributions))) / 100),
            **{f"{name}_error": (of_pairs, np.full((seeds, 3, 3), 0.01 * OF_SAMPLING)) for name in AGREEMENT},
            "block_strength_error": (("seed", "origin"), np.full((seeds, 3), 0.1 * OF_SAMPLING)),
            "accuracy_error": (of_examples, np.full((seeds, 3, len(distributions)), 0.02 * OF_SAMPLING[:, None])),
            "r_hat": ("seed", 1.002 + 0.001 * np.arange(seeds)),
            "ess": ("seed", 700.0 - np.arange(seeds)),
            "mixed": ("seed", is_mixed),
            "diagnosis": ("seed", ["mixed" if one else "it is said why" for one in is_mixed]),
        },
        coords={"origin": origins, "of": origins, "seed": range(seeds), "distribution": distributions, **along},
        attrs={"width": 10},
    ).assign(temperature=0.5)


def pruning(draw: np.random.Generator, heads, seeds: int, distributions: list[str], layers: int) -> xr.Dataset:
    """Make accuracies that by score fall by 0.004 per head, and by more out of distribution."""
    names = [f"{layer}.{head}" for layer, count in enumerate(heads, 1) for head in range(1, count + 1)]
    removed = np.arange(len(names) - layers + 1)
    slopes = np.array([[0.004 if name == "in distribution" else 0.03] for name in distributions])
    falls = slopes[..., None] * np.array([[1.0], [2.0], [5.0]]) * removed
    accuracy = 0.85 + 0.01 * np.arange(seeds)[:, None, None, None] - falls
    of_heads = len(names)
    return xr.Dataset(
        {
            "accuracy": (("seed", "distribution", "removal", "removed"), accuracy),
            "single_accuracy": (
                ("seed", "distribution", "head"),
                draw.uniform(0.5, 0.8, (seeds, len(distributions), of_heads)),
            ),
            "score": ("head", draw.uniform(0.3, 1, of_heads)),
            "trained_score": ("head", draw.uniform(0.3, 1, of_heads)),
            "parameters": ("removed", 1000 - 100 * removed),
            "inference_seconds": ("removed", 0.2 - 0.01 * removed),
        },
        coords={
            "seed": range(seeds),
            "distribution": distributions,
            "removal": ["score", "leave one out", "random"],
            "removed": removed,
            "head": names,
        },
    )


def tree(**variants: dict[str, xr.Dataset]) -> xr.DataTree:
    return xr.DataTree.from_dict(
        {f"{name}/{stage}": dataset for name, stages in variants.items() for stage, dataset in stages.items()}
    )
