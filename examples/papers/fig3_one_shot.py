"""One-shot images: theory at every width, and networks trained by gradient descent.

    python examples/papers/fig3_one_shot.py --preset small

Figs. 3 b-f, 6 and 7 of Tiberi et al., arXiv 2405.15926. The preset "small" draws its
own characters and takes hours on two cores; "paper" has the published sizes, downloads
Omniglot, MNIST and Fashion-MNIST, and wants an accelerator. A stopped run resumes.
"""

import argparse
import time
import warnings
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import tasks
import xarray as xr
from training import Training, initial_network, train

import theorykit
from theorykit import bpkr
from theorykit.bpkr.sampling import MixingWarning, Schedule, sample
from theorykit.bpkr.sweeps import order_parameters_of, sweep
from theorykit.plots.style import DIVERGING, LIMITS, THEORY, use_style

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
    first, count = path_examples(heads, training, settings.examples[0], key), settings.examples[1]
    drawn = zip(tests.values(), keys, strict=True)
    others = [path_examples(heads, task, count, key) for task, key in drawn]
    return bpkr.Data(*first, *map(jnp.concatenate, zip(*others, strict=True)))


def share_right(outputs, labels) -> np.ndarray:
    """Return accuracies (..., distributions) of outputs (..., test examples)."""
    right = np.sign(outputs) == np.asarray(labels)
    return right.reshape(*right.shape[:-1], len(tests), -1).mean(-1)


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
    shares = share_right(mean.values, labels[:, None, None])
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
        problem = bpkr.Problem(architecture, data)
        outputs = (
            bpkr.predict(problem, point).mean,
            means["sampled_output"].values,
            network.path_outputs(data.test_features).sum(axis=1),
        )
        matrices = np.stack([point.matrices[0], means["U_1"], trained])
        measured = [agreement(matrices[0], each, network.heads.counts[0]) for each in matrices]
        accuracies = [share_right(each, data.test_labels) for each in outputs]
        row = {
            "U": (("origin", "path_1", "other_path_1"), matrices),
            "agreement": (("origin", "measure"), measured),
            "origin_accuracy": (("origin", "distribution"), accuracies),
            "mixed": drawn.attrs["mixed"],
        }
        if seed == 0:
            limit = bpkr.gp_limit(architecture)
            kernels = [
                bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(data.features)), each) for each in (point, limit)
            ]
            cosines = [bpkr.kernel_task_alignment(each, data.labels).cosines for each in kernels]
        rows.append(xr.Dataset(row))
    found = xr.concat(rows, xr.Variable("seed", list(seeds)))
    found["alignment"] = ("kernel_width", "component"), cosines
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
        stays = [all(places[layer - 1, path] != head - 1 for layer, head in removed) for path in range(places.shape[1])]
        return np.mean(np.sign(drawn[0][:, stays].sum(axis=1)) == drawn[1])

    held_out = outputs(validation, -1)
    alone = {head: accuracy(held_out, [head]) for head in heads}
    keys = jax.random.split(jax.random.key(0), 10)
    shuffled = [[heads[i] for i in jax.random.permutation(key, len(heads)).tolist()] for key in keys]
    orders = [bpkr.rank_heads(scores), sorted(heads, key=lambda head: -alone[head]), *shuffled]
    orders = [bpkr.removable_heads(order, counts) for order in orders]
    steps = range(len(orders[0]) + 1)
    single, curves = [], []
    for seed in seeds:
        for task in tests.values():
            drawn = outputs(task, seed)
            single.append([accuracy(drawn, [head]) for head in heads])
            of_orders = np.array([[accuracy(drawn, order[:count]) for count in steps] for order in orders])
            curves.append([*of_orders[:2], of_orders[2:].mean(axis=0)])
    inputs, saved = validation(256, key=jax.random.key(0)).inputs, []
    for count in steps:
        smaller = bpkr.without_heads(network, orders[0][:count])
        forward = eqx.filter_jit(lambda network, inputs: network(inputs))
        times = []
        for _ in range(8):
            began = time.perf_counter()
            jax.block_until_ready(forward(smaller, inputs))
            times.append(time.perf_counter() - began)
        saved.append((smaller.parameter_count, np.median(times[1:])))
    by_draw = len(seeds), len(tests)
    axes = ("seed", "distribution")
    return xr.Dataset(
        {
            "score": ("head", np.concatenate(scores)),
            "single": ((*axes, "head"), np.reshape(single, (*by_draw, -1))),
            "pruned": ((*axes, "order", "removed"), np.reshape(curves, (*by_draw, 3, -1))),
            "left": (("removed", "what"), np.array(saved) / saved[0]),
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


def text(values: xr.DataArray, digits: int = 3) -> str:
    mean, error = mean_error(values)
    return f"{float(mean):.{digits}f} +- {float(error):.{digits}f}"


def at_best(found: xr.Dataset, rule: str) -> xr.DataArray:
    """Select the accuracy at the temperature that a rule chooses at every width."""
    return found["accuracy"].sel(temperature=found["chosen"].sel(rule=rule))


def show(name: str, found: xr.Dataset) -> None:
    """Print the main numbers of a variant."""
    best, low = ", ".join(f"{float(each):.3f}" for each in found["best"]), settings.widths[0]
    print(f"{name}: validation accuracy {best}; converged {found['converged'].mean().item():.0%}")
    for rule in ("accuracy", "evidence"):
        chosen = at_best(found, rule)
        print(f"  accuracy, T chosen by {rule}: {', '.join(tests)}")
        rows = {f"{width:g}": chosen.sel(width=width) for width in found["width"].values}
        rows[f"{low} - inf"] = chosen.sel(width=low) - chosen.sel(width=np.inf)
        for label, row in rows.items():
            print(f"    N = {label:8}", *(text(row.sel(distribution=each)) for each in tests))
    for origin in ORIGINS:
        row = found.sel(origin=origin)
        numbers = [f"{each} {text(row['agreement'].sel(measure=each))}" for each in MEASURES]
        accuracy = text(row["origin_accuracy"].isel(distribution=0))
        print(f"  {origin} and theory at N = {low}: {', '.join(numbers)}; accuracy {accuracy}")
    print(f"  sampling mixed in {float(found['mixed'].mean()):.0%} of runs; heads removed by score:")
    pruned = found["pruned"].isel(distribution=0, order=0)
    for count in range(found.sizes["removed"]):
        row, left = pruned.isel(removed=count), found["left"].isel(removed=count)
        shares = "parameters {:.0%}, time {:.0%}".format(*left.mean("training_seed").values)
        print(f"    {count}: {text(row)}, loss {text(pruned.isel(removed=0) - row)}; {shares}")


def titled(panel, title: str):
    panel.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    return panel


def draw(found: xr.Dataset) -> plt.Figure:
    figure = plt.figure(figsize=(10, 11))
    top, middle, bottom = figure.subfigures(3, 1, height_ratios=(1, 1.05, 1.25))
    left, right = top.subfigures(1, 2, width_ratios=(1, 1.15))
    one, low = found.isel(training_seed=0), settings.widths[0]
    colors = dict(zip(tests, (THEORY, *LIMITS), strict=False))

    axes = titled(left, "b   accuracy over width").subplots()
    for rule, face, style in (("accuracy", None, "--"), ("evidence", "white", ":")):
        chosen = at_best(found, rule)
        solved = found["converged"].sel(temperature=found["chosen"].sel(rule=rule))
        for name, color in colors.items():
            mean, error = mean_error(chosen.sel(distribution=name))
            points = mean["width"][:-1] * (1.0 if rule == "accuracy" else 1.06)
            look = {"fmt": "o-" if face is None else "o", "color": color, "markerfacecolor": face}
            label = f"{name}, $T$ by {rule}"
            axes.errorbar(points, mean[:-1], error[:-1], markersize=4, label=label, **look)
            unsolved = ~solved.all(["training_seed", "seed"]).values[:-1]
            axes.plot(points[unsolved], mean[:-1][unsolved], "kx", markersize=7)
            level = rf"{name}, $N=\infty$, $T$ by {rule}"
            axes.axhline(mean[-1], color=color, linestyle=style, label=level)
            if rule == "accuracy":
                band = float(mean[-1] - error[-1]), float(mean[-1] + error[-1])
                axes.axhspan(*band, color=color, alpha=0.12, linewidth=0)
    axes.set(xscale="log", xlabel="width $N$", ylabel="test accuracy")
    left.legend(loc="outside lower center", ncols=2, fontsize=7)

    axes = titled(right, "c   kernel components and labels, one network and draw").subplots()
    cosines = one["alignment"].values[:, :50]
    for i, (color, label) in enumerate(((THEORY, f"$N={low}$"), (LIMITS[0], r"$N=\infty$"))):
        places = np.arange(1, cosines.shape[1] + 1) + 0.4 * (i - 0.5)
        axes.bar(places, cosines[i], 0.4, color=color, label=label)
    axes.set(xlabel="kernel component, by eigenvalue", ylabel="|cosine| with labels")
    right.legend(loc="outside lower center", ncols=2)

    titled(middle, "d   order parameter $U_1$, one network and draw; mean agreement with theory")
    for axes, origin in zip(middle.subplots(1, 3), ORIGINS, strict=True):
        matrix, row = one["U"].isel(seed=0).sel(origin=origin), found["agreement"].sel(origin=origin)
        most = float(abs(matrix).max())
        image = axes.imshow(matrix, cmap=DIVERGING, vmin=-most, vmax=most)
        middle.colorbar(image, ax=axes, shrink=0.8, aspect=25)
        paths = matrix["path_1"].values
        size = len(paths) // len({path[0] for path in paths})
        for start in range(size, len(paths), size):
            axes.axhline(start - 0.5, color="0.35", linewidth=0.6)
            axes.axvline(start - 0.5, color="0.35", linewidth=0.6)
        places = np.arange(0, len(paths), 1 if len(paths) <= 16 else size)
        axes.set_xticks(places, paths[places], fontsize=7, rotation=90)
        axes.set_yticks(places, paths[places], fontsize=7)
        axes.set(xlabel="path")
        title = f"theory\n$N={low}$, $T={float(one['chosen'].sel(width=low, rule='accuracy')):g}$"
        if origin != "theory":
            doubt = "" if origin == "trained" or found["mixed"].all() else "*, not mixed"
            numbers = (text(row.sel(measure=each), 2).replace("+-", r"$\pm$") for each in MEASURES[:3])
            title = "{}{}: correlation {}\nsame sign {}, in blocks {}".format(origin, doubt, *numbers)
        axes.set_title(title, loc="center", fontweight="normal")

    left, right = bottom.subfigures(1, 2, width_ratios=(1, 1.15))
    above, below = titled(left, "e   heads by ascending score, one network").subplots(2, 1, sharex=True)
    order = np.argsort(one["score"].values, kind="stable")
    above.bar(range(len(order)), one["score"][order], 0.7, color=THEORY)
    above.set(ylabel="score")
    inside = one.isel(distribution=0, head=order).expand_dims("training_seed")
    look = {"color": THEORY, "fmt": "o", "markersize": 4}
    below.errorbar(range(len(order)), *mean_error(inside["single"]), label="without this head", **look)
    whole, _ = mean_error(inside["pruned"].isel(order=0, removed=0))
    below.axhline(float(whole), color="0.4", linewidth=1, label="whole network")
    below.set_xticks(range(len(order)), one["head"].values[order], fontsize=7)
    below.set(xlabel="layer.head", ylabel="accuracy")
    left.legend(loc="outside lower center", ncols=2)

    mosaic = [list(tests), ["left"] * len(tests)]
    panels = titled(right, "f   heads removed, not trained again").subplot_mosaic(mosaic, height_ratios=(1.7, 1))
    orders = {"score": THEORY, "leave one out": LIMITS[1], "random": "0.55"}
    for name in tests:
        for i, (label, color) in enumerate(orders.items()):
            mean, error = mean_error(found["pruned"].sel(distribution=name).isel(order=i))
            panels[name].errorbar(
                range(len(mean)), mean, error, color=color, fmt="o-", markersize=3, label=f"order: {label}"
            )
        panels[name].set_title(name, loc="center", fontweight="normal")
        panels[name].set(ylabel="accuracy")
    right.legend(*panels["in distribution"].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    lines = panels["left"].plot(found["left"].mean("training_seed"), "o-", color=LIMITS[2], markersize=3)
    lines[1].set_linestyle("--")
    panels["left"].legend(lines, ("parameters", "inference time"))
    panels["left"].set(xlabel="heads removed", ylabel="share left", ylim=(0, 1.08))
    return figure


results = {}
for name in options.variants:
    axis = xr.Variable("training_seed", range(options.training_seeds))
    results[name] = xr.concat([run(name, seed) for seed in axis.values], axis)
    show(name, results[name])
    with use_style():
        draw(results[name]).savefig(options.output / f"figure-{FIGURES[name]}.png")
xr.DataTree.from_dict(results).to_netcdf(options.output / "one-shot.nc")
