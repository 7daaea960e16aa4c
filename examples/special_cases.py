# %% [markdown]
# # Special cases: deep linear, gated, graph and convolutional networks
#
# Learn how to express four known linear networks as attention paths, and how to check each against a known result.
#
# A network without attention is a [deep linear network](https://arxiv.org/abs/2012.04030). An attention map over a
# single token is a gate, as in [gated linear networks](https://arxiv.org/abs/2210.17449). Maps that are powers of an
# adjacency matrix are graph convolutions, and shifts are convolutions. The theory needs no ansatz for any of them.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import brentq

import theorykit
from theorykit import bpkr
from theorykit.plots.style import LIMITS, THEORY, letter_panels, save, use_style

theorykit.enable_float64()
rng = np.random.default_rng(0)

# %% [markdown]
# ## Deep linear networks
#
# All order parameters are numbers. At low temperature the kernel of $n$ hidden layers is multiplied by $q^n$, where
# $1 - q = \alpha (1 - r q^{-n})$, $\alpha = P/N$ and $r = y^\top K_0^{-1} y / P$ (Li and Sompolinsky).

# %%
inputs = rng.normal(size=(60, 1, 100))
labels = 0.4 * (inputs[:, 0] @ rng.normal(size=100) / 10 + 0.3 * rng.normal(size=60))
r = labels @ np.linalg.solve(inputs[:, 0] @ inputs[:, 0].T / 100, labels) / 60
depths, widths = (1, 2, 4), np.geomspace(10, 1000, 7)


def renormalisation(depth: int, width: float) -> float:
    """Return q from the action; the embedding is one hidden layer, dense layers are the others."""
    arch = bpkr.Architecture((bpkr.Dense(),) * (depth - 1), width, temperature=1e-7)
    saddle = bpkr.solve(arch, bpkr.Data(bpkr.path_features(inputs, [], arch), labels), throw=True)
    return float(saddle.order_parameters.readout)


q = np.array([[renormalisation(n, N) for N in widths] for n in depths])
known = [[brentq(lambda q, n=n, N=N: 1 - q - 60 / N * (1 - r * q**-n), 1e-3, 9) for N in widths] for n in depths]
print(f"deep linear: q differs from the published equation by at most {np.max(np.abs(q / known - 1)):.0e}")

# %% [markdown]
# ## Gated linear networks
#
# The label is the sign of a product of two features, which no linear network learns. Each gate is open on one side of a
# random plane; one more gate is always open. The kernel is $K^0_{\mu\nu}\, g_\mu^\top U g_\nu / n$ for $n$ gates. Its
# matrix $U$ and the scale $u$ of the readout satisfy $N (u^{-1} - U^{-1}) + \partial E / \partial U = 0$.

# %%
points, planes = rng.normal(size=(1100, 1, 4)), rng.normal(size=(16, 4))
signs = np.sign(points[:, 0, 0] * points[:, 0, 1])
counts, gated = (1, 4, 8, 16), []
for count in counts:
    gates = np.concatenate([np.ones((1100, 1)), points[:, 0] @ planes[:count].T > 0], axis=1)
    arch = bpkr.Architecture((count + 1,), 10, temperature=0.05)
    features = bpkr.path_features(points, [gates[:, :, None, None]], arch, layout="keys-first")
    problem = bpkr.Problem(arch, bpkr.Data(features[:100], signs[:100]))
    saddle = bpkr.solve(problem, throw=True)
    means = [bpkr.predict(problem, point, features[100:]).mean for point in (saddle, bpkr.gp_limit(arch))]
    gated.append([round(float(np.mean(np.sign(mean) != signs[100:])), 3) for mean in means])
    U, g = np.asarray(saddle.order_parameters.matrices[0]), gates[:100]
    gram = points[:100, 0] @ points[:100, 0].T / (4 * (count + 1))
    inverse = np.linalg.inv(gram * (g @ U @ g.T) + 0.05 * np.eye(100))
    weights = inverse @ signs[:100]
    force = g.T @ (gram * (inverse - np.outer(weights, weights))) @ g / 10
    apart = np.eye(count + 1) / saddle.order_parameters.readout - np.linalg.inv(U) + force
    print(f"gated, {count} gates: errors {gated[-1]}, the equation for U holds to {np.max(np.abs(apart)):.0e}")

# %% [markdown]
# ## Graph convolutions
#
# The graph has two communities, and the features of a node indicate its community with noise. The heads are
# $A^0, \dots, A^3$ for the normalised adjacency matrix $A$, so head scores show how far the network looks. At infinite
# width the kernel is $\sum_h A^h X X^\top (A^h)^\top / 4N_0$.

# %%
community = np.repeat([1.0, -1.0], 60)
links = np.triu(rng.uniform(size=(120, 120)) < np.where(np.equal.outer(community, community), 0.12, 0.02), 1)
links = links + links.T + np.eye(120)
adjacency = links / np.sqrt(np.outer(links.sum(axis=0), links.sum(axis=0)))
powers = np.stack([np.linalg.matrix_power(adjacency, hop) for hop in range(4)])
known_nodes, arch = rng.permutation(120)[:40], bpkr.Architecture((4,), 20, temperature=0.1)
direction, noise = rng.normal(size=10) / np.sqrt(10), rng.normal(size=(120, 10))
levels, scores = np.linspace(0.25, 3, 8), []
for level in levels:
    nodes = np.outer(community, direction) + level * noise
    nodes /= nodes.std()
    tokens = np.broadcast_to(nodes, (120, 120, 10))
    features = bpkr.path_features(tokens, [powers], arch, np.arange(120), layout="keys-first")
    saddle = bpkr.solve(arch, bpkr.Data(features[known_nodes], community[known_nodes]), throw=True)
    scores.append(np.asarray(bpkr.head_scores(arch, saddle)[0]))
kernel = bpkr.kernel(bpkr.Problem(arch, bpkr.Data(features)), bpkr.gp_limit(arch))
written = np.einsum("hmi,ij,hnj->mn", powers, nodes @ nodes.T, powers) / 40
print(f"graph: the kernel at infinite width differs by {np.max(np.abs(kernel - written)):.0e}")

# %% [markdown]
# ## Convolutions
#
# The heads of both layers shift a signal by 0, 1 and 2 steps. The nine paths have five delays, and at infinite width
# the shares of the delays in the kernel are $(1, 2, 3, 2, 1)/9$. The label depends on the signal three steps ago.

# %%
signals, shifts = rng.normal(size=(60, 8, 12)), np.stack([np.eye(8, k=shift) for shift in range(3)])
targets = signals[:, -4] @ rng.normal(size=12) / np.sqrt(12) + 0.3 * rng.normal(size=60)
delays = np.arange(5)
is_delay = np.add.outer(range(3), range(3)).ravel() == delays[:, None]
arch = bpkr.Architecture((3, 3), 5, temperature=0.1)
features = bpkr.path_features(signals, [shifts, shifts], arch, "last", layout="keys-first")
points = bpkr.solve(arch, bpkr.Data(features, targets), throw=True).order_parameters, bpkr.gp_limit(arch)
by_delay = [np.diag(is_delay @ point.matrices[0] @ is_delay.T) for point in points]
shares = by_delay / np.sum(by_delay, axis=1, keepdims=True)
of_prior = np.array([1, 2, 3, 2, 1]) / 9
print(f"convolutions: shares at infinite width differ by {np.max(np.abs(shares[1] - of_prior)):.0e}")

# %%
with use_style():
    figure, ((deep, gate), (graph, shift)) = plt.subplots(2, 2, figsize=(6.5, 5.2))
    deep.plot(widths, np.transpose(known), label=[f"$n = {depth}$" for depth in depths])
    deep.plot(widths, q.T, "ko", markersize=3)
    deep.set(xscale="log", ylim=(0, 1), xlabel="hidden units $N$", ylabel="factor per layer $q$", title="deep linear")
    deep.legend(title="lines: published; circles: theorykit", ncols=3, loc="lower right")
    styles = (("o-", THEORY, "10 hidden units"), ("s:", LIMITS[0], "infinitely wide"))
    for errors, (fmt, color, label) in zip(np.transpose(gated), styles, strict=True):
        gate.errorbar(counts, errors, np.sqrt(errors * (1 - errors) / 1000), fmt=fmt, color=color, label=label)
    gate.set(xlabel="number of gates", ylabel="share of test errors", title="gated", ylim=(0, None), xticks=counts)
    gate.legend(title="bars: standard errors")
    graph.plot(levels, scores, "o-", markersize=4, label=["0 hops", "1 hop", "2 hops", "3 hops"])
    graph.set(xlabel="noise of the features", ylabel="head score", title="graph", ylim=(0, 1.05))
    graph.legend(ncols=2, loc="lower center")
    shift.plot(delays, shares.T, "o-", markersize=4, label=["5 hidden units", "infinitely wide"])
    shift.set(xlabel="delay, steps (the label: 3)", ylabel="share of the kernel", title="convolutions")
    shift.legend()
    letter_panels(deep, gate, graph, shift)
    save(figure, Path(__file__).with_suffix(".png"))

figure

# %% [markdown]
# ## Conclusion
#
# One action reproduces all four known results. The kernel shrinks in narrow networks (a). Gates make the task solvable
# (b). The noisier its features, the less the network relies on the node itself (c). The narrow network finds the delay
# of the label, and the infinitely wide one keeps its prior (d).
