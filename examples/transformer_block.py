# %% [markdown]
# # A transformer block with an MLP
#
# Learn how to put a nonlinear layer between attention layers, and how far its theory can be trusted.
#
# At infinite width the network is a Gaussian process for layers in any order. At finite width the theory rests on an
# ansatz: the units are a linear part, which continues along the paths, and noise. We compare both with samples of all
# weights of the network, for inputs of few and of many features.

# %%
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import theorykit
from theorykit import bpkr
from theorykit.bpkr import sampling
from theorykit.plots.style import LIMITS, THEORY, letter_panels, save, use_style

theorykit.enable_float64()

# %% [markdown]
# ## The action
#
# The kernel has two terms: $U_1$ weighs the paths of the linear part, $U_3$ the noise of the nonlinear layer below the
# two upper heads. The derivation names the ansatz as a step.

# %%
WIDTH = 10
block = bpkr.Architecture((2, bpkr.Dense(activation="erf"), 2), widths=WIDTH, temperature=0.1)
action = bpkr.derive(block)
print("K =", action.kernel)
print("assumed:", *action.ansatz)
print("all steps hold:", action.derivation.verify().holds)

# %% [markdown]
# ## The task
#
# A narrow teacher gives the labels: three tanh units at the end of one path.

# %%
TRAINING, TESTS, TOKENS = 16, 12, 3


def task(features: int, seed: int = 0):
    """Return inputs, attention and labels with variance 2.25."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(TRAINING + TESTS, TOKENS, features))
    scores = [rng.normal(size=(2, features, features)) / features for _ in range(2)]
    attention = bpkr.attention(inputs, key_query=scores)
    last = np.einsum("pst,pt->ps", attention[0][:, 0], attention[1][:, 0, :, -1])
    units = np.einsum("ps,psi,ij->pj", last, inputs, rng.normal(size=(features, 3)))
    labels = np.tanh(units / units.std()) @ rng.normal(size=3)
    labels -= labels.mean()
    return inputs, attention, 1.5 * labels / labels.std()


# %% [markdown]
# ## Theory and samples
#
# NUTS draws all weights, without the ansatz.

# %%
FEATURES = (4, 24)
predicted, sampled = {}, {}
for features in FEATURES:
    inputs, attention, labels = task(features)
    path_features = bpkr.path_features(inputs, attention, block)
    data = bpkr.Data(path_features[:TRAINING], labels[:TRAINING], path_features[TRAINING:])
    problem = bpkr.Problem(block, data)
    points = {"infinite width": bpkr.gp_limit(block), "ansatz": bpkr.solve(problem, throw=True)}
    schedule = sampling.Schedule(chains=2, warmup=300, draws=300)
    tree = sampling.sample(problem, sampler="nuts", key=jax.random.key(1), schedule=schedule, progress=False)
    draws = tree["posterior"]["sampled_output"].values.reshape(-1, TESTS)
    sampled[features] = draws.mean(axis=0), draws.std(axis=0)
    for name, point in points.items():
        found = predicted[features, name] = bpkr.predict(problem, point)
        distance = np.sqrt(np.mean((found.mean - draws.mean(axis=0)) ** 2))
        ratio = np.mean(found.variance) / np.mean(draws.var(axis=0))
        print(f"{features:2} features, {name:14}: distance of means {distance:.2f}, variance over sampled {ratio:.2f}")

# %% [markdown]
# ## Figure
#
# Predicted against sampled means. Bars are the predicted and the sampled standard deviation of the output.

# %%
with use_style():
    figure, axes = plt.subplots(1, 2, figsize=(7, 3.4))
    for features, ax in zip(FEATURES, axes, strict=True):
        mean, deviation = sampled[features]
        for name, color in (("infinite width", LIMITS[0]), ("ansatz", THEORY)):
            found = predicted[features, name]
            bars = {"xerr": deviation, "yerr": np.sqrt(found.variance), "elinewidth": 0.5}
            ax.errorbar(mean, found.mean, fmt="o", color=color, markersize=4, label=name, **bars)
        ax.axline((0, 0), slope=1, color="k", linestyle=":", linewidth=1, label="equal")
        ax.set(xlabel="mean output, sampled", title=f"{features} input features")
    axes[0].set(ylabel="mean output, predicted")
    axes[0].legend(title="bars: standard deviations", alignment="left")
    letter_panels(*axes)
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# With 24 features the ansatz is close to the samples: the means are 0.09 apart, and the variance is 1.02 times the
# sampled one, against 0.34 and 0.25 times at infinite width. With four features it helps less: 0.11 and 0.78 times,
# against 0.17 and 0.54 times.
