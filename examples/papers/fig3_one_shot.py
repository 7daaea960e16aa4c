"""One-shot images: theory at every width, and networks trained by gradient descent.

    python examples/papers/fig3_one_shot.py --preset small

Figs. 3 b-f, 6 and 7 of Tiberi et al., arXiv 2405.15926. The preset "small" draws its
own characters and takes hours on two cores; "paper" has the published sizes, downloads
Omniglot, MNIST and Fashion-MNIST, and wants an accelerator. A stopped run resumes.
"""

import argparse
import warnings
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import tasks
import xarray as xr
from matplotlib.colors import SymLogNorm
from training import Training, initial_network, train

import theorykit
from theorykit import bpkr
from theorykit.bpkr.sampling import MixingWarning, Schedule, sample
from theorykit.bpkr.sweeps import order_parameters_of, sweep
from theorykit.plots.style import DIVERGING, LIMITS, THEORY, letter_panels, use_style

# Variants: heads of each layer, and dimension of queries and keys
SMALL = {
    "variants": {"L2H4": ((4, 4), 32), "L3H3": ((3, 3, 3), 32), "L2H8": ((8, 8), 16)},
    "characters": (600, 100, 200),  # for training, validation and tests
    "channels": 1,
    "width": 64,
    "training": Training(20_000, patience=10),
    "widths": (10, 30, 100, 300, 1000),
    "temperatures": (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0),
    "examples": (200, 1000),  # training, and test of each distribution
    "schedule": Schedule(chains=4, warmup=250, draws=1000),
}
PAPER = {
    "variants": {"L2H4": ((4, 4), 128), "L3H3": ((3, 3, 3), 170), "L2H8": ((8, 8), 64)},
    "characters": None,
    "channels": 3,
    "width": 512,
    "training": Training(10_000, 128, 3e-4, 1000),
    "widths": (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
    "temperatures": (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5),
    "examples": (600, 1000),
    "schedule": Schedule(chains=4, warmup=1000, draws=4000),
}
TINY = SMALL | {  # to try the script
    "characters": (60, 30, 40),
    "training": Training(4, 8, validate_every=2, validation_examples=20),
    "widths": (10, 100),
    "temperatures": (0.1, 0.5),
    "examples": (30, 40),
    "schedule": Schedule(chains=2, warmup=10, draws=20),
}
PRESETS = {"small": SMALL, "paper": PAPER, "tiny": TINY}
FIGURES = {"L2H4": 3, "L3H3": 6, "L2H8": 7}
parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--preset", choices=PRESETS, default="small")
parser.add_argument("--variants", nargs="+", choices=FIGURES, default=[*FIGURES])
parser.add_argument("--training-seeds", type=int, default=3)
parser.add_argument("--seeds", type=int, default=5, help="draws of examples")
parser.add_argument("--output", type=Path, default=Path("one-shot"))
options = parser.parse_args()
settings = SimpleNamespace(**PRESETS[options.preset])
seeds = range(options.seeds)
theorykit.enable_float64()

if settings.characters is None:
    parts = tasks.omniglot()
    unseen = {"fashion-mnist": tasks.mnist(tasks.FASHION_MNIST), "mnist": tasks.mnist()}
else:
    ends = np.cumsum((0, *settings.characters))
    characters = tasks.characters(int(ends[-1]), 20, key=jax.random.key(0))
    parts = [characters.classes(*pair) for pair in pairwise(ends)]
    unseen = {"digits": tasks.digits()}
training, validation, test = (tasks.OneShotTask(each, settings.channels) for each in parts)
tests = {"in distribution": test}
tests |= {name: tasks.OneShotTask(each, settings.channels) for name, each in unseen.items()}


def path_examples(heads: bpkr.Heads, task: tasks.OneShotTask, count: int, key) -> tuple:
    """Draw path features and labels, 200 examples at a time."""
    architecture, parts = bpkr.Architecture(heads.counts, 1, temperature=1.0), []
    for start in range(0, count, 200):
        number = jax.random.fold_in(key, start // 200)
        inputs, labels = task(min(200, count - start), key=number)
        features = bpkr.path_features(inputs, heads(inputs), architecture, "mean")
        parts.append((features, labels))
    return tuple(map(jnp.concatenate, zip(*parts, strict=True)))


def examples(heads: bpkr.Heads, seed: int) -> bpkr.Data:
    """Draw training examples, then test examples of each distribution in turn."""
    key, *keys = jax.random.split(jax.random.key(seed), 1 + len(tests))
    first, count = settings.examples
    drawn = zip(tests.values(), keys, strict=True)
    others = [path_examples(heads, task, count, key) for task, key in drawn]
    others = map(jnp.concatenate, zip(*others, strict=True))
    return bpkr.Data(*path_examples(heads, training, first, key), *others)


# ---- Theory, with temperatures chosen by accuracy or by evidence


def theory(heads: bpkr.Heads, folder: Path) -> xr.Dataset:
    """Solve every width, the limit, and every temperature, for every seed."""
    architecture = bpkr.Architecture(heads.counts, 1, temperature=1.0)
    grid = {"width": (*settings.widths, np.inf), "temperature": settings.temperatures}
    draw = lambda seed: examples(heads, seed)  # noqa: E731
    how = {"seeds": list(seeds), "folder": folder, "tolerance": 1e-6}
    found = sweep(architecture, draw, **grid, **how)
    axes = ("seed", "width", "temperature")
    mean = found["mean"].transpose(*axes, "test_example")
    labels = found["test_label"].transpose("seed", "test_example").values
    right = np.sign(mean.values) == labels[:, None, None]
    shares = right.reshape(*right.shape[:-1], len(tests), -1).mean(-1)
    found["accuracy"] = (*axes, "distribution"), shares
    scores = [found["accuracy"].isel(distribution=0), found["log_evidence"]]
    best = [each.mean("seed", skipna=False).idxmax("temperature") for each in scores]
    found["chosen"] = xr.concat(best, xr.Variable("rule", ["accuracy", "evidence"]))
    names = [name for name in found if name.startswith(("U_", "head_score_"))]
    kept = found[[*names, "u", "converged", "accuracy", "chosen"]]
    return kept.assign_coords(distribution=list(tests))


# ---- U_1 of the theory, of sampled weights, and of the trained network

ORIGINS = ("theory", "sampled", "trained")
MEASURES = ("correlation", "same sign", "same sign in blocks", "strength of blocks")


def compare(network: bpkr.Network, solved: xr.Dataset, folder: Path) -> xr.Dataset:
    """Compare at the smallest width, and align kernels with the labels."""
    width = settings.widths[0]
    temperature = float(solved["chosen"].sel(width=width, rule="accuracy"))
    at = {"width": width, "temperature": temperature}
    architecture = bpkr.Architecture(network.heads.counts, width, temperature=temperature)
    trained = np.asarray(bpkr.empirical_order_parameters(network).matrices[0])
    rows = []
    for seed in seeds:
        data = examples(network.heads, seed)
        point = order_parameters_of(architecture, solved.sel(seed=seed, **at))
        options = {"sampler": "gibbs", "key": jax.random.key(seed)}
        options |= {"schedule": settings.schedule, "folder": folder / f"T={temperature}-{seed}"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MixingWarning)
            drawn = sample(architecture, data, **options)
        means = drawn["posterior"].to_dataset().mean(("chain", "draw"))
        matrices = np.stack([point.matrices[0], means["U_1"], trained])
        measured = [agreement(matrices[0], each, network.heads.counts[0]) for each in matrices]
        row = {
            "U": (("origin", "path_1", "other_path_1"), matrices),
            "agreement": (("origin", "measure"), measured),
            "mixed": drawn.attrs["mixed"],
            "temperature_here": temperature,
        }
        problem, cosines = bpkr.Problem(architecture, bpkr.Data(data.features)), []
        for each in (point, bpkr.gp_limit(architecture)):
            kernel = bpkr.kernel(problem, each)
            cosines.append(bpkr.kernel_task_alignment(kernel, data.labels).cosines)
        row["alignment"] = (("kernel_width", "component"), cosines)
        rows.append(xr.Dataset(row))
    found = xr.concat(rows, xr.Variable("seed", list(seeds)))
    return found.assign_coords(origin=list(ORIGINS), measure=list(MEASURES))


def agreement(matrix: np.ndarray, other: np.ndarray, first_heads: int) -> list[float]:
    """Compare entries above the diagonal; blocks are pairs that share the first head."""
    above = np.triu_indices(len(matrix), k=1)
    first = np.arange(len(matrix)) * first_heads // len(matrix)
    shared = (first[:, None] == first)[above]
    a, b = matrix[above], other[above]
    same = np.sign(a) == np.sign(b)
    strength = abs(b[shared]).mean() / abs(b[~shared]).mean()
    return [np.corrcoef(a, b)[0, 1], same.mean(), same[shared].mean(), strength]


# ---- Heads removed from the trained network, which is not trained again


def prune(network: bpkr.Network, solved: xr.Dataset) -> xr.Dataset:
    """Remove heads by score, by the accuracy without each, and in random order."""
    counts = network.heads.counts
    best = solved.sel(width=settings.widths[0], rule="accuracy")
    best = best.sel(temperature=float(best["chosen"]))
    layers = range(1, len(counts) + 1)
    scores = [best[f"head_score_{layer}"].mean("seed").values for layer in layers]
    heads = [bpkr.Head(layer, i + 1) for layer in layers for i in range(counts[layer - 1])]
    places = np.stack(np.unravel_index(np.arange(np.prod(counts)), counts))

    def outputs(task, seed: int) -> tuple[np.ndarray, np.ndarray]:
        key = jax.random.fold_in(jax.random.key(1 + seed), 1)
        features, labels = path_examples(network.heads, task, settings.examples[1], key)
        return np.asarray(network.path_outputs(features)), np.asarray(labels)

    def accuracy(drawn, removed) -> float:
        stays = np.ones(places.shape[1], dtype=bool)
        for layer, head in removed:
            stays &= places[layer - 1] != head - 1
        return np.mean(np.sign(drawn[0][:, stays].sum(axis=1)) == drawn[1])

    held_out = outputs(validation, -1)
    alone = np.array([-accuracy(held_out, [head]) for head in heads])
    shuffled = [jax.random.permutation(key, len(heads)) for key in jax.random.split(jax.random.key(0), 10)]
    ends = np.cumsum(counts)[:-1]
    rankings = [scores, *(np.split(np.asarray(each), ends) for each in (alone, *shuffled))]
    orders = [bpkr.removable_heads(ranking) for ranking in rankings]
    steps = range(len(orders[0]) + 1)
    single, curves = [], []
    for seed in seeds:
        for task in tests.values():
            drawn = outputs(task, seed)
            single.append([accuracy(drawn, [head]) for head in heads])
            rows = [[accuracy(drawn, order[:count]) for count in steps] for order in orders]
            curves.append([*rows[:2], np.mean(rows[2:], axis=0)])
    by_draw = len(seeds), len(tests)
    axes = ("seed", "distribution")
    return xr.Dataset(
        {
            "score": ("head", np.concatenate(scores)),
            "single": ((*axes, "head"), np.reshape(single, (*by_draw, -1))),
            "pruned": ((*axes, "order", "removed"), np.reshape(curves, (*by_draw, 3, -1))),
        },
        {"head": [f"{layer}.{head}" for layer, head in heads]},
    )


def run(name: str, seed: int) -> xr.Dataset:
    """Train one network, and compute its theory, comparison and pruning."""
    folder = options.output / options.preset / f"{name}-{seed}"
    heads, dimension = settings.variants[name]
    initial_key, training_key = jax.random.split(jax.random.key(seed))
    architecture = bpkr.Architecture(heads, settings.width, temperature=1.0)
    network = initial_network(architecture, dimension, training.features, key=initial_key)
    streams = training, validation, settings.training
    network, history = train(network, *streams, key=training_key, path=folder / "training.eqx")
    solved = theory(network.heads, folder / "theory")
    compared = compare(network, solved, folder / "draws")
    best = history["validation_accuracy"].max()
    return xr.merge([solved, compared, prune(network, solved)]).assign(best=best)


# ---- Means over networks and draws, table and figures


def mean_error(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Average over networks and draws, with the standard error.

    Networks see the same examples, so their effects and those of the draws are
    separated by a two-way analysis of variance.
    """
    axes = ("training_seed", "seed")
    n, m = (values.sizes[axis] for axis in axes)
    mean, rest = values.mean(axes), 0.0
    rows, columns = values.mean("seed"), values.mean("training_seed")
    of_rows = m * rows.var("training_seed", ddof=1) if n > 1 else 0 * mean
    of_columns = n * columns.var("seed", ddof=1) if m > 1 else 0 * mean
    if n > 1 and m > 1:
        rest = ((values - rows - columns + mean) ** 2).sum(axes) / ((n - 1) * (m - 1))
    return mean, np.sqrt(np.maximum(of_rows + of_columns - rest, rest) / (n * m))


def show(title: str, values: xr.DataArray) -> None:
    """Print means and standard errors."""
    mean, error = mean_error(values.reset_coords(drop=True))
    table = xr.Dataset({"mean": mean, "error": error}).to_dataframe()
    table = table.unstack() if mean.ndim > 1 else table
    print(f"\n{title}\n{table.to_string(float_format='{:.3f}'.format)}")


def at_best(found: xr.Dataset, rule: str) -> xr.DataArray:
    """Select the accuracy at the temperature that a rule chooses at every width."""
    chosen = found["chosen"].sel(rule=rule)
    return found["accuracy"].sel(temperature=chosen)


def draw_accuracy(axes, found: xr.Dataset) -> None:
    """Draw accuracies over width; colours are distributions, and marks are rules."""
    colors = dict(zip(tests, (THEORY, *LIMITS), strict=False))
    for name, color in colors.items():
        axes.plot([], [], color=color, linewidth=5, label=name)
    rules = ("accuracy", "0.3", "o-", "--"), ("evidence", "white", "o", ":")
    for rule, face, line, style in rules:
        look = {"markersize": 4, "markerfacecolor": face}
        axes.plot([], [], line, color="0.3", label=f"$T$ by {rule}", **look)
        axes.plot([], [], style, color="0.3", label=rf"$N=\infty$, $T$ by {rule}")
        for name, color in colors.items():
            mean, error = mean_error(at_best(found, rule).sel(distribution=name))
            points = mean["width"][:-1] * (1.0 if rule == "accuracy" else 1.06)
            look["markerfacecolor"] = color if rule == "accuracy" else face
            axes.errorbar(points, mean[:-1], error[:-1], fmt=line, color=color, **look)
            axes.axhline(mean[-1], color=color, linestyle=style)
            if rule == "accuracy":
                band = float(mean[-1] - error[-1]), float(mean[-1] + error[-1])
                axes.axhspan(*band, color=color, alpha=0.12, linewidth=0)
    axes.set(xscale="log", xlabel="width $N$", ylabel="test accuracy", title="accuracy")


def draw_matrices(panels, found: xr.Dataset) -> None:
    """Draw U_1 of all origins on the colour scale of figure 2, with mean agreement."""
    one = found.isel(training_seed=0, seed=0)
    mean, error = mean_error(found["agreement"])
    # Blocks are pairs of paths that share the first head.
    first, size = np.unique([path[0] for path in one["path_1"].values], return_counts=True)
    ends = np.cumsum(size) - 0.5
    for i, axes in enumerate(panels):
        norm = SymLogNorm(1, vmin=-20, vmax=20)
        image = axes.imshow(one["U"].isel(origin=i), cmap=DIVERGING, norm=norm)
        for end in ends[:-1]:
            axes.axhline(end, color="0.35", linewidth=0.6)
            axes.axvline(end, color="0.35", linewidth=0.6)
        axes.set_xticks(ends - size / 2, first)
        axes.set_yticks(ends - size / 2, first)
        axes.set_xlabel("first head of the path")
        numbers = [rf"{x:.2f} $\pm$ {dx:.2f}" for x, dx in zip(mean[i], error[i], strict=True)]
        title = "{}: correlation {}\nsame sign {}\nin blocks {}".format(ORIGINS[i], *numbers)
        at_low = f"theory, $N={settings.widths[0]}$\n$T={float(one['temperature_here']):g}$"
        doubt = "" if i != 1 or found["mixed"].all() else "chains not mixed\n"
        axes.set_title(doubt + title if i else at_low, loc="center", fontweight="normal", fontsize=8)
    look = {"ticks": [-10, -1, 0, 1, 10], "format": "%g"}
    panels[0].figure.colorbar(image, ax=panels, label="order parameter $U_1$", shrink=0.8, **look)


def draw(found: xr.Dataset) -> plt.Figure:
    """Draw accuracies, kernels, order parameters, and heads."""
    figure = plt.figure(figsize=(7, 8.6))
    top, middle, bottom = figure.subfigures(3, 1, height_ratios=(1.05, 0.95, 1))
    one, low = found.isel(training_seed=0), settings.widths[0]
    where = {"loc": "outside lower center"}

    left, right = top.subfigures(1, 2)
    a, b = left.subplots(), right.subplots()
    draw_accuracy(a, found)
    errors = "bars, bands: standard errors over networks and draws"
    left.legend(title=errors, ncols=2, fontsize=7, **where)

    cosines = one["alignment"].isel(seed=0).values[:, :50]
    for i, (color, label) in enumerate(((THEORY, f"$N={low}$"), (LIMITS[0], r"$N=\infty$"))):
        places = np.arange(1, cosines.shape[1] + 1) + 0.4 * (i - 0.5)
        b.bar(places, cosines[i], 0.4, color=color, label=label)
    b.set(xlabel="kernel component, by eigenvalue", ylabel="|cosine| with labels")
    b.set(title="kernel of one network and draw")
    b.legend()

    c = middle.subplots(1, len(ORIGINS))
    draw_matrices(c, found)

    left, right = bottom.subfigures(1, 2)
    d, below = left.subplots(2, 1, sharex=True)
    order = np.argsort(one["score"].values, kind="stable")
    places = range(len(order))
    d.bar(places, one["score"][order], 0.7, color=THEORY)
    d.set(ylabel="head score", title="heads of one network")
    inside = one.isel(distribution=0, head=order).expand_dims("training_seed")
    mean, error = mean_error(inside["single"])
    look = {"color": THEORY, "fmt": "o", "markersize": 4}
    below.errorbar(places, mean, error, label="without this head", **look)
    whole, _ = mean_error(inside["pruned"].isel(order=0, removed=0))
    below.axhline(float(whole), color="0.4", linewidth=1, label="whole network")
    below.set_xticks(places, one["head"].values[order], fontsize=7, rotation=90)
    below.set(xlabel="layer.head", ylabel="accuracy")
    left.legend(title="bars: standard errors over draws", ncols=2, **where)

    e = right.subplots(len(tests), 1, sharex=True)
    orders = (("score", THEORY), ("leave one out", LIMITS[1]), ("random", "0.55"))
    for name, axes in zip(tests, e, strict=True):
        mean, error = mean_error(found["pruned"].sel(distribution=name))
        for i, (label, color) in enumerate(orders):
            look = {"color": color, "fmt": "o-", "markersize": 3}
            removed = range(mean.shape[1])
            axes.errorbar(removed, mean[i], error[i], label=label, **look)
        axes.set(ylabel="accuracy", title=f"heads removed, {name}")
    axes.set_xlabel("heads removed, without further training")
    handles = axes.get_legend_handles_labels()
    right.legend(*handles, title="removed by; bars: standard errors", ncols=3, **where)
    letter_panels(a, b, c[0], d, e[0])
    return figure


results = {}
for name in options.variants:
    axis = xr.Variable("training_seed", range(options.training_seeds))
    results[name] = xr.concat([run(name, seed) for seed in axis.values], axis)
    found, low = results[name], settings.widths[0]
    shares = found[["best", "converged", "mixed"]].mean()
    print(name, *(f"{each}: {float(shares[each]):.3f}" for each in shares))
    for rule in ("accuracy", "evidence"):
        chosen = at_best(found, rule)
        show(f"accuracy, temperature by {rule}", chosen)
        show(f"gain of N = {low}", chosen.sel(width=low) - chosen)
    show("agreement with the theory", found["agreement"])
    pruned = found["pruned"].isel(distribution=0)
    show("accuracy over heads removed, by score, leave one out, random", pruned)
    show("loss of accuracy", pruned.isel(removed=0) - pruned)
    with use_style():
        draw(results[name]).savefig(options.output / f"figure-{FIGURES[name]}.png")
xr.DataTree.from_dict(results).to_netcdf(options.output / "one-shot.nc")
