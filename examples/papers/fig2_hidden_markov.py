"""Which attention paths does a narrow network use? Figures 2 and 5c of Tiberi et al., arXiv 2405.15926.

    python examples/papers/fig2_hidden_markov.py --output demo

Chains over two hidden states have two classes: they tend to stay or to switch. A network of two layers of two heads has
four paths. Path 11 is good, path 21 averages noise away, and paths 12 and 22 are harmful. We solve the theory for 100
training chains at many widths, and count errors on 1000 test chains. A stopped run resumes.
"""

import argparse
import math
import shutil
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.colors import SymLogNorm
from tasks import hidden_markov
from tqdm import tqdm

import theorykit
from theorykit import bpkr
from theorykit.bpkr.sweeps import order_parameters_of, sweep
from theorykit.plots.style import DIVERGING, LIMITS, THEORY, use_style

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--output", type=Path, default=Path("hidden-markov"), help="folder of the results")
parser.add_argument("--overwrite", action="store_true", help="replace existing results")
parser.add_argument("--datasets", type=int, default=5, help="draws of chains and random heads, per network")
parser.add_argument("--widths", type=int, nargs="+", default=[10, 30, 50, 100, 300, 500, 1000])
options = parser.parse_args()
saved, partial = options.output / "hidden-markov.nc", options.output / "partial"
if saved.exists() and not options.overwrite:
    parser.error(f"{saved} exists; --overwrite replaces it")

theorykit.enable_float64()
TEMPERATURE, TRAINING, TEST = 0.01, 100, 1000

# ---- Three networks: the task, heads per layer, and the second head of layer 1. The last two have only the paths 11
# and 21, and their tokens have strong noise that is orthogonal to the signal.

noisy = hidden_markov.HiddenMarkovTask(orthogonal_noise=5.0)
networks = {
    "default": (hidden_markov.HiddenMarkovTask(), (2, 2), "random"),
    "noisy": (noisy, (2, 1), "random"),
    "noisy_uniform": (noisy, (2, 1), "uniform"),
}
# At infinite width we also compute the accuracy of networks with some of the paths only.
subsets = {"good": ["11"], "good + denoising": ["11", "21"]}


def sample(network: str, seed: int) -> tuple[bpkr.Architecture, bpkr.Data]:
    """Draw heads and chains, and compute the features of all paths at the last token."""
    task, heads, second_head = networks[network]
    architecture = bpkr.Architecture(heads, 1, temperature=TEMPERATURE)
    training_key, test_key, heads_key = jax.random.split(jax.random.key(seed), 3)
    first, second = map(np.array, hidden_markov.good_and_random_heads(task, key=heads_key))
    if second_head == "uniform":
        first[1] = hidden_markov.uniform_head(task)
    arrays = []
    for count, key in ((TRAINING, training_key), (TEST, test_key)):
        chains, features = hidden_markov.sample_examples(task, count, key=key), []
        # Blocks of one size share one compiled program.
        for inputs in np.split(np.asarray(chains.inputs), count // TRAINING):
            attention = bpkr.attention(inputs, key_query=(first[: heads[0]], second[: heads[1]]))
            features.append(bpkr.path_features(inputs, attention, architecture, readout="last"))
        by_class = np.argsort(-np.asarray(chains.labels), kind="stable")
        arrays += [np.concatenate(features)[by_class], np.asarray(chains.labels)[by_class]]
    return architecture, bpkr.Data(*arrays)


def solve(network: str, seed: int) -> xr.Dataset:
    """Solve one data set at every width, and compare the kernel with the labels."""
    architecture, data = sample(network, seed)
    grid = {"width": [*options.widths, math.inf], "temperature": [TEMPERATURE]}
    solved = sweep(architecture, data, **grid, folder=partial / f"{network}-{seed}", progress=False)
    solved = solved.isel(temperature=0, drop=True).drop_dims(["test_example", "class", "predicted_class"])
    cosines, training = [], bpkr.Problem(architecture, bpkr.Data(data.features))
    for width in solved["width"]:
        kernel = bpkr.kernel(training, order_parameters_of(architecture, solved.sel(width=width)))
        cosines.append(bpkr.kernel_task_alignment(kernel, data.labels).cosines)
    accuracies = []
    for paths in subsets.values():
        # An infinitely wide network sums the kernels of its paths, as one layer with one head per path does.
        chosen = [architecture.path_labels().index(path) for path in paths]
        layer = bpkr.Architecture((len(chosen),), 1, temperature=TEMPERATURE)
        problem = bpkr.Problem(layer, bpkr.Data(data.features[:, chosen], data.labels))
        prediction = bpkr.predict(problem, bpkr.gp_limit(layer), data.test_features[:, chosen])
        accuracies.append(np.mean(np.sign(prediction.mean) == data.test_labels))
    found = {"alignment": (("width", "component"), cosines), "subset_accuracy": ("paths", accuracies)}
    return solved.assign(found).assign_coords(paths=list(subsets), component=np.arange(1, TRAINING + 1))


seeds = range(options.datasets)
datasets = tqdm([(network, seed) for network in networks for seed in seeds], "data sets")
found = {dataset: solve(*dataset) for dataset in datasets}
axis = xr.Variable("seed", seeds)
solved = {network: xr.concat([found[network, seed] for seed in seeds], axis) for network in networks}
xr.DataTree.from_dict(solved).to_netcdf(saved, engine="h5netcdf")
shutil.rmtree(partial)

# ---- The table of the first network


def over_seeds(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean over data sets and its standard error, which is zero for a single data set."""
    return values.mean("seed"), values.std("seed", ddof=min(1, len(seeds) - 1)) / len(seeds) ** 0.5


default = solved["default"]
mean, error = over_seeds(default["test_accuracy"])
departure = abs(default["U_1"] - np.eye(4)).max(["path_1", "other_path_1"]).mean("seed")
print("     N   accuracy         max|U_1 - I|")
for width, *row in zip(default["width"].values, mean.values, error.values, departure.values, strict=True):
    print("{:6.0f}   {:.3f} +- {:.3f}   {:12.3f}".format(width, *row))
for paths, mean, error in zip(subsets, *over_seeds(default["subset_accuracy"]), strict=True):
    print(f"   inf   {mean:.3f} +- {error:.3f}   paths {' and '.join(subsets[paths])} only ({paths})")

# ---- Figure 2. Blue is finite width. Other colors are infinite width, with all paths or with some.

COLORS = dict(zip(("all paths", *subsets), LIMITS, strict=True))
narrow, middle, wide = min(options.widths), sorted(options.widths)[len(options.widths) // 2], max(options.widths)


def draw_limit(axes: plt.Axes, accuracies: xr.DataArray, paths: str, style: str = "--") -> tuple:
    """Draw the accuracy at infinite width as a line, with a band of one standard error."""
    mean, error = map(float, over_seeds(accuracies))
    band = axes.axhspan(mean - error, mean + error, color=COLORS[paths], alpha=0.15, linewidth=0)
    return axes.axhline(mean, color=COLORS[paths], linestyle=style), band


def draw_accuracy(axes: plt.Axes, accuracies: xr.DataArray, marker: str = "o", style: str = "--") -> tuple:
    """Draw the accuracy at finite widths with standard errors, and at infinite width."""
    mean, error = over_seeds(accuracies.sel(width=options.widths))
    axes.set(xscale="log", xlabel="width $N$", ylabel="test accuracy")
    points = axes.errorbar(mean["width"], mean, error, color=THEORY, marker=marker, markersize=4)
    return points, draw_limit(axes, accuracies.sel(width=math.inf), "all paths", style)


def draw_overlaps(axes: plt.Axes, solution: xr.Dataset, width: int, title: str):
    """Draw U_1 of the first data set, with colors that are logarithmic above the prior value 1."""
    matrix = solution["U_1"].sel(seed=0, width=width)
    image = axes.imshow(matrix, cmap=DIVERGING, norm=SymLogNorm(1, vmin=-20, vmax=20))
    names = [{"11": "11\ngood", "21": "21\ndenoise"}.get(path, path) for path in matrix["path_1"].values]
    axes.set(xticks=range(len(names)), yticks=range(len(names)), xticklabels=names, yticklabels=names)
    axes.set_title(title, loc="center", fontweight="normal")
    axes.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(matrix.values):
        color = "white" if abs(value) > 4 else "black"
        axes.text(column, row, f"{round(value, 1) + 0:.1f}", ha="center", va="center", fontsize=8, color=color)
    return image


with use_style():
    figure = plt.figure(figsize=(6.4, 7.2))
    top, center, bottom = figure.subfigures(3, height_ratios=(1.25, 1, 1.05))
    a, b = top.subplots(1, 2)
    handles = [*draw_accuracy(a, default["test_accuracy"])]
    handles += [draw_limit(a, default["subset_accuracy"].sel(paths=paths), paths) for paths in subsets]
    labels = ["width $N$", *(rf"$N=\infty$, {paths}" for paths in COLORS)]
    title = f"Accuracies are means over {len(seeds)} data sets. Bars and bands are standard errors."
    top.legend(handles, labels, title=title, loc="outside upper center", ncols=4, columnspacing=1)

    cosines = default["alignment"].isel(seed=0, component=slice(30))
    for shift, width, color, label in ((-0.2, narrow, THEORY, narrow), (0.2, math.inf, LIMITS[0], r"\infty")):
        b.bar(cosines["component"] + shift, cosines.sel(width=width), 0.4, color=color, label=f"$N={label}$")
    b.set(xlabel="kernel component, by eigenvalue", ylabel="|cosine| with labels")
    b.legend()

    c = center.subplots(1, 3)
    for axes, N in zip(c, (narrow, middle, wide), strict=True):
        image = draw_overlaps(axes, default, N, f"$N={N}$")
    scale = center.colorbar(image, ax=c, ticks=[-10, -1, 0, 1, 10], format="%g", label="order parameter $U_1$")
    scale.outline.set_visible(False)

    d, *e = bottom.subplots(1, 3, width_ratios=(2, 1, 1))
    random, (dashed, _) = draw_accuracy(d, solved["noisy"]["test_accuracy"])
    uniform, (dotted, _) = draw_accuracy(d, solved["noisy_uniform"]["test_accuracy"], "s", ":")
    draw_limit(d, solved["noisy"]["subset_accuracy"].sel(paths="good"), "good")
    marks, names = (random, uniform, dashed, dotted), ("random head", "uniform head", r"$N=\infty$", r"$N=\infty$")
    d.legend(marks, names, ncols=2, columnspacing=1, loc="lower right", bbox_to_anchor=(1, 0.12))
    for axes, head, network in zip(e, ("random", "uniform"), ("noisy", "noisy_uniform"), strict=True):
        draw_overlaps(axes, solved[network], narrow, f"{head}, $N={narrow}$")
    for axes, letter in zip((a, b, c[0], d, e[0]), "abcde", strict=True):
        axes.set_title(letter, x=-0.2)
    figure.savefig(options.output / "figure-2.png")

print(f"wrote {saved} and {options.output / 'figure-2.png'} in {time.process_time():.0f} seconds of processor time")
