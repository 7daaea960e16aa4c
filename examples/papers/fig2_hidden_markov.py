"""Which attention paths does a narrow network use? Figs. 2 and 5c of Tiberi et al., arXiv 2405.15926.

    python examples/papers/fig2_hidden_markov.py --output demo

Chains over two hidden states tend to stay or to switch. Of four paths, 11 is good, 21
averages noise away, and 12 and 22 are harmful. We solve the theory for 100 training
chains at many widths, and count errors on 1000 test chains.
"""

import argparse
import math
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.colors import SymLogNorm
from tasks import HiddenMarkovTask
from tqdm import tqdm

import theorykit
from theorykit import bpkr
from theorykit.bpkr.sweeps import order_parameters_of, sweep
from theorykit.plots.style import DIVERGING, LIMITS, THEORY, use_style

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--output", type=Path, default=Path("hidden-markov"))
parser.add_argument("--datasets", type=int, default=5, help="draws per network")
widths = [10, 30, 50, 100, 300, 500, 1000]
parser.add_argument("--widths", type=int, nargs="+", default=widths)
options = parser.parse_args()
widths, seeds = options.widths, range(options.datasets)
options.output.mkdir(parents=True, exist_ok=True)
theorykit.enable_float64()

# Networks: task, heads per layer, and whether the second head is random. The last two
# have only the paths 11 and 21, and strong noise that is orthogonal to the signal.
noisy = HiddenMarkovTask(orthogonal_noise=5.0)
networks = {
    "default": (HiddenMarkovTask(), (2, 2), True),
    "noisy": (noisy, (2, 1), True),
    "noisy_uniform": (noisy, (2, 1), False),
}
# At infinite width, also networks with some of the paths only
subsets = {"good": ["11"], "good + denoising": ["11", "21"]}


def sample(network: str, seed: int) -> tuple[bpkr.Architecture, bpkr.Data]:
    """Draw heads and chains, and compute the features of paths at the last token."""
    task, heads, is_random = networks[network]
    architecture = bpkr.Architecture(heads, 1, temperature=0.01)
    *chain_keys, heads_key = jax.random.split(jax.random.key(seed), 3)
    first, second = map(np.array, task.heads(key=heads_key))
    if not is_random:
        first[1] = task.uniform_head()
    key_query = first[: heads[0]], second[: heads[1]]
    arrays = []
    for count, key in zip((100, 1000), chain_keys, strict=True):
        inputs, labels = task(count, key=key)
        attention = bpkr.attention(inputs, key_query=key_query)
        features = bpkr.path_features(inputs, attention, architecture, "last")
        by_class = np.argsort(-np.asarray(labels), kind="stable")
        arrays += [features[by_class], labels[by_class]]
    return architecture, bpkr.Data(*arrays)


def solve(network: str, seed: int) -> xr.Dataset:
    """Solve one data set at every width, and compare the kernel with the labels."""
    architecture, data = sample(network, seed)
    grid = {"width": [*widths, math.inf], "temperature": [0.01]}
    found = sweep(architecture, data, **grid, progress=False).isel(temperature=0)
    cosines, accuracies = [], []
    problem = bpkr.Problem(architecture, bpkr.Data(data.features))
    for width in found["width"]:
        point = order_parameters_of(architecture, found.sel(width=width))
        kernel = bpkr.kernel(problem, point)
        cosines.append(bpkr.kernel_task_alignment(kernel, data.labels).cosines)
    for paths in subsets.values():
        # An infinitely wide network sums the kernels of its paths, as one layer does.
        chosen = [architecture.path_labels().index(path) for path in paths]
        layer = bpkr.Architecture((len(chosen),), 1, temperature=0.01)
        problem = bpkr.Problem(layer, bpkr.Data(data.features[:, chosen], data.labels))
        tests = data.test_features[:, chosen]
        mean = bpkr.predict(problem, bpkr.gp_limit(layer), tests).mean
        accuracies.append(np.mean(np.sign(mean) == data.test_labels))
    found["alignment"] = ("width", "component"), cosines
    found["subset_accuracy"] = "paths", accuracies
    found = found.assign_coords(paths=list(subsets), component=np.arange(1, 101))
    names = ("U_1", "converged", "test_accuracy", "alignment", "subset_accuracy")
    return found[list(names)]


datasets = tqdm([(name, seed) for name in networks for seed in seeds], "data sets")
found = {dataset: solve(*dataset) for dataset in datasets}
axis = xr.Variable("seed", seeds)
solved = {name: xr.concat([found[name, seed] for seed in seeds], axis) for name in networks}
xr.DataTree.from_dict(solved).to_netcdf(options.output / "hidden-markov.nc")


def over_seeds(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean over draws and its standard error."""
    error = values.std("seed", ddof=min(1, len(seeds) - 1)) / len(seeds) ** 0.5
    return values.mean("seed"), error


default = solved["default"]
departure = abs(default["U_1"] - np.eye(4)).max(["path_1", "other_path_1"])
columns = *over_seeds(default["test_accuracy"]), departure.mean("seed")
print("     N   accuracy         max|U_1 - I|")
for width, *row in zip(default["width"].values, *(each.values for each in columns), strict=True):
    print("{:6.0f}   {:.3f} +- {:.3f}   {:12.3f}".format(width, *row))
for name, mean, error in zip(subsets, *over_seeds(default["subset_accuracy"]), strict=True):
    paths = " and ".join(subsets[name])
    print(f"   inf   {mean:.3f} +- {error:.3f}   paths {paths} only ({name})")

# Blue is finite width. Other colors are infinite width, with all paths or with some.
COLORS = dict(zip(("all paths", *subsets), LIMITS, strict=True))


def draw_limit(axes, accuracies, paths: str, style: str = "--") -> tuple:
    """Draw the accuracy at infinite width, with a band of one standard error."""
    mean, error = map(float, over_seeds(accuracies))
    look = {"color": COLORS[paths], "alpha": 0.15, "linewidth": 0}
    band = axes.axhspan(mean - error, mean + error, **look)
    return axes.axhline(mean, color=COLORS[paths], linestyle=style), band


def draw_accuracy(axes, accuracies, marker: str = "o", style: str = "--") -> tuple:
    """Draw the accuracy at finite widths with standard errors, and the limit."""
    mean, error = over_seeds(accuracies.sel(width=widths))
    axes.set(xscale="log", xlabel="width $N$", ylabel="test accuracy")
    look = {"color": THEORY, "marker": marker, "markersize": 4}
    points = axes.errorbar(mean["width"], mean, error, **look)
    limit = accuracies.sel(width=math.inf)
    return points, draw_limit(axes, limit, "all paths", style)


def draw_overlaps(axes, solution: xr.Dataset, width: int, title: str):
    """Draw U_1 of the first data set; colors are logarithmic above the prior value 1."""
    matrix = solution["U_1"].sel(seed=0, width=width)
    norm = SymLogNorm(1, vmin=-20, vmax=20)
    image = axes.imshow(matrix, cmap=DIVERGING, norm=norm)
    longer = {"11": "11\ngood", "21": "21\ndenoise"}
    names = [longer.get(path, path) for path in matrix["path_1"].values]
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.set_title(title, loc="center", fontweight="normal")
    axes.spines[:].set_visible(False)
    look = {"ha": "center", "va": "center", "fontsize": 8}
    for (row, column), value in np.ndenumerate(matrix.values):
        color = "white" if abs(value) > 4 else "black"
        axes.text(column, row, f"{round(value, 1) + 0:.1f}", color=color, **look)
    return image


with use_style():
    figure = plt.figure(figsize=(6.4, 7.2))
    top, center, bottom = figure.subfigures(3, height_ratios=(1.25, 1, 1.05))
    a, b = top.subplots(1, 2)
    handles = [*draw_accuracy(a, default["test_accuracy"])]
    of_subsets = default["subset_accuracy"]
    handles += [draw_limit(a, of_subsets.sel(paths=name), name) for name in subsets]
    labels = ["width $N$", *(rf"$N=\infty$, {paths}" for paths in COLORS)]
    title = f"a, d: means over {len(seeds)} draws of data and random heads. Bars and bands are standard errors."
    where = {"loc": "outside upper center", "ncols": 4, "columnspacing": 1}
    top.legend(handles, labels, title=title, **where)

    narrow, middle, wide = min(widths), sorted(widths)[len(widths) // 2], max(widths)
    cosines = default["alignment"].isel(seed=0, component=slice(30))
    bars = (-0.2, narrow, THEORY, narrow), (0.2, math.inf, LIMITS[0], r"\infty")
    for shift, width, color, label in bars:
        places, heights = cosines["component"] + shift, cosines.sel(width=width)
        b.bar(places, heights, 0.4, color=color, label=f"$N={label}$")
    b.set(xlabel="kernel component, by eigenvalue", ylabel="|cosine| with labels")
    b.legend()

    c = center.subplots(1, 3)
    for axes, N in zip(c, (narrow, middle, wide), strict=True):
        image = draw_overlaps(axes, default, N, f"$N={N}$")
    look = {"ticks": [-10, -1, 0, 1, 10], "format": "%g"}
    scale = center.colorbar(image, ax=c, label="order parameter $U_1$", **look)
    scale.outline.set_visible(False)

    d, *e = bottom.subplots(1, 3, width_ratios=(2, 1, 1))
    noisy, uniform = solved["noisy"], solved["noisy_uniform"]
    circles, (dashed, _) = draw_accuracy(d, noisy["test_accuracy"])
    squares, (dotted, _) = draw_accuracy(d, uniform["test_accuracy"], "s", ":")
    draw_limit(d, noisy["subset_accuracy"].sel(paths="good"), "good")
    names = "random head", "uniform head", r"random, $\infty$", r"uniform, $\infty$"
    where = {"loc": "lower right", "bbox_to_anchor": (1, 0.12)}
    marks = circles, squares, dashed, dotted
    d.legend(marks, names, ncols=2, columnspacing=1, handlelength=1.8, **where)
    draw_overlaps(e[0], noisy, narrow, f"random, $N={narrow}$")
    draw_overlaps(e[1], uniform, narrow, f"uniform, $N={narrow}$")
    for axes, letter in zip((a, b, c[0], d, e[0]), "abcde", strict=True):
        axes.set_title(letter, x=-0.2)
    figure.savefig(options.output / "figure-2.png")

seconds = f"{time.process_time():.0f} seconds of processor time"
print(f"wrote figure-2.png and hidden-markov.nc in {options.output}, in {seconds}")
