# %% [markdown]
# # Deep linear networks: one number that depth and width renormalise
#
# Learn how to reproduce a published theory as a special case, and how depth changes what a narrow network learns.
#
# [Li and Sompolinsky](https://arxiv.org/abs/2012.04030) study dense layers without attention. All order parameters are
# then numbers. At low temperature the mean output equals the output at infinite width, for any width and depth. The
# kernel is multiplied by $q^n$ for $n$ hidden layers, where
#
# $$1 - q = \alpha\,(1 - r\,q^{-n}), \qquad \alpha = P/N, \qquad r = \frac{1}{P}\,y^\top K_0^{-1} y .$$
#
# The network is linear, so the theory does not need an ansatz.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import brentq

import theorykit
from theorykit import bpkr
from theorykit.plots.style import LIMITS, THEORY, save, use_style

theorykit.enable_float64()

# %% [markdown]
# ## A noisy linear teacher
#
# We take fewer examples than features, so that the labels can be interpolated. `scale` is the size of the labels. If
# the labels are small, the outputs under the prior are too large, and a $q$ below one shrinks them. If the labels are
# large, $q$ exceeds one.

# %%
train, test, features = 60, 500, 100
rng = np.random.default_rng(0)
inputs = rng.normal(size=(train + test, 1, features))
teacher = inputs[:, 0] @ rng.normal(size=features) / np.sqrt(features)
noise = 0.3 * rng.normal(size=train + test)
gram = inputs[:train, 0] @ inputs[:train, 0].T / features


def architecture(depth: int, width: float) -> bpkr.Architecture:
    """Build the network: the embedding is one hidden layer, dense layers are the others."""
    return bpkr.Architecture((bpkr.Dense(),) * (depth - 1), width, temperature=1e-4)


def solved(depth: int, width: float, scale: float) -> tuple[float, float]:
    """Return q from the derived action, and the mean square error of a network drawn from the posterior."""
    arch, labels = architecture(depth, width), scale * (teacher + noise)
    data = bpkr.path_features(inputs, [], arch)
    saddle = bpkr.solve(arch, bpkr.Data(data[:train], labels[:train]), throw=True)
    prediction = bpkr.predict(bpkr.Problem(arch, bpkr.Data(data[:train], labels[:train])), saddle, data[train:])
    error = np.mean((prediction.mean - labels[train:]) ** 2 + prediction.variance)
    return float(saddle.order_parameters.readout), float(error) / scale**2


def published(depth: int, width: float, scale: float) -> float:
    """Solve the equation above for q."""
    labels, load = scale * (teacher + noise)[:train], train / width
    r = labels @ np.linalg.solve(gram, labels) / train
    return brentq(lambda q: 1 - q - load * (1 - r * q**-depth), 1e-3, 1e3)


# %%
depths, widths, scales = (1, 2, 4), np.geomspace(10, 1000, 9), (0.4, 1.6)
found = {scale: np.array([[solved(n, width, scale) for width in widths] for n in depths]) for scale in scales}
expected = {scale: np.array([[published(n, width, scale) for width in widths] for n in depths]) for scale in scales}
for scale in scales:
    apart = np.max(np.abs(found[scale][:, :, 0] / expected[scale] - 1))
    print(f"labels times {scale}: q differs from the published equation by at most {apart:.1e}")

# %%
with use_style():
    figure, axes = plt.subplots(1, 3, figsize=(7.5, 2.9))
    for row, (depth, color) in enumerate(zip(depths, (THEORY, *LIMITS), strict=False)):
        for scale, line in zip(scales, ("-", ":"), strict=True):
            axes[0].plot(widths, expected[scale][row], line, color=color)
            axes[0].plot(widths, found[scale][row, :, 0], "o", color=color, markersize=3)
        for axis, scale in zip(axes[1:], scales, strict=True):
            label = f"{depth} hidden layer{'s' * (depth > 1)}" if axis is axes[1] else None
            axis.plot(widths, found[scale][row, :, 1], "o-", color=color, markersize=3, label=label)
    for line, label in (("-", "small labels"), (":", "large labels")):
        axes[0].plot([], [], line, color="0.4", label=f"published, {label}")
    axes[0].plot([], [], "o", color="0.4", markersize=3, label="solved here")
    axes[0].set(yscale="log", ylabel="scale of the kernel $q$", title="order parameter")
    axes[0].set_yticks((0.3, 1, 3), ("0.3", "1", "3"))
    axes[0].minorticks_off()
    axes[1].set(ylabel="mean square test error", title="small labels")
    axes[2].set(title="large labels")
    figure.legend(loc="outside lower center", ncols=6, columnspacing=1, handlelength=1.5, fontsize=7)
    for axis in axes:
        axis.set(xscale="log", xlabel="hidden units $N$")
    save(figure, Path(__file__).with_suffix(".png"))

# %% [markdown]
# ## Conclusion
#
# At temperature $10^{-4}$, for three depths and all widths, the derived action reproduces the published equation for
# $q$ to $8.6\times10^{-4}$ if labels are small and to $1.1\times10^{-4}$ if they are large. Depth amplifies the change
# of the kernel, and the size of the labels determines its sign.
