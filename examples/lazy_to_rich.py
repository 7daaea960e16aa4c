# %% [markdown]
# # From lazy to rich
#
# Learn how the mean-field parameterisation keeps feature learning at infinite width, and what its one number, the
# richness, changes.
#
# In the standard parameterisation a network with a fixed number of examples becomes a Gaussian process as its width
# grows: its features are not learned. The mean-field parameterisation divides the output by $\gamma_0 \sqrt N$ and
# sharpens the likelihood by $N \gamma_0^2$, for $N$ hidden units per layer. Features are then learned at any width,
# even at infinite width. The richness $\gamma_0$ goes from lazy, near the Gaussian process, to rich.

# %%
import math
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import theorykit
from papers.tasks import HiddenMarkovTask
from theorykit import bpkr
from theorykit.bpkr import sweeps
from theorykit.plots.style import LIMITS, THEORY, letter_panels, save, use_style

theorykit.enable_float64()

RICHNESS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
WIDTHS = (10, 100, 1000, math.inf)

# %% [markdown]
# ## Hidden Markov chains
#
# The task has two layers of two heads. Path "11" passes two good heads, path "21" averages over tokens, and the other
# two are harmful.

# %%
task = HiddenMarkovTask()
training_key, test_key, heads_key = jax.random.split(jax.random.key(1), 3)
training = task(100, key=training_key)
test = task(1000, key=test_key)
key_query = task.heads(key=heads_key)
arch = bpkr.Architecture(layers=(2, 2), widths=math.inf, temperature=0.1, richness=1.0)


def features(inputs: jax.Array) -> jax.Array:
    return bpkr.path_features(inputs, bpkr.attention(inputs, key_query=key_query), arch, readout="last")


data = bpkr.Data(features(training.inputs), training.labels, features(test.inputs), test.labels)

# %% [markdown]
# ## A sweep over the richness
#
# At infinite width, richness 0 is the Gaussian process. At finite widths its outputs would have infinite variance, so
# we include it only at infinite width.

# %%
options = {"temperature": [0.1], "progress": False}
finite = sweeps.sweep(arch, data, width=WIDTHS[:-1], richness=RICHNESS[1:], **options).isel(temperature=0)
limit = sweeps.sweep(arch, data, width=[math.inf], richness=RICHNESS, **options).isel(temperature=0, width=0)
for gamma in RICHNESS:
    at = limit.sel(richness=gamma)
    print(f"richness {gamma:5g}: accuracy {at['test_accuracy'].item():.3f}, U_1 {np.diag(at['U_1']).round(2)}")
best = finite["test_accuracy"].max("richness")
print("best accuracy at widths", {width: round(best.sel(width=width).item(), 3) for width in WIDTHS[:-1]})

# %% [markdown]
# Richness changes path weights by orders of magnitude at any width. On this task it improves accuracy only for narrow
# networks. At infinite width only the misfit competes with the prior. Paths that fit the training labels grow, and the
# harmful path "22" fits their noise. At finite width the action also has the log-determinant, of order $1/N$ compared
# with the misfit. It penalises paths that would fit any labels. Accuracy and evidence are therefore highest near
# $\gamma_0^2 = 1/N$, where both terms are of the same order. This is the standard parameterisation. The evidence per
# width at infinite width always decreases with the richness.

# %% [markdown]
# ## Deep linear networks
#
# With whitened data and one unit label vector, $U_1 = c$ solves $c = (1 + \gamma_0^2 c / (T + c)^2)^L$ for $L$ hidden
# layers. At zero temperature, $c - 1$ is close to $L \gamma_0^2$ for weak richness, and $c$ is close to
# $\gamma_0^{2L/(L+1)}$ for strong richness.

# %%
DEPTHS, STRENGTHS, COLD = (1, 2, 4), np.geomspace(0.03, 30, 13), 1e-6
whitened = bpkr.Data(np.eye(4)[:, None], np.full(4, 0.5))


def overlap(depth: int, gamma: float) -> float:
    layers = (bpkr.Dense(),) * (depth - 1)
    network = bpkr.Architecture(layers, math.inf, temperature=COLD, richness=gamma)
    return float(np.ravel(bpkr.solve(network, whitened).order_parameters.first)[0])


overlaps = {depth: np.array([overlap(depth, gamma) for gamma in STRENGTHS]) for depth in DEPTHS}
for depth, found in overlaps.items():
    misfit = found - (1 + STRENGTHS**2 * found / (COLD + found) ** 2) ** depth
    print(f"depth {depth}: largest relative misfit of the closed form {np.max(np.abs(misfit) / found):.1e}")

# %%
with use_style():
    figure, axes = plt.subplots(2, 2, figsize=(7, 5.6))
    (accuracy, weights, evidence, deep), colors = axes.flat, (THEORY, *LIMITS)
    rich, places = np.array(RICHNESS[1:]), np.array([RICHNESS[1] / 3, *RICHNESS[1:]])
    for width, color in zip(WIDTHS, colors, strict=True):
        if math.isinf(width):
            at, across, label = limit, places, r"$N = \infty$"
            cost = -limit["log_evidence_per_width"][1:]
        else:
            at, across, label = finite.sel(width=width), rich, f"$N = {width}$"
            cost = -at["log_evidence"] / width
        share = at["test_accuracy"]
        # All points share the test sequences.
        errors = np.sqrt(share * (1 - share) / len(test.labels))
        accuracy.errorbar(across, share, errors, fmt="o-", ms=3, elinewidth=0.8, color=color, label=label)
        evidence.plot(rich, cost, "o-", ms=3, color=color)
    for path, color in zip(limit["path_1"].values, colors, strict=True):
        u1 = limit["U_1"].sel(path_1=path, other_path_1=path)
        weights.plot(places, u1, "o-", ms=3, color=color, label=f"path {path}")
    for (depth, found), color in zip(overlaps.items(), colors, strict=False):
        deep.plot(STRENGTHS, found - 1, "o", ms=3, color=color, label=f"$L = {depth}$")
        deep.plot(STRENGTHS, depth * STRENGTHS**2, ":", color=color, lw=0.8)
        deep.plot(STRENGTHS, STRENGTHS ** (2 * depth / (depth + 1)), "--", color=color, lw=0.8)
    deep.plot([], [], ":", color="0.4", lw=0.8, label=r"lazy, $L \gamma_0^2$")
    deep.plot([], [], "--", color="0.4", lw=0.8, label=r"rich, $\gamma_0^{2L/(L+1)}$")
    for panel in axes.flat:
        panel.set(xscale="log", xlabel=r"richness $\gamma_0$")
    for panel in (accuracy, weights):
        panel.set_xticks([places[0], 1e-2, 1e-1, 1, 10], ["0", "0.01", "0.1", "1", "10"])
        panel.minorticks_off()
    accuracy.legend(title="a and c; bars:\nstandard errors", alignment="left", fontsize=7)
    weights.legend()
    deep.legend(fontsize=7)
    accuracy.set(ylabel="test accuracy", title="accuracy")
    weights.set(ylabel=r"path weight $U_1^{\pi\pi}$", yscale="log", title="path weights, infinite width")
    evidence.set(ylabel="$-$ log evidence per width", yscale="log", title="evidence")
    deep.set(ylabel="growth of the weight, $U_1 - 1$", yscale="log", ylim=(1e-4, 1e4), title="deep linear networks")
    letter_panels(*axes.flat)
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# With richness, features are learned at infinite width: path weights grow from 1 to up to 4,000. On this task that
# lowers the accuracy there, from 0.827 to 0.598, while narrow networks gain: the best accuracy at width 10 is 0.973.
