# %% [markdown]
# # Is my network wide enough for the theory?
#
# Learn how to judge whether your network is wide enough for the saddle point.
#
# The saddle point is exact in the limit of many hidden units with a proportional number of examples. This example maps
# its error at finite width. We sample the exact posterior of the order parameters and compare it with the saddle point
# and the fluctuations about it. The networks have 5 to 80 hidden units and 2 to 8 attention paths, at two temperatures.

# %%
import itertools
import warnings
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from scipy.stats import norm

import theorykit
from theorykit import bpkr
from theorykit.bpkr import sampling
from theorykit.plots.style import LIMITS, THEORY, save, use_style

theorykit.enable_float64()

# %% [markdown]
# ## Networks and examples
#
# Two layers of heads with random queries and keys act on five tokens of ten features. A network of eight hidden units
# generates the labels, with noise. There are 60 training examples and 1000 test examples.

# %%
EXAMPLES, TESTS, TOKENS, FEATURES = 60, 1000, 5, 10
WIDTHS, HEADS, TEMPERATURES = (5, 10, 20, 40, 80), ((2, 1), (2, 2), (4, 2)), (0.02, 0.5)
SCHEDULE = sampling.Schedule(chains=4, warmup=200, draws=300)
rng = np.random.default_rng(0)
inputs = rng.normal(size=(EXAMPLES + TESTS, TOKENS, FEATURES))


def data_of(heads: tuple[int, int]) -> bpkr.Data:
    key_query = [rng.normal(size=(count, FEATURES, FEATURES)) / 2 for count in heads]
    arch, fixed = bpkr.Architecture(heads, 8, temperature=1.0), bpkr.heads(key_query=key_query)
    teacher = bpkr.sample_network(arch, fixed, input_features=FEATURES, key=jax.random.key(1))
    labels = np.asarray(teacher(inputs))
    labels = labels / labels.std() + 0.3 * rng.normal(size=len(labels))
    features = bpkr.path_features(inputs, fixed(inputs), arch)
    return bpkr.Data(features[:EXAMPLES], labels[:EXAMPLES], features[EXAMPLES:])


# %% [markdown]
# ## Three distances
#
# We measure three distances. The first is the distance of $U_1$ relative to its size. The second is the distance of the
# mean output on the test examples, in units of the output's posterior standard deviation: the error of the predictions.
# The third is the share of test examples whose mean output has a different sign, which bounds the difference in
# accuracy. If a layer has fewer units than paths, the order parameters are singular, and fluctuations about the saddle
# point are not defined.


# %%
def distances(arch: bpkr.Architecture, data: bpkr.Data) -> xr.Dataset:
    """Compute distances of U_1, of the output and of its sign, by approach, with sampling errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampling.MixingWarning)
        found = sampling.compare(
            arch,
            data,
            key=jax.random.key(0),
            approaches=("saddle", "one_over_n", "exact", "infinite_width"),
            options={"exact": {"schedule": SCHEDULE}},
            progress=False,
        )
    exact, matrix = found.sel(approach="exact"), [dim for dim in found["U_1"].dims if dim != "approach"]
    size, deviation = np.sqrt((exact["U_1"] ** 2).sum()), np.sqrt(exact["variance"])
    of_u1 = np.sqrt(((found["U_1"] - exact["U_1"]) ** 2).sum(matrix, skipna=False)) / size
    of_output = np.sqrt((((found["mean"] - exact["mean"]) / deviation) ** 2).mean("test_example", skipna=False))
    error_of_u1 = np.sqrt((exact["U_1_error"] ** 2).sum()) / size
    error_of_output = np.sqrt(((exact["mean_error"] / deviation) ** 2).mean())
    # Share of other signs expected from the sampling error alone.
    error_of_sign = norm.cdf(-np.abs(exact["mean"]) / exact["mean_error"]).mean()
    outputs = found["mean"].transpose("approach", "test_example").values
    of_sign = 1 - bpkr.sign_accuracy(outputs, np.sign(exact["mean"].values))
    return xr.Dataset(
        {"U_1": of_u1, "output": of_output, "sign": ("approach", of_sign)}
        | {"U_1_error": error_of_u1, "output_error": error_of_output, "sign_error": error_of_sign}
    ).reset_coords(drop=True)


# %%
results = {}
for heads in HEADS:
    data = data_of(heads)
    for width, temperature in itertools.product(WIDTHS, TEMPERATURES):
        results[heads, width, temperature] = distances(bpkr.Architecture(heads, width, temperature=temperature), data)
    paths = heads[0] * heads[1]
    for temperature, (what, name) in itertools.product(TEMPERATURES, (("U_1", "U_1 off by"), ("sign", "other signs"))):
        shown = [results[heads, width, temperature][what].sel(approach="saddle").item() for width in WIDTHS]
        print(f"{paths:2d} paths, T = {temperature}: {name}", ", ".join(f"{each:.1%}" for each in shown))

# %% [markdown]
# ## The map
#
# Open symbols mean that the distance is below two sampling errors, so it may be zero. Fluctuations are not computed if
# a layer has fewer units than paths.


# %%
def draw(axis, what: str, temperature: float) -> None:
    for (one, two), color in zip(HEADS, (THEORY, *LIMITS), strict=False):
        cells = [results[(one, two), width, temperature] for width in WIDTHS]
        errors = np.array([cell[f"{what}_error"].item() for cell in cells])
        for approach, line, marker in (("saddle", "-", "o"), ("one_over_n", ":", "s")):
            # Zero is drawn at the lower edge of the axis.
            values = np.maximum([cell[what].sel(approach=approach).item() for cell in cells], 1e-3)
            resolved = values > 2 * errors
            axis.plot(WIDTHS, values, line, color=color)
            for chosen, face in ((resolved, color), (~resolved, "white")):
                axis.plot(
                    np.array(WIDTHS)[chosen], values[chosen], marker, color=color, markerfacecolor=face, markersize=4
                )
    axis.set(xscale="log", yscale="log", ylim=(9e-4, 1.2))
    axis.set_xticks(WIDTHS, [f"{width}" for width in WIDTHS])
    axis.minorticks_off()
    axis.set_yticks((0.001, 0.01, 0.1, 1), ("0.1 %", "1 %", "10 %", "100 %"))


with use_style():
    figure, axes = plt.subplots(2, 3, figsize=(8, 5), sharex=True, sharey=True)
    names = {"U_1": "$U_1$", "output": "mean output", "sign": "sign of the output"}
    for row, temperature in zip(axes, TEMPERATURES, strict=True):
        for axis, (what, name) in zip(row, names.items(), strict=True):
            draw(axis, what, temperature)
            axis.set_title(f"{name}, $T = {temperature}$")
        row[0].set_ylabel("distance from the posterior")
    for axis in axes[1]:
        axis.set_xlabel("width $N$")
    for (one, two), color in zip(HEADS, (THEORY, *LIMITS), strict=False):
        axes[0, 0].plot([], [], color=color, label=f"{one * two} paths")
    axes[0, 0].plot([], [], "o-", color="0.4", markersize=4, label="saddle point")
    axes[0, 0].plot([], [], "s:", color="0.4", markersize=4, label="with fluctuations")
    axes[0, 0].plot([], [], "o", color="0.4", markerfacecolor="white", markersize=4, label="not resolved")
    figure.legend(loc="outside lower center", ncols=6, columnspacing=1.2, handlelength=1.6)
    save(figure, Path(__file__).with_suffix(".png"))

# %% [markdown]
# ## Conclusion
#
# The error of the saddle point falls about as 1/width and grows with the number of paths. With 80 units it is at most 2
# percent at the higher temperature, and 2 to 4 percent at the lower one. With 5 units and 8 paths it is about 17 and 38
# percent: use sampling for such networks. These numbers have sampling errors, so they differ between computers.
